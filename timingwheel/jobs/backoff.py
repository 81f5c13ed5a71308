"""How long a failed run waits before it is tried again: exponential, with jitter.

The wait doubles from `first_ns` up to `max_ns`. A share of it is drawn, to both sides,
so that a thousand runs which failed together do not come back together. Pure: the
random draw is the caller's, so a test and a simulation repeat exactly.
"""

from __future__ import annotations

from timingwheel.jobs.model import RetryPolicy


def backoff_ns(policy: RetryPolicy, attempt: int, draw: float) -> int:
    """Return the wait after a failed attempt.

    Args:
        policy: the job's.
        attempt: number of the attempt that failed, 1 for the first.
        draw: a random number, 0 <= draw < 1; 0.5 stands for no jitter.

    Returns:
        Nanoseconds, never below 0; up to `jitter` of the wait above or below it.

    Cost: O(1), even after a million attempts.
    """
    wait_ns = policy.max_ns
    doublings = attempt - 1
    # A shift by thousands would make a number of thousands of bits only to cut it.
    if doublings < policy.max_ns.bit_length():
        wait_ns = min(policy.first_ns << max(doublings, 0), policy.max_ns)
    if policy.first_ns == 0:
        return 0
    spread_ns = round(wait_ns * policy.jitter * (2 * draw - 1))
    return max(wait_ns + spread_ns, 0)
