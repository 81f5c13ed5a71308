"""Times and lengths as a reader wants them on a page: short, aligned, in a chosen zone."""

from __future__ import annotations

from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo

from timingwheel.jobs.schedule import instant_datetime

_NS: Final = 1_000_000_000
_STEPS: Final = (
    (86_400 * _NS, "d"),
    (3_600 * _NS, "h"),
    (60 * _NS, "m"),
    (_NS, "s"),
)


def time_words(ns: int, zone: ZoneInfo, *, now_ns: int) -> str:
    """Return an instant in a zone, to the second: "09:30:00" for one of today.

    Args:
        ns: the instant.
        zone: whose clock is read.
        now_ns: which day is today, and which year goes without saying.
    """
    moment = instant_datetime(ns).astimezone(zone)
    today = instant_datetime(now_ns).astimezone(zone)
    clock = moment.strftime("%H:%M:%S")
    if moment.date() == today.date():
        return clock
    if moment.year == today.year:
        return f"{moment.day} {moment.strftime('%b')} {clock}"
    return f"{moment.strftime('%Y-%m-%d')} {clock}"


def full_time_words(ns: int, zone: ZoneInfo) -> str:
    """Return an instant in a zone with its date and offset."""
    return instant_datetime(ns).astimezone(zone).strftime("%Y-%m-%d %H:%M:%S %z")


def utc_words(ns: int) -> str:
    """Return an instant in UTC, to the second."""
    return instant_datetime(ns).strftime("%Y-%m-%d %H:%M:%S UTC")


def relative_words(ns: int, *, now_ns: int) -> str:
    """Return how far away an instant is: "in 5 m", "2 h ago", "now"."""
    apart_ns = ns - now_ns
    if abs(apart_ns) < _NS:
        return "now"
    length = rough_words(abs(apart_ns))
    return f"in {length}" if apart_ns > 0 else f"{length} ago"


def rough_words(length_ns: int) -> str:
    """Return a length by its largest unit, rounded down: "3 d", "12 ms"."""
    for unit_ns, unit in _STEPS:
        if length_ns >= unit_ns:
            return f"{length_ns // unit_ns:,} {unit}"
    return length_words(length_ns)


def length_words(length_ns: int) -> str:
    """Return a length with about three digits: "1.24 s", "3 m 20 s", "0.8 ms"."""
    if length_ns < 1_000_000:
        return f"{length_ns / 1_000_000:.2g} ms" if length_ns else "0 ms"
    if length_ns < _NS:
        return f"{length_ns / 1_000_000:.3g} ms" if length_ns < 999_500_000 else "1 s"
    if length_ns < 60 * _NS:
        return f"{length_ns / _NS:.3g} s"
    for (unit_ns, unit), (below_ns, below) in pairwise(_STEPS):
        if length_ns >= unit_ns:
            rest = length_ns % unit_ns // below_ns
            whole = f"{length_ns // unit_ns:,} {unit}"
            return f"{whole} {rest} {below}" if rest else whole
    raise AssertionError(length_ns)


def exact_words(length_ns: int) -> str:
    """Return a length as one would type it: "1h30m", "250ms"; nothing is rounded."""
    if length_ns == 0:
        return "0s"
    text = ""
    small = ((1_000_000, "ms"), (1_000, "us"), (1, "ns"))
    for unit_ns, unit in (*_STEPS, *small):
        number, length_ns = divmod(length_ns, unit_ns)
        if number:
            text += f"{number}{unit}"
    return text


def count_words(count: int, noun: str) -> str:
    """Return a count with its noun: "1 run", "1,200 runs"."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
