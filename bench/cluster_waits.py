"""How late runs start on several nodes, and what a node asks that has nothing to do.

*late* is from a job's due time to its handler's first line, on the one clock of this machine:
all jobs are there long before, and the nodes have shared the shards. *Statements* are what
pg_stat_statements counts, so several that go in one message count as several; the rows of
transactions count the messages.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.cluster_nodes import is_done, serving, wait
from bench.cluster_place import Database, Place, place_in
from bench.postgres_server import connect_at_once
from bench.progress import Step
from bench.rounds import COUNT, MS, OURS, ForeignLoad, PairedRow, Progress
from bench.row import Row
from bench.scheduler_lag import percentile
from bench.schedulers import NS, STAMP, draft_of
from timingwheel.jobs.triggers import At
from timingwheel.stores.postgres.store import PostgresStore

_STATEMENTS = """
SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements s
JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = '{}'
"""
_TRANSACTIONS = """
SELECT (xact_commit + xact_rollback)::bigint FROM pg_stat_database WHERE datname = '{}'
"""
_LEAD_SECONDS = 1.0
_PUT_SECONDS = 150e-6  # a job
_PUT_STEP = 1_000
_CALM_SECONDS = 5.0  # until what a node does at its start is over
_HINTS = {"auto": "with hints", "off": "without hints"}
_START_SECONDS = 10.0  # of nodes, until they have shared the shards


@dataclass(frozen=True, slots=True)
class WaitSizes:
    """How large these are.

    Attributes:
        nodes: how many.
        rate: jobs due a second, and
        seconds: for how long.
        idle_seconds: that a node with nothing to do is watched.
    """

    nodes: int
    rate: int
    seconds: float
    idle_seconds: float


FULL = WaitSizes(nodes=3, rate=1_000, seconds=15, idle_seconds=20)
NORMAL = WaitSizes(nodes=3, rate=1_000, seconds=5, idle_seconds=10)
SMOKE = WaitSizes(nodes=1, rate=100, seconds=0.5, idle_seconds=1.5)


def steps(group: str, sizes: WaitSizes, directory: Path) -> list[Step]:
    """Return the steps that measure waits.

    Args:
        group: of the steps.
        sizes: how large they are.
        directory: on the disk in question; left empty again.
    """
    return [
        Step(
            group,
            "lateness, and an idle node",
            4 + 2 * _START_SECONDS + 2 * sizes.seconds + 2 * sizes.idle_seconds,
            partial(_measure, group, sizes, directory),
        )
    ]


def _measure(
    group: str, sizes: WaitSizes, directory: Path, progress: Progress
) -> list[Row]:
    with place_in(directory, "shared_preload_libraries=pg_stat_statements") as place:
        progress(f"{group}: an idle node")
        rows = idle(group, place, sizes)
        progress(f"{group}: {sizes.rate:,} due a second on {sizes.nodes} nodes")
        return [*_late(group, place, sizes), *rows]


def _late(group: str, place: Place, sizes: WaitSizes) -> list[Row]:
    database = place.new_database()
    PostgresStore.open(database.url).close()
    command = ["-m", "bench.cluster_node", "stamp", database.url]
    jobs = int(sizes.rate * sizes.seconds)
    with serving(database, [command] * sizes.nodes) as nodes, ForeignLoad() as load:
        lead_seconds = _LEAD_SECONDS + jobs * _PUT_SECONDS
        first_ns = time.time_ns() + int(lead_seconds * NS)
        _put(database, [first_ns + job * NS // sizes.rate for job in range(jobs)])
        late_s = (time.time_ns() - first_ns) / NS
        assert late_s < 0, f"the jobs were made {late_s:.1f} s after they were due"
        time.sleep(-late_s + sizes.seconds)
        wait(lambda: is_done(database), nodes)
        lags_ns: list[int] = []
        for node in nodes:
            node.say("tell")
            lags_ns += json.loads(node.hear())
    assert len(lags_ns) == jobs, f"{len(lags_ns):,} runs of {jobs:,} jobs"
    assert min(lags_ns) >= 0, f"started {-min(lags_ns) / 1e6:.3f} ms early"
    lags_ms = [lag_ns / 1e6 for lag_ns in lags_ns]
    return [
        PairedRow(
            f"{group}, {sizes.rate:,} due a second on {sizes.nodes} nodes",
            name,
            OURS,
            figure,
            unit=MS,
            foreign_cores=load.cores,
        )
        for name, figure in {
            "late, p50": statistics.median(lags_ms),
            "late, p99": percentile(lags_ms, 0.99),
            "late, longest": max(lags_ms),
        }.items()
    ]


def _put(database: Database, dues_ns: Sequence[int]) -> None:
    with closing(PostgresStore.open(database.url, hints="auto")) as store:
        for start in range(0, len(dues_ns), _PUT_STEP):
            part = dues_ns[start : start + _PUT_STEP]
            store.put([draft_of(STAMP.call(due_ns), At(due_ns)) for due_ns in part])


def idle(group: str, place: Place, sizes: WaitSizes) -> list[Row]:
    """Count what a node asks that has nothing to do, with hints of others and without."""
    return [
        Row(f"{group}, a node with nothing to do", name, OURS, each, unit=COUNT)
        for hints, said in _HINTS.items()
        for name, each in zip(
            (f"statements a second, {said}", f"transactions a second, {said}"),
            _asked_a_second(place, sizes, hints),
            strict=True,
        )
    ]


def _asked_a_second(place: Place, sizes: WaitSizes, hints: str) -> list[float]:
    database = place.new_database()
    with closing(connect_at_once(place.where)) as watching:
        watching.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        command = ["-m", "bench.cluster_node", "idle", database.url, hints]
        PostgresStore.open(database.url).close()
        _put(database, [time.time_ns() + 3_600 * NS])
        with serving(database, [command]):
            time.sleep(min(sizes.idle_seconds, _CALM_SECONDS))
            start = time.perf_counter()
            before = _counts(watching, database)
            time.sleep(sizes.idle_seconds)
            after = _counts(watching, database)
            took = time.perf_counter() - start
    return [(last - first) / took for first, last in zip(before, after, strict=True)]


def _counts(watching, database: Database) -> tuple[int, int]:
    def one(query: str) -> int:
        return int(watching.execute(query.format(database.name)).fetchone()[0])

    return one(_STATEMENTS), one(_TRANSACTIONS)
