"""The server: jobs made and run over HTTP, beside the bare framework in the same run.

Client and server are two processes, as they are in life. The baseline is the framework
alone, starlette on uvicorn, with a route that reads the body and answers a constant; it
is asked by the same client in the same turns, so that what is left is ours: the request
decoded and judged, the job written and synced, the answer.

*p99* is how long one call in a hundred takes at least, of a mix of all kinds of calls
(bench/server_load.py): alone, with 200 clients that each call once a second, and with 200
that call again as soon as they are answered. The last says how long a queue of 200 takes
to be served, and nothing of the server's promptness.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bench.disk import work_directory
from bench.http_client import Connection
from bench.peers import counted_as_ours
from bench.progress import Step
from bench.rounds import (
    BASELINE,
    JOBS,
    MS,
    OURS,
    Case,
    ForeignLoad,
    Progress,
    Sustained,
    interleave,
)
from bench.row import Row
from bench.server_load import API, TASK, run_load

GROUP = "server"
CONNECTIONS = (1, 32)
CLAIMS = (1, 32)
CLIENTS = 200
P99_GOAL = 10
_TABLE = f"{GROUP}, 60-byte payloads"
_BODY = {"task": TASK, "args": {"payload": "x" * 60}, "delay": 3_600}
_DUE_BODY = _BODY | {"delay": 0}


@dataclass(frozen=True, slots=True)
class Size:
    """How large a run of these benchmarks is.

    Attributes:
        seconds: that each rival is asked in a round.
        rounds: that a figure is the median of.
        tries: see `interleave`.
        runs: that a worker runs in a round.
        load_seconds: that each load of mixed calls goes on.
    """

    seconds: float
    rounds: int
    tries: int
    runs: int
    load_seconds: float


FULL_SIZE = Size(seconds=0.5, rounds=5, tries=2, runs=1_000, load_seconds=6)
NORMAL_SIZE = Size(seconds=0.5, rounds=3, tries=2, runs=500, load_seconds=3)
SMOKE_SIZE = Size(seconds=0.05, rounds=1, tries=1, runs=64, load_seconds=0.5)


class Loop:
    """An event loop of the client's own, on which connections live between rounds."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run to its end."""
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        """Let go."""
        self._loop.close()


class Asked(Sustained):
    """Asks the same thing again and again, on some connections at once.

    Args:
        peer: who is asked.
        url: where.
        path: what.
        connections: at once.
    """

    def __init__(self, peer: str, url: str, path: str, *, connections: int) -> None:
        self.peer = peer
        self.note = "starlette and uvicorn alone" if peer == BASELINE else ""
        self._path = path
        self._loop = Loop()
        self._connections = [Connection(url) for _ in range(connections)]
        for one in self._connections:
            self._loop.run(one.__aenter__())

    def run(self) -> float:
        return self.repeat(lambda: self._loop.run(self._ask_all()))

    def close(self) -> None:
        for one in self._connections:
            self._loop.run(one.__aexit__())
        self._loop.close()

    async def _ask_all(self) -> int:
        until = 0 if len(self._connections) == 1 else 8
        counts = await asyncio.gather(
            *(self._ask(one, 1 + until) for one in self._connections)
        )
        return sum(counts)

    async def _ask(self, connection: Connection, times: int) -> int:
        for _ in range(times):
            answer = await connection.ask("POST", self._path, _BODY)
            assert answer.status == 201, answer
        return times


class FarRuns(Case):
    """A worker that claims runs which are due, and tells that they have ended.

    Args:
        url: of the server.
        runs: how many, made before the clock runs.
        count: claimed, and told, with one request.
    """

    def __init__(self, url: str, *, runs: int, count: int) -> None:
        self.peer = OURS
        self._runs = runs
        self._count = count
        self._loop = Loop()
        self._connection = Connection(url)
        self._makers = [Connection(url) for _ in range(32)]
        for one in (self._connection, *self._makers):
            self._loop.run(one.__aenter__())

    def prepare(self) -> None:
        self._loop.run(self._make())

    def run(self) -> float:
        return float(self._loop.run(self._work()))

    def close(self) -> None:
        for one in (self._connection, *self._makers):
            self._loop.run(one.__aexit__())
        self._loop.close()

    async def _make(self) -> None:
        each = -(-self._runs // len(self._makers))

        async def make(connection: Connection) -> None:
            for _ in range(each):
                answer = await connection.ask("POST", f"{API}/jobs", _DUE_BODY)
                assert answer.status == 201, answer

        await asyncio.gather(*(make(one) for one in self._makers))

    async def _work(self) -> float:
        ask = self._connection.ask
        joined = await ask("POST", f"{API}/workers", {"name": "bench", "ttl": "60s"})
        path = f"{API}/workers/{joined.value['id']}"
        loop = asyncio.get_running_loop()
        start, done = loop.time(), 0
        wanted = {"tasks": [TASK], "count": self._count, "wait": 20}
        while done < self._runs:
            claims = (await ask("POST", f"{path}/claims", wanted)).value["items"]
            ends = [
                {
                    "run_id": claim["run"]["id"],
                    "token": claim["token"],
                    "outcome": "ok",
                }
                for claim in claims
            ]
            told = await ask("POST", f"{path}/ends", {"ends": ends})
            assert told.value["items"] == ["accepted"] * len(ends), told
            done += len(ends)
        took = loop.time() - start
        await ask("DELETE", path)
        return took / done


def steps(size: Size, directory: Path) -> list[Step]:
    """Return the steps that measure the server.

    Args:
        size: how large and how long.
        directory: on the disk in question; left empty again.
    """
    put_seconds = 4 + 2 * size.rounds * size.seconds
    return [
        *(
            Step(GROUP, _put_name(n), put_seconds, partial(_puts, n, size, directory))
            for n in CONNECTIONS
        ),
        *(
            Step(
                GROUP,
                _run_name(count),
                4 + size.rounds * (size.seconds + size.runs * 3e-3),
                partial(_runs, count, size, directory),
            )
            for count in CLAIMS
        ),
        Step(GROUP, "p99", 6 + 6 * size.load_seconds, partial(_waits, size, directory)),
    ]


def _put_name(connections: int) -> str:
    return f"POST job, {connections} connection{'s' if connections > 1 else ''}"


def _run_name(count: int) -> str:
    return f"runs of a far worker, {count} a request"


def _puts(
    connections: int, size: Size, directory: Path, progress: Progress
) -> list[Row]:
    with work_directory(directory) as place, ExitStack() as stack:
        cases = [
            stack.enter_context(
                closing(Asked(peer, url, path, connections=connections))
            )
            for peer, url, path in stack.enter_context(servers(place))
        ]
        for case in cases:
            case.seconds = size.seconds
        return interleave(
            cases[0],
            cases[1:],
            group=_TABLE,
            name=_put_name(connections),
            rounds=size.rounds,
            tries=size.tries,
            unit=JOBS,
            progress=progress,
        )


def _runs(count: int, size: Size, directory: Path, progress: Progress) -> list[Row]:
    with work_directory(directory) as place, ExitStack() as stack:
        bare, ours = stack.enter_context(servers(place))
        asked = stack.enter_context(closing(Asked(*bare, connections=1)))
        asked.seconds = size.seconds
        asked.note += ": a request"
        runs = stack.enter_context(
            closing(FarRuns(ours[1], runs=size.runs, count=count))
        )
        runs.note = f"claimed and told {count} with a request each"
        return interleave(
            asked,
            [runs],
            group=_TABLE,
            name=_run_name(count),
            rounds=size.rounds,
            tries=size.tries,
            unit=JOBS,
            progress=progress,
        )


def _waits(size: Size, directory: Path, progress: Progress) -> list[Row]:
    """Return how long one call in a hundred takes, alone and among others."""
    loads = {
        "p99 of mixed calls, 1 client": (1, 0.01),
        f"p99 of mixed calls, {CLIENTS} clients once a second": (CLIENTS, 1.0),
        f"p99 of mixed calls, {CLIENTS} clients without a pause": (CLIENTS, 0.0),
    }
    rows: list[Row] = []
    idle_ms: float | None = None
    with work_directory(directory) as place, servers(place) as (_, ours):
        for seed, (name, (clients, every_s)) in enumerate(loads.items()):
            progress(f"{GROUP}: {name}")
            with ForeignLoad() as foreign:
                load = asyncio.run(
                    run_load(
                        ours[1],
                        clients=clients,
                        seconds=size.load_seconds,
                        every_s=every_s,
                        seed=seed,
                    )
                )
            assert load.errors == [], load.errors
            found_ms = load.percentile_ms(0.99)
            note = f"{len(load.waits_s) / size.load_seconds:,.0f} calls a second"
            if idle_ms is None:
                idle_ms = found_ms
            elif every_s:
                kept = "kept" if found_ms <= P99_GOAL * idle_ms else "MISSED"
                note += f"; {found_ms / idle_ms:.1f} x alone, goal {P99_GOAL} x: {kept}"
            if foreign.cores >= 0.25:
                note += f"; others kept {foreign.cores:.1f} processors busy"
            rows.append(Row(_TABLE, name, OURS, found_ms, note, MS))
    return rows


@contextlib.contextmanager
def servers(place: Path) -> Iterator[list[tuple[str, str, str]]]:
    """Serve the bare framework and ours; yield name, URL and path of each."""
    with ExitStack() as stack:
        bare = stack.enter_context(_served(["-m", "bench.server"]))
        data = str(place / "data")
        ours = stack.enter_context(
            _served(["-m", "timingwheel.server", data, "--port", "0"])
        )
        yield [(BASELINE, bare, "/constant"), (OURS, ours, f"{API}/jobs")]


@contextlib.contextmanager
def _served(arguments: list[str]) -> Iterator[str]:
    """Run a server in a process of its own, and yield its URL."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if " on http" not in line:
            raise RuntimeError(f"{' '.join(arguments)} does not serve: {line!r}")
        with counted_as_ours(process.pid):
            yield line.partition(" on ")[2].partition(";")[0].strip()
    finally:
        process.terminate()
        process.communicate()


def serve_constant() -> None:
    """Serve the framework alone, on a free port, until terminated."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    body = msgspec.json.encode({"id": "0" * 36, "created": True, "updated": False})

    async def constant(request: Request) -> Response:
        await request.body()
        return Response(body, 201, media_type="application/json")

    app = Starlette(routes=[Route("/constant", constant, methods=["POST"])])
    listening = socket.create_server(("127.0.0.1", 0), backlog=2_048)
    print(f"serving a constant on http://127.0.0.1:{listening.getsockname()[1]}")
    sys.stdout.flush()
    config = uvicorn.Config(app, log_config=None, access_log=False)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    serve_constant()
