"""A store in numbers: each counts what happened, once, and from the opening on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores.embedded_stage import EmbeddedStage
from tests.stores.postgres_stage import PostgresStage
from tests.stores.stage import SECOND, Stage
from timingwheel.errors import EngineClosedError
from timingwheel.jobs.figures import (
    BACKLOG_QUEUES_MAX,
    OTHER_QUEUES,
    HistogramSnapshot,
    Measured,
    StoreFigures,
)
from timingwheel.jobs.model import Outcome, Overlap, OverlapPolicy, Policy
from timingwheel.jobs.store import Verdict
from timingwheel.jobs.triggers import EveryPeriod
from timingwheel.stores.measuring import bounded_backlog


@pytest.fixture
def stage() -> Iterator[EmbeddedStage]:
    made = EmbeddedStage()
    yield made
    made.end_all()


@pytest.fixture(params=["embedded", "postgres"])
def any_stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A store in a directory, or in a database."""
    made = (
        EmbeddedStage()
        if request.param == "embedded"
        else PostgresStage(request.getfixturevalue("postgres"))
    )
    yield made
    made.end_all()


def figures(stage: Stage) -> StoreFigures:
    assert isinstance(stage.store, Measured)
    return stage.store.figures()


def tick_lag(stage: EmbeddedStage) -> HistogramSnapshot:
    found = figures(stage).tick_lag
    assert found is not None
    return found


def test_jobs_and_timers_are_counted_plain_ones_too(any_stage: Stage) -> None:
    any_stage.put(60)
    named = any_stage.put(60, name="named")
    any_stage.pause(named)

    found = figures(any_stage)

    assert {state: n for state, n in found.jobs.items() if n} == {
        "active": 1,
        "paused": 1,
    }
    assert found.timers == any_stage.store.storage().timers > 0


def test_runs_are_counted_by_how_they_ended(any_stage: Stage) -> None:
    for name in (None, "a", "b"):
        any_stage.put(1, name=name)
    any_stage.advance(1)
    claims = any_stage.start_due()

    assert figures(any_stage).running == 3
    for claim, outcome in zip(
        claims, (Outcome.OK, Outcome.OK, Outcome.ERROR), strict=True
    ):
        assert any_stage.end(claim, outcome, gives_up=True) is Verdict.ACCEPTED

    found = figures(any_stage)
    assert found.runs == {"succeeded": 2, "failed": 1}
    assert found.running == 0
    any_stage.store.attempts(claims[-1].run.id)  # so that the history has all of it
    assert figures(any_stage).dead == 1


def test_what_did_not_run_is_counted_by_its_reason(any_stage: Stage) -> None:
    any_stage.put(
        EveryPeriod(10 * SECOND),
        policy=Policy(overlap=OverlapPolicy(rule=Overlap.SKIP)),
    )
    any_stage.advance(10)
    any_stage.start_one()
    for _ in range(3):
        any_stage.advance(10)
        any_stage.fire()

    assert figures(any_stage).skips == {"overlap": 3}


def test_a_worker_without_a_sign_of_life_is_counted_with_what_it_had(
    any_stage: Stage,
) -> None:
    any_stage.put(1)
    any_stage.put(1, name="a")
    any_stage.store.join("far", ttl_ns=10 * SECOND)
    assert figures(any_stage).workers == 2
    any_stage.advance(1)
    any_stage.start_due(worker="far")
    any_stage.advance(11)
    any_stage.fire()

    found = figures(any_stage)

    assert (found.leases_expired, found.workers) == (2, 1)


def test_what_is_ready_is_counted_by_queue(any_stage: Stage) -> None:
    for queue in ("a", "a", "b"):
        any_stage.put(1, queue=queue)
    any_stage.advance(1)
    any_stage.fire()

    assert figures(any_stage).backlog == {"a": 2, "b": 1}


def test_queues_beyond_the_bound_are_one_sum() -> None:
    waiting = {f"q{n:04}": 1 for n in range(BACKLOG_QUEUES_MAX + 7)} | {"long": 9}

    told = bounded_backlog(waiting)

    assert len(told) == BACKLOG_QUEUES_MAX + 1
    assert (told["long"], told[OTHER_QUEUES]) == (9, 8)


def test_counters_begin_anew_with_each_opening_and_states_do_not(
    any_stage: Stage,
) -> None:
    any_stage.put(1)
    any_stage.put(3600, name="later")
    any_stage.advance(1)
    any_stage.step()
    assert figures(any_stage).runs == {"succeeded": 1}

    any_stage.restart(crash=True)

    found = figures(any_stage)
    assert found.runs == {"succeeded": 0}
    assert found.jobs["active"] == 1


def test_a_late_look_at_the_wheels_is_noted(stage: EmbeddedStage) -> None:
    before = tick_lag(stage)
    stage.put(1)
    stage.advance(3)
    stage.fire()

    lag = tick_lag(stage)

    assert lag.count == before.count + 1
    assert 1.9 * SECOND < lag.sum_ns - before.sum_ns < 2.1 * SECOND


def test_time_in_which_nobody_could_look_is_no_late_tick(stage: EmbeddedStage) -> None:
    stage.put(1)

    stage.restart(down=3600)

    assert tick_lag(stage).max_ns < SECOND


def test_the_log_tells_its_syncs_its_bytes_and_the_age_of_its_snapshot(
    stage: EmbeddedStage,
) -> None:
    log = figures(stage).log
    assert log is not None
    assert log.snapshot_age_ns is None
    assert log.segments == 1
    before = log.sync.count
    stage.put(60)
    stage.snapshot()
    stage.advance(30)

    log = figures(stage).log

    assert log is not None
    assert log.sync.count > before
    assert log.bytes > 0
    assert log.snapshot_age_ns == 30 * SECOND


def test_a_snapshot_of_a_former_life_has_its_age(tmp_path: Path) -> None:
    stage = EmbeddedStage(tmp_path)
    stage.put(60)
    stage.snapshot()
    stage.restart(down=100)

    log = figures(stage).log

    assert log is not None
    assert log.snapshot_age_ns is not None
    assert 100 * SECOND <= log.snapshot_age_ns < 101 * SECOND
    stage.end_all()


def test_a_closed_store_says_so(stage: EmbeddedStage) -> None:
    stage.stop()

    with pytest.raises(EngineClosedError):
        figures(stage)
