"""The one line of a kept error that says what it was, for wherever there is one line.

Errors are kept as Python prints them, with the traceback first, so the line is not the
last one: messages have several lines (a database's, a validator's), and a group of
exceptions ends with a frame.

    Traceback (most recent call last):
      File "jobs.py", line 7, in load
    ValidationError: 1 validation error for Order    <- this one
    price
      Field required
"""

from __future__ import annotations

import re
from typing import Final

_HEADER: Final = re.compile(
    r"^(?:  \+ Exception Group )?Traceback \(most recent call last\):$", re.MULTILINE
)
_GROUP_MARGIN: Final = "  | "
_CUT: Final = " ..."


def error_line(error: str | None, limit: int) -> str:
    """Return what a run or an attempt failed with, in one line.

    Args:
        error: as it is kept: words, or a traceback.
        limit: characters at most, 10 or more; what is longer ends with dots.

    Returns:
        The type and the first line of the message of the exception that was raised last;
        the first line of words that have no traceback in front, with that if they end
        with a colon. Empty if there is none.
    """
    lines = (error or "").strip("\r\n").splitlines()
    if lines and _HEADER.match(lines[0]):
        lines = _after_frames("\n".join(lines)) or lines
    elif lines and lines[0].endswith(":") and any(map(_HEADER.match, lines)):
        # Words of ours, and what they are about: both in one line.
        lines = [f"{lines[0]} {error_line(chr(10).join(lines[1:]), limit)}"]
    told = [line.strip() for line in lines if line.strip()][:2]
    # A message may begin with an empty line: "OperationalError: " says nothing yet.
    line = " ".join(told if told and told[0].endswith(":") else told[:1])
    return line if len(line) <= limit else line[: limit - len(_CUT)] + _CUT


def _after_frames(error: str) -> list[str]:
    """Return the lines from the type of the last exception on; none if it was cut off."""
    last = list(_HEADER.finditer(error))[-1]
    lines = [
        line.removeprefix(_GROUP_MARGIN) for line in error[last.end() :].splitlines()
    ]
    for at, line in enumerate(lines):
        if line and not line.startswith(" "):
            return lines[at:]
    return []
