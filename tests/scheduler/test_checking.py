"""The doctor: one test for each kind of finding, and none for a healthy store."""

from __future__ import annotations

import pytest

from tests.scheduler import program
from tests.scheduler.node_stage import Stage
from timingwheel.scheduler.checking import Doctor
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.simulation import Sim


def kinds(sim: Sim) -> list[str]:
    return [finding.kind for finding in sim.app.check()]


def test_a_healthy_store_has_no_findings(sim: Sim) -> None:
    sim.app.add(program.note.call("x"), every="10s", name="a")
    sim.app.add(program.fail.call(1), delay=1)
    sim.app.pause(sim.app.add(program.note.call("p"), delay=1))
    sim.advance(25)
    assert kinds(sim) == []


def test_jobs_of_a_task_that_is_not_here_are_counted(sim: Sim) -> None:
    gone = Scheduler("never").task(name="gone")(program.note.function)
    for _ in range(3):
        sim.app.add(gone.call("x"), delay="1h")
    (finding,) = sim.app.check()
    assert (finding.kind, finding.subject) == ("unknown_task", "gone")
    assert finding.message.startswith("3 jobs")
    assert "rebind" in finding.fix


def test_a_run_beyond_its_start_deadline_without_a_worker_is_found(
    sim: Sim,
) -> None:
    """Case 19."""
    gone = Scheduler("never").task(name="gone")(program.note.function)
    sim.app.add(gone.call("x"), delay=1, start_deadline="1m")
    sim.advance(30)
    assert kinds(sim) == ["unknown_task"]
    sim.advance(60)
    assert set(kinds(sim)) <= {"unknown_task", "expired_run"}
    # Either it is skipped by then, which is its end, or it is reported.
    assert sim.app.runs(state="skipped") or "expired_run" in kinds(sim)


def test_failed_runs_are_found_until_they_are_retried_or_discarded(
    sim: Sim,
) -> None:
    program.log.errors += [ValueError("a"), ValueError("b")]
    for _ in range(2):
        sim.app.add(program.fail_once.call(), delay=1)
    sim.advance(2)
    (finding,) = sim.app.check()
    assert (finding.kind, finding.subject) == ("dead_letter", program.fail_once.name)
    assert finding.message.startswith("2 runs")
    first, second = sim.app.runs(state="failed")
    sim.app.discard(first)
    sim.app.retry(second)
    sim.run_until_idle()
    assert kinds(sim) == []


@pytest.mark.parametrize("held", [True, False])
def test_a_run_that_counts_as_running_and_that_nobody_works_on_is_found(
    *, held: bool
) -> None:
    """Case 14: running implies that somebody holds it."""
    stage = Stage()
    stage.node.begin_service()
    stage.add(program.note.call("x"))
    stage.turns()
    doctor = Doctor(
        stage.store,
        tasks=program.app.tasks.names,
        holds=stage.node.in_hand.holds if held else lambda _: False,
    )
    found = [finding.kind for finding in doctor.findings()]
    assert found == ([] if held else ["stuck_run"])
    stage.executor.begin()
    stage.executor.end()
    assert stage.node.in_hand.has_ends  # ended, and not written down yet
    if held:
        assert doctor.findings() == []
    stage.turns()
    assert doctor.findings() == []
    stage.close()


def test_without_service_nobody_can_tell_what_is_stuck() -> None:
    stage = Stage()
    stage.node.begin_service()
    stage.add(program.note.call("x"))
    stage.turns()
    doctor = Doctor(stage.store, tasks=program.app.tasks.names, holds=None)
    assert doctor.findings() == []
    stage.close()
