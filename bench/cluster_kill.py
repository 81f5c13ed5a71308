"""A node that is killed with SIGKILL among others: who waits how long, and is anything lost.

Jobs are due evenly all the while; each handler writes its start into a table without a
unique key, from which is counted. *Worst lateness* is from a job's due time to the start
of the attempt that succeeded, so it holds the lease that had to run out, the shards that
had to be taken over, and runs that began again. *Lost* are runs that did not succeed;
*doubled* those that succeeded twice, or were started by whom nothing is known of.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.cluster_node import NS_A_MS, SINK, WRITE
from bench.cluster_nodes import is_done, serving, wait
from bench.cluster_place import Database, Place, place_in
from bench.postgres_server import connect_at_once
from bench.progress import Step
from bench.rounds import COUNT, OURS, SECONDS, Progress
from bench.row import Row
from bench.schedulers import NS
from timingwheel.jobs.model import Draft, Outcome, Payload, Run, RunState
from timingwheel.jobs.store import RunQuery
from timingwheel.jobs.triggers import At, Trigger
from timingwheel.stores.postgres.store import PostgresStore

NODES = 3
_NO_ARGUMENTS = Payload(b"\x80")
_BEFORE_TTLS = 0.5
_AFTER_TTLS = 2.0
_LEAD_SECONDS = 0.5
_PUT_SECONDS = 300e-6  # a job
_PAGE = 1_000
_START_TTLS = 3.0  # until three nodes have shared the shards


@dataclass(frozen=True, slots=True)
class KillSizes:
    """How large these are.

    Attributes:
        ttls_ms: how long nodes live after their last sign of life, in turn.
        rate: jobs due a second.
        kills: nodes that are killed, one at a time, each among NODES.
    """

    ttls_ms: Sequence[int]
    rate: int
    kills: int


FULL = KillSizes(ttls_ms=(6_000, 3_000), rate=200, kills=2)
NORMAL = KillSizes(ttls_ms=(6_000, 3_000), rate=200, kills=1)
SMOKE = KillSizes(ttls_ms=(2_000,), rate=50, kills=1)


@dataclass(frozen=True, slots=True)
class Toll:
    """What became of the runs of one kill.

    Attributes:
        worst_s: the worst lateness, seconds.
        lost: see the module.
        doubled: see the module.
        twice: runs whose handler started more than once.
        in_flight: attempts that the node had when it was killed.
        runs: how many there were.
    """

    worst_s: float
    lost: int
    doubled: int
    twice: int
    in_flight: int
    runs: int


def steps(group: str, sizes: KillSizes, directory: Path) -> list[Step]:
    """Return the steps that measure kills.

    Args:
        group: of the steps.
        sizes: how large they are.
        directory: on the disk in question; left empty again.
    """
    return [
        Step(
            group,
            f"a node killed, TTL {ttl_ms / 1_000:g} s",
            2 + sizes.kills * (4 + _START_TTLS * ttl_ms / 1_000 + _seconds(ttl_ms)),
            partial(_measure, group, ttl_ms, sizes, directory),
        )
        for ttl_ms in sizes.ttls_ms
    ]


def _seconds(ttl_ms: int) -> float:
    """How long jobs come due."""
    return (_BEFORE_TTLS + _AFTER_TTLS) * ttl_ms / 1_000


def _measure(
    group: str, ttl_ms: int, sizes: KillSizes, directory: Path, progress: Progress
) -> list[Row]:
    tolls: list[Toll] = []
    with place_in(directory) as place:
        for number in range(sizes.kills):
            progress(f"{group}: TTL {ttl_ms / 1_000:g} s, kill {number + 1}")
            tolls.append(kill(place, ttl_ms, sizes.rate))
    runs = sum(toll.runs for toll in tolls)
    note = (
        f"{sizes.kills} kill{'s' if sizes.kills > 1 else ''}, {runs:,} runs; started "
        f"twice: {sum(toll.twice for toll in tolls)}, in flight at the kill: "
        f"{sum(toll.in_flight for toll in tolls)}"
    )
    table = f"{group}, one of {NODES} nodes killed"
    name = f"TTL {ttl_ms / 1_000:g} s"
    worst = max(toll.worst_s for toll in tolls)
    return [
        Row(table, f"{name}: worst lateness", OURS, worst, note, SECONDS),
        Row(table, f"{name}: lost", OURS, sum(one.lost for one in tolls), unit=COUNT),
        Row(
            table,
            f"{name}: doubled",
            OURS,
            sum(one.doubled for one in tolls),
            unit=COUNT,
        ),
    ]


def kill(place: Place, ttl_ms: int, rate: int) -> Toll:
    database = place.new_database()
    PostgresStore.open(database.url).close()
    with closing(connect_at_once(database.where)) as connection:
        connection.execute(SINK, prepare=False)
    node = ["-m", "bench.cluster_node", "sink", database.url]
    commands = [[*node, f"node-{number}", str(ttl_ms)] for number in range(NODES)]
    with serving(database, commands) as (dies, *live):
        jobs = int(rate * _seconds(ttl_ms))
        first_ns = time.time_ns() + int((_LEAD_SECONDS + jobs * _PUT_SECONDS) * NS)
        _put(database, first_ns, rate, jobs)
        _sleep_until(first_ns + int(_BEFORE_TTLS * ttl_ms * NS_A_MS))
        dies.kill()
        _sleep_until(first_ns + jobs * NS // rate)
        wait(lambda: is_done(database), live)
    return _toll(database)


def _sleep_until(at_ns: int) -> None:
    time.sleep(max(at_ns - time.time_ns(), 0) / NS)


def _put(database: Database, first_ns: int, rate: int, jobs: int) -> None:
    with closing(PostgresStore.open(database.url, hints="auto")) as store:
        store.put(
            [
                Draft(
                    task=WRITE,
                    payload=_NO_ARGUMENTS,
                    trigger=Trigger(when=At(first_ns + job * NS // rate)),
                )
                for job in range(jobs)
            ]
        )


def _toll(database: Database) -> Toll:
    """Compare what the store says with what the handlers have written."""
    starts: dict[str, dict[int, int]] = {}
    for run_id, token, at_ns in database.rows("SELECT run_id, token, at_ns FROM sink"):
        starts.setdefault(run_id, {})[token] = at_ns
    worst_ns = lost = doubled = twice = in_flight = total = 0
    with closing(PostgresStore.open(database.url)) as store:
        for run in _runs(store):
            total += 1
            started = starts.get(run.id, {})
            attempts = store.attempts(run.id)
            done = [one.token for one in attempts if one.outcome is Outcome.OK]
            gone = {one.token for one in attempts if one.outcome is Outcome.LOST}
            ran = run.state is RunState.SUCCEEDED and bool(set(done) & started.keys())
            lost += not ran
            doubled += len(done) > 1 or bool(started.keys() - gone - set(done[:1]))
            twice += len(started) > 1
            in_flight += len(gone)
            if ran:
                worst_ns = max(worst_ns, started[done[0]] - run.due_ns)
    return Toll(worst_ns / NS, lost, doubled, twice, in_flight, total)


def _runs(store: PostgresStore) -> Iterator[Run]:
    query = RunQuery(limit=_PAGE)
    while True:
        page = store.runs(query)
        yield from page.runs
        if page.cursor is None:
            return
        query = RunQuery(limit=_PAGE, cursor=page.cursor)
