"""Who hears of attempts beside the store: the seam for tracing.

An observer is called in the handler's own thread or task, in its own context, so what it
sets there (the current span, say) is what the handler sees. Without one an attempt looks
at a single attribute.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from timingwheel.jobs.store import Claim, Finish

if TYPE_CHECKING:
    from timingwheel.scheduler.tasks import Task

Ended = Callable[[Finish, BaseException | None], None]
"""Takes how an attempt ended, and what its handler raised."""

_logger: Final = logging.getLogger("timingwheel")


class AttemptObserver(Protocol):
    """Hears of the attempts of this process. Must not wait."""

    def begun(self, task: Task, claim: Claim) -> Ended:
        """Note that a handler is about to be called; return what is told of its end.

        Both are called in the context in which the handler runs. What they raise is
        logged, and does the attempt no harm.
        """


class Observation:
    """One attempt, observed.

    Args:
        observer: who hears of it.
        task: whose handler.
        claim: its run and lease.
    """

    def __init__(self, observer: AttemptObserver, task: Task, claim: Claim) -> None:
        self._ended: Ended | None = None
        try:
            self._ended = observer.begun(task, claim)
        except Exception:
            _logger.exception("an observer failed at the begin of %s", claim.run.id)

    def end(self, finish: Finish, error: BaseException | None) -> Finish:
        """Tell of the end, and return it."""
        if self._ended is not None:
            try:
                self._ended(finish, error)
            except Exception:
                _logger.exception("an observer failed at the end of %s", finish.run_id)
        return finish
