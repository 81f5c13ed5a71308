"""The life of a run as one table: code asks it, the docs print it, tests walk it.

    planned ──▶ blocked ──▶ ready ──▶ running ──▶ succeeded | failed | cancelled | lost
       │           │          │  ▲       │
       │           │          │  └── retrying
       └───────────┴──────────┴──▶ skipped(reason) | cancelled

Only `running` has a lease. `retrying` counts as active for overlap. `failed` after the
last attempt is the dead-letter list; a manual retry makes such a run ready again and
keeps its identity.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from timingwheel.errors import TimingWheelError
from timingwheel.jobs.model import RunState


class Transition(NamedTuple):
    """One step that a run may take.

    Attributes:
        before: the state it leaves.
        after: the state it enters.
        cause: what brings it about.
    """

    before: RunState
    after: RunState
    cause: str


TRANSITIONS: Final = (
    Transition(RunState.PLANNED, RunState.READY, "its due time came"),
    Transition(RunState.PLANNED, RunState.BLOCKED, "it waits for another job"),
    Transition(RunState.PLANNED, RunState.SKIPPED, "overlap, misfire, pause, calendar"),
    Transition(RunState.PLANNED, RunState.CANCELLED, "cancel, before it was due"),
    Transition(
        RunState.BLOCKED, RunState.READY, "what it waits for has ended as wanted"
    ),
    Transition(
        RunState.BLOCKED, RunState.SKIPPED, "what it waits for has ended otherwise"
    ),
    Transition(RunState.BLOCKED, RunState.CANCELLED, "cancel, before it could start"),
    Transition(
        RunState.READY, RunState.RUNNING, "a worker claimed it and holds a lease"
    ),
    Transition(RunState.READY, RunState.SKIPPED, "its start deadline passed"),
    Transition(RunState.READY, RunState.CANCELLED, "cancel, before it started"),
    Transition(RunState.RUNNING, RunState.SUCCEEDED, "the handler returned"),
    Transition(
        RunState.RUNNING, RunState.RETRYING, "an attempt failed, others are left"
    ),
    Transition(RunState.RUNNING, RunState.READY, "a snooze, or a stop gave it back"),
    Transition(RunState.RUNNING, RunState.FAILED, "the last attempt failed"),
    Transition(RunState.RUNNING, RunState.CANCELLED, "a requested cancel took effect"),
    Transition(
        RunState.RUNNING, RunState.LOST, "at most once, and its worker was lost"
    ),
    Transition(RunState.RETRYING, RunState.READY, "its backoff is over"),
    Transition(
        RunState.RETRYING, RunState.CANCELLED, "cancel, before the next attempt"
    ),
    Transition(RunState.RETRYING, RunState.FAILED, "discarded by hand"),
    Transition(RunState.FAILED, RunState.READY, "retried by hand"),
    Transition(RunState.LOST, RunState.READY, "retried by hand"),
)

FINAL: Final = frozenset(
    {
        RunState.SUCCEEDED,
        RunState.FAILED,
        RunState.CANCELLED,
        RunState.LOST,
        RunState.SKIPPED,
    }
)
"""States in which a run rests. Only a retry by hand leaves one of them."""

ACTIVE: Final = frozenset({RunState.READY, RunState.RUNNING, RunState.RETRYING})
"""States that count as "still running" when the next occurrence comes due."""

_ALLOWED: Final = frozenset((step.before, step.after) for step in TRANSITIONS)


class TransitionError(TimingWheelError):
    """A run was to take a step that is not in the table: our bug, or a stale request."""

    def __init__(self, before: RunState, after: RunState) -> None:
        super().__init__(before, after)
        self.before = before
        self.after = after

    def __str__(self) -> str:
        return f"a run does not go from {self.before} to {self.after}"


def require_step(before: RunState, after: RunState) -> None:
    """Check that a run may go from `before` to `after`.

    Raises:
        TransitionError: it may not.
    """
    if (before, after) not in _ALLOWED:
        raise TransitionError(before, after)
