"""Many callers of one Scheduler, and of stores that share a directory."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.races.test_engine import run_program
from tests.stores.stage import draft
from tests.wal.stores import PATIENCE_SECONDS, Worker
from timingwheel import EngineClosedError, Scheduler, TimerEngine
from timingwheel.clock import SystemClock
from timingwheel.jobs.errors import RunStateError, UnknownJobError
from timingwheel.jobs.model import RunState
from timingwheel.jobs.store import JobQuery
from timingwheel.stores.door_errors import HolderLostError
from timingwheel.stores.shared_store import SharedStore

SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 31))]
seeds = pytest.mark.parametrize("seed", SEEDS)

ran: Counter[str] = Counter()
changed = threading.Condition()


def note(word: str) -> None:
    with changed:
        ran[word] += 1
        changed.notify_all()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


def has_run_since(count: int) -> bool:
    return ran["tick"] > count


def wait_for(condition: Callable[[], bool]) -> None:
    with changed:
        assert changed.wait_for(condition, PATIENCE_SECONDS), dict(ran)


@seeds
def test_a_job_whose_cancel_was_in_time_never_runs_and_every_other_runs_once(
    seed: int,
) -> None:
    due: set[str] = set()
    cancelled: set[str] = set()
    with Scheduler(":memory:", slots=3) as app:
        task = app.task(note)

        def call(caller: int) -> None:
            rng = random.Random(f"{seed}-{caller}")
            for number in range(12):
                word = f"{caller}-{number}"
                job = app.add(task.call(word), delay=0)
                if rng.random() < 0.7 and app.cancel(job):
                    cancelled.add(word)
                else:
                    due.add(word)

        for worker in [Worker(partial(call, caller)) for caller in range(4)]:
            worker.outcome()
        wait_for(lambda: due <= ran.keys())
    assert not cancelled & ran.keys()
    assert set(ran.values()) <= {1}


@seeds
def test_when_a_pause_has_returned_nothing_starts_that_did_not_run_already(
    seed: int,
) -> None:
    with Scheduler(":memory:", slots=2) as app:
        job = app.add(app.task(note).call("tick"), every=0.002, name="tick")
        for _ in range(6 + seed % 5):
            former = ran["tick"]
            wait_for(partial(has_run_since, former))
            app.pause(job)
            # What had been claimed may still be on its way to its handler.
            for run in app.runs(job=job, state=RunState.RUNNING):
                app.run(run.id).wait(PATIENCE_SECONDS)
            held = ran["tick"]
            assert list(app.runs(job=job, state=RunState.RUNNING)) == []
            # Another run of it, which a pause does not hold, and that alone: so claims
            # have been made meanwhile.
            app.trigger(job).wait(PATIENCE_SECONDS)
            assert ran["tick"] == held + 1
            app.resume(job)


@seeds
def test_what_a_stop_races_with_is_there_afterwards_or_was_refused(
    tmp_path: Path, seed: int
) -> None:
    app = Scheduler(tmp_path, slots=2)
    task = app.task(note)
    app.start()
    added: set[str] = set()
    begun = threading.Semaphore(0)

    def call(caller: int) -> None:
        rng = random.Random(f"{seed}-{caller}")
        for number in range(100_000):
            word = f"{caller}-{number}"
            try:
                job = app.add(task.call(word), delay=rng.choice((0, 3600)))
                added.add(word)
                app.pause(job)
                app.resume(job)
                app.jobs(limit=2)
            except EngineClosedError:
                return
            except (RunStateError, UnknownJobError):
                pass  # it has run meanwhile
            finally:
                begun.release()

    callers = [Worker(partial(call, caller)) for caller in range(3)]
    for _ in range(10 + seed):
        assert begun.acquire(timeout=PATIENCE_SECONDS)
    stoppers = [Worker(app.stop) for _ in range(2)]
    for worker in (*stoppers, *callers):
        worker.outcome()
    with Scheduler(tmp_path, slots=0) as again:
        left = {str(again.job(row.id).payload.body) for row in again.jobs(limit=1_000)}
    missing = [word for word in added - ran.keys() if not any(word in b for b in left)]
    assert missing == []
    assert set(ran.values()) <= {1}


# -- one directory ----------------------------------------------------------------------------


@seeds
def test_no_job_is_lost_or_twice_there_while_who_holds_the_directory_changes(
    tmp_path: Path, seed: int
) -> None:
    acknowledged: set[str] = set()

    def use(user: int) -> None:
        rng = random.Random(f"{seed}-{user}")
        for life in range(3):
            store = SharedStore.open(tmp_path, clock=SystemClock())
            try:
                for number in range(rng.randrange(1, 6)):
                    key = f"{user}-{life}-{number}"
                    while True:
                        try:
                            store.put([draft(3600, key=key, name=key)])
                            break
                        except HolderLostError:
                            pass  # under its key it may be put again
                    acknowledged.add(key)
            finally:
                store.close()

    for worker in [Worker(partial(use, user)) for user in range(4)]:
        worker.outcome()
    store = SharedStore.open(tmp_path, clock=SystemClock())
    names = [job.name for job in store.jobs(JobQuery(limit=1_000)).jobs]
    store.close()
    assert Counter(names) == Counter(acknowledged)


ONE_AT_A_TIME = """
import sys
from timingwheel import TimerEngine
from wal.errors import StoreInUseError

path, wins = sys.argv[1], int(sys.argv[2])
refused = 0
while wins:
    try:
        engine = TimerEngine(
            path, lambda *_: None, segment_size_bytes=65536, reserve_bytes=1
        )
    except StoreInUseError:
        refused += 1
        continue
    for timer_id in engine.schedule_many([3600] * 3, [b""] * 3):
        print(timer_id)
    engine.close()
    wins -= 1
print("refused", refused)
"""


def test_of_processes_that_race_for_a_directory_one_has_it_at_a_time(
    tmp_path: Path,
) -> None:
    workers = [
        Worker(partial(run_program, ONE_AT_A_TIME, tmp_path, 2)) for _ in range(3)
    ]
    words = " ".join(str(worker.outcome()) for worker in workers).split()
    ids = [int(word) for word in words if word.isdecimal() and int(word)]
    refusals = words.count("refused")
    assert refusals == 3
    told = Counter(ids)
    with TimerEngine(tmp_path, print, autostart=False) as engine:
        found = {timer.id for timer in engine.timers(1_000)}
    assert len(found) == 18
    assert found <= told.keys()
