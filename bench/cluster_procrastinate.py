"""procrastinate as a process: python -m bench.cluster_procrastinate load|work URL ARGUMENT...

    load URL JOBS                   installs it and defers so many no-ops
    work URL TALLY PLACE [LIMIT]    runs them until killed, so many at once; else by its own

An asynchronous task on its psycopg connector; with LIMIT its pool has a connection for each
of the jobs that it runs at once, else it is as it comes, too.
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


def _app(url: str, limit: int | None = None) -> Any:
    procrastinate: Any = importlib.import_module("procrastinate")
    sizes = {} if limit is None else {"min_size": 1, "max_size": limit + 2}
    connector = procrastinate.PsycopgConnector(conninfo=url, **sizes)
    return procrastinate.App(connector=connector)


async def load(url: str, jobs: str) -> None:
    """Defer no-ops into a new queue."""
    app = _app(url)

    @app.task(name="no_op")
    async def no_op(payload: str) -> None:
        del payload

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        left = int(jobs)
        while left:
            step = min(left, LOAD_STEP)
            await no_op.batch_defer_async(*[{"payload": PAYLOAD}] * step)
            left -= step


async def work(url: str, tally_path: str, place: str, limit: str = "") -> None:
    """Run no-ops until killed."""
    tally, mine = Tally(Path(tally_path)), int(place)
    app = _app(url, int(limit) if limit else None)

    @app.task(name="no_op")
    async def no_op(payload: str) -> None:
        del payload
        tally.add(mine)

    async with app.open_async():
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        sizes = {"concurrency": int(limit)} if limit else {}
        await app.run_worker_async(install_signal_handlers=False, **sizes)


if __name__ == "__main__":
    what, *more = sys.argv[1:]
    asyncio.run(load(*more) if what == "load" else work(*more))
