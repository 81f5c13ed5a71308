"""oban as a process: python -m bench.cluster_oban load|work URL ARGUMENT...

    load URL JOBS                   installs it and enqueues so many no-ops
    work URL TALLY PLACE LIMIT      runs them until killed, so many at once

Embedded as its manual shows, on psycopg's pool and uvloop as its own command has it. It
needs a newer Python than we do, so this imports nothing of ours but the tally.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path
from typing import Any

from bench.cluster_tally import Tally

LOAD_STEP = 1_000
PAYLOAD = "x" * 60


async def _pool(url: str) -> Any:
    psycopg_pool: Any = importlib.import_module("psycopg_pool")
    pool = psycopg_pool.AsyncConnectionPool(
        conninfo=url, min_size=1, max_size=10, open=False
    )
    await pool.open(wait=True)
    return pool


def _task(tally: Tally | None, mine: int) -> Any:
    oban: Any = importlib.import_module("oban")

    @oban.worker(queue="default")
    class NoOp:
        async def process(self, job: Any) -> None:
            del job
            if tally is not None:
                tally.add(mine)

    return NoOp


async def load(url: str, jobs: str) -> None:
    """Enqueue no-ops into a new queue."""
    oban: Any = importlib.import_module("oban")
    schema: Any = importlib.import_module("oban.schema")
    pool, task = await _pool(url), _task(None, 0)
    await schema.install(pool)
    one = oban.Oban(pool=pool)
    left = int(jobs)
    while left:
        step = min(left, LOAD_STEP)
        await one.enqueue_many(task.new({"payload": PAYLOAD}) for _ in range(step))
        left -= step
    await pool.close()


async def work(url: str, tally_path: str, place: str, limit: str) -> None:
    """Run no-ops until killed."""
    oban: Any = importlib.import_module("oban")
    _task(Tally(Path(tally_path)), int(place))
    pool = await _pool(url)
    one = oban.Oban(pool=pool, queues={"default": int(limit)})
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    async with one:
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop: Any = importlib.import_module("uvloop")
    what, *more = sys.argv[1:]
    uvloop.run(load(*more) if what == "load" else work(*more))
