"""A run that has not ended, with what only a store needs to know of it."""

from __future__ import annotations

import msgspec

from timingwheel.engine.records import Base
from timingwheel.jobs.model import (
    Job,
    JobState,
    Payload,
    Policy,
    Run,
    RunReason,
)

RunKey = tuple[int, int]
"""Nominal time and n: a run's identity within its job."""


class LiveRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run that is not final, with what the store needs to go on with it.

    Attributes:
        run: what others see.
        seq: LSN of its first record: the order among equals.
        token: of its lease, while it runs.
        worker: who holds that.
        wait_ns: when it is to be made ready, while it is planned or retrying.
        base: the scale of `wait_ns`.
        uncounted: attempts that use up no retry: lost, snoozed, given back at a stop,
            or made before a retry by hand.
        behind: it waits for a previous run of its job to end.
        ending: a cancel came while it ran: no retry follows.
        met: jobs before it that ended as wanted.
        missed: jobs before it that ended otherwise.
        payload: if the job has another one by now.
        policy: likewise.
        revived: it had ended and was retried by hand.
    """

    run: Run
    seq: int
    token: int = 0
    worker: str = ""
    wait_ns: int | None = None
    base: int = Base.ELAPSED
    uncounted: int = 0
    behind: bool = False
    ending: bool = False
    met: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    payload: Payload | None = None
    policy: Policy | None = None
    revived: bool = False


def is_held(job: Job, run: Run) -> bool:
    """Return whether a pause, or a quarantine, of its job keeps a run from starting."""
    if job.state is JobState.QUARANTINED:
        return True
    return job.state is JobState.PAUSED and run.reason is not RunReason.MANUAL
