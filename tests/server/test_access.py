"""Who may ask, and what other pages of a browser may not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.scheduler import program
from timingwheel.client.client import Client
from timingwheel.errors import ArgumentError
from timingwheel.manual_clock import ManualClock
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.app import OPERATIONS
from timingwheel.server.operations import Role
from timingwheel.server.serving import HttpServer
from timingwheel.server.tokens import FILE_NAME, REFRESH_NS, TokenBook, TokenFile
from timingwheel.wire.problems import AccessError
from wal.filesystem import read_whole
from wal.testing.memory import MemoryFileSystem

CALL = program.note.call("tea")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def files() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def book(files: MemoryFileSystem, clock: ManualClock) -> TokenBook:
    return TokenBook(TokenFile(files), clock)


@pytest.fixture
def guarded(book: TokenBook) -> Iterator[HttpServer]:
    scheduler = Scheduler(":memory:", tasks=program.app.tasks)
    with HttpServer(scheduler, port=0, tokens=book) as server:
        yield server


def test_a_token_is_kept_as_its_hash_alone(
    book: TokenBook, files: MemoryFileSystem
) -> None:
    secret = book.add("ci", "operate")
    body = read_whole(files, FILE_NAME)
    assert b"ci" in body
    assert secret.encode() not in body
    assert secret.removeprefix("tw_").encode() not in body
    found = book.find(secret)
    assert found is not None
    assert (found.name, found.allows) == ("ci", Role.OPERATE)
    assert book.find(secret + "x") is None
    assert book.find("") is None


def test_a_token_that_another_process_revokes_is_refused_a_second_later(
    book: TokenBook, files: MemoryFileSystem, clock: ManualClock
) -> None:
    secret = book.add("ci", "read")
    assert book.find(secret) is not None
    assert TokenBook(TokenFile(files), clock).revoke("ci")
    assert not TokenBook(TokenFile(files), clock).revoke("ci")
    clock.advance(REFRESH_NS / 1e9)
    assert book.find(secret) is None


@pytest.mark.parametrize(
    ("name", "role", "argument"),
    [("", "read", "name"), ("ci", "root", "role"), ("taken", "read", "name")],
)
def test_a_token_that_cannot_be_meant_is_refused(
    book: TokenBook, name: str, role: str, argument: str
) -> None:
    book.add("taken", "admin")
    with pytest.raises(ArgumentError) as refused:
        book.add(name, role)
    assert refused.value.argument == argument


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.test"])
def test_no_address_but_this_machines_is_served_without_tokens(
    host: str, book: TokenBook
) -> None:
    for tokens in (None, book):
        with pytest.raises(ArgumentError, match="make a token first"):
            HttpServer(Scheduler(":memory:"), host=host, tokens=tokens)
    book.add("ci", "read")
    HttpServer(Scheduler(":memory:"), host=host, tokens=book)


def test_every_operation_asks_for_a_token_and_its_role(
    guarded: HttpServer, book: TokenBook
) -> None:
    book.add("other", "admin")
    read = {"authorization": f"Bearer {book.add('reader', 'read')}"}
    operate = {"authorization": f"Bearer {book.add('operator', 'operate')}"}
    with httpx.Client(base_url=f"{guarded.url}/api/v1") as http:
        for one in OPERATIONS:
            path = one.path.replace("{", "").replace("}", "")
            bare = http.request(one.method, path)
            assert bare.status_code == 401, one
            assert bare.headers["www-authenticate"].startswith("Bearer")
            for headers, role in ((read, Role.READ), (operate, Role.OPERATE)):
                status = http.request(one.method, path, headers=headers).status_code
                assert (status == 403) == (role < one.role), one
    assert httpx.get(f"{guarded.url}/openapi.json").status_code == 401
    assert httpx.get(f"{guarded.url}/health").status_code == 200


def test_a_client_shows_its_token_and_what_it_does_bears_its_name(
    guarded: HttpServer, book: TokenBook
) -> None:
    with Client(guarded.url) as nobody, pytest.raises(AccessError, match="token"):
        nobody.jobs()
    secret = book.add("ci", "operate")
    with Client(guarded.url, token=secret, actor="ann") as app:
        ref = app.add(CALL, cron="@yearly")
        app.pause(ref)
        pause = app.job(ref).pause
        assert pause is not None
        assert pause.actor == "ci (ann)"
        with pytest.raises(AccessError, match="needs the role admin"):
            app.rebind("a:b", program.note)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.test"}, 403),
        ({"host": "localhost:1"}, 200),
        ({"host": "[::1]:1"}, 200),
        ({"host": "[bad"}, 403),
        ({"origin": "http://evil.test"}, 200),
    ],
)
def test_a_foreign_name_of_this_machine_is_refused(
    server: HttpServer, headers: dict[str, str], status: int
) -> None:
    answer = httpx.get(f"{server.url}/api/v1/jobs", headers=headers)
    assert answer.status_code == status


def test_a_page_of_another_site_changes_nothing(
    server: HttpServer, http: httpx.Client
) -> None:
    job: Any = {"task": program.note.name, "args": {"what": "x"}, "delay": "1h"}
    foreign = {"origin": "http://evil.test"}
    assert http.post("/jobs", json=job, headers=foreign).status_code == 403
    assert http.post("/jobs", json=job, headers={"origin": "null"}).status_code == 403
    assert http.get("/jobs").json()["items"] == []
    own = {"origin": server.url}
    assert http.post("/jobs", json=job, headers=own).status_code == 201
