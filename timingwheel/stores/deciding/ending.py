"""What follows when a run has ended: those behind it, its job, and the jobs after it.

All of it is decided in the group that ends the run, so no crash can leave a job waiting
for an end that has been.
"""

from __future__ import annotations

from collections import deque

import msgspec

from timingwheel.jobs.model import (
    Job,
    JobId,
    JobState,
    Run,
    RunReason,
    RunState,
    SkipReason,
)
from timingwheel.jobs.overlap import room_for_behind
from timingwheel.jobs.triggers import AfterJobs, AfterOn
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.deciding.live import LiveRun

replace = msgspec.structs.replace

_ENDS = {
    AfterOn.SUCCESS: frozenset({RunState.SUCCEEDED}),
    AfterOn.FAILURE: frozenset({RunState.FAILED, RunState.LOST}),
}


def finish_run(
    decision: Decision, live: LiveRun, run: Run, *, makes_way: bool = False
) -> None:
    """End a run and decide all that follows.

    Args:
        decision: the group.
        live: the run as it is.
        run: the run as it rests.
        makes_way: it ends for a newer run of its job, so none behind it is released.
    """
    todo = deque([decision.end_run(live, run)])
    while todo:
        ended = todo.popleft()
        if not makes_way:
            release_behind(decision, ended.job_id)
        # Before the job settles: with its last run it may be over, and its followers too.
        todo.extend(_tell_dependents(decision, ended, again=live.revived))
        settle_job(decision, ended.job_id)


def skip_run(decision: Decision, live: LiveRun, reason: SkipReason) -> None:
    """Let a run rest that never started, with the reason."""
    finish_run(decision, live, skipped(decision, live, reason))


def skipped(decision: Decision, live: LiveRun, reason: SkipReason) -> Run:
    """Return a run as it rests that never started."""
    return replace(
        live.run,
        state=RunState.SKIPPED,
        skip_reason=reason,
        ended_ns=decision.now.wall_ns,
    )


def cancelled(decision: Decision, live: LiveRun) -> Run:
    """Return a run as it rests that was cancelled before its handler started."""
    run = live.run
    return replace(
        run,
        state=RunState.CANCELLED,
        # Claimed and never begun: there was no such attempt.
        attempts=run.attempts - (run.state is RunState.RUNNING),
        ended_ns=decision.now.wall_ns,
    )


def release_behind(decision: Decision, job_id: JobId) -> None:
    """Let runs go that waited for a previous one of their job, if there is room now."""
    if not decision.behind_count(job_id):
        return
    behind = decision.behind(job_id)
    job = decision.job(job_id)
    assert job is not None
    active = decision.active_count(job_id)
    for live in behind[: room_for_behind(job.policy.overlap, active=active)]:
        decision.move_run(live, replace(live.run, state=RunState.READY))


def settle_job(decision: Decision, job_id: JobId) -> None:
    """Let a job rest that has nothing more to do."""
    job = decision.job(job_id)
    if job is None or decision.runs(job_id):
        return
    if job.state is JobState.CANCELLED:
        decision.end_job(job, JobState.CANCELLED)
    elif job.state in _LIVING and job.next_ns is None and not _follows(decision, job):
        decision.end_job(job, JobState.DONE)
    else:
        return
    for follower_id in decision.dependents(job_id):
        settle_job(decision, follower_id)


_LIVING = frozenset({JobState.ACTIVE, JobState.PAUSED})


def _follows(decision: Decision, job: Job) -> bool:
    """Return whether each run of a job that lives makes a run of this one."""
    when = job.trigger.when
    return (
        isinstance(when, AfterJobs)
        and when.each
        and decision.job(JobId(when.jobs[0])) is not None
    )


def _tell_dependents(decision: Decision, ended: Run, *, again: bool) -> list[Run]:
    """Tell the jobs after this one; return the runs of theirs that end by it.

    Args:
        decision: the group.
        ended: the run.
        again: it has ended before, and was retried by hand.
    """
    over: list[Run] = []
    for job_id in decision.dependents(ended.job_id):
        job = decision.job(job_id)
        if job is None or not isinstance(job.trigger.when, AfterJobs):
            continue
        if job.trigger.when.each:
            if not again:  # else the job after has had its run of this one
                _follow(decision, job, ended)
            continue
        for live in decision.runs(job_id):
            if live.run.state is RunState.BLOCKED:
                run = _judge(decision, job.trigger.when, live, ended)
                if run is not None:
                    over.append(run)
    return over


def is_wanted(on: AfterOn, state: RunState) -> bool:
    """Return whether an end is the one that the job after waits for."""
    return on is AfterOn.ANY or state in _ENDS[on]


def _judge(
    decision: Decision, when: AfterJobs, live: LiveRun, ended: Run
) -> Run | None:
    """Note one end in a blocked run; return the run if that ends it, too."""
    met, missed = set(live.met), set(live.missed)
    (met if is_wanted(when.on, ended.state) else missed).add(ended.job_id)
    live = replace(live, met=tuple(sorted(met)), missed=tuple(sorted(missed)))
    wanted = len(when.jobs) if when.need == "all" else 1
    if len(met) >= wanted:
        due_ns = decision.now.wall_ns
        run = replace(live.run, state=RunState.READY, due_ns=due_ns)
        decision.move_run(live, run)
        return None
    if len(when.jobs) - len(missed) < wanted:
        return decision.end_run(live, skipped(decision, live, SkipReason.UPSTREAM))
    decision.save_run(live)
    return None


def _follow(decision: Decision, job: Job, ended: Run) -> None:
    """Make a run of a job that follows each run of another, with its nominal time."""
    if job.state is JobState.CANCELLED:
        return
    when = job.trigger.when
    assert isinstance(when, AfterJobs)
    if not is_wanted(when.on, ended.state):
        decision.note_skips(
            job.id,
            SkipReason.UPSTREAM,
            first_ns=ended.nominal_ns,
            last_ns=ended.nominal_ns,
            count=1,
        )
        return
    now_ns = decision.now.wall_ns
    decision.new_run(
        Run(
            job_id=job.id,
            nominal_ns=ended.nominal_ns,
            n=ended.n,
            due_ns=now_ns,
            reason=RunReason.DEPENDENCY,
            state=RunState.READY,
            task=job.task,
            queue=job.queue,
            priority=job.priority,
            revision=job.revision,
            created_ns=now_ns,
        )
    )
