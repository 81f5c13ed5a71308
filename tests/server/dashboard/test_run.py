"""The page of one run."""

from __future__ import annotations

from tests.scheduler import program
from tests.server.dashboard.visitor import Visitor
from timingwheel.jobs.model import JobState, RunState
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.dashboard.rendering import run_url
from timingwheel.server.serving import HttpServer
from timingwheel.wire.audit import AuditQuery

NEVER = "0 0 1 1 *"


def test_a_run_shows_its_result_its_arguments_and_why_it_ran(
    app: Scheduler, visitor: Visitor
) -> None:
    ref = app.add(program.note.call("tea <b>"), delay=0, name="brew")
    run = app.run(ref).wait("30s")
    shown = visitor.get(run_url(run.id))
    assert shown.by_id("state").text == "succeeded"
    assert shown.by_id("why").text.startswith("It ran: started at")
    assert shown.by_id("result").text.endswith('"TEA <B>"')
    assert '"what": "tea <b>"' in shown.by_id("arguments").text
    (attempt,) = shown.root.all(data_testid="attempt")
    assert "ok" in attempt.text
    assert f"token {app.run(run).attempts()[0].token}" in attempt.text
    assert run.id in shown.by_id("facts").text
    assert shown.root.all("form", action=f"{run_url(run.id)}/retry") == []


def test_a_failed_run_shows_each_attempt_and_runs_again(
    server: HttpServer, app: Scheduler, visitor: Visitor
) -> None:
    ref = app.add(program.fail.call(1), cron=NEVER, retry=1, name="n")
    handle = app.trigger(ref)
    handle.wait("30s")
    url = run_url(handle.id)
    shown = visitor.get(url)
    assert shown.by_id("state").text == "failed"
    assert "the 1. failure" in shown.by_id("error").text
    again = visitor.send(shown, f"{url}/retry")
    assert again.said == "It runs again, as the same run."
    assert handle.wait("30s").state is RunState.SUCCEEDED
    assert len(visitor.get(url).root.all(data_testid="attempt")) == 2
    refused = visitor.http.post(
        f"{url}/retry", data={"csrf": shown.form(f"{url}/retry").fields()["csrf"]}
    )
    assert refused.status_code == 409
    late, done = server.audit.entries(AuditQuery())
    assert (done.operation, done.target, done.outcome) == (
        *("retry_run", handle.id),
        "done",
    )
    assert (late.outcome, late.problem, late.via) == ("refused", "run-state", "page")


def test_a_dead_run_is_discarded(app: Scheduler, visitor: Visitor) -> None:
    handle = app.run(app.add(program.fail.call(1), delay=0, retry=1))
    handle.wait("30s")
    url = run_url(handle.id)
    shown = visitor.send(visitor.get(url), f"{url}/discard")
    assert "discarded" in shown.root.one("h1").text
    assert handle.get().discarded


def test_what_waits_is_cancelled(app: Scheduler, visitor: Visitor) -> None:
    ref = app.add(program.note.call("x"), delay="1h")
    url = run_url(app.run(ref).id)
    shown = visitor.send(visitor.get(url), f"{url}/cancel")
    assert shown.said == "Cancelled: it never starts."
    assert shown.by_id("state").text == "cancelled"


def test_a_run_that_is_not_over_is_shown_anew_by_its_own_address(
    app: Scheduler, visitor: Visitor
) -> None:
    """An id holds an @ and a #, which are quoted once."""
    ref = app.add(program.note.call("later"), delay="1h")
    app.pause(app.queue(app.run(ref).get().queue))
    run = app.trigger(ref)
    assert run.id.endswith("#1")
    live = visitor.get(run_url(run.id)).root.one(id="run")
    part = visitor.http.get(live.attributes["hx-get"], headers={"hx-request": "true"})
    assert part.status_code == 200
    assert "ready" in part.text


def test_one_run_of_a_job_that_recurs_is_cancelled_and_the_job_goes_on(
    app: Scheduler, visitor: Visitor
) -> None:
    ref = app.add(program.note.call("x"), cron=NEVER, name="n")
    app.pause(app.queue("default"))
    url = run_url(app.trigger(ref).id)
    assert visitor.send(visitor.get(url), f"{url}/cancel").said.startswith("Cancelled")
    assert app.job(ref).state is JobState.ACTIVE


def test_an_attempt_that_goes_on_is_asked_to_end(
    app: Scheduler, visitor: Visitor
) -> None:
    door = program.log.door("d")
    handle = app.run(app.add(program.held.call("d"), delay=0))
    door.await_somebody()
    url = run_url(handle.id)
    shown = visitor.get(url)
    assert shown.by_id("state").text == "running"
    assert shown.root.one(data_testid="attempt").text.startswith("1 running")
    assert (
        visitor.send(shown, f"{url}/cancel").said
        == "It runs and has been asked to end."
    )
    door.open()
    handle.wait("30s")


def test_a_run_that_is_not_there_is_told(visitor: Visitor) -> None:
    unknown = "00000000-0000-8000-8000-000000000002@5"
    assert "no such run" in visitor.get(f"/runs/{unknown}", status=404).root.text
