"""Failed attempts in Python's logging, so that a handler that raises is not silent.

    timingwheel.task.jobs:fetch  WARNING  one that is tried again, in one line
                                 ERROR    the last one, with its traceback

The logger is the one of `ctx.log`, with the same `extra`: a program that wants less sets
its level, for one task or, at timingwheel.task, for all. A program that has not set up
logging sees both on standard error, as Python does with any warning.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Final

from timingwheel.jobs.error_line import error_line
from timingwheel.jobs.model import Outcome
from timingwheel.jobs.store import Finish
from timingwheel.scheduler.context import TASK_LOGGER
from timingwheel.scheduler.executors.executor import Work, log_ids

_LINE_CHARS: Final = 500
_FAILURES: Final = frozenset({Outcome.ERROR, Outcome.TIMEOUT})


def log_failure(work: Work, finish: Finish) -> None:
    """Log how an attempt has ended, if it has failed; never raises.

    Args:
        work: whose attempt.
        finish: how it ended. Whether the store takes it is not known yet; one that it
            refuses is logged as such too.
    """
    if finish.outcome not in _FAILURES or finish.snooze_ns is not None:
        return
    with contextlib.suppress(Exception):  # a full memory, or a filter of the program's
        run = work.claim.run
        logger = TASK_LOGGER.getChild(work.task.name)
        is_last = work.claim.last or finish.gives_up
        level = logging.ERROR if is_last else logging.WARNING
        if not logger.isEnabledFor(level):
            return
        error = finish.error or "no error was kept"
        logger.log(
            level,
            "%s failed%s: run %s, attempt %d: %s",
            work.task.name,
            " for good" if is_last else " and is tried again",
            run.id,
            run.attempts,
            error if is_last else error_line(error, _LINE_CHARS),
            extra=log_ids(work),
        )
