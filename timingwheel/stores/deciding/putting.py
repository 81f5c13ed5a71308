"""Drafts become jobs: identity, first occurrence, and what is there already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from timingwheel.engine.records import Base
from timingwheel.engine.timeline import Now
from timingwheel.errors import ArgumentError, BatchTooLargeError
from timingwheel.jobs.errors import (
    KeyConflictError,
    NameTakenError,
    UnknownCalendarError,
)
from timingwheel.jobs.feasibility import require_possible
from timingwheel.jobs.model import (
    Draft,
    Job,
    JobId,
    Payload,
    Run,
    RunReason,
    RunState,
    SkipReason,
)
from timingwheel.jobs.offsets import splay_ns
from timingwheel.jobs.schedule import HORIZON_NS, Schedule
from timingwheel.jobs.store import IfExists, JobRef
from timingwheel.jobs.triggers import AfterJobs, At, Delay, Moment, Trigger
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.deciding.ending import is_wanted, settle_job, skip_run
from timingwheel.stores.deciding.firing import is_used_up, start_or_plan
from timingwheel.stores.identity import StoreTag

replace = msgspec.structs.replace

DRAFTS_MAX: Final = 65_536
"""Jobs that one put may make."""


class Past(Protocol):
    """What is known of jobs that are not live any more."""

    def payload(self, job_id: JobId) -> Payload | None:
        """Return the payload of a job that is over and still kept."""

    def end(self, job_id: JobId) -> RunState | None:
        """Return how a job ended, None if it is a plain one that has not.

        Raises:
            UnknownJobError: it is not kept.
        """


def put_all(
    decision: Decision,
    drafts: Sequence[Draft],
    *,
    tag: StoreTag,
    if_exists: IfExists,
    past: Past,
    put_plain: Callable[[Decision, Draft], JobRef],
) -> list[JobRef]:
    """Make jobs in one group.

    Args:
        decision: the group.
        drafts: what is asked for.
        tag: makes ids.
        if_exists: what a name does that is there with another definition.
        past: what is known of jobs that are over.
        put_plain: makes a job that `is_plain`, in the form that the store has for it.

    Raises:
        As JobStore.put.
    """
    if len(drafts) > DRAFTS_MAX:
        raise BatchTooLargeError(
            "drafts", f"{len(drafts)} jobs", f"pass at most {DRAFTS_MAX:,} at a time"
        )
    refs: list[JobRef] = []
    for draft in drafts:
        if is_plain(draft):
            refs.append(put_plain(decision, draft))
            continue
        ref = _find(decision, draft, tag=tag, if_exists=if_exists, past=past)
        if ref is None:
            job_id = (
                tag.keyed(draft.task, draft.key)
                if draft.key is not None
                else tag.unkeyed(decision.next_number())
            )
            _make(decision, draft, job_id, past=past)
            ref = JobRef(job_id, created=True)
        refs.append(ref)
    return refs


def is_plain(draft: Draft) -> bool:
    """Return whether a job needs no more than a time, a queue and a payload."""
    return (
        draft.key is None
        and draft.name is None
        and not draft.tags
        and not draft.payload.secret
        and isinstance(draft.trigger.when, Delay | At)
        and draft.trigger == Trigger(when=draft.trigger.when)
        and draft.policy.start_deadline_ns is None
    )


def once_at(when: Moment, now: Now) -> tuple[Base, int, int]:
    """Return the scale of a one-time job's moment, the deadline on it, and the nominal."""
    if isinstance(when, Delay):
        return (
            Base.ELAPSED,
            now.elapsed_ns + when.delay_ns,
            now.wall_ns + when.delay_ns,
        )
    assert isinstance(when, At)
    return Base.WALL, when.at_ns, when.at_ns


def require_representable(nominal_ns: int, deadline_ns: int) -> None:
    """Check that both lie before the end of time.

    Raises:
        ArgumentError: one does not.
    """
    if max(nominal_ns, deadline_ns) > HORIZON_NS:
        raise ArgumentError("delay", nominal_ns, "pass a time before the year 2262")


def _find(
    decision: Decision,
    draft: Draft,
    *,
    tag: StoreTag,
    if_exists: IfExists,
    past: Past,
) -> JobRef | None:
    """Return the job that a draft means if it is there already."""
    if draft.key is not None:
        job_id = tag.keyed(draft.task, draft.key)
        job = decision.job(job_id)
        payload = job.payload if job is not None else past.payload(job_id)
        if payload is not None:
            # Which of them are secret is no part of what is to be done.
            if (payload.body, payload.version) != (
                draft.payload.body,
                draft.payload.version,
            ):
                raise KeyConflictError(draft.key, draft.task, job_id)
            return JobRef(job_id, created=False)
    if draft.name is None:
        return None
    named = decision.named(draft.name)
    job = decision.job(named) if named is not None else None
    if job is None:
        return None
    changed = _changed(decision, job, draft)
    if changed == job:
        return JobRef(job.id, created=False)
    if if_exists == "error":
        raise NameTakenError(draft.name, job.id)
    redefine(decision, job, changed)
    return JobRef(job.id, created=False, updated=True)


def redefine(decision: Decision, job: Job, changed: Job) -> Job:
    """Give a job another definition; runs that are there keep what they were made with.

    Raises:
        ArgumentError: one of the two triggers does not recur, or never comes again.
    """
    changed = replace(changed, revision=job.revision + 1)
    if changed.trigger != job.trigger:
        _require_recurring(job.trigger, changed.trigger)
        changed = first_occurrence(decision, changed)
    _keep_for_runs(decision, job, changed)
    decision.save_job(changed)
    settle_job(decision, changed.id)  # it may have had all the runs that it may have
    return changed


def _require_recurring(old: Trigger, new: Trigger) -> None:
    if not (old.is_recurring and new.is_recurring):
        raise ArgumentError(
            "trigger",
            type(new.when).__name__,
            "only a recurring job's schedule can change, and to a recurring one: cancel "
            "the job and add another",
        )


def _keep_for_runs(decision: Decision, old: Job, new: Job) -> None:
    """Give live runs the payload and the policy that they were made with."""
    if old.payload == new.payload and old.policy == new.policy:
        return
    for live in decision.runs(old.id):
        if live.payload is None or live.policy is None:
            decision.save_run(
                replace(
                    live,
                    payload=live.payload or old.payload,
                    policy=live.policy or old.policy,
                )
            )


def _changed(decision: Decision, job: Job, draft: Draft) -> Job:
    """Return a job with the definition of a draft."""
    return replace(
        job,
        task=draft.task,
        payload=draft.payload,
        trigger=_resolved(decision, draft.trigger),
        policy=draft.policy,
        queue=draft.queue,
        priority=draft.priority,
        cap=draft.cap,
        tags=draft.tags,
    )


def _make(decision: Decision, draft: Draft, job_id: JobId, *, past: Past) -> None:
    now = decision.now
    trigger = _resolved(decision, draft.trigger)
    job = Job(
        id=job_id,
        task=draft.task,
        payload=draft.payload,
        trigger=trigger,
        policy=draft.policy,
        queue=draft.queue,
        priority=draft.priority,
        cap=draft.cap,
        key=draft.key,
        name=draft.name,
        tags=draft.tags,
        created_ns=now.wall_ns,
        since_ns=now.elapsed_ns if trigger.is_elapsed else now.wall_ns,
    )
    if trigger.is_recurring:
        decision.save_job(first_occurrence(decision, job))
    elif isinstance(trigger.when, AfterJobs):
        _make_after(decision, job, trigger.when, past=past)
    else:
        _make_once(decision, job)


def _resolved(decision: Decision, trigger: Trigger) -> Trigger:
    """Return a trigger with what the store knows of it: does the job before recur?"""
    when = trigger.when
    if trigger.calendar is not None and trigger.calendar not in decision.view.calendars:
        raise UnknownCalendarError(
            "calendar", trigger.calendar, "set it first: app.calendar(name).set(...)"
        )
    if not isinstance(when, AfterJobs):
        return trigger
    recurring = [
        job_id
        for job_id in when.jobs
        if (job := decision.job(JobId(job_id))) is not None
        and (job.trigger.is_recurring or follows_each(job.trigger))
    ]
    if not recurring:
        return trigger
    if len(when.jobs) > 1:
        raise ArgumentError(
            "after",
            recurring[0],
            "all_of and any_of take one-time jobs; this one recurs, so it would never "
            "be over: pass After(job) alone",
        )
    return replace(trigger, when=replace(when, each=True))


def follows_each(trigger: Trigger) -> bool:
    """Return whether each run of a job before makes one of this one."""
    return isinstance(trigger.when, AfterJobs) and trigger.when.each


def first_occurrence(decision: Decision, job: Job) -> Job:
    """Return a recurring job with its next occurrence from now on; none if it is over.

    Raises:
        ArgumentError: its schedule names none.
    """
    now = decision.now
    elapsed = job.trigger.is_elapsed
    now_ns = now.elapsed_ns if elapsed else now.wall_ns
    job = replace(job, since_ns=now_ns)
    if not job.trigger.is_recurring:
        return job
    if is_used_up(job.trigger.runs_max, job.runs_made):
        return replace(job, next_ns=None)
    require_possible(
        job.trigger,
        now_ns=now_ns,
        job_key=job.name or job.id,
        calendars=decision.view.calendars,
    )
    schedule: Schedule = decision.view.schedule(job)
    after_ns = max(now_ns - 1, job.reached_ns or 0)
    firing = schedule.next_ns(after_ns)
    if firing is None:
        raise ArgumentError(
            "trigger",
            schedule.explain(),
            "it names no time from now on: pass a later end, or another schedule",
        )
    return replace(job, next_ns=firing.utc_ns, next_mark=firing.mark)


def _make_once(decision: Decision, job: Job) -> None:
    """Make a one-time job and its one run."""
    base, wait_ns, nominal_ns = once_at(job.trigger.when, decision.now)
    offset_ns = splay_ns(job.id, job.trigger.splay_ns)
    require_representable(nominal_ns + offset_ns, wait_ns + offset_ns)
    decision.save_job(replace(job, reached_ns=nominal_ns, runs_made=1))
    run = replace(_first_run(decision, job, nominal_ns), due_ns=nominal_ns + offset_ns)
    start_or_plan(decision, run, wait_ns=wait_ns + offset_ns, base=base)


def _first_run(decision: Decision, job: Job, nominal_ns: int) -> Run:
    return Run(
        job_id=job.id,
        nominal_ns=nominal_ns,
        due_ns=nominal_ns,
        reason=RunReason.SCHEDULE,
        task=job.task,
        queue=job.queue,
        priority=job.priority,
        created_ns=decision.now.wall_ns,
    )


def _make_after(decision: Decision, job: Job, when: AfterJobs, *, past: Past) -> None:
    """Make a job that comes after others: blocked, or ready or skipped already."""
    if when.each:
        decision.save_job(job)
        return
    met: list[str] = []
    missed: list[str] = []
    for before in when.jobs:
        if decision.job(JobId(before)) is not None:
            continue
        end = past.end(JobId(before))
        if end is not None:
            (met if is_wanted(when.on, end) else missed).append(before)
    nominal_ns = decision.now.wall_ns
    decision.save_job(replace(job, reached_ns=nominal_ns, runs_made=1))
    run = replace(
        _first_run(decision, job, nominal_ns),
        reason=RunReason.DEPENDENCY,
        state=RunState.BLOCKED,
    )
    wanted = len(when.jobs) if when.need == "all" else 1
    if len(met) >= wanted:
        decision.new_run(replace(run, state=RunState.READY))
        return
    live = decision.new_run(run, met=tuple(met), missed=tuple(missed))
    if len(when.jobs) - len(missed) < wanted:
        skip_run(decision, live, SkipReason.UPSTREAM)
