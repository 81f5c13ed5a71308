"""Unlogged timers of the store: everything of its own that waits, waits in the wheels.

A wait leads from a moment to what is to be looked at then: a job whose next occurrence
comes due, a run whose backoff ends, a worker whose leases run out. None is logged, since
each follows from a logged value; after a restart they are armed again.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from timingwheel.engine.core import EngineCore
from timingwheel.engine.records import Base

Target = TypeVar("Target")


class Wait(NamedTuple):
    """An armed timer.

    Attributes:
        token: comes back when it is due.
        handle: for disarming.
        deadline_ns: on the scale of `base`.
        base: elapsed or wall.
    """

    token: int
    handle: int
    deadline_ns: int
    base: Base


class Waits(Generic[Target]):
    """Who waits for what. The core's lock guards it.

    Args:
        core: whose wheels.
    """

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._targets: dict[int, Target] = {}
        self._token = 0

    def arm(self, target: Target, deadline_ns: int, base: Base) -> Wait:
        """Have `take` return the target once the deadline has come."""
        self._token += 1
        handle = self._core.arm(max(deadline_ns, 0), self._token, base=base)
        self._targets[self._token] = target
        return Wait(self._token, handle, max(deadline_ns, 0), base)

    def disarm(self, wait: Wait) -> None:
        """Forget a wait; one that has come due already is none any more either."""
        if self._targets.pop(wait.token, None) is not None:
            self._core.disarm(
                wait.handle,
                base=wait.base,
                deadline_ns=wait.deadline_ns,
                token=wait.token,
            )

    def take(self, token: int) -> Target | None:
        """Return the target of a wait that has come due, once."""
        return self._targets.pop(token, None)

    def __contains__(self, wait: Wait) -> bool:
        """Return whether a wait has neither come due nor been disarmed."""
        return wait.token in self._targets

    def __len__(self) -> int:
        return len(self._targets)
