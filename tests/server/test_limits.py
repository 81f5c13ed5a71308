"""What one client may ask of a server, and how it is told that it was too much."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from tests.scheduler import program
from timingwheel.errors import ArgumentError
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.api import BODY_BYTES_MAX, HELD_MAX, REQUESTS_MAX
from timingwheel.server.app import _ApiRoute
from timingwheel.server.limits import (
    BODY_SECONDS_MAX,
    BURST_SECONDS,
    CLIENTS_MAX,
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    HEAD_SECONDS_MAX,
    RATE_DEFAULT,
    SLOW,
    URL_BYTES_MAX,
    Limited,
    PatientProtocol,
    RateLimiter,
)
from timingwheel.server.operations import API_PATH
from timingwheel.server.serving import HttpServer
from timingwheel.server.tokens import TokenBook, TokenFile
from timingwheel.testing import ManualClock
from wal.testing import MemoryFileSystem

PATIENCE_S = 30


# -- a bucket for each client ----------------------------------------------------------


def test_a_client_may_burst_and_then_goes_at_its_rate() -> None:
    clock = ManualClock()
    limiter = RateLimiter(10, clock)
    burst = int(10 * BURST_SECONDS)
    assert [limiter.wait_s("a") for _ in range(burst)] == [0.0] * burst
    assert limiter.wait_s("a") == pytest.approx(0.1)
    clock.advance(0.05)
    assert limiter.wait_s("a") == pytest.approx(0.05)
    clock.advance(0.05)
    assert limiter.wait_s("a") == 0.0
    assert limiter.wait_s("a") > 0


def test_a_refused_request_costs_nothing() -> None:
    clock = ManualClock()
    limiter = RateLimiter(1, clock)
    while not limiter.wait_s("a"):
        pass
    for _ in range(100):
        assert limiter.wait_s("a") > 0
    clock.advance(1)
    assert limiter.wait_s("a") == 0.0


def test_one_client_takes_nothing_from_another() -> None:
    limiter = RateLimiter(1, ManualClock())
    while not limiter.wait_s("a"):
        pass
    assert limiter.wait_s("b") == 0.0


def test_a_quiet_client_saves_no_more_than_its_burst() -> None:
    clock = ManualClock()
    limiter = RateLimiter(1, clock)
    limiter.wait_s("a")
    clock.advance(3600)
    goes = 0
    while not limiter.wait_s("a"):
        goes += 1
    assert goes == int(BURST_SECONDS)


def test_the_memory_for_clients_is_bounded() -> None:
    limiter = RateLimiter(1, ManualClock())
    for n in range(CLIENTS_MAX + 50):
        limiter.wait_s(f"peer {n}")
    assert len(limiter._buckets) == CLIENTS_MAX


@pytest.mark.parametrize("rate", [-1, 0, float("nan"), float("inf")])
def test_a_rate_that_cannot_be_meant_is_refused(rate: float) -> None:
    with pytest.raises(ArgumentError, match="rate_limit"):
        RateLimiter(rate, ManualClock())


# -- on a server -----------------------------------------------------------------------


@pytest.fixture
def slowed() -> Iterator[tuple[HttpServer, ManualClock, str, str]]:
    clock = ManualClock()
    book = TokenBook(TokenFile(MemoryFileSystem()), clock)
    one, other = book.add("one", "read"), book.add("other", "read")
    scheduler = Scheduler(":memory:", tasks=program.app.tasks, clock=clock)
    with HttpServer(scheduler, port=0, tokens=book, rate_limit=1) as server:
        yield server, clock, one, other


def ask(
    server: HttpServer, secret: str, path: str = f"{API_PATH}/now"
) -> httpx.Response:
    headers = {"authorization": f"Bearer {secret}"}
    return httpx.get(server.url + path, headers=headers, timeout=PATIENCE_S)


def test_who_asks_too_much_is_told_when_to_ask_again(
    slowed: tuple[HttpServer, ManualClock, str, str],
) -> None:
    server, clock, one, other = slowed
    for _ in range(int(BURST_SECONDS)):
        assert ask(server, one).status_code == 200
    refused = ask(server, one)
    assert refused.status_code == 429
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["type"].endswith("too-many-requests")
    assert refused.headers["retry-after"] == "1"
    assert ask(server, other).status_code == 200
    assert ask(server, one, "/health").status_code == 200
    clock.advance(1)
    assert ask(server, one).status_code == 200


def test_guessing_tokens_is_slowed_down_by_the_address(
    slowed: tuple[HttpServer, ManualClock, str, str],
) -> None:
    server, _, one, _ = slowed
    found = [ask(server, f"tw_guess{n}").status_code for n in range(4)]
    assert found == [401, 401, 429, 429]
    assert ask(server, one).status_code == 200


def test_on_this_machine_nobody_is_slowed_down(server: HttpServer) -> None:
    with httpx.Client(base_url=server.url) as http:
        assert {http.get(f"{API_PATH}/now").status_code for _ in range(50)} == {200}


def test_a_url_that_is_too_long_is_refused(server: HttpServer) -> None:
    answer = httpx.get(f"{server.url}{API_PATH}/jobs?name={'x' * URL_BYTES_MAX}")
    assert answer.status_code == 414
    assert answer.json()["type"].endswith("url-too-long")


def test_headers_that_are_too_long_are_refused(server: HttpServer) -> None:
    headers = {"x-long": "x" * HEAD_BYTES_MAX}
    answer = httpx.get(f"{server.url}{API_PATH}/now", headers=headers)
    assert answer.status_code == 431


class Impatient(PatientProtocol):
    """So that no test waits for what must not come."""

    head_seconds_max = 0.05


async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer without a body."""
    del scope, receive
    start = {"type": "http.response.start", "status": 200}
    await send(start | {"headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize(
    ("said", "answers"),
    [
        ([b""], 0),
        ([b"GET / HTTP/1.1\r\nHost: loc"], 0),
        ([b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET / HT"], 1),
    ],
    ids=["silent", "half a head", "half a second head"],
)
def test_a_client_whose_head_does_not_come_is_cut_off(
    said: list[bytes], answers: int
) -> None:
    async def main() -> bytes:
        config = uvicorn.Config(nothing, log_config=None, lifespan="off")
        config.load()
        state = ServerState()
        served = await asyncio.get_running_loop().create_server(
            lambda: Impatient(config=config, server_state=state, app_state={}),
            "127.0.0.1",
            0,
        )
        async with served:
            port = served.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            heard = b""
            for part in said:
                writer.write(part)
                if b"\r\n\r\n" in part:
                    heard += await reader.readuntil(b"\r\n\r\n")
            heard += await asyncio.wait_for(reader.read(), PATIENCE_S)
            writer.close()
        return heard

    assert asyncio.run(main()).count(b"HTTP/1.1 200") == answers


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async def main() -> list[Any]:
        async def never() -> Any:
            await asyncio.Event().wait()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            del scope, send
            told.append(await receive())

        async def refused(message: Any) -> None:
            raise AssertionError(message)

        told: list[Any] = []
        scope = {"type": "http", "path": "/", "query_string": b"", "headers": []}
        await Limited(app, body_seconds_max=0.01)(scope, never, refused)
        return told

    assert asyncio.run(main()) == [{"type": "http.disconnect", SLOW: True}]


def test_who_is_held_leaves_room_for_the_others(server: HttpServer) -> None:
    (api,) = [
        route._api for route in server._app.routes if isinstance(route, _ApiRoute)
    ]
    api._held = HELD_MAX
    with httpx.Client(base_url=server.url + API_PATH) as http:
        worker = http.post("/workers", json={"name": "w", "ttl": "15s"}).json()["id"]
        body = {"tasks": ["any"], "wait": 30, "count": 1}
        refused = http.post(f"/workers/{worker}/claims", json=body)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert http.get("/now").status_code == 200


def test_the_page_on_security_tells_the_bounds_that_hold() -> None:
    page = Path(__file__).resolve().parents[2] / "docs/howto/security.md"
    text = page.read_text()
    for said in (
        f"| URL | {URL_BYTES_MAX >> 10} KiB | 414 |",
        f"| headers | {HEAD_BYTES_MAX >> 10} KiB together, within {HEAD_SECONDS_MAX:g} s |",
        f"| body | {BODY_BYTES_MAX >> 20} MiB, within {BODY_SECONDS_MAX:g} s | 413; 408 |",
        f"{RATE_DEFAULT:g} a second, {RATE_DEFAULT * BURST_SECONDS:,.0f} at once",
        f"| {REQUESTS_MAX:,}, of them {HELD_MAX} that are held | 503",
        f"| connections | {CONNECTIONS_MAX:,} | 503 |",
    ):
        assert said in text, said
