"""A store in numbers, gathered from its parts; see StoreFigures.

What is counted is counted where it happens, as plain integers under the core's lock; here
it is only read. The lock is held for a copy of what is small, and the directory and the
history are looked at outside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from timingwheel.engine.core import EngineCore
from timingwheel.jobs.figures import (
    BACKLOG_QUEUES_MAX,
    DEAD_COUNTED_MAX,
    OTHER_QUEUES,
    HistogramSnapshot,
    LogFigures,
    StoreFigures,
)
from timingwheel.jobs.model import JobState, RunState
from timingwheel.stores.owner import StoreOwner
from wal.log import Log
from wal.snapshot import SnapshotInfo


def measure(
    owner: StoreOwner, *, workers: int, snapshot: SnapshotInfo | None
) -> StoreFigures:
    """Return a store in numbers.

    Args:
        owner: the store's.
        workers: that have joined.
        snapshot: the newest that is known to be good.

    Raises:
        EngineClosedError: it is closed.
        EngineFailedError: it failed.

    Cost: O(lanes of ready runs) under the lock; one open a segment outside it.
    """
    core, state = owner.core, owner.state
    core.require_alive()
    with core.lock:
        jobs = Counter(state.jobs_by_state)
        # A plain job is a timer and nothing else, and no timer is anything else.
        jobs[JobState.ACTIVE] += len(core.state.table)
        runs, skips = Counter(state.runs_ended), Counter(state.skipped)
        runs[RunState.SUCCEEDED] += state.plain_ended
        backlog = state.ready.by_queue()
        running, leases_expired = len(state.running), state.leases_expired
        timers = len(core.state.timeline)
        tick_lag = HistogramSnapshot.of(core.tick_lag)
    return StoreFigures(
        runs={str(one): count for one, count in runs.items()},
        skips={str(one): count for one, count in skips.items()},
        leases_expired=leases_expired,
        timers=timers,
        tick_lag=tick_lag,
        jobs={str(one): count for one, count in jobs.items()},
        backlog=bounded_backlog(backlog),
        running=running,
        workers=workers,
        dead=owner.history.count_dead(DEAD_COUNTED_MAX),
        log=_log_figures(core, snapshot),
    )


def bounded_backlog(waiting: Mapping[str, int]) -> dict[str, int]:
    """Return what waits in the longest queues, and the sum of the others as one."""
    ordered = sorted(waiting.items(), key=lambda item: (-item[1], item[0]))
    told = dict(ordered[:BACKLOG_QUEUES_MAX])
    rest = sum(count for _, count in ordered[BACKLOG_QUEUES_MAX:])
    return told | {OTHER_QUEUES: rest} if rest else told


def _log_figures(core: EngineCore, snapshot: SnapshotInfo | None) -> LogFigures | None:
    log = core.log
    if not isinstance(log, Log):
        return None
    sizes = log.segment_sizes()
    age_ns = None
    if snapshot is not None:
        age_ns = max(core.clock.wall_ns() - snapshot.created_ns, 0)
    return LogFigures(
        sync=HistogramSnapshot.of(log.syncs),
        bytes=sum(sizes),
        segments=len(sizes),
        snapshot_age_ns=age_ns,
        recovery_ns=core.recovery_ns,
        disk_full=log.stats().disk_full,
    )
