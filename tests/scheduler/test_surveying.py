from __future__ import annotations

from tests.scheduler import program
from timingwheel.scheduler.simulation import Sim
from timingwheel.scheduler.tasks import NamedTask


def test_tasks_are_those_of_the_program_and_those_that_live_jobs_name(
    sim: Sim,
) -> None:
    sim.app.add(NamedTask("mail:send").call(), delay="1h")
    gone = sim.app.add(NamedTask("mail:gone").call(), delay="1h")
    sim.app.cancel(gone.id)
    facts = {one.name: one for one in sim.app.known_tasks()}
    assert "mail:gone" not in facts
    assert (facts["mail:send"].signature, facts["mail:send"].jobs) == ("", 1)
    assert facts[program.note.name].signature.endswith("note(what: str)")


def test_queues_and_calendars_are_listed(sim: Sim) -> None:
    sim.app.queue("bulk").set(limit=2)
    sim.app.calendar("holidays").set(weekdays=["SAT"])
    assert [one.name for one in sim.app.queues()] == ["bulk"]
    assert sim.app.calendars()["holidays"].weekdays == ("SAT",)


def test_whoever_runs_nothing_is_no_worker(sim: Sim) -> None:
    assert sim.app.workers() == []


def test_the_dead_letter_is_what_failed_and_was_not_discarded(sim: Sim) -> None:
    first = sim.app.add(program.fail.call(), delay=0, retry=1)
    second = sim.app.add(program.fail.call(), delay=0, retry=1)
    sim.advance(1)
    sim.app.discard(first)
    dead = sim.app.runs(state=["failed", "lost"], discarded=False)
    assert [run.job_id for run in dead] == [second.id]
