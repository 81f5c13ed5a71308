"""What every recurring schedule answers: the next time, the last one, and how many.

A schedule is a fixed set of instants; asking changes nothing and never reads a clock.
Inside, an instant is an integer of nanoseconds since 1970 in UTC. Datetimes exist only
at the edge that this module holds, where they must be aware and come back in UTC: two
datetimes of one zone compare and subtract by the wall clock, which is wrong in every
hour that a change of offset touches.

Schedules live from 1970 to 2262, as deadlines do; beyond, there is no next time.
"""

from __future__ import annotations

from abc import abstractmethod
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from timingwheel.errors import ArgumentError

NS: Final = 1_000_000_000
HORIZON_NS: Final = (1 << 63) - 1
BETWEEN_LIMIT: Final = 100
"""How many instants `between` returns unless told otherwise."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# A datetime holds microseconds, so an instant is shown as the first one at or after it.
# Bounds move by the same, and next and prev see one and the same set of instants.
_ROUNDED_NS: Final = 999


class DstMark(StrEnum):
    """What a change of the zone's offset has done to one firing."""

    NONE = ""
    """Nothing: the clock shows the scheduled time, and shows it once."""

    SHIFTED = "shifted"
    """The clock skipped the scheduled time; this is the instant instead."""

    FIRST = "first of two"
    """The clock shows this time twice, and this is the first of the two."""

    SECOND = "second of two"
    """The clock shows this time twice, and this is the second of the two."""


class Firing(NamedTuple):
    """One instant of a schedule.

    Attributes:
        utc_ns: nanoseconds since 1970, in UTC.
        mark: what a change of the zone's offset has done to it.
    """

    utc_ns: int
    mark: DstMark = DstMark.NONE


class Schedule(Protocol):
    """A set of instants in ascending order, no two of them equal.

    A kind of schedule supplies the four methods without a body, in integers; the
    datetime forms are the same questions at the edge.
    """

    __slots__ = ()

    @abstractmethod
    def next_ns(self, after_ns: int) -> Firing | None:
        """Return the first firing strictly after an instant; None if there is none."""

    @abstractmethod
    def prev_ns(self, before_ns: int) -> Firing | None:
        """Return the last firing strictly before an instant; None if there is none."""

    @abstractmethod
    def count_ns(self, start_ns: int, end_ns: int) -> int:
        """Return how many firings there are from start up to, but not at, end.

        Cost: does not grow with the number counted.
        """

    @abstractmethod
    def explain(self) -> str:
        """Return the schedule in words."""

    def between_ns(self, start_ns: int, end_ns: int, *, limit: int) -> list[Firing]:
        """Return the first firings, at most limit, from start up to, but not at, end.

        Cost: one `next_ns` for each.
        """
        found: list[Firing] = []
        firing = self.next_ns(start_ns - 1)
        while firing is not None and firing.utc_ns < end_ns and len(found) < limit:
            found.append(firing)
            firing = self.next_ns(firing.utc_ns)
        return found

    def next(self, after: datetime) -> datetime | None:
        """Return the first time strictly after `after`, in UTC; None if there is none.

        Raises:
            ArgumentError: `after` is not an aware datetime.
        """
        return _shown(self.next_ns(instant_ns(after, "after")))

    def prev(self, before: datetime) -> datetime | None:
        """Return the last time strictly before `before`, in UTC; None if there is none.

        Raises:
            ArgumentError: `before` is not an aware datetime.
        """
        return _shown(self.prev_ns(instant_ns(before, "before") - _ROUNDED_NS))

    def between(
        self, a: datetime, b: datetime, limit: int = BETWEEN_LIMIT
    ) -> list[datetime]:
        """Return the times t with a <= t < b in UTC, the first `limit` of them.

        Raises:
            ArgumentError: a bound is not an aware datetime, b lies before a, or the
                limit is not a positive int.
        """
        if type(limit) is not int or limit < 1:
            raise ArgumentError("limit", limit, "pass how many times to return, from 1")
        start_ns, end_ns = _bounds_ns(a, b)
        firings = self.between_ns(start_ns, end_ns, limit=limit)
        return [instant_datetime(firing.utc_ns) for firing in firings]

    def count(self, a: datetime, b: datetime) -> int:
        """Return how many times t there are with a <= t < b.

        Raises:
            ArgumentError: a bound is not an aware datetime, or b lies before a.

        Cost: does not grow with the number counted.
        """
        return self.count_ns(*_bounds_ns(a, b))


def instant_ns(moment: datetime, argument: str) -> int:
    """Return an aware datetime as nanoseconds since 1970.

    Raises:
        ArgumentError: it is not a datetime, or says nothing of its zone.
    """
    if not isinstance(moment, datetime):
        raise ArgumentError(
            argument, moment, "pass an aware datetime, as datetime.now(UTC) returns"
        )
    if moment.utcoffset() is None:
        raise ArgumentError(
            argument,
            moment.isoformat(),
            "a naive datetime names no instant; pass an aware one, with "
            "tzinfo=ZoneInfo(...) or datetime.UTC",
        )
    # Another tzinfo than the epoch's, or the same fixed one: Python subtracts instants.
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * NS + since.microseconds * 1_000


def instant_datetime(utc_ns: int) -> datetime:
    """Return an instant as a datetime in UTC, rounded up to a microsecond."""
    return _EPOCH + timedelta(microseconds=-(-utc_ns // 1_000))


def _shown(firing: Firing | None) -> datetime | None:
    return None if firing is None else instant_datetime(firing.utc_ns)


def _bounds_ns(a: datetime, b: datetime) -> tuple[int, int]:
    start_ns, end_ns = instant_ns(a, "a"), instant_ns(b, "b")
    if end_ns < start_ns:
        raise ArgumentError(
            "b", b.isoformat(), f"pass an end that is not before {a.isoformat()}"
        )
    return start_ns - _ROUNDED_NS, end_ns - _ROUNDED_NS
