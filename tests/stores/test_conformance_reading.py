"""Questions to a store, over what lives and what has ended, and what is forgotten when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.stores.stage import (
    DAY,
    HOUR,
    MINUTE,
    NO_RETRY,
    SECOND,
    Stage,
    at,
    draft,
    every,
    nominals,
    overlap,
)
from timingwheel.errors import ArgumentError
from timingwheel.jobs.model import JobId, JobState, Outcome, Run, RunState
from timingwheel.jobs.store import JobQuery, RunQuery


def a_mixed_store(stage: Stage) -> list[JobId]:
    """Put jobs of all kinds and states; return their ids."""
    jobs = [stage.put(0), stage.put(0, name="over", tags={"a": "1"}, queue="q")]
    jobs.append(stage.put(0, retry=NO_RETRY, task="bad"))
    stage.fire()
    for claim in stage.claim(tasks=frozenset({"t", "bad"})):
        stage.begin(claim)
        bad = claim.run.task == "bad"
        stage.end(claim, Outcome.ERROR if bad else Outcome.OK)
    jobs += [
        stage.put(1000),
        stage.put(2000, name="to come", tags={"a": "1", "b": "2"}),
        stage.put(every(60), queue="q"),
        stage.put(3000, task="bad"),
    ]
    stage.pause(jobs[4])
    return jobs


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
@pytest.mark.parametrize("restarts", [False, True])
def test_pages_of_jobs_show_each_job_once(
    stage: Stage, limit: int, restarts: bool
) -> None:
    jobs = a_mixed_store(stage)
    if restarts:
        stage.restart(crash=True)
    found = stage.all_jobs(limit=limit)
    assert sorted(job.id for job in found) == sorted(jobs)
    assert {job.id for job in found[-3:]} == set(jobs[:3])  # live ones first


@pytest.mark.parametrize(
    "name", ["a\0b", "'\"%s%%\\$1", "\N{GRINNING FACE}e\N{COMBINING ACUTE ACCENT}"]
)
def test_names_keys_and_tags_may_hold_any_character(stage: Stage, name: str) -> None:
    job = stage.put(60, name=name, queue=name, tags={name: name})
    keyed = stage.put(60, key=name)
    assert stage.put(60, key=name) == keyed
    found = stage.store.find(name)
    assert found is not None
    assert (found.id, found.name, found.queue) == (job, name, name)
    assert [one.id for one in stage.all_jobs(name=name)] == [job]
    assert [one.id for one in stage.all_jobs(queue=name)] == [job]
    assert [one.id for one in stage.all_jobs(tags={name: name})] == [job]
    stage.advance(60)
    stage.step()
    assert stage.states(job) == ["succeeded"]
    assert stage.store.find(name) is None
    assert stage.put(60, name=name) != job


def test_a_job_that_a_retry_revived_is_shown_once(stage: Stage) -> None:
    job = stage.put(0, retry=NO_RETRY)
    stage.step(Outcome.ERROR)
    stage.store.retry(stage.run(job).id)
    stage.trigger(job)
    [first, _] = stage.start_due()
    stage.end(first)
    for limit in (1, 100):
        found = [(shown.id, shown.state) for shown in stage.all_jobs(limit=limit)]
        assert found == [(job, JobState.ACTIVE)]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
@pytest.mark.parametrize("restarts", [False, True])
def test_pages_of_runs_show_each_run_once_newest_first(
    stage: Stage, limit: int, restarts: bool
) -> None:
    a_mixed_store(stage)
    stage.work(60, times=3)
    if restarts:
        stage.restart(crash=True)
    runs = stage.runs(limit=limit)
    assert len(runs) == 9
    assert nominals(runs) == sorted(nominals(runs))


@pytest.mark.parametrize(
    ("query", "places"),
    [
        ({"state": JobState.PAUSED}, [4]),
        ({"state": JobState.DONE}, [0, 1, 2]),
        ({"state": JobState.ACTIVE}, [3, 5, 6]),
        ({"task": "bad"}, [2, 6]),
        ({"queue": "q"}, [1, 5]),
        ({"name": "over"}, [1]),
        ({"name": "to come"}, [4]),
        ({"search": "O"}, [1, 4]),
        ({"search": "COM"}, [4]),
        ({"search": "%"}, []),
        ({"tags": {"a": "1"}}, [1, 4]),
        ({"tags": {"a": "1", "b": "2"}}, [4]),
        ({"tags": {"a": "2"}}, []),
        ({"task": "bad", "state": JobState.ACTIVE}, [6]),
    ],
)
def test_jobs_are_found_by_what_they_are(
    stage: Stage, query: dict, places: list[int]
) -> None:
    jobs = a_mixed_store(stage)
    for limit in (1, 100):
        found = {job.id for job in stage.all_jobs(limit=limit, **query)}
        assert found == {jobs[place] for place in places}


@pytest.mark.parametrize(
    ("query", "places"),
    [
        ({"states": frozenset({RunState.FAILED})}, [2]),
        ({"states": frozenset({RunState.PLANNED})}, [3, 4, 6]),
        ({"states": frozenset({RunState.SUCCEEDED, RunState.FAILED})}, [0, 1, 2]),
        ({"task": "bad"}, [2, 6]),
        ({"queue": "q"}, [1]),
        ({"tags": {"a": "1"}}, [1, 4]),
        ({"tags": {"b": "2"}}, [4]),
    ],
)
def test_runs_are_found_by_what_they_are(
    stage: Stage, query: dict, places: list[int]
) -> None:
    jobs = a_mixed_store(stage)
    for limit in (1, 100):
        found = {run.job_id for run in stage.runs(limit=limit, **query)}
        assert found == {jobs[place] for place in places}


def test_runs_are_found_by_their_nominal_time(stage: Stage) -> None:
    job = stage.put(every(60), overlap=overlap("allow"))
    stage.work(60, times=6)
    stage.advance(60)
    stage.fire()
    times = nominals(stage.runs(job))
    found = stage.runs(job, since_ns=times[2], until_ns=times[5])
    assert nominals(found) == times[2:5]
    assert nominals(stage.runs(since_ns=times[6])) == times[6:]


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_what_runs_stands_in_its_place_among_what_waits_and_what_is_over(
    stage: Stage, limit: int
) -> None:
    over = stage.put(0)
    stage.work(1)
    for delay in (2, 4, 9000):
        stage.put(delay)
    stage.put(9000, name="later")
    stage.advance(5)
    running = {claim.run.job_id for claim in stage.start_due()}
    runs = stage.runs(limit=limit)
    assert len(running) == 2
    assert len(runs) == 5
    assert nominals(runs) == sorted(nominals(runs))
    assert runs[0].job_id == over
    for states, jobs in (
        ({RunState.RUNNING}, running),
        ({RunState.RUNNING, RunState.SUCCEEDED}, running | {over}),
        ({RunState.PLANNED, RunState.READY}, None),
    ):
        found = stage.runs(limit=limit, states=frozenset(states))
        expected = [run.id for run in runs if run.state in states]
        assert [run.id for run in found] == expected
        assert jobs is None or {run.job_id for run in found} == jobs
    assert len({job.id for job in stage.all_jobs(limit=limit)}) == 5


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_runs_of_one_moment_are_each_on_one_page(stage: Stage, limit: int) -> None:
    soon, late = stage.now_ns + 5 * SECOND, stage.now_ns + DAY
    for when in (late, soon, late, soon, late):
        stage.put(at(when))
        stage.put(at(when), queue="q")
        stage.put(at(when), task="other")
        stage.put(at(when), name=f"n{stage.put(float(9000))}")
    stage.advance(6)
    running = stage.start_due()[:3]
    for claim in running[1:]:
        stage.end(claim)
    runs = stage.runs()
    assert len(runs) == 25
    assert [(run.nominal_ns, run.job_id) for run in runs] == sorted(
        (run.nominal_ns, run.job_id) for run in runs
    )
    state_sets = (
        frozenset({RunState.PLANNED}),
        frozenset({RunState.READY}),
        frozenset({RunState.READY, RunState.RUNNING}),
        frozenset({RunState.PLANNED, RunState.SUCCEEDED}),
    )
    meant: list[tuple[dict[str, Any], Callable[[Run], bool]]] = [
        ({}, lambda _: True),
        ({"queue": "q"}, lambda run: run.queue == "q"),
        ({"task": "other"}, lambda run: run.task == "other"),
        ({"since_ns": late}, lambda run: run.nominal_ns >= late),
        ({"until_ns": late}, lambda run: run.nominal_ns < late),
        ({"discarded": False}, lambda _: True),
        ({"discarded": True}, lambda _: False),
        *(
            ({"states": states}, lambda run, states=states: run.state in states)
            for states in state_sets
        ),
    ]
    for query, is_meant in meant:
        found = stage.runs(limit=limit, **query)
        assert found == [run for run in runs if is_meant(run)], query
        in_any_order = stage.runs(limit=limit, in_order=False, **query)
        assert sorted(run.id for run in in_any_order) == sorted(run.id for run in found)


def test_a_page_stays_right_while_runs_move_on(stage: Stage) -> None:
    job = stage.put(every(60), overlap=overlap("allow"))
    stage.work(60, times=5)
    first = stage.store.runs(RunQuery(job_id=job, limit=3))
    stage.work(60, times=2)
    second = stage.store.runs(RunQuery(job_id=job, limit=3, cursor=first.cursor))
    both = nominals([*first.runs, *second.runs])
    assert len(both) == 5
    assert both == sorted(set(both), reverse=True)


def test_a_page_of_jobs_leaves_out_none_that_stays_while_others_end(
    stage: Stage,
) -> None:
    stays = [stage.put(9000, name=f"stays {n}") for n in range(6)]
    goes = [stage.put(9000, name=f"goes {n}") for n in range(3)]
    plain = [stage.put(9000) for _ in range(4)]
    first = stage.store.jobs(JobQuery(limit=4))
    for job in [*goes, stays[0]]:
        stage.store.cancel(job)
    found = {job.id for job in first.jobs}
    cursor = first.cursor
    while cursor is not None:
        page = stage.store.jobs(JobQuery(limit=4, cursor=cursor))
        found |= {job.id for job in page.jobs}
        cursor = page.cursor
    assert {*stays[1:], *plain} <= found


def test_a_limit_or_cursor_that_cannot_be_meant_is_refused(stage: Stage) -> None:
    for query in (
        RunQuery(limit=0),
        RunQuery(limit=100_000),
        RunQuery(cursor="nonsense"),
        RunQuery(limit=0, in_order=False),
        RunQuery(limit=100_000, in_order=False),
        RunQuery(cursor="nonsense", in_order=False),
        RunQuery(cursor="plain:x", in_order=False),
    ):
        with pytest.raises(ArgumentError):
            stage.store.runs(query)
    for jobs in (
        JobQuery(limit=0),
        JobQuery(limit=100_000),
        JobQuery(cursor="nonsense"),
        JobQuery(cursor="live:x"),
    ):
        with pytest.raises(ArgumentError):
            stage.store.jobs(jobs)


# -- what is to come ----------------------------------------------------------------------------


def test_the_load_ahead_counts_what_is_planned(stage: Stage) -> None:
    start_ns = stage.now_ns
    stage.put(at(start_ns + 90 * SECOND))
    stage.put(at(start_ns + 95 * SECOND), name="n")
    stage.put(every(60))
    loads = stage.store.load_ahead(start_ns + 5 * MINUTE, MINUTE)
    assert [load.start_ns - start_ns for load in loads] == [
        n * MINUTE for n in range(5)
    ]
    assert [load.nominal for load in loads] == [0, 3, 1, 1, 1]
    assert [load.due for load in loads] == [load.nominal for load in loads]


def test_the_load_ahead_leaves_out_what_is_paused_and_shows_splay(
    stage: Stage,
) -> None:
    start_ns = stage.now_ns
    paused = stage.put(every(60))
    stage.pause(paused)
    for _ in range(8):  # one alone may have a splay of less than a minute
        stage.put(every(3600, splay_ns=50 * MINUTE))
    loads = stage.store.load_ahead(start_ns + 3 * HOUR, MINUTE)
    assert sum(load.nominal for load in loads) == 16
    assert [load.nominal for load in loads] != [load.due for load in loads]


# -- what is forgotten ----------------------------------------------------------------------------


def test_a_run_is_kept_for_a_week_and_then_goes_with_its_job(stage: Stage) -> None:
    job = stage.put(0)
    stage.step()
    run = stage.run(job)
    stage.advance(7 * 86_400 - 60)
    stage.purge()
    assert stage.store.run(run.id) == run
    stage.advance(120 + stage.forgets_late_s)
    stage.purge()
    assert stage.store.run(run.id) is None
    assert stage.store.get(job) is None
    assert stage.all_jobs() == []


def test_a_recurring_job_keeps_its_last_hundred_runs(stage: Stage) -> None:
    job = stage.put(every(3600))
    stage.work(3600, times=120)
    last = nominals(stage.runs(job))[-100:]
    stage.pause(job)
    stage.advance(30 * 86_400)
    stage.purge()
    assert nominals(stage.runs(job)) == last


def test_skip_ranges_are_kept_for_thirty_days(stage: Stage) -> None:
    job = stage.put(every(60))
    stage.restart(down=600)
    stage.step()
    stage.pause(job)
    stage.advance(29 * 86_400)
    stage.purge()
    assert stage.skipped(job) == [("misfire", 9)]
    stage.advance(2 * 86_400)
    stage.purge()
    assert stage.skipped(job) == []


def test_nothing_that_lives_is_forgotten(stage: Stage) -> None:
    jobs = [stage.put(400 * 86_400), stage.put(400 * 86_400, name="n")]
    failing = stage.put(every(DAY / SECOND))
    stage.pause(failing)
    stage.advance(300 * 86_400)
    stage.purge()
    stage.restart(crash=True)
    stage.purge()
    assert {job.id for job in stage.all_jobs()} == {*jobs, failing}


def test_a_job_that_was_forgotten_can_be_put_again_under_its_key(stage: Stage) -> None:
    first = stage.put(0, key="k")
    stage.step()
    assert stage.states(first) == ["succeeded"]
    stage.advance(8 * 86_400)
    stage.purge()
    [ref] = stage.store.put([draft(0, key="k")])
    assert ref.created
    assert ref.id == first  # the id of a key is the same for ever
    assert len(stage.step()) == 1


def test_the_job_of_a_run_that_was_retried_is_kept_while_it_goes_on(
    stage: Stage,
) -> None:
    job = stage.put(0, retry=NO_RETRY)
    stage.step(Outcome.ERROR)
    stage.advance(6 * 86_400)
    stage.store.retry(stage.run(job).id)
    stage.pause(job)
    stage.advance(10 * 86_400)
    stage.purge()
    stage.resume(job)
    assert len(stage.step()) == 1
    assert stage.states(job) == ["succeeded"]


@pytest.mark.parametrize("named", [{}, {"name": "n"}], ids=["plain", "named"])
def test_an_attempt_that_a_dead_process_has_left_is_shown_and_then_lost(
    stage: Stage, named: dict
) -> None:
    job = stage.put(0, **named)
    claim = stage.start_one()
    stage.stop(crash=True)
    stage.open()
    run = stage.run(job)
    assert (run.state, run.attempts) == (RunState.RUNNING, 1)
    [left] = stage.store.attempts(run.id)
    assert (left.number, left.token, left.ended_ns) == (1, claim.token, None)
    stage.store.join("w")
    assert stage.store.recover() == 1
    [lost] = stage.store.attempts(run.id)
    assert (lost.token, lost.outcome) == (claim.token, Outcome.LOST)
