"""Lengths of time as people write them: 30, timedelta(minutes=5), "1h30m".

A text is numbers with units, added up: "0.2s", "10m", "1h30m". `m` is a minute, a day is
24 hours, and there are no months and years, whose length is not fixed. What is kept is
nanoseconds: a text means exactly what it says.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from fractions import Fraction
from typing import Final, NamedTuple

from timingwheel.errors import ArgumentError
from timingwheel.jobs.schedule import HORIZON_NS, NS

Duration = float | timedelta | str
"""What a duration may be passed as; a number is seconds."""

_UNITS_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": NS,
    "m": 60 * NS,
    "h": 3_600 * NS,
    "d": 86_400 * NS,
    "w": 604_800 * NS,
}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", re.ASCII)
_TEXT_CHARS_MAX: Final = 100
_FORMS: Final = 'seconds, a timedelta, or text such as "0.2s", "10m" or "1h30m"'


class BackoffRange(NamedTuple):
    """How long to wait after the first failure, and at most."""

    first_ns: int
    max_ns: int


def duration_ns(value: Duration, argument: str, *, zero: bool = True) -> int:
    """Return a duration in nanoseconds; a float is rounded to the nearest.

    Args:
        value: seconds as an int or a float, a timedelta, or text.
        argument: the caller's name for it, for the message.
        zero: whether it may be nothing at all.

    Raises:
        ArgumentError: it is no duration, negative, nothing where `zero` is False, or
            longer than from 1970 to 2262.
    """
    found_ns = _measured_ns(value, argument)
    if found_ns < 0:
        raise ArgumentError(
            argument, value, "a duration is not negative; pass 0 or more"
        )
    if found_ns > HORIZON_NS:
        raise ArgumentError(
            argument, value, "times end in the year 2262; pass a shorter duration"
        )
    if found_ns == 0 and not zero:
        raise ArgumentError(argument, value, "pass at least one nanosecond")
    return found_ns


def backoff_range(text: str, argument: str = "backoff") -> BackoffRange:
    """Return the bounds of a backoff such as "1s..10m"; "30s" alone is always 30 s.

    Raises:
        ArgumentError: it is no such text, or the first wait is longer than the longest.
    """
    if not isinstance(text, str):
        raise ArgumentError(
            argument, text, 'pass the first wait and the longest, as "1s..10m"'
        )
    first, dots, longest = text.partition("..")
    first_ns = duration_ns(first.strip(), argument)
    max_ns = duration_ns(longest.strip(), argument) if dots else first_ns
    if max_ns < first_ns:
        raise ArgumentError(
            argument, text, 'pass the first wait before the longest, as "1s..10m"'
        )
    return BackoffRange(first_ns, max_ns)


def _measured_ns(value: Duration, argument: str) -> int:
    if isinstance(value, timedelta):
        seconds = value.days * 86_400 + value.seconds
        return seconds * NS + value.microseconds * 1_000
    if isinstance(value, str):
        return _read_ns(value, argument)
    # A bool is an int to Python, and never a length of time.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentError(argument, value, f"pass {_FORMS}")
    if isinstance(value, int):
        return value * NS
    if math.isnan(value):
        raise ArgumentError(argument, value, f"pass {_FORMS}")
    # Infinity has no nanoseconds; one that is refused stands for it.
    limit_s = float(HORIZON_NS)
    return round(min(max(value, -limit_s), limit_s) * NS)


def _read_ns(text: str, argument: str) -> int:
    whole = text.strip()
    if not whole or len(whole) > _TEXT_CHARS_MAX:
        raise ArgumentError(argument, text, f"pass {_FORMS}")
    if whole.startswith("-"):
        raise ArgumentError(
            argument, text, "a duration is not negative; pass 0 or more"
        )
    total = Fraction(0)  # a Decimal rounds to 28 digits
    at = 0
    while match := _PART.match(whole, at):
        number, unit = match.groups()
        if unit not in _UNITS_NS:
            raise ArgumentError(argument, text, _unit_fix(number, unit))
        total += Fraction(number) * _UNITS_NS[unit]
        at = match.end()
    if at < len(whole):
        raise ArgumentError(argument, text, f"pass {_FORMS}")
    if total.denominator != 1:
        raise ArgumentError(argument, text, "nothing is finer than a nanosecond")
    return int(total)


def _unit_fix(number: str, unit: str) -> str:
    known = ", ".join(_UNITS_NS)
    if not unit:
        return f'give {number} a unit, such as "{number}s"; units are {known}'
    return f'"{unit}" is no unit of time; units are {known} (m is a minute)'
