"""What people do to jobs: pause, resume, change, cancel, run by hand, rebind."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import msgspec

from timingwheel.jobs.errors import RevisionConflictError
from timingwheel.jobs.model import (
    Job,
    JobState,
    Misfire,
    MisfirePolicy,
    Pause,
    Run,
    RunReason,
    RunState,
    SkipReason,
)
from timingwheel.jobs.planning import Plan, plan_due
from timingwheel.jobs.schedule import Firing, Schedule
from timingwheel.jobs.store import (
    CancelResult,
    CatchUp,
    Change,
    NewRun,
    Request,
    Resumption,
    Running,
)
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.deciding.ending import cancelled, finish_run, settle_job
from timingwheel.stores.deciding.firing import carry_out
from timingwheel.stores.deciding.live import LiveRun
from timingwheel.stores.deciding.outcomes import give_back
from timingwheel.stores.deciding.putting import follows_each, redefine

replace = msgspec.structs.replace

STARTS_SHOWN = 1_000
CATCH_UP_MAX = 10_000
"""Runs that one resume makes at most; the rest is one skip range."""


# -- pause and resume -----------------------------------------------------------------------


def hold(
    decision: Decision,
    job: Job,
    pause: Pause,
    *,
    running: Running,
    has_begun: Callable[[LiveRun], bool],
) -> bool:
    """Pause a job; False if it was paused: its note and end are replaced.

    Args:
        decision: the group.
        job: live.
        pause: who, why and until when.
        running: what becomes of attempts that run.
        has_begun: whether the handler of a claimed run has started; one that has not
            is taken back, so that nothing starts once this is done.
    """
    fresh = job.pause is None
    # A quarantine holds everything already; the pause counts once it is over.
    is_aside = job.state is JobState.QUARANTINED
    state = JobState.QUARANTINED if is_aside else JobState.PAUSED
    decision.save_job(replace(job, state=state, pause=pause))
    for live in decision.runs(job.id):
        is_held = live.run.reason is not RunReason.MANUAL
        if live.run.state is RunState.RUNNING and is_held and not has_begun(live):
            give_back(decision, live)
    if running != "leave":
        _ask_running(decision, job, kill=running == "kill")
    return fresh


def unhold(
    decision: Decision,
    job: Job,
    catch_up: CatchUp,
    *,
    rng: random.Random,
) -> Resumption:
    """Resume a paused job: what it missed is caught up as asked, held runs go on."""
    if job.state is JobState.QUARANTINED:
        decision.save_job(replace(job, pause=None))
        return Resumption([], 0, 0)
    released = sum(
        live.run.state not in (RunState.RUNNING, RunState.BLOCKED)
        and live.run.reason is not RunReason.MANUAL
        for live in decision.runs(job.id)
    )
    plan = _missed(decision, job, catch_up)
    job = replace(job, state=JobState.ACTIVE, pause=None)
    if plan is None:
        decision.save_job(job)
        settle_job(decision, job.id)
        return Resumption([], 0, released)
    carry_out(
        decision,
        job,
        plan,
        schedule=decision.view.schedule(job),
        rng=rng,
    )
    starts = [planned.firing.utc_ns for planned in plan.runs[:STARTS_SHOWN]]
    return Resumption(starts, sum(skip.count for skip in plan.skips), released)


def _missed(decision: Decision, job: Job, catch_up: CatchUp) -> Plan | None:
    """Return what becomes of the occurrences that a pause has passed over."""
    now_ns = _scale_ns(decision, job)
    if job.next_ns is None or job.next_ns > now_ns:
        return None
    policy = {
        "skip": MisfirePolicy(rule=Misfire.SKIP),
        "latest": MisfirePolicy(rule=Misfire.LATEST),
        "all": MisfirePolicy(rule=Misfire.ALL, limit=CATCH_UP_MAX),
        "since": MisfirePolicy(
            rule=Misfire.ALL, limit=CATCH_UP_MAX, window_ns=catch_up.window_ns
        ),
    }[catch_up.rule]
    return whole_plan(decision, job, policy, now_ns=now_ns, reason=SkipReason.PAUSED)


def whole_plan(
    decision: Decision,
    job: Job,
    policy: MisfirePolicy,
    *,
    now_ns: int,
    reason: SkipReason,
) -> Plan:
    """Return the plan for all that passed unserved, in one piece."""
    assert job.next_ns is not None
    schedule = decision.view.schedule(job)
    first: Firing | None = Firing(job.next_ns, job.next_mark)
    whole = Plan([], [], first)
    while first is not None and first.utc_ns <= now_ns:
        plan = plan_due(
            schedule,
            policy,
            first=first,
            now_ns=now_ns,
            unserved_until_ns=now_ns,
            skip_reason=reason,
        )
        whole = Plan(whole.runs + plan.runs, whole.skips + plan.skips, plan.next)
        first = plan.next
    return whole


# -- change ---------------------------------------------------------------------------------


def update(
    decision: Decision, job: Job, change: Change, *, if_revision: int | None
) -> Job:
    """Change a job; runs that are there keep what they were made with.

    Raises:
        RevisionConflictError: somebody else was first.
    """
    if if_revision is not None and if_revision != job.revision:
        raise RevisionConflictError(job.id, if_revision, job.revision)
    fields = {
        name: value
        for name, value in msgspec.structs.asdict(change).items()
        if value is not msgspec.UNSET
    }
    return redefine(decision, job, replace(job, **fields))


# -- cancel ---------------------------------------------------------------------------------


def cancel(
    decision: Decision,
    job: Job,
    *,
    running: Running,
    has_begun: Callable[[LiveRun], bool],
) -> CancelResult:
    """End a job: what has not started never will.

    Args:
        decision: the group.
        job: live and not cancelled.
        running: what becomes of attempts that run.
        has_begun: whether the handler of a claimed run has started.
    """
    lives = decision.runs(job.id)
    runs_on = [
        live for live in lives if live.run.state is RunState.RUNNING and has_begun(live)
    ]
    prevented = len(runs_on) < len(lives) or job.next_ns is not None
    recurs = job.trigger.is_recurring or follows_each(job.trigger)
    prevented = prevented or recurs or not lives
    decision.save_job(replace(job, state=JobState.CANCELLED, next_ns=None, pause=None))
    for live in lives:
        if live in runs_on:
            decision.save_run(replace(live, ending=True))
            if running != "leave":
                kill = running == "kill"
                decision.requests.append(Request(live.run.id, live.token, kill))
        else:
            finish_run(decision, live, cancelled(decision, live), makes_way=True)
    settle_job(decision, job.id)
    if prevented:
        return CancelResult.CANCELLED
    return CancelResult.RUNNING if running == "leave" else CancelResult.REQUESTED


def cancel_run(
    decision: Decision,
    job: Job,
    live: LiveRun,
    *,
    running: Running,
    has_begun: Callable[[LiveRun], bool],
) -> CancelResult:
    """End one run of a job; what waits behind it may go.

    Args:
        decision: the group.
        job: whose; a job that has no other run, nor will have, is cancelled with it.
        live: the run.
        running: what becomes of it if it runs.
        has_begun: whether the handler of a claimed run has started.
    """
    recurs = job.trigger.is_recurring or follows_each(job.trigger)
    is_last = not recurs and len(decision.runs(job.id)) == 1
    if is_last and job.state is not JobState.CANCELLED:
        return cancel(decision, job, running=running, has_begun=has_begun)
    if live.run.state is not RunState.RUNNING or not has_begun(live):
        finish_run(decision, live, cancelled(decision, live))
        return CancelResult.CANCELLED
    decision.save_run(replace(live, ending=True))
    if running == "leave":
        return CancelResult.RUNNING
    kill = running == "kill"
    decision.requests.append(Request(live.run.id, live.token, kill))
    return CancelResult.REQUESTED


def _ask_running(decision: Decision, job: Job, *, kill: bool) -> None:
    for live in decision.runs(job.id):
        if live.run.state is RunState.RUNNING:
            decision.requests.append(Request(live.run.id, live.token, kill))


# -- runs by hand ---------------------------------------------------------------------------


def create_runs(
    decision: Decision,
    job: Job,
    runs: Sequence[NewRun],
    *,
    kept: Mapping[int, int],
) -> list[Run]:
    """Make runs by hand, each with the next free n of its nominal time.

    Args:
        decision: the group.
        job: whose.
        runs: what is wanted.
        kept: the highest n of each nominal time that finished runs have.
    """
    highest = dict(kept)
    for live in decision.runs(job.id):
        nominal_ns = live.run.nominal_ns
        highest[nominal_ns] = max(highest.get(nominal_ns, -1), live.run.n)
    made: list[Run] = []
    for wanted in runs:
        # 0 is the scheduled run's, but a backfill may make up for one that never was.
        least = 0 if wanted.reason is RunReason.BACKFILL else 1
        n = max(highest.get(wanted.nominal_ns, -1) + 1, least)
        highest[wanted.nominal_ns] = n
        run = Run(
            job_id=job.id,
            nominal_ns=wanted.nominal_ns,
            n=n,
            due_ns=decision.now.wall_ns,
            reason=wanted.reason,
            task=job.task,
            queue=job.queue,
            priority=job.priority,
            revision=job.revision,
            created_ns=decision.now.wall_ns,
        )
        made.append(decision.new_run(replace(run, state=RunState.READY)).run)
    return made


def rebind(decision: Decision, job: Job, task: str, *, rng: random.Random) -> None:
    """Give a job and its live runs to another task; a quarantined one goes on."""
    revived = job.state is JobState.QUARANTINED
    state = JobState.ACTIVE if job.pause is None else JobState.PAUSED
    job = replace(
        job,
        task=task,
        state=state if revived else job.state,
        fault="",
        revision=job.revision + 1,
    )
    for live in decision.runs(job.id):
        run = replace(live.run, task=task)
        decision.save_run(replace(live, run=run))
    decision.save_job(job)
    now_ns = _scale_ns(decision, job)
    if revived and state is JobState.ACTIVE and (job.next_ns or now_ns + 1) <= now_ns:
        # Nobody could dispatch what came due meanwhile.
        plan = whole_plan(
            decision,
            job,
            job.policy.misfire,
            now_ns=now_ns,
            reason=SkipReason.MISFIRE,
        )
        schedule = decision.view.schedule(job)
        carry_out(decision, job, plan, schedule=schedule, rng=rng)


def _scale_ns(decision: Decision, job: Job) -> int:
    """Return the present on the scale of a job's trigger."""
    now = decision.now
    return now.elapsed_ns if job.trigger.is_elapsed else now.wall_ns


def by_zones(job: Job, schedule: Schedule) -> Job:
    """Return a job with its next occurrence as the rules of zones have it now.

    Args:
        job: it `waits_for_wall_time`.
        schedule: its own.
    """
    firing = schedule.next_ns(max(job.since_ns - 1, job.reached_ns or 0))
    if firing is None or firing.utc_ns == job.next_ns:
        return job
    return replace(job, next_ns=firing.utc_ns, next_mark=firing.mark)


def waits_for_wall_time(job: Job) -> bool:
    """Return whether zones say when the next occurrence of a job is."""
    return (
        job.state is JobState.ACTIVE
        and job.trigger.is_recurring
        and not job.trigger.is_elapsed
        and job.next_ns is not None
    )


def replan_by_zones(decision: Decision, job: Job) -> None:
    """Plan the next occurrence anew: zones may have new rules since."""
    if not waits_for_wall_time(job):
        return
    planned = by_zones(job, decision.view.schedule(job))
    if planned is not job:
        decision.save_job(planned)


def replan(decision: Decision, job: Job) -> None:
    """Plan a recurring job anew from now on; one that has no more to come stays so."""
    if job.next_ns is None:
        return
    schedule = decision.view.schedule(job)
    # What lies before now is dealt with: else a later opening would plan from there.
    reached_ns = max(_scale_ns(decision, job), job.reached_ns or 0)
    firing = schedule.next_ns(reached_ns)
    decision.save_job(
        replace(
            job,
            next_ns=None if firing is None else firing.utc_ns,
            next_mark=job.next_mark if firing is None else firing.mark,
            reached_ns=reached_ns,
        )
    )
    if firing is None:
        settle_job(decision, job.id)
