"""The page Overview: numbers, charts, what somebody should know."""

from __future__ import annotations

from tests.scheduler import program
from tests.server.dashboard.visitor import Visitor
from timingwheel.scheduler.scheduler import Scheduler

LOOKS_MAX = 10_000


def test_an_empty_store_says_so(visitor: Visitor) -> None:
    page = visitor.get("/")
    assert page.by_id("figure-dead-letter").one("dd").text == "0"
    assert "Nothing has run yet" in page.by_id("last-ended").text
    assert not page.root.all(data_testid="alerts")


def test_runs_that_ended_are_listed_with_a_link(
    visitor: Visitor, app: Scheduler
) -> None:
    handle = app.run(app.schedule(program.note.call("tea"), 0))
    handle.wait("30s")
    row = visitor.get("/").by_id("last-ended").all("tr")[1]
    assert "succeeded" in row.text
    assert row.all("a")[0].attributes["href"] == f"/runs/{handle.id}"


def test_what_somebody_should_know_stands_first(
    visitor: Visitor, app: Scheduler
) -> None:
    app.queue("mail").pause(note="moving")
    ref = app.add(program.note.call("x"), cron="0 0 1 1 *", name="yearly")
    app.pause(ref.id)
    for _ in range(LOOKS_MAX):  # counts are read once a second
        alerts = visitor.get("/").by_id("alerts").text
        if "1 job is paused." in alerts:
            break
    assert "1 job is paused." in alerts
    assert "Paused queues: mail." in alerts


def test_the_part_that_is_live_comes_alone(visitor: Visitor) -> None:
    whole = visitor.get("/")
    live = whole.root.one(id="overview")
    assert live.attributes["hx-trigger"] == "live from:body"
    part = visitor.http.get(live.attributes["hx-get"], headers={"hx-request": "true"})
    assert "<html" not in part.text
    assert "Dispatch lag" in part.text
