"""What becomes of a run when an attempt at it ends: retry, failure, or rest.

One pure function, so that every store decides alike.

    ok                              succeeded
    snoozed                         retrying, at the time asked for; no attempt used up
    a cancel had come               cancelled
    cancelled                       cancelled
    error, timeout                  retrying with backoff; failed after the last attempt,
                                    at once if it gives up or runs at most once
    shutdown                        ready again, no attempt used up; lost if at most once
    lost                            ready again; failed after `lost_max`; lost if at most
                                    once
"""

from __future__ import annotations

from typing import NamedTuple

from timingwheel.jobs.backoff import backoff_ns
from timingwheel.jobs.model import Delivery, Outcome, Policy, RunState


class Aftermath(NamedTuple):
    """Where a run goes.

    Attributes:
        state: its next one.
        wait_ns: how long it waits there, for retrying.
        counts: whether the attempt used up one of the policy's attempts.
    """

    state: RunState
    wait_ns: int | None = None
    counts: bool = True


def after_attempt(
    policy: Policy,
    outcome: Outcome,
    *,
    tries: int,
    lost: int,
    ending: bool,
    gives_up: bool = False,
    snooze_ns: int | None = None,
    draw: float = 0.5,
) -> Aftermath:
    """Decide where a run goes.

    Args:
        policy: the run's.
        outcome: of the attempt that ended.
        tries: attempts that count so far, this one included.
        lost: attempts lost so far, this one included if it was.
        ending: a cancel came while it ran.
        gives_up: no retry can mend the error.
        snooze_ns: the handler asked to be called again this much later.
        draw: a random number 0 .. 1 for the jitter.
    """
    once = policy.delivery is Delivery.AT_MOST_ONCE
    if outcome is Outcome.OK:
        if snooze_ns is not None and not ending:
            return Aftermath(RunState.RETRYING, snooze_ns, counts=False)
        return Aftermath(RunState.SUCCEEDED)
    if outcome is Outcome.LOST:
        return _after_loss(policy, lost=lost, ending=ending)
    if ending or outcome is Outcome.CANCELLED:
        return Aftermath(RunState.CANCELLED)
    if outcome is Outcome.SHUTDOWN:
        return Aftermath(RunState.LOST if once else RunState.READY, counts=False)
    if once or gives_up or tries >= policy.retry.attempts:
        return Aftermath(RunState.FAILED)
    return Aftermath(RunState.RETRYING, backoff_ns(policy.retry, tries, draw))


def _after_loss(policy: Policy, *, lost: int, ending: bool) -> Aftermath:
    if policy.delivery is Delivery.AT_MOST_ONCE:
        return Aftermath(RunState.LOST)
    if ending:
        return Aftermath(RunState.CANCELLED)
    if lost >= policy.lost_max:
        return Aftermath(RunState.FAILED)
    return Aftermath(RunState.READY, counts=False)
