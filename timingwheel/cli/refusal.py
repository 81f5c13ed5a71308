"""What ends a command without success, and the exit code that says so.

0    done
1    it failed, or what was named is not there
2    usage error: the command line, the environment or the file has to be corrected
130  Ctrl-C
141  nobody reads what it prints any more
"""

from __future__ import annotations

from typing import Final

from timingwheel.errors import (
    ArgumentError,
    CronError,
    TimingWheelError,
)
from timingwheel.jobs.errors import (
    UnknownCalendarError,
    UnknownJobError,
    UnknownRunError,
    UnknownTaskError,
)
from wal.errors import StoreInUseError, WalError

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141

_NOT_THERE: Final = (
    UnknownJobError,
    UnknownRunError,
    UnknownTaskError,
    UnknownCalendarError,
)
_HERE_TO_MEND: Final = (ArgumentError, CronError)
# What Python calls otherwise than the command line does.
_CALLED: Final = {
    "the time to run": "when",
    "n": "--count",
    "job": "JOB",
    "run": "RUN",
    "run_id": "RUN",
    "nominal": "NOMINAL",
    "task": "TASK",
    "calendar": "CALENDAR",
    "attempts": "--retry",
    "backoff": "--retry",
    "concurrency.limit": "--concurrency",
    "concurrency.key": "--concurrency",
    "old": "OLD",
    "new": "NEW",
    "gap": "--dst-gap",
    "tags": "--tag",
}
# What Python's words would send the reader to, in those of the command line.
_FIXES: Final[dict[type[ArgumentError], str]] = {
    UnknownJobError: "there is no such job; timingwheel job list shows those there are",
    UnknownRunError: "there is no such run; timingwheel run list shows those there are",
    UnknownCalendarError: "there is no such calendar; make it: timingwheel calendar set",
}
_FIXES_OF: Final = {
    "the time to run": "pass exactly one of --delay, --at, --every, --cron, --rrule and "
    "--after",
    "changes": "say what changes, such as --cron '0 3 * * *' or --priority 5",
    "if_exists": "pass --name with it: it is about names",
}


class RefusedError(TimingWheelError):
    """The command failed; the message says why and what to do.

    Attributes:
        code: the exit code.
    """

    code = FAILED


class MisuseError(RefusedError):
    """The command line or a setting is invalid."""

    code = USAGE


def exit_code(error: BaseException) -> int:
    """Return the exit code that an error ends the command with."""
    if isinstance(error, RefusedError):
        return error.code
    if isinstance(error, _HERE_TO_MEND) and not isinstance(error, _NOT_THERE):
        return USAGE
    return FAILED


def told(error: BaseException) -> str:
    """Return an error in the words of the command line."""
    if isinstance(error, StoreInUseError):
        return (
            f"{error.path} is held by {error.holder}: a directory has one owner at a "
            "time: stop that one first, or name another directory with --data"
        )
    if isinstance(error, ArgumentError):
        fix = _FIXES.get(type(error), _FIXES_OF.get(error.argument, error.fix))
        found = error.found if isinstance(error.found, str) else repr(error.found)
        return f"{flag_of(error.argument)} is {found!r:.200}: {fix}"
    return str(error) or type(error).__name__


def flag_of(argument: str) -> str:
    """Return what the command line calls an argument of Python's."""
    if argument in _CALLED:
        return _CALLED[argument]
    name = argument.partition("[")[0]
    return f"--{name.replace('_', '-')}" if name.isidentifier() else argument


EXPECTED: Final = (TimingWheelError, WalError, OSError)
"""Errors that are told in one line; any other is a bug and shows its traceback."""
