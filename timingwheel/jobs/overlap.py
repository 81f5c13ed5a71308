"""What becomes of an occurrence that comes due while a previous run is active."""

from __future__ import annotations

from enum import StrEnum

from timingwheel.jobs.model import Overlap, OverlapPolicy


class Admission(StrEnum):
    """The decision about one occurrence."""

    START = "start"
    SKIP = "skip"
    BEHIND = "behind"
    """It waits until the previous ones have ended."""
    INSTEAD = "instead"
    """It waits too, the previous ones are asked to end, and older waiting ones skipped."""
    INSTEAD_KILL = "instead_kill"
    """The same, and the previous ones are not asked but killed."""


def admit(policy: OverlapPolicy, *, active: int, behind: int) -> Admission:
    """Decide about an occurrence.

    Args:
        policy: the job's.
        active: previous runs that are ready, running or retrying.
        behind: previous runs that wait for those.
    """
    if policy.rule is Overlap.ALLOW:
        return Admission.START if active < policy.limit else Admission.SKIP
    if not active and not behind:
        return Admission.START
    match policy.rule:
        case Overlap.BUFFER_ONE:
            return Admission.SKIP if behind else Admission.BEHIND
        case Overlap.BUFFER_ALL:
            return Admission.BEHIND if behind < policy.limit else Admission.SKIP
        case Overlap.CANCEL_OTHER:
            return Admission.INSTEAD
        case Overlap.KILL_OTHER:
            return Admission.INSTEAD_KILL
    return Admission.SKIP


def room_for_behind(policy: OverlapPolicy, *, active: int) -> int:
    """Return how many runs that wait behind may go, now that so many are active."""
    limit = policy.limit if policy.rule is Overlap.ALLOW else 1
    return max(limit - active, 0)
