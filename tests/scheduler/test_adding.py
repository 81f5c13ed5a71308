"""What `schedule` and `add` take, and what they refuse: at the call, and in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.scheduler import program
from timingwheel.errors import (
    ArgumentError,
    CronError,
    DeadlineError,
    PayloadTooLargeError,
)
from timingwheel.jobs.after import After
from timingwheel.jobs.cron import Cron
from timingwheel.jobs.errors import KeyConflictError, NameTakenError, TaskError
from timingwheel.jobs.intervals import every
from timingwheel.jobs.model import (
    Cap,
    Delivery,
    JobState,
    Misfire,
    MisfirePolicy,
    Overlap,
    OverlapPolicy,
    Policy,
    RetryPolicy,
)
from timingwheel.jobs.triggers import CronRule, Delay
from timingwheel.scheduler.retrying import Retry
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.simulation import Sim
from timingwheel.scheduler.tasks import NamedTask

SECOND_NS = 10**9


def test_schedule_returns_the_id_of_a_job_that_runs_once_after_its_delay(
    sim: Sim,
) -> None:
    job_id = sim.app.schedule(program.note.call("tea"), 30)
    assert isinstance(job_id, str)
    sim.advance(29.9)
    assert program.log.calls == []
    sim.advance(0.2)
    assert program.log.calls == ["tea"]
    assert [run.state.value for run in sim.runs(job_id)] == ["succeeded"]


@pytest.mark.parametrize("delay", ["1h30m", timedelta(minutes=90), 5400, 5400.0])
def test_a_delay_is_seconds_a_timedelta_or_text(sim: Sim, delay: Any) -> None:
    job = sim.app.job(sim.app.schedule(program.note.call("x"), delay))
    assert job.trigger.when == Delay(5400 * SECOND_NS)


@pytest.mark.parametrize(
    ("passed", "fix"),
    [
        (lambda: None, "@app.task"),
        (program.plain_function, "@app.task"),
        (program.note, r"note\.call\(\.\.\.\)"),
        ("note", r"task\.call"),
        (None, r"task\.call"),
    ],
)
def test_what_is_no_call_is_refused_at_the_call_naming_argument_and_fix(
    sim: Sim, passed: Any, fix: str
) -> None:
    """Case 30: a lambda fails when it is scheduled, not when it is due."""
    with pytest.raises(TaskError, match=rf"^job .*{fix}"):
        sim.app.schedule(passed, 1)
    with pytest.raises(TaskError, match=rf"^call .*{fix}"):
        sim.app.add(passed, delay=1)
    assert sim.app.jobs() == []


def test_an_unknown_option_is_refused_with_the_one_that_was_meant(sim: Sim) -> None:
    with pytest.raises(TypeError, match=r"'corn'.*did you mean 'cron'"):
        sim.app.add(program.note.call("x"), corn="* * * * *")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({}, "the time to run"),
        ({"delay": 1, "every": 2}, "the time to run"),
        ({"delay": -1}, "delay"),
        ({"delay": "soon"}, "delay"),
        ({"at": datetime(2026, 1, 2)}, "at"),  # noqa: DTZ001 - naive on purpose
        ({"every": 0}, "every"),
        ({"delay": 1, "timeout": 0}, "timeout"),
        ({"delay": 1, "start_deadline": "x"}, "start_deadline"),
        ({"delay": 1, "max_lost": 0}, "max_lost"),
        ({"delay": 1, "retry": 0}, "retry"),
        ({"delay": 1, "retry": Retry(3, give_up_on=KeyError)}, "retry"),
        ({"delay": 1, "delivery": "exactly_once"}, "delivery"),
        ({"delay": 1, "queue": ""}, "queue"),
        ({"delay": 1, "queue": "q" * 600}, "queue"),
        ({"delay": 1, "priority": "high"}, "priority"),
        ({"delay": 1, "concurrency": 3}, "concurrency"),
        ({"delay": 1, "concurrency": Cap("x", 0)}, "concurrency.limit"),
        ({"delay": 1, "tags": ["bi"]}, "tags"),
        ({"delay": 1, "tags": {"team": 7}}, "tags"),
        ({"delay": 1, "name": "a@b"}, "name"),
        ({"delay": 1, "name": "64f44d09-d3a6-8000-8000-000000000001"}, "name"),
        ({"delay": 1, "key": ""}, "key"),
        ({"delay": 1, "if_exists": "replace"}, "if_exists"),
        ({"every": 60, "overlap": "maybe"}, "overlap"),
        ({"every": 60, "misfire": "maybe"}, "misfire"),
        ({"every": 60, "splay": "2m"}, "splay"),
        ({"every": 60, "max_runs": 0}, "max_runs"),
        ({"cron": "0 0 * * *", "tz": "Europe/Berlyn"}, "tz"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused_by_its_name(
    sim: Sim, options: dict[str, Any], argument: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        sim.app.add(program.note.call("x"), **options)
    assert caught.value.argument.startswith(argument)
    assert sim.app.jobs() == []


def test_a_cron_expression_that_never_matches_is_refused(sim: Sim) -> None:
    with pytest.raises(CronError):
        sim.app.add(program.note.call("x"), cron="0 0 30 2 *")


def test_a_time_beyond_2262_is_refused(sim: Sim) -> None:
    with pytest.raises(DeadlineError):
        sim.app.add(program.note.call("x"), at=datetime(2300, 1, 1, tzinfo=UTC))


def test_every_option_arrives_in_the_job(sim: Sim) -> None:
    ref = sim.app.add(
        program.note.call("x"),
        cron="30 2 * * *",
        tz="Europe/Berlin",
        max_runs=5,
        splay="10m",
        name="nightly",
        overlap="allow(3)",
        misfire="all(100, 1h)",
        retry=Retry(7, backoff="2s..1m", jitter=0),
        timeout="5m",
        delivery="at_most_once",
        start_deadline="1h",
        max_lost=9,
        queue="bulk",
        priority=-2,
        concurrency=Cap("tenant:7", 2),
        tags={"team": "bi"},
    )
    assert ref.created
    job = sim.app.job("nightly")
    assert job.id == ref.id
    assert job.policy == Policy(
        delivery=Delivery.AT_MOST_ONCE,
        overlap=OverlapPolicy(rule=Overlap.ALLOW, limit=3),
        misfire=MisfirePolicy(rule=Misfire.ALL, limit=100, window_ns=3600 * SECOND_NS),
        retry=RetryPolicy(
            attempts=7, first_ns=2 * SECOND_NS, max_ns=60 * SECOND_NS, jitter=0
        ),
        timeout_ns=300 * SECOND_NS,
        start_deadline_ns=3600 * SECOND_NS,
        lost_max=9,
    )
    assert (job.queue, job.priority, job.cap) == ("bulk", -2, Cap("tenant:7", 2))
    assert (job.name, job.tags) == ("nightly", {"team": "bi"})
    assert job.trigger.when == CronRule(expression="30 2 * * *", tz="Europe/Berlin")
    assert job.trigger.runs_max == 5
    assert job.trigger.splay_ns == 600 * SECOND_NS


def test_what_an_add_leaves_out_the_task_says(sim: Sim) -> None:
    job = sim.app.job(sim.app.add(program.fail.call(), delay=1))
    assert job.policy.retry.attempts == 3
    job = sim.app.job(sim.app.add(program.obedient.call("d"), delay=1))
    assert job.policy.timeout_ns == 5 * SECOND_NS
    job = sim.app.job(sim.app.add(program.obedient.call("d"), delay=1, timeout="9s"))
    assert job.policy.timeout_ns == 9 * SECOND_NS
    job = sim.app.job(sim.app.add(program.fail.call(), delay=1, retry=2))
    assert job.policy.retry.attempts == 2


def test_rules_for_clock_changes_come_by_a_cron_object(sim: Sim) -> None:
    cron = Cron("30 2 * * *", tz="Europe/Berlin", gap="skip", overlap="both")
    when = sim.app.job(sim.app.add(program.note.call("x"), cron=cron)).trigger.when
    assert isinstance(when, CronRule)
    assert (when.gap, when.overlap) == ("skip", "both")


def test_every_seven_days_at_16_keeps_its_wall_time_and_168_hours_do_not() -> None:
    """Case 8."""
    with Sim(tasks=program.app, start=datetime(2026, 3, 25, 0, tzinfo=UTC)) as sim:
        sim.app.add(
            program.note.call("calendar"),
            every=every(days=7, at="16:00", tz="Europe/Berlin"),
            name="calendar",
        )
        sim.app.add(
            program.note.call("elapsed"), every=every(hours=168), name="elapsed"
        )
        sim.advance("15d")
        hours = [hour(run) for run in sim.runs("calendar")]
        assert hours == [15, 14, 14]  # the clock changes on 29 March
        assert [hour(run) for run in sim.runs("elapsed")] == [0, 0]


def hour(run: Any) -> int:
    return datetime.fromtimestamp(run.nominal_ns / 1e9, UTC).hour


# -- names and keys ----------------------------------------------------------------------


def test_the_same_name_with_the_same_definition_is_the_same_job(sim: Sim) -> None:
    first = sim.app.add(program.note.call("x"), cron="0 3 * * *", name="nightly")
    again = sim.app.add(program.note.call("x"), cron="0 3 * * *", name="nightly")
    assert (first.created, again.created) == (True, False)
    assert not again.updated
    assert again.id == first.id
    assert sim.app.job("nightly").revision == 1


def test_the_same_name_with_another_definition_is_updated_without_catch_up(
    sim: Sim,
) -> None:
    first = sim.app.add(program.note.call("x"), cron="0 * * * *", name="nightly")
    sim.advance("90m")
    again = sim.app.add(program.note.call("y"), cron="15 * * * *", name="nightly")
    assert (again.id, again.created, again.updated) == (first.id, False, True)
    assert program.log.calls == ["x", "x"]
    sim.advance("1h")
    assert program.log.calls == ["x", "x", "y"]


def test_if_exists_error_refuses_another_definition_and_takes_the_same(
    sim: Sim,
) -> None:
    sim.app.add(program.note.call("x"), cron="0 * * * *", name="nightly")
    with pytest.raises(NameTakenError):
        sim.app.add(
            program.note.call("y"), cron="0 * * * *", name="nightly", if_exists="error"
        )
    assert sim.app.job("nightly").revision == 1


def test_a_key_finds_its_job_and_refuses_another_payload(sim: Sim) -> None:
    first = sim.app.add(program.note.call("x"), delay="1h", key="inv-17")
    again = sim.app.add(program.note.call("x"), delay="1h", key="inv-17")
    assert (again.id, again.created) == (first.id, False)
    with pytest.raises(KeyConflictError):
        sim.app.add(program.note.call("y"), delay="1h", key="inv-17")
    other_task = sim.app.add(program.note_ctx.call("y"), delay="1h", key="inv-17")
    assert other_task.created  # the scope of a key is its task


def test_a_key_still_finds_its_job_after_it_has_run(sim: Sim) -> None:
    first = sim.app.add(program.note.call("x"), delay=1, key="inv-17")
    sim.advance(2)
    again = sim.app.add(program.note.call("x"), delay=1, key="inv-17")
    assert (again.id, again.created) == (first.id, False)
    sim.advance(10)
    assert program.log.calls == ["x"]


# -- dependencies ------------------------------------------------------------------------


def test_a_job_after_another_runs_when_that_has_succeeded(sim: Sim) -> None:
    first = sim.app.add(program.note.call("first"), delay="1h")
    sim.app.add(program.note.call("second"), after=After(first))
    sim.advance("59m")
    assert program.log.calls == []
    sim.advance("2m")
    assert program.log.calls == ["first", "second"]


def test_a_job_after_a_failure_is_skipped_unless_it_waits_for_that(sim: Sim) -> None:
    first = sim.app.add(program.fail_once.call(), delay=1)
    program.log.errors.append(ValueError("no"))
    on_success = sim.app.add(program.note.call("success"), after=After(first))
    sim.app.add(program.note.call("failure"), after=After(first, on="failure"))
    sim.app.add(program.note.call("any"), after=After(first, on="any"))
    sim.advance(5)
    assert sorted(program.log.calls) == ["any", "fail_once", "failure"]
    (run,) = sim.runs(on_success)
    assert (run.state.value, run.skip_reason) == ("skipped", "upstream")


def test_a_job_is_stored_before_start_and_runs_after_it() -> None:
    app = Scheduler(":memory:", tasks=program.app.tasks)
    job_id = app.schedule(program.note.call("early"), 0)
    assert app.job(job_id).state is JobState.ACTIVE
    assert program.log.calls == []
    with app:
        assert app.run(job_id).wait("60s").state.value == "succeeded"
    assert program.log.calls == ["early"]


def test_a_task_known_by_name_alone_can_be_called_where_its_function_is_not(
    sim: Sim,
) -> None:
    stranger = NamedTask(program.note.name)
    ref = sim.app.add(stranger.call(what="tea"), delay=1)
    assert sim.app.job(ref).payload.body == b'{"what":"tea"}'
    sim.advance(2)
    assert program.log.calls == ["tea"]


def test_arguments_that_do_not_fit_a_named_task_set_the_job_aside(sim: Sim) -> None:
    ref = sim.app.add(NamedTask(program.note.name).call(wat=1), delay=1)
    sim.advance(2)
    assert sim.app.job(ref).state is JobState.QUARANTINED


def test_what_a_named_task_cannot_store_is_refused() -> None:
    with pytest.raises(TaskError, match="what JSON can hold"):
        NamedTask("mail:send").call(what=object())
    with pytest.raises(TaskError, match="name"):
        NamedTask("").call()
    with pytest.raises(PayloadTooLargeError, match=r"mail:send.*bytes"):
        NamedTask("mail:send").call(what="x" * (1 << 20))
