"""How long the holder of a lease may trust in it: less long than others wait.

A lease is renewed when the store takes in the beat, which is not before the beat was sent.
So who counts from the sending of the last beat that was answered, by a clock that nobody
sets, stops before anybody else may begin. When the answer came does not matter: the case is
riverqueue/river#1213.
"""

from __future__ import annotations

from typing import Final

MARGIN_NS: Final = 1_000_000_000
"""Trust ends this long before the lease, or a sixth of the lease if that is less: time for a
handler to hear of it, and for what has just begun."""
_MARGIN_PART: Final = 6


def trusted_ns(ttl_ns: int) -> int:
    """Return how long after the sending of a beat its sender may act.

    Args:
        ttl_ns: how long after the beat others count it among the living.
    """
    return ttl_ns - min(MARGIN_NS, ttl_ns // _MARGIN_PART)
