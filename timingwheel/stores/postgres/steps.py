"""Steps of the database's clock, as one node sees them.

Nobody in SQL can tell a clock that was set from time that has passed. A node can: it has a
clock that only moves on, and keeps how far the database's elapsed time is ahead of it.

    elapsed time, by the database  -  monotonic time here  =  the same, beat after beat

If that has moved by a second or more, beyond what the way there and back leaves in doubt,
one of the two clocks is wrong: the database's was set, or another server with another clock
has taken its place; or this machine stood still and does not know. One node cannot say
which. So it says what it has seen with its beats, fires nothing that only the leap has made
due, and the step counts once most of the nodes that live have seen the same; a node alone
decides alone. It is written by whoever sees it so first, if nobody has changed the sum of
the steps meanwhile. What most have not seen is this machine's own affair.

Drift, and clocks that are slewed, are followed silently.
"""

from __future__ import annotations

import logging
import threading
from typing import Final, NamedTuple

from timingwheel.stores.postgres.connections import Connections, Ints

STEP_NS: Final = 1_000_000_000
"""What is less is no step: it counts as drift."""
AGREED_NS: Final = 500_000_000
"""Two nodes that differ by less have seen the same step."""
LOOKS: Final = 3
"""So often a node looks before it believes that the fault is its own."""
_DRIFT: Final = 1_000  # one part in so many; two clocks that NTP slews, twice 500 ppm
_END_NS: Final = 2**62
ANY: Final = (-_END_NS, _END_NS)
"""Bounds that hold always."""

# Who has just died after a step back still seems to live: its vote would never come.
_SETTLE: Final = """
UPDATE timingwheel_meta m SET steps_ns = m.steps_ns + %(step_ns)s
WHERE m.steps_ns = %(known_ns)s AND (
    SELECT 2 * (1 + count(*) FILTER (
        WHERE abs(o.step_ns - %(step_ns)s) < %(agreed_ns)s
    )) > 1 + count(*)
    FROM timingwheel_member o WHERE o.is_node AND o.inc <> ALL(%(own)s)
    AND o.until_ns > timingwheel_elapsed() + greatest(-%(step_ns)s::bigint, 0)
)
RETURNING m.steps_ns
"""
_logger = logging.getLogger("timingwheel")


class _Offset(NamedTuple):
    """How far the database's elapsed time is ahead of monotonic time here, at a moment."""

    ahead_ns: int
    doubt_ns: int
    at_ns: int


class Steps:
    """What a node knows of the database's clock. Thread-safe.

    Attributes:
        step_ns: by how much it was set, as seen here and not settled; 0: it was not.
        is_suspect: whether it has just read what it should not, and is to be looked at.

    Args:
        connections: to the database.
    """

    def __init__(self, connections: Connections) -> None:
        self.step_ns = 0
        self.is_suspect = False
        self._connections = connections
        self._lock = threading.Lock()
        self._known: _Offset | None = None
        self._looks = 0

    def note(self, sent_ns: int, got_ns: int, elapsed_ns: int) -> int:
        """Take in what the database's clock said; return the step, 0 if it was not set.

        Args:
            sent_ns: when it was asked, by the monotonic clock here.
            got_ns: when it had answered.
            elapsed_ns: its elapsed time.
        """
        self.is_suspect = False
        half_ns = (got_ns - sent_ns) // 2
        seen = _Offset(elapsed_ns - sent_ns - half_ns, half_ns, got_ns)
        with self._lock:
            former = self._known
            if former is None:
                self._known = seen
                return 0
            doubt_ns = _doubt_ns(former, got_ns)
            step_ns = seen.ahead_ns - former.ahead_ns
            if abs(step_ns) - doubt_ns - half_ns >= STEP_NS:
                # What the ways there and back leave in doubt is added: elapsed time lags by
                # it then, and makes nothing due early.
                return self._see(step_ns + former.doubt_ns + half_ns, seen)
            if self.step_ns:
                _logger.warning("the step of the database's clock is settled")
            self.step_ns = self._looks = 0
            if half_ns <= doubt_ns:
                self._known = seen
            return 0

    def _see(self, step_ns: int, seen: _Offset) -> int:
        if not self._looks:
            _logger.warning(
                "the database's clock was set by %+.3f s, by the monotonic clock here",
                step_ns / 1e9,
            )
        self._looks += 1
        self.step_ns = step_ns
        if self._looks > LOOKS:
            _logger.warning(
                "most other nodes have seen no step of %+.3f s of the database's clock: "
                "this machine must have stood still, or its clock is wrong",
                step_ns / 1e9,
            )
            self._known, self.step_ns, self._looks = seen, 0, 0
        return self.step_ns

    def bounds_ns(self, now_ns: int) -> tuple[int, int]:
        """Return between what the database's elapsed time is, unless it was set.

        Args:
            now_ns: monotonic time; a statement that is sent now and takes long may find
                it later than that, too.
        """
        known = self._known
        if known is None:
            return ANY
        ahead_ns, doubt_ns = known.ahead_ns, _doubt_ns(known, now_ns) + STEP_NS
        return now_ns + ahead_ns - doubt_ns, now_ns + ahead_ns + doubt_ns

    def is_expected(self, elapsed_ns: int, before_ns: int) -> bool:
        """Return whether what is due by the database's clock is due; else it is suspect.

        A clock that was set back makes nothing due; it is seen with the next beat.

        Args:
            elapsed_ns: its elapsed time.
            before_ns: the upper of the bounds.
        """
        self.is_suspect = elapsed_ns > before_ns
        return not self.is_suspect

    def settle(self, known_ns: int, own: Ints) -> bool:
        """Write the step down if most nodes have seen it; whether that was done.

        Args:
            known_ns: the sum of all steps, as it was read.
            own: numbers of this process's members.
        """
        step_ns = self.step_ns
        values = {
            "step_ns": step_ns,
            "known_ns": known_ns,
            "agreed_ns": AGREED_NS,
            "own": own,
        }
        if not self._connections.named_rows(_SETTLE, values):
            return False
        _logger.warning(
            "the database's clock was set by %+.3f s: noted, delays and leases do not "
            "follow it, wall times do",
            step_ns / 1e9,
        )
        return True


def _doubt_ns(offset: _Offset, now_ns: int) -> int:
    """Return how far off an offset may be by now."""
    return offset.doubt_ns + abs(now_ns - offset.at_ns) // _DRIFT
