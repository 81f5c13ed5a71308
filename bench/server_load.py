"""Many clients of one server, with all kinds of calls; for benchmarks and for tests.

    python -m bench.server_load http://127.0.0.1:8765 --clients 200 --seconds 5 --every 1

Each client has a connection of its own and goes on until the time is over or the server
is gone: it makes jobs, each under a key of its own, looks at jobs and runs, pauses,
resumes, changes, triggers and cancels. Some calls ask for a refusal: a job that is not
there, a key with another payload. Whatever else is refused is an error.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

import msgspec

from bench.http_client import Answer, Connection

API: Final = "/api/v1"
TASK: Final = "load:no-op"
PAGE: Final = 1_000


@dataclass(slots=True)
class Load:
    """What clients did and what became of it.

    Attributes:
        made: ids of the jobs that were acknowledged, by key.
        asked: keys under which a job was asked for.
        waits_s: how long each answer took.
        errors: answers that nobody asked for.
        kinds: how often each kind of call was answered.
        on_made: called whenever a job was acknowledged.
    """

    made: dict[str, str] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    waits_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    on_made: Callable[[Load], object] = lambda _: None

    def percentile_ms(self, share: float) -> float:
        """Return how long the given share of all answers took at most."""
        ordered = sorted(self.waits_s)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1e3


class _Client:
    """One client: what it has made, and what it does next."""

    def __init__(self, load: Load, rng: random.Random, name: str) -> None:
        self._load = load
        self._rng = rng
        self._name = name
        self._numbers = itertools.count()
        self._jobs: list[tuple[str, str]] = []  # each with its key
        self._calls = {
            self._make: 30,
            self._get: 20,
            self._list: 8,
            self._list_runs: 6,
            self._next_times: 8,
            self._explain: 4,
            self._change: 5,
            self._pause: 4,
            self._resume: 4,
            self._trigger: 4,
            self._cancel: 3,
            self._make_again: 2,
            self._now: 4,
            self._miss: 2,
            self._contradict: 2,
        }

    async def step(self, connection: Connection) -> None:
        """Make one call."""
        (call,) = self._rng.choices([*self._calls], [*self._calls.values()])
        if not self._jobs:
            call = self._make
        method, path, body, expected = call()
        load = self._load
        start = perf_counter()
        answer = await connection.ask(method, API + path, body)
        load.waits_s.append(perf_counter() - start)
        load.kinds[call.__name__.strip("_")] += 1
        if answer.status not in expected:
            load.errors.append(f"{method} {path}: {answer.status} {answer.body!r}")
        elif path == "/jobs" and answer.status in {200, 201}:
            self._note(body, answer)

    def _note(self, body: object, answer: Answer) -> None:
        if isinstance(body, dict):
            job_id: str = answer.value["id"]
            self._load.made[body["key"]] = job_id
            self._jobs.append((job_id, body["key"]))
            self._load.on_made(self._load)

    def _job(self) -> str:
        return self._rng.choice(self._jobs)[0]

    def _body(self, key: str, n: int) -> dict[str, object]:
        self._load.asked.add(key)
        return {"task": TASK, "args": {"n": n}, "key": key, "cron": "0 3 * * *"}

    # Each returns method, path, body, and the answers that are no error.

    def _make(self) -> tuple[str, str, object, set[int]]:
        n = next(self._numbers)
        return "POST", "/jobs", self._body(f"{self._name}-{n}", n), {201}

    def _make_again(self) -> tuple[str, str, object, set[int]]:
        key = self._rng.choice(self._jobs)[1]
        n = int(key.rpartition("-")[2])
        return "POST", "/jobs", self._body(key, n), {200}

    def _contradict(self) -> tuple[str, str, object, set[int]]:
        key = self._rng.choice(self._jobs)[1]
        return "POST", "/jobs", self._body(key, -1), {409}

    def _get(self) -> tuple[str, str, object, set[int]]:
        return "GET", f"/jobs/{self._job()}", None, {200}

    def _miss(self) -> tuple[str, str, object, set[int]]:
        return "GET", "/jobs/not-there", None, {404}

    def _list(self) -> tuple[str, str, object, set[int]]:
        return "GET", f"/jobs?limit=20&task={TASK}", None, {200}

    def _list_runs(self) -> tuple[str, str, object, set[int]]:
        return "GET", f"/runs?limit=20&job={self._job()}", None, {200}

    def _next_times(self) -> tuple[str, str, object, set[int]]:
        return "GET", f"/jobs/{self._job()}/next-times?n=5", None, {200, 404}

    def _explain(self) -> tuple[str, str, object, set[int]]:
        return "GET", f"/jobs/{self._job()}/explanation", None, {200}

    # A job may have been cancelled by the same client: then there is none to change.

    def _change(self) -> tuple[str, str, object, set[int]]:
        priority = self._rng.randrange(10)
        return "PATCH", f"/jobs/{self._job()}", {"priority": priority}, {200, 404}

    def _pause(self) -> tuple[str, str, object, set[int]]:
        return "POST", f"/jobs/{self._job()}/pause", {"note": "load"}, {200, 404}

    def _resume(self) -> tuple[str, str, object, set[int]]:
        return "POST", f"/jobs/{self._job()}/resume", None, {200, 404}

    def _trigger(self) -> tuple[str, str, object, set[int]]:
        return "POST", f"/jobs/{self._job()}/trigger", None, {201, 404}

    def _cancel(self) -> tuple[str, str, object, set[int]]:
        return "POST", f"/jobs/{self._job()}/cancel", None, {200}

    def _now(self) -> tuple[str, str, object, set[int]]:
        return "GET", "/now", None, {200}


async def run_load(
    url: str,
    *,
    clients: int,
    seconds: float,
    every_s: float,
    seed: int,
    on_made: Callable[[Load], object] = lambda _: None,
) -> Load:
    """Have clients call a server until the time is over or it is gone.

    Args:
        url: of the server.
        clients: how many at once.
        seconds: how long.
        every_s: from one call of a client to its next, at least; 0: at once.
        seed: what they draw from.
        on_made: called whenever a job was acknowledged.
    """
    found = Load(on_made=on_made)
    until_s = perf_counter() + seconds
    await asyncio.gather(
        *(
            _work(
                url,
                found,
                n,
                clients=clients,
                until_s=until_s,
                every_s=every_s,
                seed=seed,
            )
            for n in range(clients)
        )
    )
    return found


async def _work(
    url: str,
    load: Load,
    n: int,
    *,
    clients: int,
    until_s: float,
    every_s: float,
    seed: int,
) -> None:
    rng = random.Random(f"{seed} {n}")
    client = _Client(load, rng, f"{seed}-{n}")
    # Spread over the first period, as clients that know nothing of each other are.
    next_s = perf_counter() + every_s * n / clients
    try:
        async with Connection(url) as connection:
            while (now_s := perf_counter()) < until_s:
                if now_s < next_s:
                    await asyncio.sleep(min(next_s, until_s) - now_s)
                    continue
                next_s = now_s + every_s * rng.uniform(0.5, 1.5)
                await client.step(connection)
    except (OSError, asyncio.IncompleteReadError) as error:
        load.errors.append(f"gone: {error!r}")


def main(arguments: list[str]) -> int:
    """Load a server, and print what became of it as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.server_load")
    parser.add_argument("url")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--every", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    load = asyncio.run(
        run_load(
            asked.url,
            clients=asked.clients,
            seconds=asked.seconds,
            every_s=asked.every,
            seed=asked.seed,
        )
    )
    shown = {
        "calls": len(load.waits_s),
        "made": len(load.made),
        "p50_ms": round(load.percentile_ms(0.5), 2),
        "p99_ms": round(load.percentile_ms(0.99), 2),
        "max_ms": round(load.percentile_ms(1.0), 2),
        "errors": load.errors[:5],
        "kinds": dict(load.kinds),
    }
    print(msgspec.json.encode(shown).decode())
    return 1 if load.errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
