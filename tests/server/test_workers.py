"""Workers that work from afar, as any language would speak to the server."""

from __future__ import annotations

import runpy
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.scheduler import program
from timingwheel.client.client import Client
from timingwheel.jobs.model import RunState
from timingwheel.jobs.store import CancelResult
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.tasks import NamedTask
from timingwheel.server.operations import API_PATH
from timingwheel.server.serving import HttpServer

SEND = NamedTask("mail:send")
RUN = "00000000-0000-8000-8000-000000000002@5"
END = {"run_id": RUN, "token": 1, "outcome": "ok"}


@pytest.fixture
def app(server: HttpServer) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


class Worker:
    """A worker, one request a method."""

    def __init__(self, http: httpx.Client, ttl: str = "15s") -> None:
        self.http = http
        joined = http.post("/workers", json={"name": "far", "ttl": ttl}).json()
        self.id = joined["id"]
        assert joined["beat_ns"] == min(joined["ttl_ns"] // 3, 5 * 10**9)

    def post(self, what: str, body: Any) -> httpx.Response:
        return self.http.post(f"/workers/{self.id}/{what}", json=body)

    def claim(self, *, wait: float = 30, count: int = 1) -> list[Any]:
        body = {"tasks": ["mail:send"], "wait": wait, "count": count}
        answer = self.post("claims", body)
        assert answer.status_code == 200, answer.text
        found: list[Any] = answer.json()["items"]
        return found

    def beat(self, *tokens: int) -> list[Any]:
        answer = self.post("beat", {"tokens": tokens})
        assert answer.status_code == 200, answer.text
        found: list[Any] = answer.json()["requests"]
        return found

    def end(self, claim: Any, outcome: str = "ok", **more: Any) -> str:
        end = {"run_id": claim["run"]["id"], "token": claim["token"]}
        answer = self.post("ends", {"ends": [end | {"outcome": outcome} | more]})
        assert answer.status_code == 200, answer.text
        (verdict,) = answer.json()["items"]
        return str(verdict)


@pytest.fixture
def worker(http: httpx.Client) -> Worker:
    return Worker(http)


def test_who_works_from_afar_is_known_with_what_it_has_in_hand(
    server: HttpServer, app: Client, worker: Worker
) -> None:
    hub = server.hub
    (joined,) = hub.workers()
    assert (joined.id, joined.name, joined.in_hand) == (worker.id, "far", 0)
    assert joined.joined_ns == joined.beat_ns
    app.add(SEND.call(to="ada"), delay=0)
    (claim,) = worker.claim()
    worker.beat(claim["token"])
    (busy,) = hub.workers()
    assert busy.in_hand == 1
    assert busy.beat_ns > joined.beat_ns
    worker.http.delete(f"/workers/{worker.id}")
    assert hub.workers() == []


def test_a_run_is_claimed_and_its_result_arrives(app: Client, worker: Worker) -> None:
    ref = app.add(SEND.call(to="ada", n=2), delay=0)
    (claim,) = worker.claim()
    assert claim["args"] == {"to": "ada", "n": 2}
    assert claim["run"]["job_id"] == ref.id
    assert (claim["run"]["attempts"], claim["last"]) == (1, False)
    assert [one.name for one in app.workers()] == [worker.id]
    assert worker.end(claim, value={"sent": True}, log="done") == "accepted"
    assert app.run(ref).result("30s") == {"sent": True}


def test_an_end_that_is_told_twice_is_accepted_twice(
    app: Client, worker: Worker
) -> None:
    ref = app.add(SEND.call(), delay=0)
    (claim,) = worker.claim()
    assert worker.end(claim, value=1) == "accepted"
    assert worker.end(claim, value=2) == "accepted"
    assert app.run(ref).result("30s") == 1
    counted = app.snapshot_metrics()
    assert (counted.runs["ok"], counted.lease_losses) == (1, 0)
    stranger = claim | {"token": claim["token"] + 1}
    assert worker.end(stranger) == "lease_lost"


def test_what_was_never_begun_is_given_back_whatever_its_delivery(
    app: Client, http: httpx.Client, worker: Worker
) -> None:
    ref = app.add(SEND.call(), delay=0, delivery="at_most_once", retry=1)
    (claim,) = worker.claim()
    assert Worker(http).end(claim, "shutdown", begun=False) == "accepted"
    assert app.run(ref).get().state is RunState.RUNNING  # it was not the other's
    assert worker.end(claim, "shutdown", begun=False) == "accepted"
    (again,) = worker.claim()
    assert (again["run"]["id"], again["run"]["attempts"]) == (claim["run"]["id"], 1)
    assert worker.end(claim, value=1) == "lease_lost"
    assert worker.end(again, value=2) == "accepted"


def test_a_worker_that_drains_is_answered_at_once_and_gets_nothing(
    app: Client, worker: Worker
) -> None:
    claims: list[Any] = [None]
    waiting = threading.Thread(target=lambda: claims.extend(worker.claim(wait=60)))
    waiting.start()
    worker.post("beat", {"tokens": [], "drain": True})
    waiting.join(30)
    assert claims == [None]
    app.add(SEND.call(), delay=0)
    assert worker.claim(wait=0.5) == []


def test_a_worker_gets_runs_of_the_queues_that_it_names(
    app: Client, worker: Worker
) -> None:
    app.add(SEND.call(), delay=0, queue="other")
    mail = app.add(SEND.call(), delay=0, queue="mail")
    body = {"tasks": ["mail:send"], "wait": 30, "count": 5, "queues": ["mail"]}
    found = worker.post("claims", body).json()["items"]
    assert [claim["run"]["job_id"] for claim in found] == [mail.id]


def test_a_claim_is_held_until_something_is_ready(app: Client, worker: Worker) -> None:
    claims: list[Any] = []
    waiting = threading.Thread(target=lambda: claims.extend(worker.claim(wait=60)))
    waiting.start()
    ref = app.add(SEND.call(), delay="50ms")
    waiting.join(30)
    assert [claim["run"]["job_id"] for claim in claims] == [ref.id]


def test_a_claim_for_which_nothing_comes_returns_empty(worker: Worker) -> None:
    assert worker.claim(wait=0) == []


def test_a_worker_gets_no_more_than_it_can_start(app: Client, worker: Worker) -> None:
    runs = [app.run(app.add(SEND.call(), delay=0)).id for _ in range(3)]
    found = worker.claim(count=2)
    while len(found) < 2:
        found += worker.claim(count=2 - len(found))
    assert {claim["run"]["id"] for claim in found} < set(runs)


def test_an_error_is_tried_again_and_a_shutdown_uses_up_no_attempt(
    app: Client, worker: Worker
) -> None:
    ref = app.add(SEND.call(), delay=0, retry=1)
    (claim,) = worker.claim()
    assert worker.end(claim, "shutdown") == "accepted"
    (claim,) = worker.claim()
    assert claim["last"]
    assert worker.end(claim, "error", error="ValueError: no") == "accepted"
    run = app.run(ref).wait("30s")
    assert (run.state, run.error) == (RunState.FAILED, "ValueError: no")


def test_follow_ups_are_made_with_the_success(app: Client, worker: Worker) -> None:
    app.add(SEND.call(), delay=0)
    (claim,) = worker.claim()
    later = {"task": program.note.name, "args": {"what": "next"}, "key": "k"}
    assert worker.end(claim, follow_ups=[later]) == "accepted"
    (job,) = app.jobs(task=program.note)
    assert app.run(job.id).result("30s") == "NEXT"


def test_a_cancel_reaches_the_worker_with_its_next_beat(
    app: Client, worker: Worker
) -> None:
    ref = app.add(SEND.call(), delay=0)
    (claim,) = worker.claim()
    assert worker.beat(claim["token"]) == []
    assert app.cancel(ref, running="signal") is CancelResult.REQUESTED
    requests: list[Any] = []
    while not requests:  # the node passes it on in its next turn
        requests = worker.beat(claim["token"])
    assert requests == worker.beat(claim["token"])
    assert requests[0]["token"] == claim["token"]
    assert worker.end(claim, "cancelled") == "accepted"
    assert app.run(claim["run"]["id"]).wait("30s").state is RunState.CANCELLED
    assert worker.beat() == []


def test_a_claim_whose_answer_was_lost_is_given_back(
    app: Client, worker: Worker
) -> None:
    app.add(SEND.call(), delay=0)
    (lost,) = worker.claim()
    worker.beat()
    worker.beat()
    (claim,) = worker.claim()
    assert claim["run"]["id"] == lost["run"]["id"]
    assert claim["token"] > lost["token"]
    assert worker.end(lost) == "lease_lost"
    assert worker.end(claim) == "accepted"


def test_a_worker_that_is_silent_loses_its_run_to_another(
    app: Client, http: httpx.Client
) -> None:
    silent, other = Worker(http, ttl="3s"), Worker(http)
    ref = app.add(SEND.call(), delay=0, retry=5)
    (first,) = silent.claim()
    again = other.claim(wait=60)
    assert [claim["run"]["job_id"] for claim in again] == [ref.id]
    assert again[0]["token"] > first["token"]
    assert silent.end(first) == "lease_lost"
    assert silent.post("beat", {"tokens": []}).status_code == 404
    refused = silent.post("claims", {"tasks": ["mail:send"]}).json()
    assert refused["code"] == "unknown-worker"
    assert "join" in refused["detail"]
    assert other.end(again[0], value=1) == "accepted"
    assert app.run(ref).result("30s") == 1


def test_what_a_worker_leaves_goes_to_another(app: Client, http: httpx.Client) -> None:
    first, other = Worker(http), Worker(http)
    app.add(SEND.call(), delay=0, retry=5)
    first.claim()
    assert http.delete(f"/workers/{first.id}").json() == {"changed": True}
    assert len(other.claim()) == 1
    assert http.delete(f"/workers/{first.id}").status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/workers", {"name": "", "ttl": "15s"}, "name"),
        ("/workers", {"name": "x", "ttl": "1ms"}, "ttl"),
        ("/workers/{id}/claims", {"tasks": [], "wait": 1e9}, "wait"),
        ("/workers/{id}/claims", {"tasks": [], "count": 0}, "count"),
        ("/workers/{id}/ends", {"ends": [{"run_id": "x"}]}, "ends[0].token"),
        ("/workers/{id}/ends", {"ends": [END, END | {"run_id": ""}]}, "ends[1].run_id"),
        ("/workers/{id}/ends", {"ends": [END | {"value": 10**30}]}, "ends[0].value"),
        (
            "/workers/{id}/ends",
            {"ends": [END | {"started_ns": 10**30}]},
            "ends[0].started_ns",
        ),
        (
            "/workers/{id}/ends",
            {"ends": [END | {"follow_ups": [{"task": "", "delay": 0}]}]},
            "ends[0].follow_ups[0].task",
        ),
    ],
)
def test_what_a_worker_cannot_mean_is_named(
    http: httpx.Client, worker: Worker, path: str, body: Any, field: str
) -> None:
    answer = http.post(path.format(id=worker.id), json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, field)


def test_after_a_restart_workers_join_again_and_late_ends_are_refused(
    tmp_path: Any,
) -> None:
    data = str(tmp_path / "data")
    with (
        HttpServer(Scheduler(data), port=0) as server,
        httpx.Client(base_url=server.url + API_PATH, timeout=30) as http,
        Client(server.url) as app,
    ):
        ref = app.add(SEND.call(), delay=0, retry=5)
        (old,) = Worker(http).claim()
    with (
        HttpServer(Scheduler(data), port=0) as server,
        httpx.Client(base_url=server.url + API_PATH, timeout=30) as http,
        Client(server.url) as app,
    ):
        worker = Worker(http)
        (claim,) = worker.claim()
        assert claim["run"]["job_id"] == ref.id
        assert worker.end(old) == "lease_lost"
        assert worker.end(claim, value="late") == "accepted"
        assert app.run(ref).result("30s") == "late"


def test_the_worker_of_the_example_runs_what_it_knows(
    app: Client, server: HttpServer
) -> None:
    place = Path(__file__).resolve().parents[2] / "docs/examples/far_worker.py"
    far_worker = runpy.run_path(str(place))["FarWorker"](server.url)
    ref = app.add(NamedTask("demo:greet").call(name="ada"), delay=0)
    far_worker.work(runs=1)
    assert app.run(ref).result("30s") == "hello, ada"
