"""Updates: what is left out stays, and nothing is caught up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.scheduler import program
from timingwheel.errors import ArgumentError, CronError
from timingwheel.jobs.errors import RevisionConflictError, TaskError, UnknownJobError
from timingwheel.jobs.model import Cap, Overlap
from timingwheel.jobs.triggers import CronRule
from timingwheel.scheduler.simulation import SIM_START, Sim

BERLIN = "Europe/Berlin"


@pytest.fixture
def nightly(sim: Sim) -> str:
    """A job with a bit of everything."""
    sim.app.add(
        program.note.call("x"),
        cron="30 2 * * *",
        tz=BERLIN,
        splay="10m",
        name="nightly",
        overlap="allow(2)",
        timeout="5m",
        queue="bulk",
        priority=3,
        tags={"team": "bi"},
        concurrency=Cap("x", 2),
    )
    return "nightly"


def test_another_expression_keeps_the_zone_and_all_bounds(
    sim: Sim, nightly: str
) -> None:
    before = sim.app.job(nightly)
    job = sim.app.update(nightly, cron="0 3 * * *").job
    assert job.trigger.when == CronRule(expression="0 3 * * *", tz=BERLIN)
    assert job.trigger.splay_ns == before.trigger.splay_ns
    assert job.revision == 2
    unchanged = ("policy", "queue", "priority", "tags", "cap", "payload", "name")
    for field in unchanged:
        assert getattr(job, field) == getattr(before, field)
    assert sim.app.job(nightly) == job


def test_another_zone_keeps_the_expression(sim: Sim, nightly: str) -> None:
    when = sim.app.update(nightly, tz="Asia/Tokyo").job.trigger.when
    assert when == CronRule(expression="30 2 * * *", tz="Asia/Tokyo")


def test_one_bound_or_one_policy_changes_alone_and_none_takes_it_away(
    sim: Sim, nightly: str
) -> None:
    job = sim.app.update(nightly, timeout=None, splay=None, max_runs=9).job
    assert (job.policy.timeout_ns, job.trigger.splay_ns) == (None, 0)
    assert job.trigger.runs_max == 9
    assert job.policy.overlap.rule is Overlap.ALLOW
    assert job.trigger.when == CronRule(expression="30 2 * * *", tz=BERLIN)
    job = sim.app.update(nightly, max_runs=None, overlap="skip", priority=None).job
    assert (job.trigger.runs_max, job.priority) == (None, 0)
    assert job.policy.overlap.rule is Overlap.SKIP


def test_place_and_arguments_change(sim: Sim, nightly: str) -> None:
    call = program.note.call("y")
    job = sim.app.update(
        nightly, call=call, queue="q", priority=-1, tags={"a": "b"}, concurrency=None
    ).job
    assert (job.payload, job.queue, job.priority) == (call.payload, "q", -1)
    assert (job.tags, job.cap) == ({"a": "b"}, None)


def test_an_update_shows_the_next_ten_times_before_and_after(
    sim: Sim, nightly: str
) -> None:
    found = sim.app.update(nightly, cron="0 3 * * *", dry_run=True)
    assert len(found.before) == len(found.after) == 10
    assert found.before[0].utc == SIM_START + timedelta(hours=1, minutes=30)
    assert found.after[0].utc == SIM_START + timedelta(hours=2)
    assert sim.app.job(nightly).revision == 1
    assert sim.app.next_times(nightly) == found.before
    done = sim.app.update(nightly, cron="0 3 * * *")
    assert (done.before, done.after) == (found.before, found.after)
    assert sim.app.next_times(nightly) == found.after


def test_an_interval_counts_from_its_change_in_a_dry_run_and_in_truth(
    sim: Sim,
) -> None:
    sim.app.add(program.note.call("x"), every="1h", name="hourly")
    sim.advance("90m")
    dry = sim.app.update("hourly", every="20m", dry_run=True)
    assert dry.after[0].utc == SIM_START + timedelta(minutes=110)
    assert sim.app.update("hourly", every="20m").after == dry.after


def test_an_edit_catches_nothing_up(sim: Sim, nightly: str) -> None:
    sim.advance("5h30m")
    assert len(program.log.calls) == 1
    sim.app.update(nightly, cron="0 * * * *", splay=None)
    sim.run_until_idle()
    assert len(program.log.calls) == 1
    sim.advance("1h")
    assert len(program.log.calls) == 2


def test_past_runs_keep_their_revision(sim: Sim, nightly: str) -> None:
    sim.advance("1d")
    sim.app.update(nightly, cron="0 3 * * *")
    sim.advance("1d")
    assert [run.revision for run in sim.runs(nightly)] == [1, 2]


@pytest.mark.parametrize("dry_run", [True, False])
def test_an_update_of_another_revision_is_refused(
    sim: Sim, nightly: str, *, dry_run: bool
) -> None:
    sim.app.update(nightly, priority=4, if_revision=1)
    with pytest.raises(RevisionConflictError, match="revision 2, not 1"):
        sim.app.update(nightly, priority=5, if_revision=1, dry_run=dry_run)
    assert sim.app.job(nightly).priority == 4


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({}, ArgumentError, "changes"),
        ({"cron": "99 * * * *"}, CronError, "minute"),
        ({"tz": "Mars"}, ArgumentError, "tz"),
        ({"every": "1m", "cron": "* * * * *"}, ArgumentError, "the time to run"),
        ({"splay": "25h"}, ArgumentError, "splay"),
        ({"overlap": "no"}, ArgumentError, "overlap"),
        ({"queue": "x" * 600}, ArgumentError, "queue"),
        ({"call": program.fail.call()}, ArgumentError, "call"),
        ({"call": print}, TaskError, "call"),
        ({"end": datetime(1990, 1, 1, tzinfo=UTC)}, ArgumentError, "end"),
    ],
)
def test_a_change_that_cannot_be_meant_changes_nothing(
    sim: Sim,
    nightly: str,
    *,
    changes: dict[str, Any],
    error: type[Exception],
    words: str,
) -> None:
    before = sim.app.job(nightly)
    with pytest.raises(error, match=words):
        sim.app.update(nightly, **changes)
    assert sim.app.job(nightly) == before


def test_an_unknown_change_is_refused_with_the_one_that_was_meant(
    sim: Sim, nightly: str
) -> None:
    with pytest.raises(TypeError, match="did you mean 'priority'"):
        sim.app.update(nightly, prioritty=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="name"):
        sim.app.update(nightly, name="other")  # type: ignore[call-arg]


def test_a_zone_for_a_job_without_wall_times_is_refused(sim: Sim) -> None:
    sim.app.add(program.note.call("x"), every="1h", name="hourly")
    with pytest.raises(ArgumentError, match="tz"):
        sim.app.update("hourly", tz=BERLIN)


def test_a_job_that_is_not_there_cannot_be_updated(sim: Sim) -> None:
    with pytest.raises(UnknownJobError):
        sim.app.update("nobody", priority=1)
