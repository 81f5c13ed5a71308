"""What a client does when the server is away, busy, or of another kind."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.scheduler import program
from timingwheel.client.client import Client
from timingwheel.client.transport import ServerAwayError, UnansweredError
from timingwheel.errors import ArgumentError, EngineClosedError
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.serving import HttpServer
from timingwheel.wire.problems import RefusedByServerError

CALL = program.note.call("tea")


@contextmanager
def stub(*answers: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers each connection as told: b"" closes it unanswered."""
    listener = socket.create_server(("127.0.0.1", 0))
    heard: list[bytes] = []

    def serve() -> None:
        for answer in answers:
            taken, _ = listener.accept()
            with taken:
                heard.append(received(taken))
                taken.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}", heard
    thread.join(30)
    listener.close()
    assert not thread.is_alive()


def received(taken: socket.socket) -> bytes:
    """A whole request: it may come in pieces."""
    got = b""
    while True:
        head, _, body = got.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        if b"\r\n\r\n" in got and (not length or len(body) >= int(length[1])):
            return got
        got += taken.recv(1 << 16)


def reply(status: int, body: str, kind: str = "application/json") -> bytes:
    return (
        f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\nconnection: close\r\n"
        f"content-length: {len(body)}\r\n\r\n{body}"
    ).encode()


REF = reply(201, '{"id": "00000000-0000-8000-8000-000000000001", "created": true}')
BUSY = reply(
    503,
    '{"type": "x", "title": "busy", "status": 503, "detail": "d", "code": "busy"}',
    "application/problem+json",
)


def test_where_no_server_is_the_message_says_how_to_start_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with (
        Client(url, patience=0) as app,
        pytest.raises(ServerAwayError, match=r"timingwheel\.server \./data") as away,
    ):
        app.add(CALL, delay=1)
    assert away.value.url == url


def test_an_add_with_a_key_is_asked_again_when_the_answer_was_lost() -> None:
    with stub(b"", REF) as (url, heard), Client(url) as app:
        assert app.add(CALL, delay=1, key="k").created
    assert len(heard) == 2
    assert heard[0] == heard[1]


def test_an_add_without_a_key_is_never_asked_twice() -> None:
    with stub(b"", REF) as (url, heard), Client(url) as app:
        with pytest.raises(UnansweredError, match="may have done"):
            app.add(CALL, delay=1)
        assert len(heard) == 1
        assert app.add(CALL, delay=1).created


def test_a_busy_server_is_asked_again_whatever_it_was() -> None:
    with stub(BUSY, REF) as (url, heard), Client(url) as app:
        assert app.add(CALL, delay=1).created
    assert len(heard) == 2


def test_a_server_of_another_kind_is_told_as_such() -> None:
    with (
        stub(reply(404, "<html>", "text/html")) as (url, _),
        Client(url) as app,
        pytest.raises(RefusedByServerError, match="is that the server's address"),
    ):
        app.queues()


@pytest.mark.parametrize("url", ["", "127.0.0.1:8765", "ftp://x", "http://"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ArgumentError, match="http://host:port"):
        Client(url)


def test_a_wait_ends_when_the_server_stops() -> None:
    scheduler = Scheduler(":memory:", tasks=program.app.tasks)
    with HttpServer(scheduler, port=0) as server, Client(server.url, patience=0) as app:
        handle = app.run(app.add(CALL, delay="1h"))
        ends: list[BaseException] = []

        def wait() -> None:
            try:
                handle.wait("60s")
            except Exception as error:  # noqa: BLE001 - which one is what is asked
                ends.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        server.stop()
        waiting.join(30)
    assert isinstance(ends[0], ServerAwayError | EngineClosedError | UnansweredError)
