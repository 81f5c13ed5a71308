"""Several servers on one database: each shows the same, and none is needed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.postgres import Postgres
from tests.scheduler import program
from tests.server.dashboard.visitor import Visitor
from tests.server.process import served
from tests.server.test_workers import SEND, Worker
from tests.worker.test_worker import until
from timingwheel.client.client import Client
from timingwheel.errors import ArgumentError
from timingwheel.jobs.errors import NoStoreError
from timingwheel.jobs.model import RunState
from timingwheel.jobs.store import CancelResult
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.audit import AuditBook, AuditError
from timingwheel.server.audit_database import AuditTable
from timingwheel.server.operations import API_PATH
from timingwheel.server.serving import HttpServer
from timingwheel.server.starting import make_server, make_store, token_book
from timingwheel.stores.postgres.schema import VERSION
from timingwheel.stores.postgres.store import PostgresStore
from timingwheel.testing import ManualClock
from timingwheel.wire.audit import AuditEntry, AuditQuery
from timingwheel.wire.problems import AccessError


@pytest.fixture
def where(postgres: Postgres) -> str:
    return postgres.new_schema()


@pytest.fixture
def servers(where: str) -> Iterator[list[HttpServer]]:
    """Two servers of one database; only the second has tasks."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(make_server(where, port=0, tasks=tasks))
            for tasks in (None, program.app.tasks)
        ]


def api(url: str) -> httpx.Client:
    return httpx.Client(base_url=url + API_PATH, timeout=30)


def test_a_server_hears_hints_as_it_is_told_to(where: str) -> None:
    with pytest.raises(ArgumentError, match="hints"):
        make_server(where, hints="loudly")
    for hints, is_heard in (("off", False), (None, True)):
        with make_server(where, port=0, hints=hints) as server:
            store = server._scheduler.desk.store
            assert isinstance(store, PostgresStore)
            assert store._hints._is_on is is_heard


def test_what_one_server_is_told_another_does_and_both_show(
    servers: list[HttpServer],
) -> None:
    first, second = servers
    with Client(first.url) as near, Client(second.url) as far:
        ref = near.add(program.note.call("tea"), delay=0)
        assert near.run(ref).wait("30s").state is RunState.SUCCEEDED
        assert far.run(ref).get().state is RunState.SUCCEEDED
        near.queue("mail").set(limit=3)
        assert far.queue("mail").get().limit == 3
        # A server shows all that it was told; of another what that has written by then.
        assert [one.operation for one in near.audit(operation="add_job")] == ["add_job"]
        told = [one.operation for one in far.audit()]
        assert told == ["set_queue", "add_job"]


@pytest.mark.parametrize("path", ["/", "/jobs", "/runs", "/dead-letter", "/queues"])
def test_pages_are_there_on_a_database_as_well(
    servers: list[HttpServer], path: str
) -> None:
    with Visitor(servers[0].url) as visitor:
        visitor.get(path)


def test_other_pages_are_there_on_a_database_as_well(servers: list[HttpServer]) -> None:
    with Client(servers[0].url) as near:
        ref = near.add(program.note.call("tea"), every="1h")
        run = near.trigger(ref)
    paths = ["/load-ahead", "/workers", "/log", "/audit", "/dependencies"]
    with Visitor(servers[1].url) as visitor:
        for path in [*paths, f"/jobs/{ref.id}", f"/runs/{quote(run.id)}"]:
            visitor.get(path)
    text = httpx.get(f"{servers[0].url}/metrics").text
    assert "timingwheel_serving 1.0" in text
    told = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    assert told["timingwheel_cluster_nodes"] == "2.0"
    assert told["timingwheel_cluster_workers"] == "2.0"
    assert float(told["timingwheel_cluster_epochs_total"]) >= 256
    assert told["timingwheel_database_synchronous"] == "0.0"
    assert told["timingwheel_database_schema"] == str(float(VERSION))


def test_a_worker_may_ask_any_server_and_its_requests_reach_it(
    servers: list[HttpServer],
) -> None:
    first, second = servers
    with api(first.url) as one, api(second.url) as other, Client(first.url) as app:
        worker = Worker(one)
        ref = app.add(SEND.call(to="ada"), delay=0)
        (claim,) = worker.claim()
        worker.http = other
        assert worker.beat(claim["token"]) == []
        assert [joined.id for joined in second.hub.workers()] == [worker.id]
        app.cancel(ref.id, running="signal")
        (request,) = until(lambda: worker.beat(claim["token"]))
        assert request["token"] == claim["token"]
        assert worker.end(claim, outcome="cancelled") == "accepted"
        assert app.cancel(ref.id) is CancelResult.ALREADY
        assert worker.http.delete(f"/workers/{worker.id}").status_code == 200


def test_a_claim_whose_answer_was_lost_with_its_server_is_given_back(
    servers: list[HttpServer],
) -> None:
    """The worker never hears of it, and lives: no lease would ever run out."""
    first, second = servers
    with api(first.url) as one, api(second.url) as other, Client(second.url) as app:
        worker = Worker(one)
        ref = app.add(SEND.call(to="ada"), delay=0)
        (lost,) = worker.claim()
        worker.http = other
        worker.beat()
        assert app.run(ref).get().state is RunState.RUNNING  # it may be on its way
        worker.beat()
        (again,) = worker.claim()
        assert again["run"]["id"] == lost["run"]["id"]
        assert again["run"]["attempts"] == 1
        assert worker.end(again, value=1) == "accepted"


def test_a_server_that_is_killed_loses_nothing_and_reruns_nothing_of_its_workers(
    where: str,
) -> None:
    make_store(where)
    with ExitStack() as stack:
        dies, first = stack.enter_context(served(where))
        _, second = stack.enter_context(served(where))
        one, other = stack.enter_context(api(first)), stack.enter_context(api(second))
        near, far = (stack.enter_context(Client(url)) for url in (first, second))
        worker = Worker(one, ttl="30s")
        begun = near.add(SEND.call(to="ada"), delay=0)
        (claim,) = worker.claim()
        waiting = [near.add(SEND.call(to=str(n)), delay=0) for n in range(5)]
        until(lambda: len(far.runs(state="ready")) == len(waiting))
        dies.send_signal(signal.SIGKILL)
        dies.wait(30)
        worker.http = other
        assert worker.beat(claim["token"]) == []
        assert worker.end(claim, value="late") == "accepted"
        assert far.run(begun).get().attempts == 1
        assert far.run(begun).result("30s") == "late"
        claims = worker.claim(count=10)
        assert [worker.end(one, value=1) for one in claims] == ["accepted"] * 5
        assert {far.run(ref).get().attempts for ref in waiting} == {1}


def test_a_database_has_one_book_of_tokens_for_all_its_servers(where: str) -> None:
    make_store(where)
    clock = ManualClock()
    book = token_book(where, clock=clock)
    secret = book.add("ci", "read")
    with (
        closing(token_book(where)) as another,
        pytest.raises(ArgumentError, match="it is taken"),
    ):
        another.add("ci", "admin")
    with make_server(where, port=0) as first, make_server(where, port=0) as second:
        for server in (first, second):
            with Client(server.url, token=secret) as app:
                assert app.jobs() == []
            with Client(server.url) as nobody, pytest.raises(AccessError):
                nobody.jobs()
        assert book.revoke("ci")
        assert not book.revoke("ci")

        def is_refused() -> bool:
            with httpx.Client(headers={"authorization": f"Bearer {secret}"}) as http:
                return http.get(f"{second.url}{API_PATH}/jobs").status_code == 401

        until(is_refused)
    book.close()


def entry(number: int, **more: Any) -> AuditEntry:
    fields: dict[str, Any] = {
        "time_ns": number,
        "actor": None,
        "role": "admin",
        "via": "api",
        "operation": "pause_job",
        "target": f"job {number}",
        "arguments": {},
        "outcome": "done",
        "status": 200,
    }
    return AuditEntry(**fields | more)


def test_the_audit_in_a_database_keeps_the_newest_in_order(where: str) -> None:
    make_store(where)
    books = [AuditBook(AuditTable(where), ManualClock(), kept_max=3) for _ in range(2)]
    for book in books:
        book.open()
        book.open()
    for number in range(5):
        books[0].note(entry(number))
    books[0].note(entry(5, target="with a nul: \0", actor="ann"))
    pages = [books[0].entries(AuditQuery(limit=2))]
    pages.append(books[1].entries(AuditQuery(limit=2, cursor=pages[0].cursor)))
    targets = [one.target for page in pages for one in page]
    assert targets == ["with a nul: \ufffd", "job 4", "job 3"]
    assert [one.time_ns for one in books[1].entries(AuditQuery(actor="ann"))] == [5]
    for book in books:
        book.close()


def test_an_audit_that_the_database_refuses_waits(where: str) -> None:
    table = AuditTable(where)  # which has no tables
    table.open()
    with pytest.raises(AuditError, match="timingwheel_audit"):
        table.write([entry(1)], kept_max=3)
    table.close()


def test_a_scheduler_makes_no_tables_where_it_may_not(where: str) -> None:
    app = Scheduler(where, create=False)
    with pytest.raises(NoStoreError, match="no job store yet"):
        app.jobs()
    make_store(where)
    app = Scheduler(where, create=False)
    assert app.jobs() == []
    app.stop()
