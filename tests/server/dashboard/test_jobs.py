"""The page Jobs: what is listed, found and paged."""

from __future__ import annotations

import pytest

from tests.scheduler import program
from tests.server.dashboard.visitor import Shown, Visitor
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.dashboard.jobs import ROWS

YEARLY = "0 0 1 1 *"


def names(page: Shown) -> list[str]:
    if page.root.all(data_testid="empty"):
        return []
    rows = page.by_id("jobs").all("tr")[1:]
    return [row.all("th")[0].text for row in rows]


@pytest.fixture
def three(app: Scheduler) -> Scheduler:
    call = program.note.call("x")
    app.add(call, cron=YEARLY, name="Nightly north", tags={"team": "bi"})
    app.add(call, cron=YEARLY, name="nightly south", queue="slow")
    app.pause(app.add(call, cron=YEARLY, name="weekly").id)
    app.schedule(program.note.call("once"), "1h")
    return app


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("search=NIGHT", {"Nightly north", "nightly south"}),
        ("search=north", {"Nightly north"}),
        ("state=paused", {"weekly"}),
        ("queue=slow", {"nightly south"}),
        ("tag=team:bi", {"Nightly north"}),
        ("search=nothing", set()),
        ("state=active&search=weekly", set()),
    ],
)
def test_jobs_are_found(
    three: Scheduler, visitor: Visitor, query: str, found: set[str]
) -> None:
    assert set(names(visitor.get(f"/jobs?{query}"))) == found


def test_filters_stand_in_the_form_as_they_were_set(visitor: Visitor) -> None:
    page = visitor.get("/jobs?search=a%22b&state=paused&tag=team:bi")
    form = page.root.one("form", action="/jobs")
    assert form.fields() == {
        "search": 'a"b',
        "state": "paused",
        "task": "",
        "queue": "",
        "tag": "team:bi",
    }


def test_a_filter_that_cannot_be_meant_is_told(visitor: Visitor) -> None:
    page = visitor.get("/jobs?tag=team", status=422)
    assert "word:value" in page.by_id("form-error").text


def test_pages_follow_each_other_and_keep_the_filters(
    app: Scheduler, visitor: Visitor
) -> None:
    for n in range(ROWS + 3):
        app.add(program.note.call("x"), cron=YEARLY, name=f"job {n:03}")
    first = visitor.get("/jobs?search=job")
    following = first.root.one("a", rel="next").attributes["href"]
    assert "search=job" in following
    second = visitor.get(following)
    assert len(names(first)) == ROWS
    assert len({*names(first), *names(second)}) == ROWS + 3
    assert not second.root.all("a", rel="next")


def test_a_name_is_text_and_never_markup(app: Scheduler, visitor: Visitor) -> None:
    evil = "<script>alert(1)</script>"
    app.add(program.note.call("x"), cron=YEARLY, name=evil)
    page = visitor.get("/jobs")
    assert names(page) == [evil]
    assert not [one for one in page.root.all("script") if one.text]
