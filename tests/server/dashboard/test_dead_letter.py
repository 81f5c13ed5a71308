"""The page Dead letter: one run, many, all that match; and with other arguments."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from tests.scheduler import program
from tests.scheduler.test_secrets import SECRET, connect
from tests.server.dashboard.visitor import Shown, Visitor
from timingwheel.jobs.model import RunState
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.secrets import MASK
from timingwheel.scheduler.tasks import TaskRegistry
from timingwheel.server.dashboard.rendering import run_url
from timingwheel.server.serving import HttpServer

NEVER = "0 0 1 1 *"
FAILS = program.fail.call(1_000_000)


def dead(app: Scheduler, count: int, **options: str) -> list[str]:
    refs = [app.add(FAILS, delay=0, retry=1, **options) for _ in range(count)]  # type: ignore[arg-type]
    return [app.run(ref).wait("30s").id for ref in refs]


def listed(shown: Shown) -> set[str]:
    boxes = shown.root.all("input", name="run")
    return {box.attributes["value"] for box in boxes}


def send(visitor: Visitor, action: str, runs: list[str], **fields: str) -> Shown:
    form = visitor.get("/dead-letter").root.one("form", id="bulk")
    data = {**form.fields(), **fields, "run": runs}
    answer = visitor.http.post(f"/dead-letter/{action}", data=data)
    assert answer.status_code == 200, answer.text
    return Shown(answer)


def test_ticked_runs_are_retried_or_discarded_and_it_is_said_how_many(
    app: Scheduler, visitor: Visitor
) -> None:
    runs = dead(app, 4)
    shown = visitor.get("/dead-letter")
    assert listed(shown) == set(runs)
    assert "failure" in shown.root.all("tr", data_testid="dead")[0].text
    assert send(visitor, "discard", runs[:2]).said == "2 runs discarded."
    assert listed(visitor.get("/dead-letter")) == set(runs[2:])
    program.log.calls.extend([""] * 1_000_000)  # from now on it succeeds
    assert send(visitor, "retry", runs[3:]).said == "1 run made ready again."
    assert app.run(runs[3]).wait("30s").state is RunState.SUCCEEDED
    said = send(visitor, "discard", runs[2:]).said
    assert said == "1 run discarded. 1 run had left the list by then."
    assert "Nothing has failed for good" in visitor.get("/dead-letter").root.text


def test_who_ticks_nothing_changes_nothing(app: Scheduler, visitor: Visitor) -> None:
    runs = dead(app, 1)
    said = send(visitor, "discard", []).said
    assert said == "No run was chosen: tick some first."
    assert listed(visitor.get("/dead-letter")) == set(runs)


def test_all_that_match_are_meant_and_no_others(
    app: Scheduler, visitor: Visitor
) -> None:
    bulk, other = dead(app, 3, queue="bulk"), dead(app, 1)
    shown = visitor.get("/dead-letter?queue=bulk")
    assert listed(shown) == set(bulk)
    data = {**shown.root.one("form", id="bulk").fields(), "which": "all"}
    said = Shown(visitor.http.post("/dead-letter/discard", data=data)).said
    assert said == "3 runs discarded."
    assert listed(visitor.get("/dead-letter")) == set(other)
    # An invalid filter must not mean everything.
    wrong = visitor.http.post("/dead-letter/discard", data=data | {"tag": "bi"})
    assert wrong.status_code == 422
    assert listed(visitor.get("/dead-letter")) == set(other)


def test_a_dead_run_runs_again_with_other_arguments(
    app: Scheduler, visitor: Visitor
) -> None:
    ref = app.add(
        program.fail.call(1),
        cron=NEVER,
        name="n",
        retry=1,
        queue="bulk",
        priority=3,
        tags={"team": "bi"},
    )
    run_id = app.trigger(ref).wait("30s").id
    program.log.clear()
    url = f"/dead-letter/{quote(run_id, safe='')}/edit"
    shown = visitor.get(url)
    assert '"times": 1' in shown.root.one(id="f-args").text
    for typed, words in (
        ("{", "pass an object as json"),
        ('{"wat": 1}', "wat"),
        ("[1]", "pass an object as json"),
    ):
        wrong = visitor.send(shown, url, args=typed, status=422)
        assert words in wrong.root.one(id="e-args").text.lower()
        assert wrong.root.one(id="f-args").text == typed
    assert len(app.jobs()) == 1
    csrf = shown.form(url).fields()["csrf"]
    answer = visitor.http.post(
        url, data={"csrf": csrf, "args": '{"times": 0}'}, follow_redirects=False
    )
    assert answer.status_code == 303
    made = app.job(answer.headers["location"].rpartition("/")[2])
    assert app.run(made.id).wait("30s").state is RunState.SUCCEEDED
    assert (made.queue, made.priority, made.tags) == ("bulk", 3, {"team": "bi"})
    assert made.policy.retry.attempts == 1
    assert app.run(run_id).get().discarded
    # The job that recurs keeps its arguments, and the run is dead no more.
    assert app.job("n").payload == program.fail.call(1).payload
    assert "of the dead letter" in visitor.get(url, status=409).root.text
    assert visitor.get(run_url(run_id)).by_id("state").text == "failed"


def test_secrets_are_kept_and_never_shown_when_arguments_are_edited() -> None:
    """The server knows no task here, as most servers of workers do not."""
    scheduler = Scheduler(":memory:", tasks=TaskRegistry())
    with HttpServer(scheduler, port=0) as server, Visitor(server.url) as visitor:
        worker = server.hub.join("far", 3_600 * 10**9)
        at = f"/api/v1/workers/{worker}"

        def claimed() -> Any:
            asked = {"tasks": [connect.name], "wait": 30}
            (claim,) = visitor.http.post(f"{at}/claims", json=asked).json()["items"]
            return claim

        ref = scheduler.add(connect.call("db", SECRET), delay=0, retry=1)
        claim = claimed()
        end = {"run_id": claim["run"]["id"], "token": claim["token"]}
        visitor.http.post(f"{at}/ends", json={"ends": [end | {"outcome": "error"}]})
        run = scheduler.run(ref).wait("30s")
        assert run.state is RunState.FAILED
        url = f"/dead-letter/{quote(run.id, safe='')}/edit"
        shown = visitor.get(url)
        page = visitor.get(run_url(run.id))
        for text in (shown.response.text, page.response.text):
            assert SECRET not in text
            assert MASK in text
        args = shown.root.one(id="f-args").text.replace('"db"', '"db2"')
        csrf = shown.form(url).fields()["csrf"]
        data = {"csrf": csrf, "args": args}
        answer = visitor.http.post(url, data=data, follow_redirects=False)
        assert answer.status_code == 303
        again = claimed()
        assert again["args"] == {"host": "db2", "password": SECRET}
        made = scheduler.job(again["run"]["job_id"])
        assert made.payload.secret == ("password",)
