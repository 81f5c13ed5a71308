"""Sim: a program's scheduler in a world that the test moves."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.scheduler import program
from timingwheel.errors import ArgumentError, TimingWheelError
from timingwheel.jobs.model import RunState
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.simulation import SIM_START, Sim
from timingwheel.stores.embedded import EmbeddedStore


def nominals(sim: Sim, job: str) -> list[float]:
    """Seconds after the start of the simulation."""
    start_ns = int(SIM_START.timestamp()) * 10**9
    return [(run.nominal_ns - start_ns) / 10**9 for run in sim.runs(job, limit=1_000)]


def setup(app: Scheduler) -> None:
    """What the program does at every start."""
    note = app.task(program.note.function)
    app.add(note.call("tick"), every="10s", name="ticks")


def test_a_program_is_set_up_at_every_start_and_its_jobs_are_there_once() -> None:
    with Sim(setup) as sim:
        sim.advance(25)
        sim.restart()
        assert [job.name for job in sim.app.jobs()] == ["ticks"]
        sim.advance(10)
        assert nominals(sim, "ticks") == [10, 20, 30]


def test_what_is_due_at_the_very_end_of_a_span_has_run(sim: Sim) -> None:
    sim.app.add(program.note.call("x"), every="1h", name="hourly")
    for hour in range(1, 25):
        sim.advance("1h")
        assert len(program.log.calls) == hour
    assert sim.now - SIM_START < timedelta(days=1, milliseconds=1)


def test_each_run_starts_when_it_is_due_however_long_the_span(sim: Sim) -> None:
    sim.app.add(program.note.call("x"), cron="*/15 * * * *", name="quarterly")
    sim.advance("1d")
    runs = sim.runs("quarterly", limit=1_000)
    assert len(runs) == 97  # the first second of both days is in it
    for run in runs:
        assert run.started_ns is not None
        assert 0 <= run.started_ns - run.nominal_ns < 1_000_000


def test_time_passes_to_a_moment_of_the_wall_clock(sim: Sim) -> None:
    sim.advance_to(datetime(2026, 1, 2, 12, tzinfo=UTC))
    assert sim.now == datetime(2026, 1, 2, 12, tzinfo=UTC)
    with pytest.raises(ArgumentError, match="moment"):
        sim.advance_to(SIM_START)


def test_a_clock_set_back_silences_nothing_and_doubles_nothing(sim: Sim) -> None:
    """Case 9."""
    sim.app.add(program.note.call("x"), every="10s", name="ticks")
    sim.app.add(program.note.call("cron"), cron="0 * * * *", name="hourly")
    sim.advance("10m")
    before = len(program.log.calls)
    sim.step_wall("-2h")
    sim.advance("1m")
    assert len(program.log.calls) == before + 6
    sim.app.cancel("ticks")
    sim.advance("5h")
    hours = nominals(sim, "hourly")
    assert len(hours) == len(set(hours))


@pytest.mark.parametrize("delta", ["1h", 3600, timedelta(hours=1)])
def test_the_wall_clock_is_set_on_and_back_by_any_duration(
    sim: Sim, delta: Any
) -> None:
    sim.step_wall(delta)
    assert sim.now == SIM_START + timedelta(hours=1)
    sim.step_wall(f"-{delta}" if isinstance(delta, str) else -delta)
    assert sim.now == SIM_START


def test_a_step_on_moves_no_delay(sim: Sim) -> None:
    sim.app.schedule(program.note.call("x"), "1h")
    sim.step_wall("5h")
    assert program.log.calls == []
    sim.advance("1h")
    assert program.log.calls == ["x"]


# -- crashes -------------------------------------------------------------------------------


def test_what_was_acknowledged_is_there_after_a_power_failure(sim: Sim) -> None:
    sim.app.schedule(program.note.call("x"), "1h")
    sim.crash()
    assert sim.is_down
    sim.advance("2h")
    assert program.log.calls == []
    sim.restart()
    assert program.log.calls == ["x"]


def test_what_is_down_says_so(sim: Sim) -> None:
    sim.kill()
    with pytest.raises(TimingWheelError, match="restart"):
        sim.app.jobs()
    with pytest.raises(TimingWheelError, match="restart"):
        sim.runs()


def test_a_minutely_job_that_was_down_for_101_minutes_runs_once_and_goes_on(
    sim: Sim,
) -> None:
    """Case 11."""
    sim.app.add(program.note.call("x"), cron="* * * * *", name="minutely")
    sim.advance("90s")
    sim.crash()
    sim.advance("101m")
    sim.restart()
    assert len(program.log.calls) == 3  # two on time, and one of what was missed
    (skips,) = sim.app.desk.store.skips(sim.app.job("minutely").id)
    assert skips.count == 100
    sim.advance("3m")
    assert len(program.log.calls) == 6


def test_a_crash_at_any_disk_call_loses_no_job_and_doubles_no_run() -> None:
    """The effect may come twice after a crash; its run record never does."""
    points = 0
    for at in range(1, 60):
        program.log.clear()
        with Sim(setup, seed=at) as sim:
            sim.advance(5)
            sim.crash(at=at, choice=f"random {at}")
            sim.advance(60)
            if not sim.is_down:
                break  # a longer life than that has no further calls
            points += 1
            sim.restart()
            sim.advance(60)
            runs = sim.runs("ticks", limit=1_000)
            assert len({run.id for run in runs}) == len(runs)
            done = [run for run in runs if run.state is RunState.SUCCEEDED]
            assert len(done) >= 6
            assert sim.app.check() == []
            assert all(run.attempts <= 2 for run in runs)
    assert points > 10


def test_a_run_that_the_crash_interrupted_is_lost_and_tried_again() -> None:
    """Case 4: at least once is tried again, at most once is not."""
    seen = set()
    for at in range(1, 12):
        for delivery in ("at_least_once", "at_most_once"):
            program.log.clear()
            with Sim(tasks=program.app, seed=at) as sim:
                ref = sim.app.add(program.note.call("x"), delay=1, delivery=delivery)
                sim.crash(at=at)
                sim.advance(5)
                if not sim.is_down:
                    continue
                sim.restart()
                sim.advance(60)
                (run,) = sim.runs(ref)
                outcomes = [
                    attempt.outcome and attempt.outcome.value
                    for attempt in sim.app.run(run).attempts()
                ]
                seen.add((delivery, run.state.value, *outcomes))
    assert ("at_least_once", "succeeded", "lost", "ok") in seen
    assert ("at_most_once", "lost", "lost") in seen
    assert not any(
        kind == "at_most_once" and len(outcomes) > 1 for kind, _, *outcomes in seen
    )


def test_a_process_is_killed_at_a_disk_call_to_come_unless_it_is_spared(
    sim: Sim,
) -> None:
    with sim.kill(at=1).crashing():
        sim.app.schedule(program.note.call("x"), 5)
    assert sim.is_down
    sim.restart().kill(at=1).spare()
    sim.app.schedule(program.note.call("y"), 5)
    sim.advance(5)
    assert program.log.calls[-1] == "y"


def test_what_ended_is_in_the_history_over_snapshots_and_crashes(sim: Sim) -> None:
    ref = sim.app.schedule(program.note.call("x"), 1)
    sim.advance(1)
    store = sim.app.desk.store
    assert isinstance(store, EmbeddedStore)
    store.snapshot()
    sim.crash().restart()
    assert [run.state for run in sim.runs(ref)] == [RunState.SUCCEEDED]
    assert sim.history.reached_lsn > 0


def test_a_simulation_leaves_no_thread_behind(sim: Sim) -> None:
    before = threading.active_count()
    for at in range(1, 6):
        sim.crash(at=at)
        with sim.crashing():
            sim.app.schedule(program.note.call("x"), 1)
            sim.advance(60)
        sim.crash().restart()
    assert threading.active_count() == before


def test_the_same_seed_does_the_same() -> None:
    def story(seed: int) -> list[Any]:
        program.log.clear()
        with Sim(tasks=program.app, seed=seed) as sim:
            sim.app.add(program.note.call("x"), every="1m", jitter="20s", name="j")
            sim.app.schedule(program.fail.call(2), 5)
            sim.advance("10m")
            sim.crash()
            sim.restart()
            sim.advance("10m")
            runs = sim.app.runs(limit=1_000)
            return [(run.id, run.due_ns, run.started_ns, run.state) for run in runs]

    assert story(7) == story(7)
    assert story(7) != story(8)


# -- what a simulation cannot do -------------------------------------------------------------


def test_nobody_can_wait_in_a_world_with_one_thread(sim: Sim) -> None:
    handle = sim.app.run(sim.app.schedule(program.note.call("x"), 10))
    with pytest.raises(RuntimeError, match=r"advance\(\)"):
        handle.wait()
    sim.advance(10)
    assert handle.result() == "X"


@pytest.mark.parametrize("task", [program.note_elsewhere, program.note_soon])
def test_every_task_runs_inline_whatever_executor_it_names(sim: Sim, task: Any) -> None:
    handle = sim.app.run(sim.app.schedule(task.call("x"), 1))
    sim.advance(1)
    assert handle.result() == "X"
    assert program.log.calls == ["x"]


def test_arguments_that_cannot_be_meant_are_refused(sim: Sim) -> None:
    with pytest.raises(ArgumentError, match="setup"):
        Sim("setup")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="start"):
        Sim(start=datetime(2026, 1, 1))  # noqa: DTZ001 - on purpose
    with pytest.raises(ArgumentError, match="span"):
        sim.advance(-1)
    with pytest.raises(ArgumentError, match="at"):
        sim.crash(at=0)
