"""The node loop, turn by turn: what is claimed, handed out, ended, and what stops it."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.engine.stage import PATIENCE_S, CountingClock, fill_up
from tests.scheduler import program
from tests.scheduler.node_stage import HandExecutor, Stage
from timingwheel.errors import EngineFailedError
from timingwheel.jobs.model import Outcome, RunId, RunState
from timingwheel.jobs.store import CancelResult
from timingwheel.scheduler.adding import make_draft
from timingwheel.scheduler.context import LeaseLost
from timingwheel.scheduler.node import FIRE_LIMIT
from timingwheel.scheduler.scheduler import Scheduler
from wal.errors import CommitUnknownError, DiskFullError
from wal.testing import MemoryFileSystem

MakeStage = Callable[..., Stage]


@pytest.fixture
def make() -> Iterator[MakeStage]:
    stages: list[Stage] = []

    def make_one(**parts: Any) -> Stage:
        stages.append(Stage(**parts))
        return stages[-1]

    yield make_one
    for stage in stages:
        stage.close()


def state(stage: Stage, run_id: RunId) -> RunState:
    run = stage.store.run(run_id)
    assert run is not None
    return run.state


# -- a run's way ---------------------------------------------------------------------------


def test_what_is_due_is_handed_out_and_its_end_is_written_down(
    make: MakeStage,
) -> None:
    stage = make()
    stage.node.begin_service()
    stage.add(program.note.call("x"))
    stage.turns()
    (run_id,) = stage.executor.waiting
    assert state(stage, run_id) is RunState.RUNNING
    assert stage.executor.begin()
    stage.executor.end(result=b"\xa1X")
    assert state(stage, run_id) is RunState.RUNNING  # until the next turn
    stage.turns()
    run = stage.store.run(run_id)
    assert run is not None
    assert (run.state, run.result) == (RunState.SUCCEEDED, b"\xa1X")


def test_nothing_is_handed_out_before_service_begins(make: MakeStage) -> None:
    stage = make()
    stage.add(program.note.call("x"))
    stage.turns()
    assert stage.executor.works == []
    stage.node.begin_service()
    stage.turns()
    assert len(stage.executor.works) == 1


def test_no_more_is_claimed_than_there_are_slots(make: MakeStage) -> None:
    stage = make(executor=HandExecutor(slots=2))
    stage.node.begin_service()
    for number in range(5):
        stage.add(program.note.call(str(number)))
    stage.turns()
    assert len(stage.executor.works) == 2
    stage.executor.begin()
    stage.executor.end()
    stage.turns()
    assert len(stage.executor.works) == 2


def test_an_executor_that_is_quick_is_given_work_ahead(make: MakeStage) -> None:
    stage = make(executor=HandExecutor(slots=2, ahead=3))
    stage.node.begin_service()
    for number in range(9):
        stage.add(program.note.call(str(number)))
    stage.node.step()
    assert len(stage.executor.works) == 5


def test_work_claimed_ahead_can_still_be_cancelled_in_truth(make: MakeStage) -> None:
    stage = make()
    stage.node.begin_service()
    job_id = stage.add(program.note.call("x"))
    stage.turns()
    assert stage.store.cancel(job_id) is CancelResult.CANCELLED  # type: ignore[arg-type]
    assert not stage.executor.begin()
    stage.executor.works.clear()
    for number in range(3):
        stage.add(program.note.call(str(number)))
    stage.turns()
    assert len(stage.executor.works) == 2  # the slot of the cancelled one is free
    assert stage.metrics.snapshot().running == 2


def test_a_task_that_is_declared_later_is_served_from_then_on(
    make: MakeStage,
) -> None:
    stage = make()
    tasks = program.app.tasks
    task = Scheduler("never").task(name="later")(program.plain_function)
    stage.node.begin_service()
    stage.add(task.call())
    stage.turns()
    assert stage.executor.works == []
    tasks.register(task)
    try:
        stage.turns()
        assert len(stage.executor.works) == 1
    finally:
        del tasks._tasks["later"]


def test_an_end_that_comes_twice_counts_once(make: MakeStage) -> None:
    stage = make()
    stage.node.begin_service()
    stage.add(program.note.call("x"))
    stage.turns()
    stage.executor.begin()
    finish = stage.executor.end()
    stage.executor.host.ended(finish)
    stage.turns()
    assert stage.metrics.snapshot().runs == {"ok": 1}
    assert stage.metrics.snapshot().running == 0


def test_an_executor_that_breaks_fails_its_attempts_and_not_the_node(
    make: MakeStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage = make()
    stage.node.begin_service()
    stage.executor.refuses = OSError(errno.EAGAIN, "no more processes")
    stage.add(program.note.call("x"))
    stage.turns()
    assert "refused" in caplog.text
    stage.executor.refuses = None
    stage.clock.advance(60)
    stage.turns()
    assert len(stage.executor.works) == 1
    (attempt, going) = stage.store.attempts(stage.executor.waiting[0])
    assert attempt.outcome is Outcome.ERROR
    assert "no more processes" in (attempt.error or "")
    assert going.outcome is None


def test_a_heartbeat_of_an_attempt_that_was_given_up_says_so(make: MakeStage) -> None:
    stage = make()
    stage.node.begin_service()
    stage.add(program.note.call("x"))
    stage.turns()
    (work,) = stage.executor.works
    stage.executor.begin()
    stage.executor.host.heartbeat(work)
    stage.executor.end()
    with pytest.raises(LeaseLost, match="no longer counts"):
        stage.executor.host.heartbeat(work)


def test_an_end_that_is_no_longer_ours_is_refused_and_counted(
    make: MakeStage, caplog: pytest.LogCaptureFixture
) -> None:
    """Case 28: the token of the attempt that was replaced is out of date."""
    stage = make()
    stage.node.begin_service()
    stage.add(program.note.call("x"))
    stage.turns()
    (work,) = stage.executor.works
    stage.executor.begin()
    stage.store.leave("w")  # as if its lease had run out
    stage.store.join("w")
    stage.executor.end()
    stage.node.step()
    assert stage.metrics.snapshot().lease_losses == 1
    assert "no longer ours" in caplog.text
    assert work.claim.run.attempts == 1


# -- attempts that are to end ---------------------------------------------------------------


def test_an_attempt_beyond_its_time_is_asked_and_ten_seconds_later_ended(
    make: MakeStage,
) -> None:
    """Case 23."""
    stage = make()
    stage.node.begin_service()
    stage.add(program.obedient.call("d"))
    stage.turns()
    token = stage.executor.works[0].claim.token
    stage.clock.advance(60)  # in line, and not yet begun
    stage.turns()
    assert stage.executor.interrupts == []
    stage.executor.begin()
    stage.clock.advance(4.9)
    stage.turns()
    assert stage.executor.interrupts == []
    stage.clock.advance(0.2)
    stage.turns()
    assert stage.executor.interrupts == [(token, Outcome.TIMEOUT, False)]
    stage.clock.advance(9.9)
    stage.turns()
    assert len(stage.executor.interrupts) == 1
    stage.clock.advance(0.2)
    stage.turns()
    assert stage.executor.interrupts[1:] == [(token, Outcome.TIMEOUT, True)]


def test_an_attempt_that_ends_in_time_is_left_alone(make: MakeStage) -> None:
    stage = make()
    stage.node.begin_service()
    stage.add(program.obedient.call("d"))
    stage.turns()
    stage.executor.begin()
    stage.executor.end()
    stage.clock.advance(60)
    stage.turns()
    assert stage.executor.interrupts == []


@pytest.mark.parametrize(("running", "kill"), [("signal", False), ("kill", True)])
def test_a_cancel_of_what_runs_reaches_its_executor(
    make: MakeStage, *, running: Any, kill: bool
) -> None:
    stage = make()
    stage.node.begin_service()
    job_id: Any = stage.add(program.note.call("x"))
    stage.turns()
    stage.executor.begin()
    token = stage.executor.works[0].claim.token
    assert stage.store.cancel(job_id, running=running) is CancelResult.REQUESTED
    stage.turns()
    assert stage.executor.interrupts == [(token, Outcome.CANCELLED, kill)]
    (run_id,) = stage.executor.waiting
    stage.executor.end(Outcome.CANCELLED)
    stage.turns()
    assert state(stage, run_id) is RunState.CANCELLED


# -- the end --------------------------------------------------------------------------------


def test_a_stop_gives_back_what_was_never_begun(make: MakeStage) -> None:
    stage = make()
    stage.node.begin_service()
    stage.add(program.note.call("x"))
    stage.turns()
    (run_id,) = stage.executor.waiting
    stage.node.stop(0)
    run = stage.store.run(run_id)
    assert run is not None
    assert (run.state, run.attempts) == (RunState.READY, 0)


def test_a_stop_writes_down_the_ends_that_came_last(make: MakeStage) -> None:
    stage = make()
    stage.node.begin_service()
    stage.add(program.note.call("x"))
    stage.turns()
    (run_id,) = stage.executor.waiting
    stage.executor.begin()
    stage.executor.end()
    stage.node.stop(0)
    assert state(stage, run_id) is RunState.SUCCEEDED


# -- the disk -------------------------------------------------------------------------------


def test_a_full_disk_pauses_the_node_and_it_heals_by_itself(
    make: MakeStage, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryFileSystem()
    stage = make(disk=disk)
    stage.node.begin_service()
    stage.add(program.note.call("first"))
    stage.turns()
    stage.executor.begin()
    (first,) = stage.executor.waiting
    stage.add(program.note.call("second"), delay=10)
    fill_up(stage.store._core, disk)  # type: ignore[attr-defined]
    stage.executor.end()
    with pytest.raises(DiskFullError):
        stage.node.step()
    assert not stage.node.turn()
    assert not stage.node.turn()
    assert caplog.text.count("until the store can be written again") == 1
    assert stage.node.in_hand.has_ends  # nothing is lost
    stage.clock.advance(11)
    assert not stage.node.turn()
    assert stage.executor.works == []

    disk.capacity_bytes = None
    stage.turns()
    assert state(stage, first) is RunState.SUCCEEDED
    assert len(stage.executor.works) == 1


def test_a_failure_of_the_log_stops_the_node_for_good_and_loudly(
    make: MakeStage, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryFileSystem()
    stage = make(disk=disk)
    stage.node.start()
    stage.clock.settle(PATIENCE_S, threads=1)
    caplog.set_level(logging.CRITICAL)
    stage.add(program.note.call("x"), delay=5)
    disk.fail("datasync", errno.EIO, times=None)
    stage.clock.advance(6)
    stage.node._thread.join(PATIENCE_S)
    assert not stage.node.alive
    assert isinstance(stage.node.failure, CommitUnknownError | EngineFailedError)
    assert stage.failures == [stage.node.failure]
    assert "stopped for good" in caplog.text
    assert stage.executor.works == []  # no handler starts on an uncertain claim
    stage.node.stop(0)


# -- the thread -----------------------------------------------------------------------------


def test_the_thread_sleeps_until_something_is_due_ready_or_ended(
    make: MakeStage,
) -> None:
    stage = make()
    stage.node.start()

    def settle() -> None:
        stage.clock.settle(PATIENCE_S, threads=1)

    settle()
    stage.add(program.note.call("due"), delay=5)
    settle()
    assert stage.executor.works == []
    stage.clock.advance(5)
    settle()
    assert len(stage.executor.works) == 1
    stage.add(program.obedient.call("ready"))
    stage.add(program.note.call("no slot"))
    settle()
    assert len(stage.executor.works) == 2
    stage.executor.begin(0)
    stage.executor.end(place=0)
    settle()
    assert len(stage.executor.works) == 2  # the end has freed a slot
    stage.executor.begin(0)
    settle()
    stage.clock.advance(5)
    settle()
    assert [outcome for _, outcome, _ in stage.executor.interrupts] == [Outcome.TIMEOUT]
    stage.node.stop(0)


def test_an_idle_node_hardly_ever_wakes(make: MakeStage) -> None:
    clock = CountingClock()
    stage = make(clock=clock)
    stage.node.start()
    stage.add(program.note.call("x"), delay=7_200)
    clock.settle(PATIENCE_S, threads=1)
    before = len(clock.untils)
    for _ in range(359):
        clock.advance(10)
        clock.settle(PATIENCE_S, threads=1)
    assert len(clock.untils) - before < 20
    stage.node.stop(0)


def test_more_is_due_than_one_turn_makes_ready(make: MakeStage) -> None:
    stage = make(executor=HandExecutor(slots=4))
    stage.node.begin_service()
    draft = make_draft(program.note.call("x"), {"delay": 1})
    stage.store.put([draft] * (FIRE_LIMIT + 10))
    stage.clock.advance(2)
    assert stage.node.step()  # there is more
    assert len(stage.executor.works) == 4


def test_a_step_of_the_wall_clock_is_counted(make: MakeStage) -> None:
    stage = make()
    stage.node.begin_service()
    stage.turns()
    stage.clock.step(-7_200 * 10**9)
    stage.turns()
    stage.clock.advance(10)
    stage.turns()
    assert stage.metrics.snapshot().clock_steps == 1


def test_lag_is_measured_from_due_to_claim_and_to_the_handler(
    make: MakeStage,
) -> None:
    stage = make()
    stage.node.begin_service()
    stage.add(program.note.call("x"), delay=1)
    stage.clock.advance(2)
    stage.turns()
    stage.clock.advance(3)
    stage.executor.begin()
    found = stage.metrics.snapshot()
    assert found.schedule_lag.count == found.dispatch_lag.count == 1
    assert found.schedule_lag.max_ns == pytest.approx(1e9, rel=0.01)
    assert found.dispatch_lag.max_ns == pytest.approx(4e9, rel=0.01)
    assert (found.attempts, found.retries, found.running) == (1, 0, 1)
