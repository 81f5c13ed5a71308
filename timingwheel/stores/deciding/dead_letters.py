"""What people do to runs that have failed, or are about to: retry and discard."""

from __future__ import annotations

import msgspec

from timingwheel.jobs.errors import RunStateError
from timingwheel.jobs.model import Job, JobState, Run, RunState
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.deciding.ending import finish_run
from timingwheel.stores.deciding.live import LiveRun
from timingwheel.stores.deciding.view import Changed
from timingwheel.stores.history_entries import HistoryRun

replace = msgspec.structs.replace


def retry(decision: Decision, dead: HistoryRun, job: Job | None) -> Run:
    """Make a failed or lost run ready again, under its identity.

    Args:
        decision: the group.
        dead: the run as the history has it.
        job: its job, live or from the history.

    Raises:
        RunStateError: it is neither failed nor lost.
    """
    run = dead.run
    if run.state not in (RunState.FAILED, RunState.LOST):
        raise RunStateError(run.id, run.state, "only a failed or lost run is retried")
    live_job = decision.job(run.job_id)
    if live_job is not None and live_job.state is JobState.CANCELLED:
        job, live_job = live_job, None  # another run of it goes on
    if live_job is None:
        assert job is not None, "a run that is kept has a job that is kept"
        # The name belongs to whoever has it by now; and a recurring job that lives on for
        # one old run must not be taken for the one that a program adds at its start.
        is_free = job.name is not None and decision.named(job.name) is None
        keeps_name = is_free and not job.trigger.is_recurring
        decision.save_job(
            replace(
                job,
                state=JobState.ACTIVE,
                next_ns=None,
                payload=dead.payload,
                name=job.name if keeps_name else None,
            )
        )
    decision.add(Changed.RUN_REVIVED, run.id)
    ready = replace(
        run,
        state=RunState.READY,
        due_ns=decision.now.wall_ns,
        ended_ns=None,
        discarded=False,
        lost=0,
    )
    live = LiveRun(
        run=ready,
        seq=decision.next_number(),
        uncounted=run.attempts,
        revived=True,
        payload=dead.payload,
        policy=dead.policy,
    )
    decision.save_run(live)
    return ready


def discard_waiting(decision: Decision, live: LiveRun) -> Run:
    """End a run that waits for a retry.

    Raises:
        RunStateError: it waits for none.
    """
    if live.run.state is not RunState.RETRYING:
        raise RunStateError(
            live.run.id, live.run.state, "cancel its job, or wait until it has failed"
        )
    run = replace(
        live.run,
        state=RunState.FAILED,
        discarded=True,
        ended_ns=decision.now.wall_ns,
    )
    finish_run(decision, live, run)
    return run


def discard_dead(decision: Decision, dead: HistoryRun) -> Run:
    """Take a run off the dead-letter list; it stays failed.

    Raises:
        RunStateError: it is not on it.
    """
    run = dead.run
    if run.state not in (RunState.FAILED, RunState.LOST):
        raise RunStateError(run.id, run.state, "only a failed or lost run is discarded")
    run = replace(run, discarded=True)
    decision.add(Changed.RUN_ENDED, replace(dead, run=run))
    return run
