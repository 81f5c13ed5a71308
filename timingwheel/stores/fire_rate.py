"""How many runs and occurrences a node makes ready a second: a bucket, and who fills it.

The rate is that of the whole store; each node has as much of it as it has of the shards,
and that goes with them. A bucket holds a second's worth, so what comes on time at less
than the rate is never held up.

With "auto" the rate is found: nodes measure how long requests of their own program take,
and small writes of their own while they are held up. As long as these are quick, a node
that is held up doubles its rate. If not, it goes down to RATE_CUT of it, and from then on
grows by RATE_STEP. It never falls below RATE_MIN.

Source: Jacobson 1988, Congestion avoidance and control: slow start, then additive
increase and multiplicative decrease, here by delay as in Brakmo and Peterson's TCP Vegas.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, Literal

from timingwheel.clock import Clock
from timingwheel.errors import ArgumentError

FiresPerSecond = float | Literal["auto"] | None
"""Of the whole store; None: as many as it can."""

RATE_MIN: Final = 5_000.0
"""What "auto" always allows."""
RATE_MAX: Final = 200_000.0
RATE_STEP: Final = 1_000.0
"""By how much the rate grows a period, once it has been cut."""
RATE_CUT: Final = 0.7
P99_MAX_NS: Final = 25_000_000
"""How long 99 of 100 requests may take at most, before the rate is cut."""
PERIOD_NS: Final = 500_000_000
"""Between two decisions."""
SAMPLES_MAX: Final = 4_096
BUCKET_S: Final = 1.0
"""So much of what has not been used is kept."""
BITE_S: Final = 0.05
"""A node that is held up waits for so much: small bites hold up nobody else."""
_NS: Final = 1_000_000_000


def checked_rate(rate: FiresPerSecond) -> FiresPerSecond:
    """Return a rate.

    Raises:
        ArgumentError: it is none.
    """
    if rate is None or rate == "auto":
        return rate
    if type(rate) not in (int, float) or not rate > 0:
        raise ArgumentError(
            "fires_per_second",
            rate,
            'pass how many runs may become ready a second, "auto", or None for no bound',
        )
    return float(rate)


class FireRate:
    """A bucket of tokens, one for each run that is made ready. Thread-safe.

    Invariant: RATE_MIN <= rate <= RATE_MAX if it is found; no more tokens than BUCKET_S
    brings.

    Args:
        rate: of the whole store.
        clock: to fill it by.
    """

    def __init__(self, rate: FiresPerSecond, clock: Clock) -> None:
        self._is_found = rate == "auto"
        self._rate = RATE_MIN if isinstance(rate, str) else rate
        self._clock = clock
        self._lock = threading.Lock()
        self._share = 1.0
        self._tokens: float | None = None
        self._filled_ns = self._decided_ns = clock.monotonic_ns()
        self._is_held_up = False
        self._was_held_up = False
        self._was_cut = False
        self._spent = 0
        self._samples: deque[int] = deque(maxlen=SAMPLES_MAX)

    @property
    def rate(self) -> float | None:
        """Of the whole store, a second; None: there is no bound."""
        return self._rate

    @property
    def is_found(self) -> bool:
        """Whether it is "auto"."""
        return self._is_found

    @property
    def is_held_up(self) -> bool:
        """Whether the last call of `used` could have done with more tokens."""
        return self._is_held_up

    def take(self, limit: int, share: float) -> int:
        """Return how many runs may be made ready now; then call `used`.

        Args:
            limit: how many are wanted at most.
            share: how much of the shards is this node's, 0 to 1.
        """
        with self._lock:
            if self._rate is None:
                return limit
            self._share = share
            return max(min(limit, int(self._filled(self._rate))), 0)

    def used(self, count: int, *, is_held_up: bool) -> None:
        """Note how many were made ready; more than allowed make a debt.

        Args:
            count: how many.
            is_held_up: whether there may have been more, and only tokens were short.
        """
        with self._lock:
            if self._rate is None:
                return
            self._tokens = self._filled(self._rate) - count
            self._spent += count
            self._is_held_up = is_held_up
            self._was_held_up = self._was_held_up or self._is_held_up

    def note(self, took_ns: int) -> None:
        """Note how long a request has taken."""
        if self._is_found:
            with self._lock:
                self._samples.append(took_ns)

    @property
    def rest_ns(self) -> int:
        """How long until there are tokens for another bite: 0 if there are."""
        with self._lock:
            if self._rate is None:
                return 0
            part = max(self._rate * self._share, 1e-3)
            missing = max(part * BITE_S, 1) - self._filled(self._rate)
            return max(round(missing * _NS / part), 0)

    # -- inside, the lock held ----------------------------------------------------------

    def _filled(self, rate: float) -> float:
        """Return the tokens that there are now, of a rate that may just have changed."""
        now_ns = self._clock.monotonic_ns()
        full = max(rate * self._share * BUCKET_S, 1.0)
        if self._tokens is None:
            self._tokens = full
        gained = rate * self._share * (now_ns - self._filled_ns) / _NS
        self._tokens = min(self._tokens + gained, full)
        self._filled_ns = now_ns
        if self._is_found and now_ns - self._decided_ns >= PERIOD_NS:
            self._rate = self._decided(rate, now_ns - self._decided_ns)
            self._decided_ns = now_ns
        return self._tokens

    def _decided(self, rate: float, since_ns: int) -> float:
        """Return the rate of the next period."""
        samples = list(self._samples)
        self._samples.clear()
        spent, self._spent = self._spent, 0
        was_held_up, self._was_held_up = self._was_held_up, False
        if not samples:
            return rate
        slow = sum(took_ns > P99_MAX_NS for took_ns in samples)
        if slow > max(len(samples) // 100, 1):  # one alone is chance
            # What RATE_MIN allows is not to blame, and no reason to go lower.
            if spent > RATE_MIN * self._share * since_ns / _NS:
                self._was_cut = True
                return max(rate * RATE_CUT, RATE_MIN)
            return rate
        if not was_held_up:
            return rate
        return min(rate + RATE_STEP if self._was_cut else rate * 2, RATE_MAX)
