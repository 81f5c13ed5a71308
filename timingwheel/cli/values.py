"""Values as they are written on a command line: moments, pairs, bounds, intervals."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import click

from timingwheel.cli.refusal import MisuseError
from timingwheel.cli.session import Session, session_of
from timingwheel.errors import ArgumentError
from timingwheel.jobs.durations import duration_ns
from timingwheel.jobs.intervals import every
from timingwheel.jobs.model import Cap
from timingwheel.jobs.schedule import instant_datetime
from timingwheel.jobs.triggers import EveryCalendar, EveryPeriod
from timingwheel.scheduler.retrying import Retry

NO_BOUND: Final = "none"
_DAY: Final = timedelta(days=1)
_CALENDAR: Final = re.compile(
    r"(?:(\d+)\s*)?(day|week|month)s?\s+at\s+(\d{1,2}:\d{2}(?::\d{2})?)", re.ASCII
)
_MOMENT_FIX: Final = (
    "write a time such as 2026-03-29T09:00, 2026-03-29 09:00+02:00, 2026-03-29, now, "
    "today, tomorrow, +2h, -30m or '2h ago'"
)


class MomentType(click.ParamType[datetime]):
    """A time: ISO 8601, a word, or so far from now. Without an offset: the user's zone."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Return the aware datetime that is meant."""
        if isinstance(value, datetime):
            return value
        assert ctx is not None
        try:
            return moment_of(value, session_of(ctx))
        except (ArgumentError, ValueError):
            self.fail(f"{value!r} is no time: {_MOMENT_FIX}.", param, ctx)


class BoundType(click.ParamType[Any]):
    """A number, or `none` for no bound.

    Args:
        kind: int or float.
    """

    name = "number|none"

    def __init__(self, kind: type[int | float]) -> None:
        self._kind = kind

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """Return the number, or the word for no bound."""
        if value == NO_BOUND or isinstance(value, int | float):
            return value
        try:
            return self._kind(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor {NO_BOUND!r}.", param, ctx)


class TagType(click.ParamType[tuple[str, str]]):
    """A tag, `name=word`."""

    name = "name=word"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return the name and the word."""
        if isinstance(value, tuple):
            return value
        tag, equals, word = value.partition("=")
        if not equals or not tag:
            self.fail(f"{value!r} is no tag: write it as team=bi.", param, ctx)
        return tag, word


class CapType(click.ParamType[Cap]):
    """A bound on runs at once that jobs share, `key=limit`."""

    name = "key=limit"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Cap:
        """Return the cap."""
        if isinstance(value, Cap):
            return value
        key, equals, limit = value.rpartition("=")
        if not equals or not key or not limit.isdecimal():
            self.fail(f"{value!r} is no cap: write it as tenant:7=2.", param, ctx)
        return Cap(key, int(limit))


class RetryType(click.ParamType[Retry]):
    """How often to try in all, and how far apart: `5` or `5,1s..10m`."""

    name = "n[,backoff]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Retry:
        """Return the retry policy."""
        if isinstance(value, Retry):
            return value
        attempts, comma, backoff = value.partition(",")
        if not attempts.strip().isdecimal():
            self.fail(
                f"{value!r} says no number of attempts: write 5, or 5,1s..10m; "
                "1 never retries.",
                param,
                ctx,
            )
        count = int(attempts)
        return Retry(count, backoff=backoff.strip()) if comma else Retry(count)


class DayType(click.ParamType[date]):
    """A day, `2026-12-25`."""

    name = "day"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> date:
        """Return the day."""
        if isinstance(value, date):
            return value
        try:
            return date.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is no day: write it as 2026-12-25.", param, ctx)


MOMENT: Final = MomentType()
DAY: Final = DayType()
TAG: Final = TagType()
CAP: Final = CapType()
RETRY: Final = RetryType()


def moment_of(text: str, session: Session) -> datetime:
    """Return the time that a text means.

    Args:
        text: see MomentType.
        session: its clock says what now is, its settings whether days are UTC's.

    Raises:
        ValueError, ArgumentError: it means none.
    """
    whole = text.strip()
    now = instant_datetime(session.clock.wall_ns())
    zone = UTC if session.settings.flag("utc") else None
    midnight = now.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
    words = {"now": now, "today": midnight}
    # A day ahead by the calendar: its midnight may have another offset.
    words["tomorrow"] = (midnight.replace(tzinfo=None) + _DAY).astimezone(zone)
    words["yesterday"] = (midnight.replace(tzinfo=None) - _DAY).astimezone(zone)
    if zone is not None:
        words["tomorrow"], words["yesterday"] = midnight + _DAY, midnight - _DAY
    if whole in words:
        return words[whole]
    if whole.endswith("ago"):
        return now - _length(whole.removesuffix("ago"))
    if whole[:1] in {"+", "-"}:
        length = _length(whole[1:])
        return now + length if whole[0] == "+" else now - length
    found = datetime.fromisoformat(whole)
    if found.tzinfo is not None:
        return found
    return found.replace(tzinfo=UTC) if zone is not None else found.astimezone()


def interval_of(text: str, tz: str | None) -> str | EveryPeriod | EveryCalendar:
    """Return what `every=` takes: a duration, or days of the calendar.

    Args:
        text: "10m", "day at 06:00", "2 weeks at 09:30", "month at 07:00".
        tz: the zone of the time of day.

    Raises:
        ArgumentError: it means none.
    """
    match = _CALENDAR.fullmatch(text.strip().removeprefix("every "))
    if match is None:
        return text
    number, unit, at = match.groups()
    at = at.zfill(5) if at.count(":") == 1 else at
    return every(**{f"{unit}s": int(number or 1)}, at=at, tz=tz)  # type: ignore[arg-type]  # one of three


def arguments_from(pairs: tuple[str, ...], whole: str | None) -> dict[str, Any]:
    """Return the arguments of a call, by name.

    Args:
        pairs: `name=text`, or `name:=JSON`.
        whole: all of them as one JSON object; pairs replace what it has.

    Raises:
        MisuseError: one of them is none of that.
    """
    found: dict[str, Any] = {}
    if whole is not None:
        found = _json(whole, "--args")
        if not isinstance(found, dict):
            raise MisuseError(
                f'--args is {whole!r}: pass a JSON object, such as {{"n": 2}}'
            )
    for pair in pairs:
        name, equals, text = pair.partition("=")
        is_json = name.endswith(":")
        name = name.removesuffix(":")
        if not equals or not name.isidentifier():
            raise MisuseError(
                f"{pair!r} is no argument: write name=text, or name:=JSON such as n:=2"
            )
        found[name] = _json(text, name) if is_json else text
    return found


def _json(text: str, argument: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise MisuseError(
            f"{argument} is {text!r}, which is no JSON: {error}"
        ) from error


def _length(text: str) -> timedelta:
    return timedelta(microseconds=duration_ns(text.strip(), "time") / 1_000)
