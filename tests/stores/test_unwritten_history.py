"""Reading while the history cannot be written: what is over is shown all the same."""

from __future__ import annotations

import random

import pytest

from tests.stores.conftest import MakeStage
from tests.stores.embedded_stage import EmbeddedStage
from tests.stores.stage import NO_RETRY, after, draft, every
from tests.stores.test_embedded_store import a_busy_store, everything
from tests.stores.test_review import HookedHistory, hooked
from timingwheel.jobs.model import JobId, Outcome, RunState
from timingwheel.jobs.store import CancelResult, JobQuery, JobRef, RunQuery
from timingwheel.stores.history import Entry
from timingwheel.stores.history_errors import HistoryError


@pytest.fixture
def stage(make_stage: MakeStage) -> EmbeddedStage:
    return make_stage()


@pytest.fixture
def history(stage: EmbeddedStage) -> HookedHistory:
    return hooked(stage)


def test_what_is_shown_of_an_unwritten_history_is_what_is_written_later(
    stage: EmbeddedStage, history: HookedHistory
) -> None:
    a_busy_store(stage)
    everything(stage)
    written_lsn = history.reached_lsn
    assert written_lsn
    history.refuses = True
    again = stage.put(0, retry=NO_RETRY, tags={"a": "b"})
    stage.step(Outcome.ERROR)
    stage.store.retry(stage.run(again).id)
    stage.put(after(stage.put(0))), stage.put(every(1, runs_max=3))
    stage.work(1, times=5)
    shown = everything(stage)
    page = stage.store.runs(RunQuery(limit=3))
    assert page.cursor is not None
    assert everything(stage) == shown, "a look changes nothing"
    assert history.reached_lsn == written_lsn
    history.refuses = False
    stage.restart()
    assert everything(stage) == shown
    assert history.reached_lsn > written_lsn
    assert stage.store.runs(RunQuery(limit=3)) == page


def test_what_an_unwritten_history_knows_is_acted_upon(
    stage: EmbeddedStage, history: HookedHistory
) -> None:
    history.refuses = True
    over = stage.put(0, name="over")
    keyed = stage.put(0, key="k", retry=NO_RETRY)
    stage.step(Outcome.ERROR)
    assert stage.states(keyed) == ["failed"]
    assert stage.store.put([draft(0, key="k", retry=NO_RETRY)]) == [
        JobRef(keyed, created=False)
    ]
    assert stage.store.cancel(keyed) is CancelResult.FINISHED
    stage.store.retry(stage.run(keyed).id)
    stage.step()
    assert stage.states(keyed) == ["succeeded"]
    assert stage.job(over).name == "over"
    assert stage.store.jobs(JobQuery(name="over")).jobs != []


def test_a_snapshot_waits_for_an_unwritten_history_though_it_can_be_read(
    stage: EmbeddedStage, history: HookedHistory
) -> None:
    """Log is dropped for what is written, never for what is merely shown."""
    job = stage.put(0)
    history.refuses = True
    stage.step()
    assert stage.states(job) == ["succeeded"]
    with pytest.raises(OSError, match="the history is behind"):
        stage.snapshot()
    history.refuses = False
    stage.restart(crash=True)
    stage.snapshot()
    assert stage.states(job) == ["succeeded"]


@pytest.mark.parametrize("seed", range(3))
def test_a_writer_that_gets_on_in_part_hides_and_doubles_nothing(
    make_stage: MakeStage, rng: random.Random, seed: int
) -> None:
    """The disk comes and goes, so now some of what was shown is written, now none."""
    stage = make_stage()
    history = hooked(stage)
    source = random.Random(f"{rng.random()} {seed}")
    jobs: list[JobId] = []
    for _ in range(12):
        history.refuses = source.random() < 0.6
        jobs += [stage.put(0) for _ in range(source.randint(1, 5))]
        stage.step()
        if source.random() < 0.3:
            stage.advance(2)  # the writer tries again
            stage.clock.settle()
        found = [run.job_id for run in stage.runs()]
        assert sorted(found) == sorted(jobs)
        assert all(stage.states(job) == ["succeeded"] for job in jobs[-3:])
    history.refuses = False


def test_a_history_that_cannot_be_read_says_so(
    stage: EmbeddedStage, history: HookedHistory
) -> None:
    job = stage.put(0)
    stage.step()
    history.is_blind = True
    with pytest.raises(HistoryError):
        stage.store.runs(RunQuery(job_id=job, states=frozenset({RunState.SUCCEEDED})))
    history.is_blind = False


def test_nothing_that_is_only_shown_stays_in_the_database(
    stage: EmbeddedStage, history: HookedHistory
) -> None:
    history.refuses = True
    stage.put(0)
    stage.step()
    assert len(stage.runs()) == 1
    kept: list[Entry] = list(history.unwritten())
    assert kept
    history.unwritten = tuple
    assert history.runs(RunQuery()).runs == []
    assert not history._connections.writer.in_transaction
    history.unwritten = lambda: kept
    assert len(history.runs(RunQuery()).runs) == 1
    history.refuses = False
