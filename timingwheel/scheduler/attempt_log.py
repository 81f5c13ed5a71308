"""`ctx.log`: a logger with the attempt's ids, whose last lines are kept with it.

Every line goes two ways: to Python's logging, where the program decides what becomes of
it, and to the tail, which the history keeps whatever the program's levels are. Both are
bounded, so a handler that floods its log hurts nobody.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from timingwheel.jobs.schedule import instant_datetime

TAIL_LINES_MAX: Final = 100
LINE_CHARS_MAX: Final = 2_000

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter

Sink = Callable[[int, str], None]
"""Takes the level and the text of a line."""

_formatter: Final = logging.Formatter("%(message)s")


class LogTail:
    """The last lines of an attempt; the oldest go first. Thread-safe.

    Args:
        wall_ns: asks the time.
    """

    def __init__(self, wall_ns: Callable[[], int]) -> None:
        self._wall_ns = wall_ns
        self._lines: deque[str] = deque(maxlen=TAIL_LINES_MAX)

    def add(self, level: int, text: str) -> None:
        """Keep a line; what is too long of it is cut."""
        at = instant_datetime(self._wall_ns()).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
        self._lines.append(f"{at}Z {logging.getLevelName(level)} {clean(text)}")

    def read(self) -> str:
        """Return the lines as one text."""
        return "\n".join(self._lines.copy())


class AttemptLog(_Adapter):
    """A logger for one attempt.

    Args:
        logger: where the lines go as well; None: to the sink alone.
        ids: `extra` of every record.
        sink: keeps the lines.
    """

    def __init__(
        self, logger: logging.Logger | None, *, ids: dict[str, object], sink: Sink
    ) -> None:
        super().__init__(logger or _SILENT, ids)
        self._emits = logger is not None
        self._sink = sink

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - logging's name
        """Return whether a line of that level is kept: from DEBUG on, all are."""
        return level >= logging.DEBUG

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Write a line; see logging.Logger.log."""
        if not self.isEnabledFor(level):
            return
        self._sink(
            level, _formatted(level, msg, args=args, exc_info=kwargs.get("exc_info"))
        )
        if self._emits and self.logger.isEnabledFor(level):
            # One frame more, so that the record names the handler's line and not ours.
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
            msg, kwargs = self.process(msg, kwargs)  # type: ignore[assignment]
            self.logger.log(level, msg, *args, **kwargs)

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the ids to a record's `extra`, and leave what the caller has put there."""
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


def clean(text: str, limit: int = LINE_CHARS_MAX) -> str:
    """Return a text that can be stored: valid Unicode, and its two ends if too long."""
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half:,} characters ...\n{text[-half:]}"
    # A lone surrogate, from a file name perhaps, has no bytes.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _formatted(
    level: int, msg: object, *, args: tuple[object, ...], exc_info: Any
) -> str:
    """Return a line as logging would print it, with its traceback."""
    try:
        record = _SILENT.makeRecord("", level, "", 0, msg, args, _exception(exc_info))
        return _formatter.format(record)
    except Exception as error:  # noqa: BLE001 - an object's own __str__ can raise anything
        shown = msg[:200] if isinstance(msg, str) else type(msg).__qualname__
        return f"{shown}: a line that cannot be formatted ({type(error).__qualname__})"


def _exception(exc_info: Any) -> Any:
    if isinstance(exc_info, BaseException):
        return type(exc_info), exc_info, exc_info.__traceback__
    if exc_info and not isinstance(exc_info, tuple):
        return sys.exc_info()
    return exc_info or None


_SILENT: Final = logging.getLogger("timingwheel.task.kept")
