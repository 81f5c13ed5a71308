"""What a wait that has come due leads to: occurrences become runs, runs become ready."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from timingwheel.engine.records import Base
from timingwheel.engine.timeline import Now
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.model import Job, JobState, Run, RunState, SkipReason
from timingwheel.jobs.offsets import due_ns
from timingwheel.jobs.overlap import Admission, admit
from timingwheel.jobs.planning import Plan, PlannedRun, plan_due
from timingwheel.jobs.schedule import Firing, Schedule
from timingwheel.jobs.scheduling import removed_between, schedule_of
from timingwheel.jobs.store import Request
from timingwheel.jobs.triggers import CronRule, EveryCalendar
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.deciding.ending import (
    cancelled,
    finish_run,
    settle_job,
    skip_run,
    skipped,
)
from timingwheel.stores.deciding.live import LiveRun, is_held

replace = msgspec.structs.replace


class Unserved(NamedTuple):
    """Up to when nobody could dispatch: what came due until then is missed, ns."""

    wall_ns: int
    elapsed_ns: int


def schedule_now(job: Job, calendars: Mapping[str, NamedCalendar]) -> Schedule:
    """Return the schedule of a recurring job, with the calendars as they are."""
    return schedule_of(
        job.trigger,
        created_ns=job.since_ns,
        job_key=job.name or job.id,
        calendars=calendars,
    )


def is_due(job: Job, now: Now) -> bool:
    """Return whether the next occurrence of a job has come."""
    if job.state is not JobState.ACTIVE or job.next_ns is None:
        return False
    return job.next_ns <= (now.elapsed_ns if job.trigger.is_elapsed else now.wall_ns)


def is_pause_over(job: Job, now: Now) -> bool:
    """Return whether a job is paused, and its pause was to end by now."""
    if job.state is not JobState.PAUSED or job.pause is None:
        return False
    until_ns = job.pause.until_ns
    return until_ns is not None and until_ns <= now.wall_ns


def fire_job(
    decision: Decision,
    job: Job,
    *,
    unserved: Unserved,
    rng: random.Random,
) -> None:
    """Decide what becomes of the occurrences of a job that have come due.

    Args:
        decision: the group.
        job: recurring, with `next_ns` at or before the present on its trigger's scale.
        unserved: up to when nobody could dispatch.
        rng: for jitter.

    Cost: as `plan_due`, and O(1) for each run that is made.
    """
    elapsed = job.trigger.is_elapsed
    now_ns = decision.now.elapsed_ns if elapsed else decision.now.wall_ns
    assert job.next_ns is not None
    assert job.next_ns <= now_ns
    schedule = decision.view.schedule(job)
    plan = plan_due(
        schedule,
        job.policy.misfire,
        first=Firing(job.next_ns, job.next_mark),
        now_ns=now_ns,
        unserved_until_ns=unserved.elapsed_ns if elapsed else unserved.wall_ns,
    )
    carry_out(decision, job, plan, schedule=schedule, rng=rng)


def carry_out(
    decision: Decision,
    job: Job,
    plan: Plan,
    *,
    schedule: Schedule,
    rng: random.Random,
) -> None:
    """Turn a plan into runs and skip ranges, and move the job on.

    Args:
        decision: the group.
        job: the plan's; settled (`settle_job`) if nothing more is to come.
        plan: what runs and what does not. A run for which the overlap policy leaves no
            room becomes part of a skip range, too.
        schedule: the job's.
        rng: for jitter.
    """
    for skip in plan.skips:
        decision.note_skips(
            job.id,
            skip.reason,
            first_ns=skip.first_ns,
            last_ns=skip.last_ns,
            count=skip.count,
        )
    runs_max = job.trigger.runs_max
    made = job.runs_made
    tried: list[tuple[int, bool]] = []
    for planned in plan.runs:
        if is_used_up(runs_max, made):
            break
        run = _run_of(decision, job, planned, schedule=schedule, rng=rng)
        is_admitted = _admit(decision, job, run)
        made += is_admitted
        tried.append((run.nominal_ns, is_admitted))
    follow = None if is_used_up(runs_max, made) else plan.next
    for row in _refused_in_rows(tried, [skip.first_ns for skip in plan.skips]):
        decision.note_skips(
            job.id,
            SkipReason.OVERLAP,
            first_ns=row[0],
            last_ns=row[-1],
            count=len(row),
        )
    reached = [skip.last_ns for skip in plan.skips] + [ns for ns, _ in tried]
    reached_ns = max([*reached, job.reached_ns or 0])
    since_ns = job.reached_ns if job.reached_ns is not None else job.since_ns
    _note_excluded(decision, job, since_ns, reached_ns)
    decision.save_job(
        replace(
            job,
            next_ns=follow.utc_ns if follow is not None else None,
            next_mark=follow.mark if follow is not None else job.next_mark,
            reached_ns=reached_ns,
            runs_made=made,
        )
    )
    if follow is None:
        settle_job(decision, job.id)


def is_used_up(runs_max: int | None, made: int) -> bool:
    """Return whether a job has had all its runs; an update may have set fewer."""
    return runs_max is not None and made >= runs_max


def _refused_in_rows(
    tried: list[tuple[int, bool]], skip_starts_ns: list[int]
) -> list[list[int]]:
    """Return the occurrences that were not admitted, each unbroken row as a list.

    Args:
        tried: nominal times in order, and whether each was admitted.
        skip_starts_ns: where the plan's own skip ranges begin, in order; a row is broken
            by one of them, and by a run.
    """
    rows: list[list[int]] = []
    is_in_row = False
    for nominal_ns, is_admitted in tried:
        if is_admitted:
            is_in_row = False
            continue
        if is_in_row and not _lies_between(skip_starts_ns, rows[-1][-1], nominal_ns):
            rows[-1].append(nominal_ns)
        else:
            rows.append([nominal_ns])
        is_in_row = True
    return rows


def _lies_between(starts_ns: list[int], first_ns: int, last_ns: int) -> bool:
    """Return whether one of the starts, in order, lies between two instants."""
    return bisect(starts_ns, first_ns) < bisect(starts_ns, last_ns)


def fire_run(decision: Decision, job: Job, live: LiveRun) -> None:
    """Decide what becomes of a run whose wait is over; perhaps nothing.

    Between coming due and being looked at others may have moved it, or set the clock.
    """
    run, policy = live.run, live.policy or job.policy
    if run.state in (RunState.PLANNED, RunState.RETRYING):
        # A run that a pause holds is placed again at the pause's end.
        if not is_held(job, run) and _has_come(decision, live):
            decision.move_run(live, replace(run, state=RunState.READY))
    elif run.state is RunState.READY and is_expired(
        run,
        start_deadline_ns=policy.start_deadline_ns,
        wall_ns=decision.now.wall_ns,
    ):
        skip_run(decision, live, SkipReason.EXPIRED)


def _has_come(decision: Decision, live: LiveRun) -> bool:
    now = decision.now
    now_ns = now.elapsed_ns if live.base == Base.ELAPSED else now.wall_ns
    return live.wait_ns is not None and live.wait_ns <= now_ns


def is_expired(run: Run, *, start_deadline_ns: int | None, wall_ns: int) -> bool:
    """Return whether a run is too late to start. One that has begun never is.

    Args:
        run: ready, or about to be.
        start_deadline_ns: how late it may be after its due time, ns; None: no bound.
        wall_ns: the present.
    """
    return (
        start_deadline_ns is not None
        and run.attempts == 0
        and wall_ns > run.due_ns + start_deadline_ns
    )


def _run_of(
    decision: Decision,
    job: Job,
    planned: PlannedRun,
    *,
    schedule: Schedule,
    rng: random.Random,
) -> Run:
    """Return an occurrence as a run, not yet admitted."""
    nominal_ns = planned.firing.utc_ns
    at_ns = nominal_ns
    if job.trigger.splay_ns or job.trigger.jitter_ns:
        after = schedule.next_ns(nominal_ns)
        at_ns = due_ns(
            job.trigger,
            nominal_ns,
            job_id=job.id,
            next_ns=None if after is None else after.utc_ns,
            random=rng,
        )
    # Of an elapsed trigger the nominal time is on the elapsed scale; due is wall time.
    ahead_ns = decision.view.steps_ns if job.trigger.is_elapsed else 0
    return Run(
        job_id=job.id,
        nominal_ns=nominal_ns,
        due_ns=at_ns + ahead_ns,
        reason=planned.reason,
        task=job.task,
        queue=job.queue,
        priority=job.priority,
        revision=job.revision,
        created_ns=decision.now.wall_ns,
        mark=planned.firing.mark,
    )


def start_or_plan(decision: Decision, run: Run, *, wait_ns: int, base: Base) -> LiveRun:
    """Make a run: ready if its due time has come, else planned.

    Args:
        decision: the group.
        run: as it will be seen.
        wait_ns: its due time on the scale that counts: the two clocks differ by less
            than a step even without one, and nothing may start early.
        base: that scale.
    """
    now = decision.now
    if wait_ns <= (now.elapsed_ns if base is Base.ELAPSED else now.wall_ns):
        return decision.new_run(replace(run, state=RunState.READY))
    return decision.new_run(run, wait_ns=wait_ns, base=base)


def _admit(decision: Decision, job: Job, run: Run) -> bool:
    """Make a run as the overlap policy says; False if it is to be skipped."""
    admission = admit(
        job.policy.overlap,
        active=decision.active_count(job.id),
        behind=decision.behind_count(job.id),
    )
    if admission is Admission.SKIP:
        return False
    if admission in (Admission.INSTEAD, Admission.INSTEAD_KILL):
        kill = admission is Admission.INSTEAD_KILL
        end_others(decision, job, kill=kill)
        admission = (
            Admission.BEHIND if decision.active_count(job.id) else Admission.START
        )
    if admission is Admission.START:
        elapsed = job.trigger.is_elapsed
        start_or_plan(
            decision,
            run,
            wait_ns=run.due_ns - (decision.view.steps_ns if elapsed else 0),
            base=Base.ELAPSED if elapsed else Base.WALL,
        )
    else:
        decision.new_run(run, behind=True)
    return True


def end_others(decision: Decision, job: Job, *, kill: bool) -> None:
    """Make way for a newer run: end what can be ended, ask for the rest."""
    for live in decision.runs(job.id):
        if live.behind:
            run = skipped(decision, live, SkipReason.OVERLAP)
            finish_run(decision, live, run, makes_way=True)
        elif live.run.state is RunState.RUNNING:
            decision.save_run(replace(live, ending=True))
            decision.requests.append(Request(live.run.id, live.token, kill))
        elif live.run.state is not RunState.BLOCKED:
            finish_run(decision, live, cancelled(decision, live), makes_way=True)


def _note_excluded(
    decision: Decision, job: Job, since_ns: int, reached_ns: int
) -> None:
    """Write down what the job's calendar or its gap rule has left out."""
    when = job.trigger.when
    skips_gaps = isinstance(when, CronRule | EveryCalendar) and when.gap == "skip"
    if job.trigger.calendar is None and not skips_gaps:
        return
    for skip in removed_between(
        job.trigger,
        since_ns + 1,
        reached_ns + 1,
        created_ns=job.since_ns,
        job_key=job.name or job.id,
        calendars=decision.view.calendars,
    ):
        decision.note_skips(
            job.id,
            skip.reason,
            first_ns=skip.first_ns,
            last_ns=skip.last_ns,
            count=skip.count,
        )
