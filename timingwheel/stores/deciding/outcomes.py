"""What an attempt's end does to its run and its job."""

from __future__ import annotations

import msgspec

from timingwheel.jobs.aftermath import after_attempt
from timingwheel.jobs.model import Attempt, JobState, Outcome, Policy, Run, RunState
from timingwheel.jobs.states import FINAL
from timingwheel.jobs.store import Finish
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.deciding.ending import finish_run
from timingwheel.stores.deciding.live import LiveRun

replace = msgspec.structs.replace


def end_attempt(
    decision: Decision, live: LiveRun, end: Finish, *, policy: Policy, draw: float
) -> None:
    """Write down an attempt and move its run on.

    Args:
        decision: the group.
        live: the run, which is running and whose token is the one of the end.
        end: how the attempt ended.
        policy: the run's.
        draw: a random number 0 .. 1 for the backoff.
    """
    run, now = live.run, decision.now
    decision.end_attempt(
        Attempt(
            run_id=run.id,
            number=run.attempts,
            worker=live.worker,
            token=end.token,
            started_ns=end.started_ns,
            ended_ns=now.wall_ns,
            outcome=end.outcome,
            error=end.error,
            log=end.log,
        )
    )
    lost = run.lost + (end.outcome is Outcome.LOST)
    run = replace(
        run,
        lost=lost,
        started_ns=end.started_ns,
        error=end.error,
        result=end.result if end.outcome is Outcome.OK else None,
    )
    if end.undecodable and not live.ending:
        _quarantine(decision, live, replace(run, state=RunState.READY), end.error or "")
        return
    after = after_attempt(
        policy,
        end.outcome,
        tries=run.attempts - live.uncounted,
        lost=lost,
        ending=live.ending,
        gives_up=end.gives_up,
        snooze_ns=end.snooze_ns,
        draw=draw,
    )
    run = replace(run, state=after.state)
    if after.state in FINAL:
        finish_run(decision, live, replace(run, ended_ns=now.wall_ns))
        return
    wait_ns = None if after.wait_ns is None else now.elapsed_ns + after.wait_ns
    decision.move_run(
        live,
        run,
        uncounted=live.uncounted + (not after.counts),
        wait_ns=wait_ns,
        base=0,
        ending=False,
    )


def give_back(decision: Decision, live: LiveRun) -> None:
    """Return a run that was claimed and never begun, as if nothing had been."""
    run = replace(live.run, state=RunState.READY, attempts=live.run.attempts - 1)
    decision.move_run(live, run)


def _quarantine(decision: Decision, live: LiveRun, run: Run, fault: str) -> None:
    """Set the job aside until a worker can read it; nothing is used up."""
    job = decision.job(live.run.job_id)
    assert job is not None
    decision.save_job(replace(job, state=JobState.QUARANTINED, fault=fault))
    decision.move_run(
        live,
        run,
        uncounted=live.uncounted + 1,
    )
