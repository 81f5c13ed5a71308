"""What the purge forgets, rule by rule."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.stores.history_samples import (
    DAILY,
    DAY,
    SECOND,
    T0,
    attempt_entry,
    attempt_of,
    job_entry,
    job_of,
    plain_entry,
    run_entry,
    run_of,
    skips_entry,
)
from timingwheel.errors import ArgumentError
from timingwheel.jobs.model import JobId, Run, RunState, SkipRange, SkipReason
from timingwheel.jobs.store import JobQuery, RunQuery
from timingwheel.stores.history import Entry, History, Retention, encode
from timingwheel.stores.history_retention import STEP_ROWS, Purge

NOW = T0 + 100 * DAY
DEFAULT = Retention()


@pytest.fixture
def history() -> Iterator[History]:
    history = History(":memory:")
    yield history
    history.check()
    history.close()


def ended(job: str, before_now_ns: int, n: int = 0, **more: Any) -> Run:
    """A run that ended this long before NOW."""
    ended_ns = NOW - before_now_ns
    return run_of(job, ended_ns - SECOND, n, ended_ns=ended_ns, **more)


def runs_in(history: History) -> set[tuple[str, int]]:
    page = history.runs(RunQuery(limit=1_000))
    assert page.cursor is None
    return {(run.job_id, run.nominal_ns) for run in page.runs}


def jobs_in(history: History) -> set[str]:
    return {job.id for job in history.jobs(JobQuery(limit=1_000)).jobs}


def test_the_defaults_are_those_of_the_guarantees() -> None:
    assert Retention(
        runs_ns=7 * DAY, runs_min=100, dead_ns=7 * DAY, skips_ns=30 * DAY
    ) == (DEFAULT)


def test_runs_of_an_ended_one_time_job_go_after_seven_days(history: History) -> None:
    on_time, late = ended("a", 7 * DAY), ended("b", 7 * DAY + 1)
    history.write([run_entry(1, on_time), run_entry(1, late, {"team": "bi"})])
    history.write([attempt_entry(2, attempt_of(run)) for run in (on_time, late)])
    history.write([job_entry(3, job_of("a")), job_entry(3, job_of("b"))], now_ns=NOW)

    assert history.purge(NOW, DEFAULT) == 1
    assert runs_in(history) == {("a", on_time.nominal_ns)}
    assert history.attempts(late.id) == []
    assert len(history.attempts(on_time.id)) == 1
    assert history.runs(RunQuery(tags={"team": "bi"})).runs == []


def test_attempts_go_with_their_run_also_of_repeated_ones(history: History) -> None:
    old, new = ended("a", 8 * DAY, n=12), ended("a", 8 * DAY - 10, n=0)
    history.write([run_entry(1, old), job_entry(1, job_of("a"))])
    history.write(
        [attempt_entry(2, attempt_of(old)), attempt_entry(2, attempt_of(new))]
    )
    history.purge(NOW, DEFAULT)
    assert history.attempts(old.id) == []
    assert len(history.attempts(new.id)) == 1


def test_a_plain_job_goes_after_seven_days_with_all_it_stands_for(
    history: History,
) -> None:
    history.write([plain_entry(1, ended("a", 7 * DAY + 1))])
    history.write([plain_entry(2, ended("b", 7 * DAY))])
    assert history.purge(NOW, DEFAULT) == 1
    assert jobs_in(history) == {"b"}


def test_the_last_hundred_runs_of_a_live_job_stay_whatever_their_age(
    history: History,
) -> None:
    runs = [ended("a", (8 + age) * DAY) for age in range(103)]
    history.write([run_entry(1, run) for run in runs])
    assert history.purge(NOW, DEFAULT) == 3
    assert runs_in(history) == {("a", run.nominal_ns) for run in runs[:100]}
    assert history.purge(NOW, DEFAULT) == 0


def test_young_runs_count_among_the_last_hundred(history: History) -> None:
    young = [ended("a", age * SECOND) for age in range(150)]
    old = ended("a", 8 * DAY)
    history.write([run_entry(1, run) for run in (*young, old)])
    assert history.purge(NOW, DEFAULT) == 1
    assert len(runs_in(history)) == 150


def test_how_many_stay_can_be_set(history: History) -> None:
    runs = [ended("a", (8 + age) * DAY) for age in range(5)]
    history.write([run_entry(1, run) for run in runs])
    assert history.purge(NOW, Retention(runs_min=2)) == 3
    assert len(runs_in(history)) == 2
    assert history.purge(NOW, Retention(runs_min=0)) == 2


def test_an_ended_recurring_job_keeps_its_runs_as_long_as_any_run(
    history: History,
) -> None:
    runs = [ended("a", (8 + age) * DAY) for age in range(5)]
    history.write([run_entry(1, run) for run in runs])
    history.write([job_entry(2, job_of("a", DAILY))], now_ns=NOW)
    assert history.purge(NOW + 7 * DAY, DEFAULT) == 0
    assert history.purge(NOW + 7 * DAY + 1, DEFAULT) == 6
    assert runs_in(history) == set()
    assert jobs_in(history) == set()


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.LOST])
def test_the_dead_letter_has_a_time_of_its_own(
    history: History, state: RunState
) -> None:
    dead = ended("a", 10 * DAY, state=state)
    done = ended("b", 10 * DAY)
    history.write([run_entry(1, dead), run_entry(1, done)])
    history.write([job_entry(2, job_of("a")), job_entry(2, job_of("b"))])

    assert history.purge(NOW, Retention(dead_ns=10 * DAY)) == 2  # b: run and job
    assert runs_in(history) == {("a", dead.nominal_ns)}
    assert history.purge(NOW, Retention(dead_ns=10 * DAY - 1)) == 2


def test_the_dead_letter_may_be_the_shorter_one(history: History) -> None:
    dead, done = ended("a", 2 * DAY, state=RunState.FAILED), ended("b", 2 * DAY)
    history.write([run_entry(1, dead), run_entry(1, done)])
    history.write([job_entry(2, job_of("a")), job_entry(2, job_of("b"))], now_ns=NOW)
    assert history.purge(NOW, Retention(dead_ns=DAY)) == 1
    assert runs_in(history) == {("b", done.nominal_ns)}


def test_a_job_stays_until_its_last_run_goes(history: History) -> None:
    dead = ended("a", 10 * DAY, state=RunState.FAILED)
    history.write([run_entry(1, dead), job_entry(1, job_of("a"))])
    assert history.purge(NOW, Retention(dead_ns=11 * DAY)) == 0
    assert jobs_in(history) == {"a"}
    assert history.purge(NOW, Retention(dead_ns=9 * DAY)) == 2
    assert jobs_in(history) == set()


def test_a_job_whose_run_is_live_again_stays(history: History) -> None:
    run = ended("a", 10 * DAY, state=RunState.FAILED)
    history.write([run_entry(1, run), job_entry(1, job_of("a"))])
    history.write([Entry(2, "revive", encode(run.id))])
    assert history.purge(NOW, DEFAULT) == 0
    assert history.has_job(JobId("a"))
    history.write([run_entry(3, run)])
    assert history.purge(NOW, DEFAULT) == 2
    assert not history.has_job(JobId("a"))


def test_a_job_that_never_ran_goes_seven_days_after_its_end(history: History) -> None:
    history.write([job_entry(1, job_of("a"))], now_ns=NOW)
    assert history.purge(NOW + 7 * DAY, DEFAULT) == 0
    assert history.purge(NOW + 7 * DAY + 1, DEFAULT) == 1


def test_skip_ranges_go_thirty_days_after_their_last(history: History) -> None:
    job, last_ns = JobId("a"), NOW - 30 * DAY
    stays = SkipRange(job, SkipReason.MISFIRE, 0, last_ns, 9)
    goes = SkipRange(job, SkipReason.MISFIRE, 0, last_ns - 1, 8)
    history.write([skips_entry(1, stays), skips_entry(1, goes)])
    assert history.purge(NOW, DEFAULT) == 1
    assert history.skips(job) == [stays]


def test_a_purge_goes_in_steps_and_others_write_in_between(history: History) -> None:
    count = 2 * STEP_ROWS + 1
    runs = [ended(f"j{i}", 8 * DAY + i) for i in range(count)]
    history.write([plain_entry(1, run) for run in runs])
    walk = Purge(NOW, DEFAULT)
    deleted: list[int] = []
    while not walk.is_done:
        deleted.append(history.purge_step(walk))
        lsn = history.reached_lsn + 1
        history.write([plain_entry(lsn, ended(f"new{lsn}", 0))])
    assert max(deleted) == STEP_ROWS
    assert sum(deleted) == count
    assert len(runs_in(history)) == len(deleted)


def test_what_stays_does_not_keep_the_walk_from_the_rest(history: History) -> None:
    kept = [ended(f"live{i % 7}", 50 * DAY + i) for i in range(STEP_ROWS + 100)]
    history.write([run_entry(1, run) for run in kept])
    history.write(
        [plain_entry(2, ended(f"j{i}", 40 * DAY - i)) for i in range(2 * STEP_ROWS)]
    )
    assert history.purge(NOW, DEFAULT) == 2 * STEP_ROWS
    assert len(runs_in(history)) == len(kept)


def test_a_run_without_an_end_is_as_old_as_its_nominal_time(history: History) -> None:
    skipped = run_of("a", NOW - 8 * DAY, state=RunState.SKIPPED, ended_ns=None)
    history.write([run_entry(1, skipped), job_entry(1, job_of("a"))], now_ns=NOW)
    assert history.purge(NOW, DEFAULT) == 1


@pytest.mark.parametrize("name", ["runs_ns", "runs_min", "dead_ns", "skips_ns"])
def test_a_negative_retention_is_refused(name: str) -> None:
    fields: dict[str, Any] = {name: -1}
    with pytest.raises(ArgumentError, match=name):
        Retention(**fields)


def test_the_purge_agrees_with_the_rules_applied_one_by_one(
    rng: random.Random,
) -> None:
    retention = Retention(runs_ns=50, runs_min=3, dead_ns=80, skips_ns=30)
    for _ in range(25):
        history = History(":memory:")
        runs = [
            run_of(
                f"j{rng.randrange(8)}",
                NOW - rng.randrange(200),
                rng.randrange(2),
                ended_ns=NOW - rng.randrange(120),
                state=rng.choice((RunState.SUCCEEDED, RunState.FAILED)),
            )
            for _ in range(60)
        ]
        runs = list({run.id: run for run in runs}.values())
        # j0 to j2: one-time and ended; j3, j4: recurring and ended; the rest live.
        ends = {f"j{i}": NOW - rng.randrange(100) for i in range(5)}
        history.write([run_entry(1, run) for run in runs])
        for lsn, (job, end_ns) in enumerate(ends.items(), 2):
            trigger = DAILY if job in {"j3", "j4"} else job_of(job).trigger
            entry = job_entry(lsn, job_of(job, trigger, created_ns=0))
            history.write([entry], now_ns=end_ns)

        def is_sheltered(run: Run, ends: dict[str, int] = ends) -> bool:
            if run.job_id not in ends:
                return True
            return run.job_id in {"j3", "j4"} and ends[run.job_id] >= NOW - 50

        def stays(run: Run, runs: list[Run] = runs) -> bool:
            limit_ns = 80 if run.state is RunState.FAILED else 50
            assert run.ended_ns is not None
            if run.ended_ns >= NOW - limit_ns:
                return True
            newer = [other for other in runs if other.job_id == run.job_id]
            newer.sort(key=lambda other: other.nominal_ns, reverse=True)
            floor_ns = newer[:3][-1].nominal_ns
            return is_sheltered(run) and run.nominal_ns >= floor_ns

        expected = {run.id for run in runs if stays(run)}
        history.purge(NOW, retention)
        left = history.runs(RunQuery(limit=1_000)).runs
        assert {run.id for run in left} == expected
        with_runs = {run.job_id for run in left}
        assert jobs_in(history) == {
            job
            for job, end_ns in ends.items()
            if job in with_runs or end_ns >= NOW - 50
        }
        history.close()
