"""The page Runs, and what its filters mean."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.scheduler import program
from tests.server.dashboard.visitor import Shown, Visitor
from timingwheel.jobs.model import RunState
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.dashboard.run_rows import ROWS, may_be_live

NEVER = "0 0 1 1 *"


def ended(app: Scheduler, ref: object) -> str:
    return app.run(ref).wait("30s").id  # type: ignore[arg-type]


def rows(shown: Shown) -> list[str]:
    return [row.text for row in shown.root.all("tr", data_testid="run")]


def test_runs_are_shown_with_what_came_of_them(
    app: Scheduler, visitor: Visitor
) -> None:
    ended(app, app.add(program.note.call("tea"), delay=0))
    ended(app, app.add(program.fail.call(9), delay=0, retry=1, queue="bulk"))
    app.add(program.note.call("later"), delay="1h")
    shown = visitor.get("/runs")
    failed, note = sorted(rows(shown))
    assert "failed" in failed
    assert "the 2. failure" in failed
    assert "bulk" in failed
    assert "succeeded" in note
    # What is planned is the future: it is shown to who asks for it.
    assert len(rows(visitor.get("/runs?state=any"))) == 3
    assert ["planned" in row for row in rows(visitor.get("/runs?state=planned"))] == [
        True
    ]


def test_runs_are_found_by_what_they_have(app: Scheduler, visitor: Visitor) -> None:
    call = program.note.call("x")
    first = app.add(call, cron=NEVER, name="first", tags={"team": "bi"}, queue="bulk")
    second = app.add(call, cron=NEVER, name="second")
    for ref in (first, second):
        app.trigger(ref).wait("30s")
    for query in ("job=first", "tag=team:bi", "queue=bulk", f"job={first.id}"):
        assert [row[:5] for row in rows(visitor.get(f"/runs?{query}"))] == ["first"]
    assert len(rows(visitor.get(f"/runs?task={program.note.name}"))) == 2
    assert rows(visitor.get("/runs?state=failed")) == []
    past = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M")
    assert len(rows(visitor.get(f"/runs?since={past}"))) == 2
    assert rows(visitor.get(f"/runs?until={past}")) == []
    # Without an offset it is the visitor's clock.
    visitor.send(visitor.get("/runs"), "/zone", zone="Asia/Tokyo")
    assert rows(visitor.get(f"/runs?until={past}")) == []
    later = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M")
    assert rows(visitor.get(f"/runs?since={later}")) != []


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("state=wat", "retrying"),
        ("job=nope", "no such job"),
        ("tag=bi", "word:value"),
        ("since=soon", "such as 2026-11-30 09:00"),
    ],
)
def test_a_filter_that_cannot_be_meant_is_told(
    visitor: Visitor, query: str, words: str
) -> None:
    shown = visitor.get(f"/runs?{query}", status=422)
    assert words in shown.by_id("filter-error").text
    assert rows(shown) == []


def test_pages_follow_each_other(app: Scheduler, visitor: Visitor) -> None:
    ref = app.add(program.note.call("x"), cron=NEVER, name="n")
    for handle in [app.trigger(ref) for _ in range(ROWS + 3)]:
        handle.wait("30s")
    first = visitor.get("/runs?job=n")
    assert len(rows(first)) == ROWS
    rest = visitor.get(first.root.one("a", rel="next").attributes["href"])
    assert len(rows(rest)) == 3
    assert rest.root.all("a", rel="next") == []
    # A later page stands still; the first is asked for anew when something happens.
    assert "data-live" in first.root.one("body").attributes
    assert "data-live" not in rest.root.one("body").attributes


_SO_FAR = frozenset(RunState) - {RunState.PLANNED}


@pytest.mark.parametrize(
    ("state", "is_live"),
    [
        (_SO_FAR, True),  # it passes by what is planned
        ("running", True),
        ("planned", False),
        (None, False),
    ],
)
def test_a_list_that_looks_at_too_much_that_is_planned_stands_still(
    app: Scheduler, state: object, is_live: bool
) -> None:
    for _ in range(4):
        app.add(program.note.call("x"), delay="1h")
    assert may_be_live(app, state)
    assert may_be_live(app, state, rows_max=4)
    assert may_be_live(app, state, rows_max=3) is is_live


def test_a_list_that_looks_at_too_much_that_waits_stands_still(
    app: Scheduler, visitor: Visitor
) -> None:
    app.queue("bulk").pause()
    for _ in range(4):
        app.add(program.note.call("x"), delay=0, queue="bulk")
    while len(rows(visitor.get("/runs"))) < 4:
        pass
    assert may_be_live(app, _SO_FAR, rows_max=4)
    assert not may_be_live(app, _SO_FAR, rows_max=3)
    assert may_be_live(app, "planned", rows_max=3)


def test_a_short_list_is_shown_anew_when_something_happens(visitor: Visitor) -> None:
    assert "hx-get" in visitor.get("/runs").root.one(id="rows").attributes
