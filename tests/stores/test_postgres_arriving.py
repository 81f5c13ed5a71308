"""A store in a directory moves into a database: all of it, under the same ids, once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.postgres import Postgres
from tests.stores.embedded_stage import EmbeddedStage
from tests.stores.stage import WORKER, after, cron, every
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.model import (
    Cap,
    Job,
    JobId,
    JobState,
    Outcome,
    Queue,
    Run,
    RunId,
    RunState,
)
from timingwheel.jobs.store import JobQuery, JobStore, RunQuery
from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.stores.leaving import Leaving
from timingwheel.stores.postgres.arriving import Arriving, MoveRefusedError
from timingwheel.stores.postgres.making import StillArrivingError
from timingwheel.stores.postgres.store import PostgresStore

SHARDS = 4


class Everything(NamedTuple):
    """What a store answers, of all that there is."""

    jobs: dict[JobId, Job]
    runs: dict[RunId, Run]
    attempts: dict[RunId, list[Any]]
    skips: dict[JobId, list[Any]]
    queues: dict[str, Queue]
    calendars: dict[str, NamedCalendar]


def everything(store: JobStore) -> Everything:
    jobs = {one.id: one for one in store.jobs(JobQuery(limit=1_000)).jobs}
    runs = {one.id: one for one in store.runs(RunQuery(limit=1_000)).runs}
    return Everything(
        jobs,
        runs,
        {run: store.attempts(run) for run in runs},
        {job: store.skips(job) for job in jobs},
        {one.name: one for one in store.queues()},
        store.calendars(),
    )


@pytest.fixture
def source(tmp_path: Path) -> Iterator[EmbeddedStage]:
    """A directory with jobs of all kinds, in all states."""
    stage = EmbeddedStage(tmp_path / "data")
    store = stage.store
    store.set_calendar("holidays", NamedCalendar(weekdays=("SAT", "SUN")))
    store.set_queue(Queue(name="mail", limit=2, rate=1.5))
    stage.step_wall(100)  # delays go by another scale now
    done = stage.put(0)
    stage.step()
    failed = stage.put(0, name="failed", tags={"a": "b"})
    lost = stage.put(0)
    for job, outcome in ((failed, Outcome.ERROR), (lost, Outcome.ERROR)):
        while stage.run(job).state is not RunState.FAILED:
            stage.step(outcome)
            stage.advance(3_600)
    stage.put(every(60), name="often", key="k")
    for _ in range(3):
        stage.advance(60)
        stage.step()
    stage.put(cron("0 9 * * *", calendar="holidays", tz="Europe/Berlin"), name="daily")
    paused = stage.put(every(60), name="paused")
    stage.pause(paused, note="rain")
    stage.advance(600)
    stage.step()
    stage.resume(paused)
    stage.pause(paused)
    stage.put(3_600)
    before = stage.put(7_200)
    stage.put(after(before), name="after")
    capped = stage.put(every(1_000_000), cap=Cap(key="c", limit=1))
    stage.trigger(capped)
    cancelled = stage.put(3_600, name="cancelled")
    store.cancel(cancelled)
    retrying = stage.put(0, name="retrying")
    stage.step(Outcome.ERROR)
    assert stage.run(retrying).state is RunState.RETRYING
    broken = stage.put(every(1_000_000), name="broken")
    store.quarantine(broken, "cannot be read")
    stage.put(0, name="running")
    stage.put(0)
    stage.start_due()
    assert {job.state for job in everything(store).jobs.values()} == set(JobState)
    assert stage.run(done).state is RunState.SUCCEEDED
    yield stage
    if stage.is_open:
        stage.end_all()


@pytest.fixture
def leaving(source: EmbeddedStage) -> tuple[Leaving, Everything]:
    """The store opened to leave, and what it holds."""
    source.stop()
    source.open()
    return Leaving(source.store), everything(source.store)


def arrive(leaving: Leaving, where: str, *, resume: bool = False) -> dict[str, int]:
    with closing(Arriving(leaving, where, shards=SHARDS)) as arriving:
        arriving.prepare(resume=resume)
        counts = arriving.run()
        arriving.end()
    return counts


def test_all_is_there_as_it_was(
    leaving: tuple[Leaving, Everything], postgres: Postgres
) -> None:
    where = postgres.new_schema()
    store, held = leaving
    with closing(Arriving(store, where)) as arriving:
        expected = arriving.counts()
    assert arrive(store, where) == expected
    assert all(expected[name] for name in expected)
    with closing(PostgresStore.open(where)) as moved:
        found = everything(moved)
    assert found.jobs == held.jobs
    assert found.runs == held.runs
    for run, attempts in held.attempts.items():
        # Of a plain job's run nobody knows any more who has it, and since when.
        if not attempts or attempts[-1].worker:
            assert found.attempts[run] == attempts
    assert found.skips == held.skips
    assert (found.queues, found.calendars) == (held.queues, held.calendars)


def test_a_key_finds_its_job_and_what_is_new_has_ids_of_its_own(
    source: EmbeddedStage, leaving: tuple[Leaving, Everything], postgres: Postgres
) -> None:
    from tests.stores.stage import draft

    where = postgres.new_schema()
    store, held = leaving
    arrive(store, where)
    with closing(PostgresStore.open(where)) as moved:
        (known,) = moved.put([draft(every(60), name="often", key="k")])
        assert (known.id in held.jobs, known.created) == (True, False)
        (new,) = moved.put([draft(60)])
        assert new.id not in held.jobs
        tokens = [one.token for many in held.attempts.values() for one in many]
        moved.join(WORKER)
        moved.recover()
        moved.fire(100)
        claims, _ = moved.claim(WORKER, tasks=frozenset({"t"}), count=100)
        assert claims
        assert min(one.token for one in claims) > max(tokens)
        # What was running is tried again: its worker does not live.
        running = [run for run in held.runs.values() if run.state is RunState.RUNNING]
        assert running
        for run in running:
            assert moved.attempts(run.id)[0].outcome is Outcome.LOST


def test_a_move_that_was_broken_off_goes_on_and_nobody_serves_it_meanwhile(
    leaving: tuple[Leaving, Everything], postgres: Postgres
) -> None:
    class Killed(BaseException):
        pass

    def die(words: str) -> None:
        if words.startswith("ended jobs"):
            raise Killed

    where = postgres.new_schema()
    store, held = leaving
    with closing(Arriving(store, where, tell=die, shards=SHARDS)) as arriving:
        arriving.prepare(resume=False)
        with pytest.raises(Killed):
            arriving.run()
    with pytest.raises(StillArrivingError, match="migrate-store --resume"):
        PostgresStore.open(where)
    with pytest.raises(MoveRefusedError, match="pass --resume"):
        arrive(store, where)
    arrive(store, where, resume=True)
    with closing(PostgresStore.open(where)) as moved:
        assert everything(moved).runs == held.runs
    with pytest.raises(MoveRefusedError, match="has a job store already"):
        arrive(store, where, resume=True)


def test_counts_that_differ_end_the_move(
    leaving: tuple[Leaving, Everything], postgres: Postgres
) -> None:
    where = postgres.new_schema()
    store, _ = leaving
    with closing(Arriving(store, where, shards=SHARDS)) as arriving:
        arriving.prepare(resume=False)
        arriving._connections.rows(
            "INSERT INTO timingwheel_skips VALUES (0, 'x', 0, 'misfire', 0, 1)"
        )
        with pytest.raises(MoveRefusedError, match="is not to be used"):
            arriving.run()


def test_the_directory_is_an_embedded_store_still(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path / "data")
    with closing(store):
        assert list(Leaving(store).live_jobs()) == []
