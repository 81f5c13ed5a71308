"""The page Queues."""

from __future__ import annotations

from tests.scheduler import program
from tests.server.dashboard.visitor import Visitor
from timingwheel.scheduler.scheduler import Scheduler


def test_a_queue_shows_what_waits_and_its_bounds(
    app: Scheduler, visitor: Visitor
) -> None:
    assert "No queue has been used yet" in visitor.get("/queues").by_id("empty").text
    app.queue("bulk").set(limit=2, rate=0.5)
    app.pause(app.queue("bulk"), note="full", actor="ann")
    for _ in range(3):
        app.add(program.note.call("x"), delay=0, queue="bulk")
    app.run(app.add(program.note.call("x"), delay=0)).wait("30s")
    row = visitor.get("/queues").by_id("queue-bulk")
    assert [cell.text for cell in row.all("td")][:6] == [
        "paused",
        "3",
        "0",
        "",
        *["2", "0.5"],
    ]
    assert "full · ann" in row.text


def test_the_bounds_of_a_queue_are_set_and_taken_away(
    app: Scheduler, visitor: Visitor
) -> None:
    page = "/queues?queue=bulk%2F%C3%BC"
    shown = visitor.send(visitor.get(page), "/queues/set", limit="3", rate="0.5")
    assert shown.said == "The bounds of bulk/ü are set."
    queue = app.queue("bulk/ü").get()
    assert (queue.limit, queue.rate) == (3, 0.5)
    again = visitor.send(shown, "/queues/set", limit="", rate="2")
    assert "bulk/ü" in again.said
    queue = app.queue("bulk/ü").get()
    assert (queue.limit, queue.rate) == (None, 2)


def test_a_bound_that_cannot_be_meant_is_told_at_its_field(
    app: Scheduler, visitor: Visitor
) -> None:
    page = visitor.get("/queues?queue=bulk")
    for limit, rate, field in (
        ("x", "2", "limit"),
        ("0", "2", "limit"),
        ("1", "-1", "rate"),
    ):
        shown = visitor.send(page, "/queues/set", limit=limit, rate=rate, status=422)
        assert shown.root.one(id=f"e-{field}").text
        # Nothing of what was typed is lost, and nothing is set.
        assert shown.root.one(id="f-limit").attributes["value"] == limit
        assert shown.root.one(id="f-rate").attributes["value"] == rate
        assert app.queues() == []


def test_a_queue_is_paused_with_a_note_and_resumed(
    app: Scheduler, visitor: Visitor
) -> None:
    page = visitor.get("/queues?queue=bulk")
    shown = visitor.send(
        page,
        "/queues/pause",
        note="provider down",
        until="2020-01-01T00:00",
        status=422,
    )
    assert shown.root.one(id="e-until").text
    assert shown.root.one(id="f-note").attributes["value"] == "provider down"
    visitor.send(page, "/queues/pause", note="provider down")
    pause = app.queue("bulk").get().pause
    assert pause is not None
    assert pause.note == "provider down"
    paused = visitor.get("/queues?queue=bulk")
    assert "provider down" in paused.by_id("paused").text
    csrf = paused.root.all("form", action="/queues/resume")[0].fields()
    visitor.http.post("/queues/resume", data=csrf)
    assert app.queue("bulk").get().pause is None
