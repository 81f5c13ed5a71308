"""procrastinate as a process: python -m bench.cluster_procrastinate load|work URL ARGUMENT...

    load URL JOBS           installs it and defers so many no-ops
    work URL TALLY PLACE    runs them until killed

An asynchronous task on its psycopg connector, whose pool has a connection for each of the
jobs that it runs at once.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path
from typing import Any

from bench.cluster_tally import Tally

CONCURRENCY = 10
LOAD_STEP = 1_000
PAYLOAD = "x" * 60


def _app(url: str) -> Any:
    procrastinate: Any = importlib.import_module("procrastinate")
    connector = procrastinate.PsycopgConnector(
        conninfo=url, min_size=1, max_size=CONCURRENCY + 2
    )
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


async def work(url: str, tally_path: str, place: str) -> None:
    """Run no-ops until killed."""
    tally, mine = Tally(Path(tally_path)), int(place)
    app = _app(url)

    @app.task(name="no_op")
    async def no_op(payload: str) -> None:
        del payload
        tally.add(mine)

    async with app.open_async():
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await app.run_worker_async(
            concurrency=CONCURRENCY, install_signal_handlers=False
        )


if __name__ == "__main__":
    what, *more = sys.argv[1:]
    asyncio.run(load(*more) if what == "load" else work(*more))
