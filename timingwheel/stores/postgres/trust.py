"""How long this process may act: less long than others believe that it lives.

    beat sent ──────────────── trust ends ──── the lease is past
              ttl - margin                margin

It counts from the sending of the beat, by a clock that nobody sets (jobs/leases.py).

Trust that has ended does not come back, not even by an answer that says that the lease was
renewed: handlers have been told. What was claimed is dropped, how it ends is refused, and
the process goes on under another number, in a new *life*.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from timingwheel.clock import Clock
from timingwheel.jobs.leases import trusted_ns
from timingwheel.jobs.store import Claim, Finish, Verdict

_logger = logging.getLogger("timingwheel")

_LOST: Final = (
    "this process has lost its lease and begins anew, since no beat was answered in time, "
    "or others believe it dead"
)
LossListener = Callable[[Sequence[int]], None]
"""Called with the tokens of the attempts that are lost."""


class Trust:
    """The right of this process's members to act. Thread-safe.

    Invariants: a life has members; a token that was dropped is not in hand any more.

    Attributes:
        changed: notified when a life begins; who watches waits on it.
        listeners: called when a life ends, by whichever thread sees it first.

    Args:
        clock: the monotonic one counts; it counts time asleep as well.
        ttl_ns: of the leases.
        claimed: the attempts that this process was given, by token.
    """

    def __init__(self, clock: Clock, ttl_ns: int, claimed: dict[int, bool]) -> None:
        self.changed = threading.Condition()
        self.listeners: list[LossListener] = []
        self._clock = clock
        self._lasts_ns = trusted_ns(ttl_ns)
        self._claimed = claimed
        self._until_ns: int | None = None
        self._incs: set[int] = set()
        self._held: set[int] = set()
        # For good: a handler may not end for a long time, and lives end seldom.
        self._dropped: set[int] = set()

    # -- a life -------------------------------------------------------------------------

    @property
    def until_ns(self) -> int | None:
        """When it ends, on the monotonic scale; None: it has ended, or never begun."""
        return self._until_ns

    @property
    def is_over(self) -> bool:
        """Whether a life is to end now."""
        until_ns = self._until_ns
        return until_ns is not None and self._clock.monotonic_ns() >= until_ns

    def now_ns(self) -> int:
        """Return the monotonic time, to be asked before a beat is sent."""
        return self._clock.monotonic_ns()

    def begin(self, sent_ns: int, incs: Iterable[int]) -> None:
        """Members have joined; a life that goes on is not made longer by that.

        Args:
            sent_ns: when they asked to.
            incs: their numbers.
        """
        with self.changed:
            self._incs.update(incs)
            if self._until_ns is None:
                self._until_ns = sent_ns + self._lasts_ns
                self.changed.notify_all()

    def renew(self, sent_ns: int) -> bool:
        """All members' leases were renewed by a beat; False: the answer came too late."""
        if not self.holds():
            return False
        with self.changed:
            if self._until_ns is None:
                return False
            self._until_ns = max(self._until_ns, sent_ns + self._lasts_ns)
            self._held.intersection_update(self._claimed)  # the others have ended
        return self.holds()

    def holds(self) -> bool:
        """Return whether this process may act now; if its time is up, that is its end."""
        if self.is_over:
            self.lose()
        return self._until_ns is not None

    def end(self) -> None:
        """There is no member any more: nothing is lost, and nothing may be done."""
        with self.changed:
            self._until_ns = None
            self._incs.clear()
            self._held.clear()

    def lose(self, why: str = _LOST) -> None:
        """End the life, if there is one: drop what was claimed, and tell.

        Args:
            why: for people.
        """
        with self.changed:
            if self._until_ns is None:
                return
            self._until_ns = None
            self._incs.clear()
            lost = sorted(self._held.intersection(self._claimed))
            self._held.clear()
            self._drop(lost)
        _logger.warning("%s: %d attempts are dropped", why, len(lost))
        for listener in self.listeners:
            listener(lost)

    # -- attempts -----------------------------------------------------------------------

    def kept(self, inc: int, claims: list[Claim]) -> list[Claim]:
        """Return claims of a worker of this process if they are still to be begun.

        What is dropped belongs to a number under which this process has ended: its row
        goes when the next life begins, and the runs are found as any dead worker's.

        Args:
            inc: the number under which they were claimed.
            claims: what the database has given.
        """
        self.holds()
        tokens = [claim.token for claim in claims]
        with self.changed:
            if inc in self._incs:
                self._held.update(tokens)
                return claims
            self._drop(tokens)
        return []

    def may_begin(self, token: int) -> bool:
        """Return whether an attempt may begin; one of a remote worker always may."""
        return token not in self._held or self.holds()

    def finish(
        self,
        ends: Sequence[Finish],
        accept: Callable[[Sequence[Finish]], list[Verdict]],
    ) -> list[Verdict]:
        """Refuse the ends of what was dropped, and have the others accepted."""
        self.holds()
        with self.changed:
            gone = [end.token in self._dropped for end in ends]
        if not any(gone):
            return accept(ends)
        rest = [end for end, is_gone in zip(ends, gone, strict=True) if not is_gone]
        found = iter(accept(rest))
        return [Verdict.LEASE_LOST if is_gone else next(found) for is_gone in gone]

    def _drop(self, tokens: Sequence[int]) -> None:
        self._dropped.update(tokens)
        for token in tokens:
            self._claimed.pop(token, None)
