"""Every error that timingwheel raises, one class for each thing a caller can do about it.

All derive from TimingWheelError; those that Python has a word for derive from that
word too, so `except ValueError` and `except OverflowError` work as one expects. The
message says what was found and what to do, and the same facts are attributes. The log
has its own family in wal.errors.
"""

from __future__ import annotations

import reprlib
from functools import partial
from typing import Final

__all__ = [
    "ArgumentError",
    "BatchTooLargeError",
    "CronError",
    "DeadlineError",
    "EngineClosedError",
    "EngineFailedError",
    "MissingExtraError",
    "PayloadTooLargeError",
    "TimingWheelError",
]

_TEXT_CHARS_SHOWN: Final = 100


# A payload can be a mebibyte long: only its two ends are shown. An id is shown whole.
class _Shown(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        try:
            return super().repr_int(x, level)
        except ValueError:  # Python writes out none of more than 4,300 digits
            return f"<an int of {x.bit_length():,} bits>"


_SHOWN: Final = _Shown()
_SHOWN.maxstring = _TEXT_CHARS_SHOWN


def shown(value: object) -> str:
    """Return a value as messages show it: its repr, if that is short, else its ends."""
    return _SHOWN.repr(value)


class TimingWheelError(Exception):
    """The base of all of them: catch it to catch whatever this package refuses."""


class _BadValueError(TimingWheelError):
    """Carries the three facts of every refused value; raised only as a child."""

    def __init__(self, argument: str, found: object, fix: str) -> None:
        # All three go to Exception, so that the error survives pickling on its way
        # out of a worker process.
        super().__init__(argument, found, fix)
        self.argument = argument
        self.found = found
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.argument} is {shown(self.found)}: {self.fix}"


class ArgumentError(_BadValueError, ValueError):
    """The caller passed an invalid value; nothing has changed.

    Correct the argument that the message names and call again.

    Attributes:
        argument: the name of the parameter.
        found: the value that was passed.
        fix: what to pass instead, as a phrase for the message.
    """


class DeadlineError(_BadValueError, OverflowError):
    """The caller asked for a time beyond what the engine can hold; nothing has changed.

    Deadlines reach the year 2262 in nanoseconds, and 63 bits in ticks. Pass an earlier
    one, or keep the far one as data and set a nearer timer to look at it again.

    Attributes:
        argument: the name of the parameter.
        found: the value that was passed.
        fix: what to pass instead, as a phrase for the message.
    """


class PayloadTooLargeError(ArgumentError):
    """The caller passed a payload over the limit; nothing has changed.

    Store the bulk elsewhere and pass its key, or split it over several timers.
    """


class BatchTooLargeError(ArgumentError):
    """The caller passed more timers or bytes than one atomic group may hold.

    None of the batch has been scheduled. Split it; each part is atomic by itself.
    """


class EngineClosedError(TimingWheelError):
    """The program used an engine after close(), or after its process had forked.

    What was acknowledged before is safe on disk. Open a new engine to go on.
    """


class EngineFailedError(TimingWheelError):
    """The disk failed under the engine, which has shut itself for good.

    So it does if an error comes amid a change, as of a signal's handler that raises: then
    it is enough to close it and to open the directory again.

    After a failed write or sync nobody knows what the disk holds, so nothing more is
    promised, fired or read. Look at the cause (__cause__), mend the disk, and open the
    directory again: recovery then tells exactly what was kept.
    """


class MissingExtraError(TimingWheelError, ImportError):
    """A part was asked for that an extra of the package brings. Install that extra."""


class CronError(TimingWheelError, ValueError):
    """The caller passed a cron expression that is invalid, or that never comes.

    Correct the piece that the message names. `code` is for programs and never changes:
    "bad-fields" (how many there are), "bad-value", "bad-range", "bad-step", "bad-nth"
    (`MON#0`), "bad-hash" (`H`), "bad-macro" (`@...`), "never-matches" (30 February).

    Attributes:
        expression: the whole text that was passed.
        field: the name of the field, such as "minute"; "whole" for all of them.
        piece: the item of that field, as it was read; "" for all of it.
        code: the kind of fault, one of those above.
        found: what is wrong with it, as a phrase for the message.
        fix: what to write instead, as a phrase for the message.
    """

    def __init__(
        self,
        expression: str,
        field: str,
        *,
        piece: str,
        code: str,
        found: str,
        fix: str,
    ) -> None:
        super().__init__(expression, field, piece, code, found, fix)
        self.expression = expression
        self.field = field
        self.piece = piece
        self.code = code
        self.found = found
        self.fix = fix

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are pickled by position, and these are not all to be passed so.
        facts = {"piece": self.piece, "code": self.code, "found": self.found}
        again = partial(CronError, self.expression, self.field, fix=self.fix, **facts)
        return again, ()

    def __str__(self) -> str:
        where = f"cron {_shortened(self.expression)}"
        if self.field != "whole":
            where += f", {self.field} field"
        if self.piece:
            where += f": {_shortened(self.piece)}"
        return f"{where} {self.found}: {self.fix}"


def _shortened(text: str) -> str:
    # Long enough for every expression that a person writes.
    kept = text if len(text) <= _TEXT_CHARS_SHOWN else f"{text[:_TEXT_CHARS_SHOWN]}..."
    return ascii(kept)
