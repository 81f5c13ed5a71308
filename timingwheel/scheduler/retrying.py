"""Retry: how often a failed run is tried again, how soon, and after which errors.

What a store needs to know of it is a RetryPolicy, which is data. Which errors are worth
another try is known only where the handler runs, because exceptions do not outlive it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from timingwheel.errors import ArgumentError
from timingwheel.jobs.durations import backoff_range
from timingwheel.jobs.model import RetryPolicy

ATTEMPTS_MAX: Final = 1_000_000

ErrorTypes = type[BaseException] | tuple[type[BaseException], ...]


@dataclass(frozen=True)
class Retry:
    """How a failed run is tried again.

    Retry(1) never tries again. Retry(5, give_up_on=ValueError) does, but for one error.

    Attributes:
        attempts: in all, the first one included.
        backoff: the first wait and the longest, "1s..10m"; it doubles in between.
        jitter: share of a wait that is random, to both sides, 0 .. 1.
        retry_on: errors that are worth another try; any other ends the run as failed.
        give_up_on: errors that are not, even if `retry_on` covers them.
        policy: the part of it that a store keeps.

    Raises:
        ArgumentError: one of them is invalid.
    """

    attempts: int = 5
    backoff: str = "1s..10m"
    jitter: float = 0.2
    retry_on: ErrorTypes = (Exception,)
    give_up_on: ErrorTypes = ()
    policy: RetryPolicy = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        attempts, jitter = self.attempts, self.jitter
        if type(attempts) is not int or not 1 <= attempts <= ATTEMPTS_MAX:
            raise ArgumentError(
                "attempts",
                attempts,
                f"pass how often to try in all, 1 to {ATTEMPTS_MAX:,}; 1 never retries",
            )
        if type(jitter) not in {int, float} or not 0 <= jitter <= 1:
            raise ArgumentError("jitter", jitter, "pass a share, 0 to 1, such as 0.2")
        waits = backoff_range(self.backoff)
        policy = RetryPolicy(
            attempts=attempts,
            first_ns=waits.first_ns,
            max_ns=waits.max_ns,
            jitter=float(jitter),
        )
        # The class is frozen, and these are its own last words about itself.
        put = object.__setattr__
        put(self, "policy", policy)
        put(self, "retry_on", _error_types(self.retry_on, "retry_on"))
        put(self, "give_up_on", _error_types(self.give_up_on, "give_up_on"))

    def gives_up(self, error: BaseException) -> bool:
        """Return whether no retry can mend what a handler has raised.

        SystemExit and KeyboardInterrupt are the handler's own doing, not the program's:
        they count as errors that are worth another try, as Exception does.
        """
        if isinstance(error, self.give_up_on):
            return True
        if isinstance(error, self.retry_on):
            return False
        return isinstance(error, Exception) or Exception not in _tuple(self.retry_on)


def _tuple(types: ErrorTypes) -> tuple[type[BaseException], ...]:
    return types if isinstance(types, tuple) else (types,)


def _error_types(types: object, argument: str) -> tuple[type[BaseException], ...]:
    found = types if isinstance(types, tuple) else (types,)
    if not all(isinstance(t, type) and issubclass(t, BaseException) for t in found):
        raise ArgumentError(
            argument, types, "pass an exception class, or a tuple of exception classes"
        )
    return found
