"""A schedule between two instants: nothing before the start, nothing from the end on."""

from __future__ import annotations

from typing import Final

from timingwheel.jobs.schedule import HORIZON_NS, Firing, Schedule, instant_datetime

_END_NS: Final = HORIZON_NS + 1


class Bounded(Schedule):
    """The firings of another schedule from start up to, but not at, end.

    Args:
        schedule: the other one.
        start_ns: no firing before; None for no bound.
        end_ns: no firing at or after; None for no bound.
        is_said: whether `explain` says so; False where the other one does.

    Cost: every question costs what it costs the other schedule.
    """

    __slots__ = ("_end_ns", "_is_said", "_schedule", "_start_ns", "end_ns", "start_ns")

    def __init__(
        self,
        schedule: Schedule,
        *,
        start_ns: int | None,
        end_ns: int | None,
        is_said: bool = True,
    ) -> None:
        self._schedule = schedule
        self.start_ns = start_ns
        self.end_ns = end_ns
        self._is_said = is_said
        self._start_ns = 0 if start_ns is None else start_ns
        self._end_ns = _END_NS if end_ns is None else end_ns

    def next_ns(self, after_ns: int) -> Firing | None:
        """Return the first firing strictly after an instant; None if there is none."""
        firing = self._schedule.next_ns(max(after_ns, self._start_ns - 1))
        return firing if firing is not None and firing.utc_ns < self._end_ns else None

    def prev_ns(self, before_ns: int) -> Firing | None:
        """Return the last firing strictly before an instant; None if there is none."""
        firing = self._schedule.prev_ns(min(before_ns, self._end_ns))
        return (
            firing if firing is not None and firing.utc_ns >= self._start_ns else None
        )

    def count_ns(self, start_ns: int, end_ns: int) -> int:
        """Return how many firings there are from start up to, but not at, end."""
        start_ns, end_ns = max(start_ns, self._start_ns), min(end_ns, self._end_ns)
        return self._schedule.count_ns(start_ns, end_ns)

    def explain(self) -> str:
        """Return the schedule in words."""
        bounds = []
        if not self._is_said:
            return self._schedule.explain()
        if self.start_ns is not None:
            bounds.append(f"nothing before {_shown(self.start_ns)}")
        if self.end_ns is not None:
            bounds.append(f"nothing from {_shown(self.end_ns)} on")
        words = " and ".join(bounds)
        text = self._schedule.explain()
        return f"{text} {words[0].upper()}{words[1:]}." if words else text


def _shown(utc_ns: int) -> str:
    moment = instant_datetime(utc_ns).replace(tzinfo=None)
    return f"{moment.isoformat(' ')} UTC"
