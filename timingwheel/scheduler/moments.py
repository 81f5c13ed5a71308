"""Moments, between the nanoseconds that are stored and the datetimes that are shown.

A datetime holds microseconds, so an instant is shown as the first one at or after it; and
whoever passes a shown moment back means the instant that it was shown for.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from timingwheel.jobs.model import Pause
from timingwheel.jobs.schedule import HORIZON_NS, instant_datetime, instant_ns

SHOWN_NS: Final = 999
"""An instant lies this much before the datetime it is shown as, or less."""


def bound_ns(moment: datetime, argument: str) -> int:
    """Return a bound of a span of shown moments: t lies in [a, b) as it is shown.

    A bound before all times or after them is where times begin, or end.

    Raises:
        ArgumentError: it is no aware datetime.
    """
    return min(max(instant_ns(moment, argument) - SHOWN_NS, 0), HORIZON_NS)


def shown(ns: int | None) -> str:
    """Return an instant for people, to the second; in UTC."""
    if ns is None:
        return "no known time"
    return instant_datetime(ns).strftime("%Y-%m-%d %H:%M:%S UTC")


def by_whom(pause: Pause | None) -> str:
    """Return who has paused, since when, until when and why, as the end of a phrase."""
    if pause is None:
        return ""
    text = f" by {pause.actor}" if pause.actor else ""
    text += f" since {shown(pause.since_ns)}"
    if pause.until_ns is not None:
        text += f" until {shown(pause.until_ns)}"
    return text + (f" ({pause.note})" if pause.note else "")
