"""What a scheduler hands out to go on with: runs, queues and calendars by name.

A handle is a name and a way to the store. It holds nothing of what it names, so it is
never out of date; `get` asks the store.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import date, datetime
from typing import Final, TypeVar

import msgspec

from timingwheel.errors import ArgumentError, TimingWheelError
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.durations import Duration, duration_ns
from timingwheel.jobs.error_line import error_line
from timingwheel.jobs.errors import UnknownRunError
from timingwheel.jobs.model import (
    Attempt,
    Queue,
    Run,
    RunId,
    RunState,
    parse_run_id,
)
from timingwheel.jobs.store import CancelResult, JobStore, Running
from timingwheel.scheduler.options import CAP_LIMIT_MAX
from timingwheel.scheduler.pausing import make_pause
from timingwheel.scheduler.policies import check_running
from timingwheel.scheduler.watching import RunWatch, Tell

_ERROR_CHARS: Final = 500
_Row = TypeVar("_Row")


class Page(list[_Row]):
    """Rows of a query, and where the next page begins.

    Attributes:
        cursor: pass it as `cursor=` for the rows that follow; None: there are none.
    """

    def __init__(self, rows: Iterable[_Row], cursor: str | None) -> None:
        super().__init__(rows)
        self.cursor = cursor


class RunFailedError(TimingWheelError):
    """A run has ended without a result.

    Attributes:
        run: as it ended; its `state`, `error` and `skip_reason` say how.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.run = run

    def __str__(self) -> str:
        run = self.run
        how = run.state.value
        if run.skip_reason is not None:
            how += f" ({run.skip_reason.value})"
        line = error_line(run.error, _ERROR_CHARS)
        return f"run {run.id} is {how}" + (f": {line}" if line else "")


class RunHandle:
    """One run.

    Attributes:
        id: its identity as text.

    Args:
        run_id: which.
        store: where it is kept.
        watch: tells of ends.
        decode: makes the handler's return value of the bytes that an ended run keeps.
    """

    def __init__(
        self,
        run_id: RunId,
        store: JobStore,
        watch: RunWatch,
        *,
        decode: Callable[[Run], object],
    ) -> None:
        self.id = run_id
        self._store = store
        self._watch = watch
        self._decode = decode

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    def get(self) -> Run:
        """Return the run as it is now; it may show what is not durable yet.

        Raises:
            UnknownRunError: there is no such run yet, or it is no longer kept.
        """
        run = self._store.run(self.id)
        if run is None:
            raise UnknownRunError(
                "run", self.id, "there is no such run yet, or it is no longer kept"
            )
        return run

    def wait(self, timeout: Duration | None = None) -> Run:
        """Return the run once it has ended, and that is durable.

        Args:
            timeout: how long to wait at most.

        Raises:
            TimeoutError: it has not ended within the time; it goes on.
            UnknownRunError: there is no such run, and none will come.
        """
        timeout_ns = None if timeout is None else duration_ns(timeout, "timeout")
        self.require_possible()
        return self._watch.wait(self.id, timeout_ns)

    def result(self, timeout: Duration | None = None) -> object:
        """Return what the handler returned, once the run has ended.

        Raises:
            RunFailedError: it has ended without a result; `error.run` says how.
            TimeoutError: as `wait`.
            UnknownRunError: as `wait`.
        """
        return self.decoded(self.wait(timeout))

    def decoded(self, run: Run) -> object:
        """Return what the handler of this run, which has ended, returned.

        Raises:
            RunFailedError: it has ended without a result.
        """
        if run.state is not RunState.SUCCEEDED:
            raise RunFailedError(run)
        return self._decode(run)

    def final(self) -> Run | None:
        """Return the run if it has ended, None if it may still.

        Raises:
            UnknownRunError: there is no such run, and none will come.
        """
        self.require_possible()
        return self._watch.final(self.id)

    def told(self, tell: Tell) -> AbstractContextManager[None]:
        """Have `tell` called when it ends, for as long as the block lasts."""
        return self._watch.subscribed(self.id, tell)

    def attempts(self) -> list[Attempt]:
        """Return its attempts, the one that goes on last."""
        return self._store.attempts(self.id)

    def retry(self) -> RunHandle:
        """Make it ready again if it has failed or was lost; it keeps its identity.

        Raises:
            RunStateError: it is neither failed nor lost.
            UnknownRunError: there is no such run.
        """
        self._store.retry(self.id)
        return self

    def discard(self) -> Run:
        """Take it off the dead-letter list, or end it if it waits for a retry.

        Raises:
            RunStateError: it is in another state.
            UnknownRunError: there is no such run.
        """
        return self._store.discard(self.id)

    def cancel(self, *, running: Running = "leave") -> CancelResult:
        """End this run alone: it never starts, or no retry follows.

        Its job goes on with its next run; a job that runs once ends with it.

        Args:
            running: what becomes of it if it runs: it is left to end, asked to end
                ("signal"), or ended ("kill").

        Returns:
            What it did. True if, and only if, this call prevented a start that was
            still to come; then that is durable.
        """
        check_running(running)
        return self._store.cancel_run(self.id, running=running)

    def require_possible(self) -> None:
        """Check that the run is there, or its job may still bring it.

        Raises:
            UnknownRunError: nobody will ever see it.
        """
        if self._store.run(self.id) is not None:
            return
        job = self._store.get(parse_run_id(self.id)[0])
        if job is None:
            raise UnknownRunError(
                "run", self.id, "there is no such run; `runs` lists those that are kept"
            )


class QueueHandle:
    """One queue.

    Attributes:
        name: its name.

    Args:
        name: which.
        store: where it is kept.
        actor: who pauses it, unless the call says so.
    """

    def __init__(self, name: str, store: JobStore, *, actor: str) -> None:
        self.name = name
        self._store = store
        self._actor = actor

    def __repr__(self) -> str:
        return f"<queue {self.name}>"

    def get(self) -> Queue:
        """Return its bounds, and who has paused it."""
        return self._store.queue(self.name)

    def set(
        self,
        *,
        limit: int | msgspec.UnsetType | None = msgspec.UNSET,
        rate: float | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> Queue:
        """Set its bounds; what is left out stays.

        Args:
            limit: runs at once; None for no bound.
            rate: starts a second, such as 10 or 0.5; None for no bound.

        Raises:
            ArgumentError: one of them is not positive.
        """
        queue = self.get()
        if limit is not msgspec.UNSET:
            if limit is not None and (
                type(limit) is not int or not 1 <= limit <= CAP_LIMIT_MAX
            ):
                raise ArgumentError(
                    "limit", limit, "pass runs at once, from 1; to stop it, pause it"
                )
            queue = msgspec.structs.replace(queue, limit=limit)
        if rate is not msgspec.UNSET:
            if rate is not None and not _is_rate(rate):
                raise ArgumentError(
                    "rate", rate, "pass starts a second, such as 0.5; to stop, pause it"
                )
            queue = msgspec.structs.replace(queue, rate=rate)
        self._store.set_queue(queue)
        return queue

    def pause(
        self,
        *,
        note: str = "",
        until: datetime | Duration | None = None,
        actor: str | None = None,
    ) -> bool:
        """Start no more of its runs; what runs goes on. Survives a restart.

        Args:
            note: why, for whoever finds it paused.
            until: when it resumes by itself: an aware datetime, or this long from now.
            actor: who; the user of this process by default.

        Returns:
            Whether it was not paused before; if it was, note, until and actor are new.

        Raises:
            ArgumentError: `until` is past, or no moment.
        """
        now = self._store.now()
        pause = make_pause(now, actor=actor or self._actor, note=note, until=until)
        queue = self.get()
        self._store.set_queue(msgspec.structs.replace(queue, pause=pause))
        return queue.pause is None

    def resume(self) -> bool:
        """Start what waits; False if it was not paused."""
        queue = self.get()
        if queue.pause is None:
            return False
        self._store.set_queue(msgspec.structs.replace(queue, pause=None))
        return True


class CalendarHandle:
    """One named calendar.

    Attributes:
        name: its name.

    Args:
        name: which.
        store: where it is kept.
    """

    def __init__(self, name: str, store: JobStore) -> None:
        self.name = name
        self._store = store

    def __repr__(self) -> str:
        return f"<calendar {self.name}>"

    def get(self) -> NamedCalendar | None:
        """Return it, or None if nobody has set it."""
        return self._store.calendar(self.name)

    def set(
        self,
        *,
        dates: Iterable[date] = (),
        weekdays: Iterable[str] = (),
        tz: str | None = None,
    ) -> NamedCalendar:
        """Replace it; jobs that use it are planned anew from now.

        Args:
            dates: days on which nothing runs.
            weekdays: names of weekdays on which nothing runs, such as "SAT".
            tz: the zone in whose days an instant counts; None: the job's.

        Raises:
            ArgumentError: one of them is invalid; it is named.
        """
        if isinstance(weekdays, str):  # else its letters would count as names
            raise ArgumentError("weekdays", weekdays, 'pass a list, such as ["SAT"]')
        calendar = NamedCalendar(dates=tuple(dates), weekdays=tuple(weekdays), tz=tz)
        self._store.set_calendar(self.name, calendar)
        return calendar

    def exclude(self, *days: date) -> NamedCalendar:
        """Add days on which nothing runs; makes the calendar if there is none."""
        return self._changed(days, excluded=True)

    def include(self, *days: date) -> NamedCalendar:
        """Take days off it again, so that jobs run on them."""
        return self._changed(days, excluded=False)

    def _changed(self, days: Iterable[date], *, excluded: bool) -> NamedCalendar:
        calendar = self.get() or NamedCalendar()
        kept = [day for day in calendar.dates if day not in days]
        dates = [*kept, *days] if excluded else kept
        return self.set(dates=dates, weekdays=calendar.weekdays, tz=calendar.tz)


def _is_rate(rate: object) -> bool:
    if type(rate) is not int and type(rate) is not float:
        return False
    return math.isfinite(rate) and rate > 0
