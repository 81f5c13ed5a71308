"""Who pauses what, why, and until when."""

from __future__ import annotations

import getpass
from datetime import datetime

from timingwheel.errors import ArgumentError, DeadlineError
from timingwheel.jobs.durations import Duration, duration_ns
from timingwheel.jobs.letters import checked_letters
from timingwheel.jobs.model import Pause
from timingwheel.jobs.schedule import HORIZON_NS, instant_ns
from timingwheel.jobs.store import Instant

TEXT_CHARS_MAX = 4_096
"""Of a note."""


def make_pause(
    now: Instant, *, actor: str, note: str, until: datetime | Duration | None
) -> Pause:
    """Return a pause that begins now.

    Args:
        now: the store's present.
        actor: who pauses.
        note: why.
        until: when it ends by itself: an aware datetime, or this long from now.

    Raises:
        ArgumentError: `until` is past or no moment, or the note is no short text that can be stored.
        DeadlineError: `until` lies beyond 2262.
    """
    if type(note) is not str or len(note) > TEXT_CHARS_MAX:
        raise ArgumentError("note", note, f"pass at most {TEXT_CHARS_MAX:,} characters")
    if type(actor) is not str or not 1 <= len(actor) <= TEXT_CHARS_MAX:
        raise ArgumentError("actor", actor, "pass who pauses, as a name")
    checked_letters(note, "note")
    checked_letters(actor, "actor")
    until_ns = None
    if isinstance(until, datetime):
        until_ns = instant_ns(until, "until")
        if until_ns <= now.wall_ns:
            raise ArgumentError(
                "until", until.isoformat(), "pass a moment that is still to come"
            )
    elif until is not None:
        until_ns = now.wall_ns + duration_ns(until, "until", zero=False)
    if until_ns is not None and until_ns > HORIZON_NS:
        raise DeadlineError(
            "until", str(until), "times end in the year 2262; leave it out for no end"
        )
    return Pause(since_ns=now.wall_ns, actor=actor, note=note, until_ns=until_ns)


def user_name() -> str:
    """Return the user of this process, as far as the system knows a name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may run as a number without a name
        return "unknown"
