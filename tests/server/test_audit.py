"""Who did what: what is recorded, what is left out, and what a full disk does to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.scheduler import program
from timingwheel.client.client import Client
from timingwheel.errors import ArgumentError
from timingwheel.manual_clock import ManualClock
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.app import OPERATIONS
from timingwheel.server.audit import AuditBook, AuditError
from timingwheel.server.audit_file import FILE_NAME, AuditFile
from timingwheel.server.serving import HttpServer
from timingwheel.server.tokens import DIRECTORY, TokenBook, TokenFile
from timingwheel.wire.audit import AuditEntry, AuditQuery
from timingwheel.wire.problems import AccessError
from wal.testing.memory import MemoryFileSystem

NOTE = program.note.name
MakeBook = Callable[..., AuditBook]


def entry(number: int, **more: Any) -> AuditEntry:
    fields: dict[str, Any] = {
        "time_ns": number * 10**9,
        "actor": "ann",
        "role": "admin",
        "via": "api",
        "operation": "pause_job",
        "target": f"job {number}",
        "arguments": {},
        "outcome": "done",
        "status": 200,
    }
    return AuditEntry(**fields | more)


def targets(book: AuditBook, **query: Any) -> list[str]:
    return [one.target for one in book.entries(AuditQuery(**query))]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make_book(tmp_path: Path, clock: ManualClock) -> Iterator[MakeBook]:
    made: list[AuditBook] = []

    def make(**options: Any) -> AuditBook:
        book = AuditBook(AuditFile(str(tmp_path / DIRECTORY)), clock, **options)
        book.open()
        made.append(book)
        return book

    yield make
    for book in made:
        book.close()


@pytest.fixture
def audit(http: httpx.Client) -> Callable[..., list[Any]]:
    def entries(**query: Any) -> list[Any]:
        items: list[Any] = http.get("/audit", params=query).json()["items"]
        return items

    return entries


# -- what is recorded -----------------------------------------------------------------------


def test_every_operation_that_changes_something_is_recorded_but_the_routine() -> None:
    silent = {one.name for one in OPERATIONS if not one.is_audited}
    changing = {one.name for one in OPERATIONS if one.method != "GET"}
    assert silent & changing == {"claim_runs", "beat", "finish_runs"}
    assert changing - silent >= {"add_job", "cancel_job", "retry_run", "set_queue"}


def test_what_is_done_is_told_without_the_values_of_payloads(
    http: httpx.Client, audit: Callable[..., list[Any]]
) -> None:
    body = {"task": NOTE, "args": {"what": "secret tea"}, "delay": "1h", "name": "n"}
    job_id = http.post("/jobs", json=body).json()["id"]
    http.post(f"/jobs/{job_id}/pause", json={"note": "rain", "actor": "bob"})
    pause, add = audit()
    assert (add["operation"], add["target"], add["outcome"], add["status"]) == (
        *("add_job", job_id, "done"),
        201,
    )
    assert add["arguments"] == {
        "task": NOTE,
        "args": {"what": "..."},
        "delay": "1h",
        "name": "n",
    }
    assert (pause["actor"], pause["role"], pause["via"]) == ("bob", "admin", "api")
    assert pause["arguments"] == {"note": "rain", "actor": "bob"}
    raw = http.post("/jobs", json={"task": "a:b", "payload": {"body": "c2VjcmV0"}})
    assert raw.status_code in {201, 422}
    assert "secret" not in http.get("/audit").text
    assert "c2VjcmV0" not in http.get("/audit").text


def test_what_is_refused_is_recorded_too(
    http: httpx.Client, audit: Callable[..., list[Any]]
) -> None:
    http.post("/jobs", json={"task": NOTE, "args": {"what": "secret"}, "delay": "soon"})
    http.post("/jobs/nope/cancel")
    http.post("/jobs", json={"task": NOTE, "wat": 1})
    http.post("/jobs", content=b"{", headers={"content-type": "application/json"})
    http.post("/nope")
    found = [
        (one["operation"], one["target"], one["status"], one["problem"], one["field"])
        for one in audit(outcome="refused")
    ]
    assert found == [
        ("add_job", "", 400, "no-json", None),
        ("add_job", "", 422, "argument", "wat"),
        ("cancel_job", "nope", 404, "unknown-job", "job"),
        ("add_job", NOTE, 422, "argument", "delay"),
    ]
    assert "secret" not in http.get("/audit").text
    assert audit(outcome="done") == []


def test_who_may_not_is_recorded_by_the_name_of_the_token() -> None:
    book = TokenBook(TokenFile(MemoryFileSystem()), ManualClock())
    reader, admin = book.add("eve", "read"), book.add("ann", "admin")
    scheduler = Scheduler(":memory:", tasks=program.app.tasks)
    with HttpServer(scheduler, port=0, tokens=book) as server:
        with Client(server.url, token=reader) as client, pytest.raises(AccessError):
            client.pause("n")
        with Client(server.url, token=admin, actor="cron") as client:
            client.queue("bulk").set(limit=2)
            done, refused = client.audit()
            assert client.audit(actor="eve") == [refused]
            assert client.audit(until=datetime(2020, 1, 1, tzinfo=UTC)) == []
    assert (refused.actor, refused.role, refused.status) == ("eve", "read", 403)
    assert (refused.outcome, refused.problem) == ("refused", "access")
    assert (done.actor, done.target, done.arguments) == ("ann", "bulk", {"limit": 2})


def test_questions_leave_no_trace(
    http: httpx.Client, audit: Callable[..., list[Any]]
) -> None:
    http.get("/jobs")
    http.get("/jobs/nope")
    assert audit() == []


def test_a_long_argument_is_cut(
    http: httpx.Client, audit: Callable[..., list[Any]]
) -> None:
    http.post("/queues/bulk/pause", json={"note": "x" * 100_000})
    (found,) = audit()
    assert list(found["arguments"]) == ["cut"]
    assert len(str(found)) < 3_000


def test_pages_follow_each_other(http: httpx.Client) -> None:
    for n in range(5):
        http.patch(f"/queues/q{n}", json={"limit": 1})
    first = http.get("/audit", params={"limit": 3}).json()
    rest = http.get("/audit", params={"limit": 3, "cursor": first["cursor"]}).json()
    assert [one["target"] for one in first["items"] + rest["items"]] == [
        *("q4", "q3", "q2", "q1", "q0")
    ]
    assert rest["cursor"] is None
    for name, value in (("cursor", "x"), ("limit", "0"), ("outcome", "x")):
        refused = http.get("/audit", params={name: value})
        assert (refused.status_code, refused.json()["field"]) == (422, name)


# -- the book ---------------------------------------------------------------------------------


def test_entries_outlive_the_server(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    for queue in ("a", "b"):
        scheduler = Scheduler(data, tasks=program.app.tasks)
        with HttpServer(scheduler, port=0) as server, Client(server.url) as client:
            client.queue(queue).set(limit=1)
            found = client.audit()
    assert [(one.id, one.target) for one in found] == [(2, "b"), (1, "a")]
    assert os.path.exists(os.path.join(data, DIRECTORY, FILE_NAME))


def test_the_oldest_entries_go_and_ids_are_never_used_twice(
    make_book: MakeBook,
) -> None:
    book = make_book(kept_max=3)
    for number in range(10):
        book.note(entry(number))
        assert targets(book, limit=1) == [f"job {number}"]
    assert targets(book) == ["job 9", "job 8", "job 7"]
    assert [one.id for one in book.entries(AuditQuery())] == [10, 9, 8]


def test_entries_are_found_by_what_they_have(make_book: MakeBook) -> None:
    book = make_book()
    book.note(entry(1, actor=None, outcome="refused"))
    book.note(entry(2, operation="add_job"))
    book.note(entry(3))
    assert targets(book, actor="ann", operation="add_job") == ["job 2"]
    assert targets(book, outcome="refused") == ["job 1"]
    assert targets(book, target="job 3") == ["job 3"]
    since = datetime.fromtimestamp(2, UTC)
    assert targets(book, since=since) == ["job 3", "job 2"]
    assert targets(book, until=since) == ["job 1"]
    with pytest.raises(ArgumentError, match="cursor"):
        targets(book, cursor="1; DROP TABLE entries")


def test_what_comes_while_the_disk_is_full_waits_and_a_gap_is_told(
    make_book: MakeBook, clock: ManualClock
) -> None:
    book = make_book(waiting_max=2)
    book.note(entry(0))
    assert targets(book) == ["job 0"]
    shelf = book._shelf
    assert isinstance(shelf, AuditFile)
    writer = shelf._open().writer
    # A bound on the file's pages: SQLite refuses as it does on a full disk.
    pages = writer.execute("PRAGMA page_count").fetchone()[0]
    writer.execute(f"PRAGMA max_page_count = {pages}")
    big = {"x": "y" * 20_000}
    for number in range(1, 5):
        book.note(entry(number, arguments=big))
    assert targets(book) == ["job 0"]
    writer.execute("PRAGMA max_page_count = 100000")
    clock.advance(seconds=1)
    clock.settle()
    gap, *rest = book.entries(AuditQuery())
    assert [one.target for one in rest] == ["job 2", "job 1", "job 0"]
    assert (gap.operation, gap.arguments) == ("audit_gap", {"lost": 2})


def test_a_file_that_is_no_audit_is_refused_with_what_to_do(
    make_book: MakeBook, tmp_path: Path
) -> None:
    scheduler = Scheduler(str(tmp_path))
    scheduler.start()
    scheduler.stop()
    make_book().close()
    path = tmp_path / DIRECTORY / FILE_NAME
    path.write_bytes(b"no database " * 1_000)
    with pytest.raises(AuditError, match="move it and its -wal file away"):
        make_book()
    server = HttpServer(Scheduler(str(tmp_path)), port=0)
    with pytest.raises(AuditError):
        server.open()
