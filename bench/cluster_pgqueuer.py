"""pgqueuer as a process: python -m bench.cluster_pgqueuer load|work URL ARGUMENT...

    load URL JOBS                   installs it and enqueues so many no-ops
    work URL TALLY PLACE [BATCH]    runs them until killed; without BATCH, by its own

As its guide to performance has it: asyncpg, one connection for a worker, durable tables,
its autovacuum settings, and with BATCH a larger batch, since the jobs are short.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path
from typing import Any

from bench.cluster_tally import Tally

LOAD_STEP = 1_000
PAYLOAD = b"x" * 60
NO_OP = "no_op"


async def _driver(url: str) -> Any:
    asyncpg: Any = importlib.import_module("asyncpg")
    db: Any = importlib.import_module("pgqueuer.db")
    return db.AsyncpgDriver(await asyncpg.connect(dsn=url))


async def load(url: str, jobs: str) -> None:
    """Enqueue no-ops into a new queue."""
    queries: Any = importlib.import_module("pgqueuer.queries")
    one = queries.Queries(await _driver(url))
    await one.install()
    await one.optimize_autovacuum()
    left = int(jobs)
    while left:
        step = min(left, LOAD_STEP)
        await one.enqueue([NO_OP] * step, [PAYLOAD] * step, [0] * step)
        left -= step


async def work(url: str, tally_path: str, place: str, batch: str = "") -> None:
    """Run no-ops until killed."""
    pgqueuer: Any = importlib.import_module("pgqueuer")
    tally, mine = Tally(Path(tally_path)), int(place)
    one = pgqueuer.PgQueuer(await _driver(url))

    @one.entrypoint(NO_OP)
    async def no_op(job: Any) -> None:
        del job
        tally.add(mine)

    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    sizes = {"batch_size": int(batch)} if batch else {}
    await one.run(**sizes)


if __name__ == "__main__":
    uvloop: Any = importlib.import_module("uvloop")
    what, *more = sys.argv[1:]
    uvloop.run(load(*more) if what == "load" else work(*more))
