"""What is true of the embedded store beyond what every store promises."""

from __future__ import annotations

import errno
import itertools
import random
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.engine.stage import repeat_until
from tests.stores.conftest import MakeStage
from tests.stores.embedded_stage import EmbeddedStage
from tests.stores.stage import (
    DAY,
    NO_RETRY,
    SECOND,
    TASK,
    WORKER,
    at,
    cron,
    draft,
    end_of,
    every,
    overlap,
)
from timingwheel.errors import EngineClosedError, EngineFailedError
from timingwheel.jobs.model import JobId, JobState, Outcome, Run, RunState
from timingwheel.jobs.store import CancelResult, RunQuery, Verdict
from timingwheel.scheduler.simulated import KeptHistory
from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.stores.finishing import Finishing
from timingwheel.stores.history_errors import HistoryError
from timingwheel.testing import ManualClock
from wal.errors import CommitUnknownError, DiskFullError, StoreInUseError


def everything(stage: EmbeddedStage) -> tuple[object, ...]:
    """Return all that a store shows."""
    jobs = sorted(stage.all_jobs(), key=lambda job: job.id)
    runs = sorted(stage.runs(), key=lambda run: run.id)
    attempts = [stage.store.attempts(run.id) for run in runs]
    skips = [stage.store.skips(job.id) for job in jobs]
    return jobs, runs, attempts, skips, stage.store.queues(), stage.store.calendars()


def a_busy_store(stage: EmbeddedStage) -> None:
    """Bring jobs of all kinds into all states; nothing runs in the end."""
    stage.put(100), stage.put(at(stage.now_ns + DAY), name="far", tags={"a": "b"})
    stage.put(every(10, runs_max=50), overlap=overlap("allow"))
    stage.put(0, retry=NO_RETRY), stage.put(0, key="k")
    stage.step(Outcome.ERROR)
    stage.pause(stage.put(cron("* * * * *")), note="why")
    stage.store.cancel(stage.put(5, name="gone"))
    stage.work(10, times=5)


# -- lives ------------------------------------------------------------------------------------


def test_a_restart_changes_nothing_that_is_shown(any_disk: EmbeddedStage) -> None:
    stage = any_disk
    a_busy_store(stage)
    before = everything(stage)
    for snapshots in (False, True, True):
        if snapshots:
            stage.snapshot()
        stage.restart()
        assert everything(stage) == before


def test_a_crash_changes_nothing_that_is_shown(make_stage: MakeStage) -> None:
    stage = make_stage()
    a_busy_store(stage)
    before = everything(stage)
    for snapshots in (False, True, True):
        if snapshots:
            stage.snapshot()
        stage.restart(crash=True)
        assert everything(stage) == before


def test_a_log_that_is_whole_brings_a_lost_history_back(make_stage: MakeStage) -> None:
    stage = make_stage()
    a_busy_store(stage)
    before = everything(stage)
    stage.stop(crash=True)
    stage.history.end()
    stage.history = KeptHistory(":memory:")
    stage.start()
    assert everything(stage) == before


def test_a_history_older_than_the_log_was_cut_for_is_refused(
    make_stage: MakeStage,
) -> None:
    stage = make_stage()
    older = stage.history.fork()
    a_busy_store(stage)
    stage.runs()  # so that the history has them
    stage.snapshot()
    stage.stop()
    stage.history.end()
    stage.history = older
    with pytest.raises(HistoryError, match="older"):
        stage.open()


def test_one_directory_has_one_store(tmp_path: Path) -> None:
    with_it = EmbeddedStage(tmp_path)
    with pytest.raises(StoreInUseError):
        EmbeddedStore.open(tmp_path, clock=ManualClock())
    with_it.end_all()
    EmbeddedStore.open(tmp_path, clock=ManualClock()).close()


def test_the_history_is_closed_before_another_can_hold_the_directory(
    tmp_path: Path,
) -> None:
    tried: list[bool] = []

    class WatchedHistory(KeptHistory):
        def close(self) -> None:
            with pytest.raises(StoreInUseError):
                EmbeddedStore.open(tmp_path)
            tried.append(True)
            self.end()

    EmbeddedStore.open(tmp_path, history=WatchedHistory(":memory:")).close()
    assert tried == [True]


def test_a_closed_store_refuses_everything_and_closes_again(
    make_stage: MakeStage,
) -> None:
    stage = make_stage()
    stage.stop()
    stage.store.close()
    for ask in (
        lambda: stage.put(1),
        lambda: stage.store.get(JobId("x")),
        lambda: stage.store.fire(1),
        lambda: stage.store.join("w"),
        stage.all_jobs,
    ):
        with pytest.raises(EngineClosedError):
            ask()


def test_a_store_in_memory_keeps_the_same_rules() -> None:
    clock = ManualClock()
    store = EmbeddedStore.open(":memory:", clock=clock, rng=random.Random(0))
    store.join(WORKER)
    store.recover()
    [ref] = store.put([draft(5)])
    clock.advance(6)
    store.fire(10)
    claims, ticket = store.claim(WORKER, tasks=frozenset({TASK}), count=5)
    store.commit(ticket)
    assert [claim.run.job_id for claim in claims] == [ref.id]
    assert store.cancel(ref.id) is CancelResult.CANCELLED
    assert store.snapshot() is None
    store.check()
    store.close()


# -- snapshots --------------------------------------------------------------------------------


def test_a_snapshot_drops_log_and_keeps_every_finished_run(
    make_stage: MakeStage,
) -> None:
    stage = make_stage(segment_size_bytes=16 << 10)
    job = stage.put(every(1, runs_max=400), overlap=overlap("allow"))
    [first] = [name for name in stage.disk.names() if name.endswith(".seg")]
    for _ in range(3):
        stage.work(1, times=50)
        stage.snapshot()
    assert first not in stage.disk.names()
    stage.restart(crash=True)
    stage.work(1, times=50)
    assert stage.states(job) == ["succeeded"] * 200


def test_what_changes_while_a_snapshot_is_written_is_neither_lost_nor_doubled(
    make_stage: MakeStage,
) -> None:
    stage = make_stage()
    jobs = [
        stage.put(1000, name=f"n{n}", tags={"text": "x" * 4000}) for n in range(300)
    ]
    stage.put(every(1, runs_max=99), overlap=overlap("allow"))
    rng = random.Random(7)
    changes = 0

    def change() -> None:
        nonlocal changes
        changes += 1
        stage.store.cancel(jobs.pop(rng.randrange(len(jobs))))
        stage.put(1000, name=f"m{changes}"), stage.put(1000)
        stage.trigger(jobs[rng.randrange(len(jobs))])
        stage.pause(jobs[rng.randrange(len(jobs))])
        stage.work(1)
        stage.work(0, outcome=Outcome.ERROR)

    stage.store._owner.core.snapshot(pause=change)
    assert changes > 3
    before = everything(stage)
    stage.restart(crash=True)
    assert everything(stage) == before


# -- what it costs ----------------------------------------------------------------------------


def test_a_pending_plain_job_is_no_object(make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.store.put([draft(100) for _ in range(500)])
    state = stage.store._owner.state
    assert (len(state.jobs), len(state.runs), len(state.waits)) == (0, 0, 0)
    stage.restart(crash=True)
    state = stage.store._owner.state
    assert (len(state.jobs), len(state.runs), len(state.waits)) == (0, 0, 0)


@pytest.mark.parametrize("plain", [True, False])
def test_what_is_over_leaves_nothing_behind(make_stage: MakeStage, plain: bool) -> None:
    stage = make_stage()
    more = {} if plain else {"tags": {"a": "b"}}
    stage.store.put([draft(0, **more) for _ in range(300)])
    assert len(stage.step()) == 300
    state = stage.store._owner.state
    for kept in (state.jobs, state.runs, state.running, state.names, state.ready):
        assert len(kept) == 0
    assert len(state.waits) == 0


def test_a_start_and_an_end_of_a_plain_job_are_one_record_each(
    make_stage: MakeStage,
) -> None:
    stage = make_stage()
    stage.store.put([draft(0) for _ in range(100)])
    stage.fire()
    log = stage.store._owner.core.log
    before = log.appended_lsn
    claims = stage.claim()
    assert log.appended_lsn - before == 100
    for claim in claims:
        stage.begin(claim)
    assert stage.end(claims[0]) is Verdict.ACCEPTED
    assert log.appended_lsn - before == 102  # the timer goes, the run is told


# -- plans ------------------------------------------------------------------------------------


def test_a_plan_made_by_older_zone_rules_is_made_anew(make_stage: MakeStage) -> None:
    stage = make_stage()
    job = stage.put(cron("0 9 * * *", tz="Europe/Berlin"))
    right_ns = stage.job(job).next_ns
    assert right_ns is not None
    owner = stage.store._owner
    wrong = msgspec.structs.replace(stage.job(job), next_ns=right_ns + 3600 * SECOND)
    owner.transact(lambda decision: decision.save_job(wrong))
    stage.restart()
    assert stage.job(job).next_ns == right_ns
    stage.advance((right_ns - stage.now_ns) / SECOND)
    assert [run.nominal_ns for run in stage.step()] == [right_ns]


# -- disks that fail ----------------------------------------------------------------------------


def test_on_a_full_disk_puts_are_refused_and_work_goes_on(
    make_stage: MakeStage,
) -> None:
    stage = make_stage(segment_size_bytes=64 << 10, reserve_bytes=128 << 10)
    runs = [stage.put(0) for _ in range(3)]
    gone = stage.put(100)
    stage.disk.capacity_bytes = stage.disk.used_bytes
    text = {"text": "x" * 2000}
    names = (f"n{n}" for n in itertools.count())
    added = repeat_until(
        DiskFullError, lambda: stage.put(1000, name=next(names), tags=text)
    )
    assert len(stage.step()) == 3
    assert stage.store.cancel(gone)
    stage.disk.capacity_bytes = None
    assert stage.put(5)
    stage.restart(crash=True)
    assert [stage.states(job) for job in runs] == [["succeeded"]] * 3
    assert stage.states(gone) == ["cancelled"]
    assert len(stage.all_jobs(tags=text)) == added


def test_a_failed_sync_stops_the_store_and_a_new_one_goes_on(
    make_stage: MakeStage,
) -> None:
    stage = make_stage()
    kept = stage.put(5)
    stage.disk.fail("datasync", errno.EIO)
    with pytest.raises(CommitUnknownError):
        stage.put(5, name="unknown")
    for ask in (
        lambda: stage.put(5),
        lambda: stage.store.get(kept),
        lambda: stage.store.cancel(kept),
        lambda: stage.store.fire(10),
    ):
        with pytest.raises(EngineFailedError):
            ask()
    stage.disk.heal()
    stage.restart(crash=True)
    stage.advance(5)
    assert kept in {run.job_id for run in stage.step()}


# -- waiting ----------------------------------------------------------------------------------


def test_the_node_is_woken_by_time_and_by_earlier_work(make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.step()
    turns: list[int] = []
    ended = threading.Event()

    def node() -> None:
        store = stage.store
        while not ended.is_set():
            with store.changed:
                store.wait()
            turns.append(stage.clock.monotonic_ns())
            store.commit(store.fire(100)[1])

    thread = threading.Thread(target=node, name="node")
    thread.start()
    stage.clock.settle(threads=2)  # it and the history
    stage.put(50)
    stage.clock.settle()
    before = len(turns)
    stage.put(0)
    stage.clock.settle()
    assert len(turns) > before
    before = len(turns)
    stage.advance(51)
    stage.clock.settle()
    assert len(turns) > before
    assert len(stage.claim()) == 2
    ended.set()
    with stage.store.changed:
        stage.store.changed.notify_all()
    thread.join()


def test_threads_that_put_finish_and_ask_at_once_see_one_story(
    make_stage: MakeStage,
) -> None:
    stage = make_stage()
    told: list[Run] = []
    stage.store.add_listener(told.extend)
    ids: list[JobId] = []

    def put(name: str) -> None:
        for n in range(25):
            refs = stage.store.put([draft(0), draft(0, name=f"{name}{n}")])
            for ref in refs:
                assert stage.store.get(ref.id) is not None
            ids.extend(ref.id for ref in refs)

    threads = [threading.Thread(target=put, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        stage.step()
        stage.snapshot()
    for thread in threads:
        thread.join()
    stage.step()
    assert len(ids) == 150
    assert {run.job_id for run in told} == set(ids)
    assert len(told) == 150
    assert {run.state for run in stage.runs()} == {RunState.SUCCEEDED}
    assert {job.state for job in stage.all_jobs()} == {JobState.DONE}


# -- ends that are taken in together -----------------------------------------------------


def test_ends_taken_in_together_are_told_in_order_each_with_its_result(
    make_stage: MakeStage,
) -> None:
    stage = make_stage()
    told: list[Run] = []
    stage.store.add_listener(told.extend)
    jobs = [stage.put(0) for _ in range(3)]
    ends = [
        end_of(claim, result=claim.run.job_id.encode()) for claim in stage.start_due()
    ]
    _, ticket = stage.store.finish(ends)
    stage.store.commit(ticket)
    assert [(run.job_id, run.result) for run in told] == [
        (job, job.encode()) for job in jobs
    ]
    assert told == [stage.run(job) for job in jobs]


def test_an_end_that_was_decided_and_never_appended_is_not_told(
    make_stage: MakeStage,
) -> None:
    stage = make_stage()
    told: list[Run] = []
    stage.store.add_listener(told.extend)
    stage.put(0)
    job = stage.put(0)
    refused, other = stage.start_due()
    owner = stage.store._owner
    (decide,) = itertools.islice(Finishing(owner, [end_of(refused)]).decides(), 1)
    with owner.core.lock:
        assert decide(owner.core.log.next_lsn)  # and now the disk is full, say
    stage.end(other)
    assert [run.job_id for run in told] == [job]


class Meanwhile:
    """A lock; when it was held and left so often, something else is done first."""

    def __init__(self, lock: threading.Lock, steps: int) -> None:
        self._lock = lock
        self._steps = steps
        self.do: Callable[[], object] = int

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        self._steps -= 1
        if self._steps == 0:
            self.do()


@pytest.mark.parametrize("steps", range(1, 7))
def test_a_plain_job_that_becomes_another_kind_meanwhile_is_on_the_page_once(
    make_stage: MakeStage, steps: int
) -> None:
    stage = make_stage()
    jobs = [stage.put(100), stage.put(200), stage.put(300, name="n")]
    core = stage.store._core
    lock = Meanwhile(core.lock, steps)

    def pause() -> None:
        core.lock = lock._lock
        stage.pause(jobs[1])

    lock.do = pause
    core.lock = lock  # type: ignore[assignment]
    page = stage.store.runs(RunQuery(limit=3))
    core.lock = lock._lock
    assert [run.job_id for run in page.runs] == jobs[::-1]
    assert page.cursor is None
