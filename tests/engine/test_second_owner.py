"""The seam: an owner with records, state and leases of its own, as the scheduler will be."""

from __future__ import annotations

import copy
import errno
import itertools
import logging
import random
import threading
from collections.abc import Callable

import pytest

from tests.engine.stage import (
    PATIENCE_S,
    SECOND_NS,
    SMALL,
    TICK_S,
    CountingClock,
    repeat_until,
)
from tests.engine.toy_owner import LEASE_NS, Job, ToyStore
from tests.wal.stores import segments_of
from timingwheel.engine.engine import TimerEngine
from timingwheel.engine.volatile import VolatileLog
from timingwheel.errors import ArgumentError, EngineFailedError
from timingwheel.testing import ManualClock
from wal.errors import CommitUnknownError, DiskFullError
from wal.log import Log
from wal.testing import MemoryFileSystem, SimulatedCrash


def open_store(
    disk: MemoryFileSystem,
    clock: ManualClock,
    *,
    segment_size_bytes: int = SMALL["segment_size_bytes"],
) -> ToyStore:
    log = Log.open(
        disk,
        wall_ns=clock.wall_ns,
        segment_size_bytes=segment_size_bytes,
        reserve_bytes=1,
        background=False,
    )
    return ToyStore(log, clock)


@pytest.fixture
def store(disk: MemoryFileSystem, clock: CountingClock) -> ToyStore:
    return open_store(disk, clock)


def test_a_job_and_its_timer_are_one_atomic_group(
    store: ToyStore, disk: MemoryFileSystem, clock: CountingClock
) -> None:
    job_id = store.add(b"daily", 10 * SECOND_NS, runs=3)
    assert store.core.log.durable_lsn == 2
    assert store.jobs[job_id] == Job(b"daily", 10 * SECOND_NS, 3, last_lsn=2)
    heir = open_store(disk.crashed("none"), clock)
    assert heir.jobs == store.jobs
    assert heir.core.state.table.timer_ids() == [job_id]


def test_a_request_that_is_refused_leaves_no_trace(
    store: ToyStore, disk: MemoryFileSystem
) -> None:
    store.add(b"daily", SECOND_NS, runs=1)
    before = disk.snapshot_of_all()
    with pytest.raises(KeyError):
        store.add(b"daily", SECOND_NS, runs=1)
    assert disk.snapshot_of_all() == before
    assert store.core.log.appended_lsn == 2


def test_what_is_due_becomes_the_owners_events_and_its_own_timer_moves_on(
    store: ToyStore, clock: CountingClock
) -> None:
    job_id = store.add(b"often", SECOND_NS, runs=2)
    clock.advance(0.9)
    assert store.tick() == []
    clock.advance(0.1 + TICK_S)
    ((found, first),) = store.tick()
    assert (found, first) == (job_id, 3)  # the run's id is the number of its record
    assert store.core.log.durable_lsn == 4
    assert store.finish(job_id, first) is True
    assert store.finish(job_id, first) is False
    assert store.jobs[job_id].finished == 1
    clock.advance(1)
    ((_, second),) = store.tick()
    assert store.core.state.table.timer_ids() == []
    assert store.finish(job_id, second) is True
    assert store.jobs == {}
    store.core.check()


def test_a_run_is_told_of_only_when_it_is_durable(
    store: ToyStore, disk: MemoryFileSystem, clock: CountingClock
) -> None:
    job_id = store.add(b"often", SECOND_NS, runs=5)
    clock.advance(2)
    # Of this file: the log fills the next one meanwhile, and syncs it too.
    disk.fail("datasync", errno.EIO, name=segments_of(disk)[0])
    with pytest.raises(CommitUnknownError):
        store.tick()
    with pytest.raises(EngineFailedError):
        store.add(b"late", SECOND_NS, runs=1)
    heir = open_store(disk.crashed("none"), clock)
    assert heir.jobs[job_id].to_come == 5
    assert len(heir.tick()) == 1


def test_a_lease_runs_out_and_is_taken_back_by_a_finish(
    store: ToyStore, clock: CountingClock
) -> None:
    job_id = store.add(b"leased", SECOND_NS, runs=2)
    clock.advance(1.1)
    ((_, quick),) = store.tick()
    assert store.finish(job_id, quick)
    clock.advance(1)
    ((_, slow),) = store.tick()
    clock.advance(LEASE_NS / SECOND_NS - 0.1)
    assert store.tick() == []
    assert store.jobs[job_id].open == [slow]
    clock.advance(0.2)
    store.tick()
    assert store.jobs == {}  # its last run was lost
    assert store.finish(job_id, slow) is False


def test_open_runs_are_known_after_a_kill_and_their_leases_begin_anew(
    store: ToyStore, disk: MemoryFileSystem, clock: CountingClock
) -> None:
    job_id = store.add(b"leased", SECOND_NS, runs=2)
    clock.advance(1.1)
    ((_, run),) = store.tick()
    heir = open_store(disk.killed(), clock)
    assert heir.jobs == store.jobs
    clock.advance(1)
    ((_, second),) = heir.tick()
    assert heir.finish(job_id, second)
    clock.advance(LEASE_NS / SECOND_NS)
    heir.tick()
    assert heir.jobs == {}
    assert heir.finish(job_id, run) is False


def test_a_full_disk_stops_jobs_and_not_the_runs_that_end_them(
    disk: MemoryFileSystem, clock: CountingClock
) -> None:
    store = open_store(disk, clock, segment_size_bytes=5120)
    job_id = store.add(b"early", SECOND_NS, runs=1)
    store.core.make_room(urgent=False)
    disk.capacity_bytes = disk.used_bytes
    names = (b"%d" % number * 100 for number in itertools.count())
    repeat_until(
        DiskFullError, lambda: store.add(next(names), 3600 * SECOND_NS, runs=1)
    )
    clock.advance(2)
    ((_, run),) = store.tick()
    assert store.finish(job_id, run)


def test_the_owners_loop_is_the_tick_thread(clock: CountingClock) -> None:
    store = ToyStore(VolatileLog(), clock)
    begun: list[tuple[int, int]] = []
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            begun.extend(store.tick())
            with store.core.lock:
                if not stop.is_set():
                    store.core.wait_for_due()

    node = threading.Thread(target=loop, daemon=True)
    node.start()
    clock.settle(PATIENCE_S, threads=1)
    job_id = store.add(b"often", SECOND_NS, runs=3)
    for count in (1, 2, 3):
        clock.advance(1 + TICK_S)
        clock.settle(PATIENCE_S, threads=1)
        assert len(begun) == count
        assert begun[-1][0] == job_id
        store.finish(*begun[-1])
    stop.set()
    with store.core.lock:
        store.core.wake.notify_all()
    node.join(PATIENCE_S)
    assert not node.is_alive()


def test_the_snapshot_has_the_owners_state_and_the_log_before_it_may_go(
    store: ToyStore, disk: MemoryFileSystem, clock: CountingClock
) -> None:
    for number in range(5):
        store.add(b"job %d" % number, (number + 1) * SECOND_NS, runs=3)
    clock.advance(3.1)
    store.tick()
    store.core.snapshot(pause=lambda: None)
    heir = open_store(disk.crashed("none"), clock)
    assert heir.core.replayed_bytes == 0
    assert heir.jobs == store.jobs
    heir.core.check()


def test_a_snapshot_that_everything_changes_under_is_whole_after_replay(
    clock: CountingClock, rng: random.Random
) -> None:
    for _ in range(30):
        disk = MemoryFileSystem()
        store = open_store(disk, clock)
        busy = Busy(store, clock, rng)
        for _ in range(20):
            busy()
        for _ in range(rng.randrange(1, 4)):
            store.core.snapshot(pause=busy)
            busy()
        heir = open_store(disk.crashed("none"), clock)
        assert heir.jobs == store.jobs
        assert heir.core.state.table.timer_ids() == store.core.state.table.timer_ids()
        heir.core.check()


class Busy:
    """Does something to a store at each call."""

    def __init__(self, store: ToyStore, clock: ManualClock, rng: random.Random) -> None:
        self.store, self.clock, self.rng = store, clock, rng
        self.names = iter(range(10**6))

    def __call__(self) -> None:
        store, rng = self.store, self.rng
        match rng.randrange(4):
            case 0:
                name = b"job %d" % next(self.names)
                period_ns = rng.randrange(1, 9) * SECOND_NS
                store.add(name, period_ns, runs=rng.randrange(1, 4))
            case 1:
                self.clock.advance(rng.random() * 3)
                store.tick(rng.choice((1, 100)))
            case _:
                runs = [(j, run) for j, job in store.jobs.items() for run in job.open]
                if runs:
                    store.finish(*rng.choice(runs))


def a_life(store: ToyStore, clock: ManualClock) -> list[Callable[[], object]]:
    """Steps of one program; each changes the jobs by one atomic group, or not at all."""

    def advance_and_tick() -> None:
        clock.advance(1.1)
        store.tick(2)

    def finish_one() -> None:
        runs = [(j, run) for j, job in store.jobs.items() for run in job.open]
        store.finish(*runs[0])

    def snapshot() -> None:
        store.core.snapshot(pause=lambda: None)

    def add(name: bytes, period_s: int) -> Callable[[], object]:
        return lambda: store.add(name, period_s * SECOND_NS, runs=2)

    return [
        add(b"a" * 300, 1),
        add(b"b" * 300, 1),
        add(b"c" * 200, 2),
        advance_and_tick,
        finish_one,
        snapshot,
        advance_and_tick,
        add(b"d" * 300, 1),
        finish_one,
        finish_one,
        snapshot,
        advance_and_tick,
        finish_one,
        add(b"e" * 300, 50),
        snapshot,
        advance_and_tick,
    ]


def test_a_crash_at_any_disk_call_leaves_the_jobs_before_or_after_the_step(
    clock: CountingClock, rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    """Over the states of a power loss, and over the death of the process alone."""
    caplog.set_level(logging.CRITICAL, logger="wal")
    whole = MemoryFileSystem()
    store = open_store(whole, ManualClock(), segment_size_bytes=5120)
    born = whole.calls
    for step in a_life(store, store.core.clock):  # type: ignore[arg-type]
        step()
    states = 0
    for index in range(born + 1 + rng.randrange(2), whole.calls + 1, 2):
        disk, crash_clock = MemoryFileSystem(), ManualClock()
        store = open_store(disk, crash_clock, segment_size_bytes=5120)
        disk.crash_at(index, after=rng.random() < 0.5)
        before = copy.deepcopy(store.jobs)
        try:
            for step in a_life(store, crash_clock):
                before = copy.deepcopy(store.jobs)
                step()
        except SimulatedCrash:
            pass
        labels = ["none", "all", f"random {index}"]
        for state in [disk.killed(), *(disk.crashed(label) for label in labels)]:
            heir = open_store(state, crash_clock, segment_size_bytes=5120)
            assert heir.jobs in (before, store.jobs), (index, state.label)
            timers = heir.core.state.table.timer_ids()
            assert timers == sorted(j for j, job in heir.jobs.items() if job.to_come)
            heir.core.check()
            states += 1
    print(f"{states} states")
    assert states > 100


def test_the_directory_of_one_owner_is_refused_by_another(
    store: ToyStore, disk: MemoryFileSystem, clock: CountingClock
) -> None:
    store.add(b"a job", SECOND_NS, runs=1)
    store.core.close()
    before = disk.snapshot_of_all()
    with pytest.raises(ArgumentError, match="belongs to a scheduler"):
        TimerEngine(disk, print, clock=clock, **SMALL)
    assert disk.snapshot_of_all() == before
    assert len(open_store(disk, clock).jobs) == 1
