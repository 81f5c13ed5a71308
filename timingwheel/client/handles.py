"""Runs, queues and calendars by name, at a server: the same words as a Scheduler's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, datetime
from typing import Any, Final

import msgspec

from timingwheel.client.sending import length_text
from timingwheel.client.transport import Ask, Transport
from timingwheel.errors import ArgumentError
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.durations import Duration, duration_ns
from timingwheel.jobs.errors import UnknownCalendarError, UnknownRunError
from timingwheel.jobs.model import Attempt, Queue, Run, RunId, RunState
from timingwheel.jobs.store import CancelResult, Running
from timingwheel.scheduler.handles import RunFailedError
from timingwheel.scheduler.policies import check_running
from timingwheel.wire.answers import CancelAnswer, DoneAnswer, ListAnswer

HOLD_SECONDS: Final = 20.0
"""How long one request waits for the end of a run; then it asks again."""


class WaitedRun(msgspec.Struct, frozen=True):
    """The answer of a wait, with the run as a value.

    Attributes:
        run: None: it goes on.
    """

    run: Run | None


class RunHandle:
    """One run.

    Attributes:
        id: its identity as text.

    Args:
        run_id: which.
        transport: to the server.
        decode: makes the handler's return value of the bytes that an ended run keeps.
    """

    def __init__(
        self,
        run_id: RunId,
        transport: Transport,
        *,
        decode: Callable[[Run], object],
    ) -> None:
        self.id: Final = run_id
        self._transport = transport
        self._decode = decode

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    def get(self) -> Run:
        """Return the run as it is now. As scheduler.handles.RunHandle.get."""
        run: Run = self._transport.send(Ask("GET", self._path()), Run)
        return run

    def wait(self, timeout: Duration | None = None) -> Run:
        """Return the run once it has ended, and that is durable.

        Args:
            timeout: how long to wait at most.

        Raises:
            TimeoutError: it has not ended within the time; it goes on.
            UnknownRunError: there is no such run, and none will come.
        """
        clock = self._transport.clock
        until_ns = None
        if timeout is not None:
            until_ns = clock.monotonic_ns() + duration_ns(timeout, "timeout")
        while True:
            hold_s = HOLD_SECONDS
            if until_ns is not None:
                left_ns = max(until_ns - clock.monotonic_ns(), 0)
                hold_s = min(hold_s, left_ns / 1e9)
            run = self.look(hold_s)
            if run is not None:
                return run
            if until_ns is not None and clock.monotonic_ns() >= until_ns:
                raise TimeoutError(f"run {self.id} has not ended yet; it goes on")

    def look(self, hold_s: float) -> Run | None:
        """Return the run if it ends within so many seconds, at most HOLD_SECONDS."""
        ask = Ask("GET", self._path("end"), {"timeout": hold_s}, hold_s=hold_s)
        answer: WaitedRun = self._transport.send(ask, WaitedRun)
        return answer.run

    def result(self, timeout: Duration | None = None) -> object:
        """Return what the handler returned. As scheduler.handles.RunHandle.result."""
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
        """Return the run if it has ended, None if it may still."""
        return self.look(0)

    def attempts(self) -> list[Attempt]:
        """Return its attempts, the one that goes on last."""
        answer = self._transport.send(
            Ask("GET", self._path("attempts")), ListAnswer[Attempt]
        )
        found: list[Attempt] = answer.items
        return found

    def retry(self) -> RunHandle:
        """Make it ready again. As scheduler.handles.RunHandle.retry."""
        self._transport.send(Ask("POST", self._path("retry"), is_repeatable=False), Run)
        return self

    def discard(self) -> Run:
        """Take it off the dead letter. As scheduler.handles.RunHandle.discard."""
        ask = Ask("POST", self._path("discard"), is_repeatable=False)
        run: Run = self._transport.send(ask, Run)
        return run

    def cancel(self, *, running: Running = "leave") -> CancelResult:
        """End this run alone. As scheduler.handles.RunHandle.cancel."""
        check_running(running)
        ask = Ask(
            "POST", self._path("cancel"), body={"running": running}, is_repeatable=False
        )
        try:
            answer: CancelAnswer = self._transport.send(ask, CancelAnswer)
        except UnknownRunError:
            return CancelResult.NOT_FOUND
        return answer.result

    def _path(self, *more: str) -> tuple[str, ...]:
        return ("runs", self.id, *more)


class QueueHandle:
    """One queue.

    Attributes:
        name: its name.

    Args:
        name: which.
        transport: to the server.
        actor: who pauses it, unless the call says so.
    """

    def __init__(self, name: str, transport: Transport, *, actor: str) -> None:
        self.name: Final = name
        self._transport = transport
        self._actor = actor

    def __repr__(self) -> str:
        return f"<queue {self.name}>"

    def get(self) -> Queue:
        """Return its bounds, and who has paused it."""
        queue: Queue = self._transport.send(Ask("GET", self._path()), Queue)
        return queue

    def set(
        self,
        *,
        limit: int | msgspec.UnsetType | None = msgspec.UNSET,
        rate: float | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> Queue:
        """Set its bounds; what is left out stays. As scheduler.handles.QueueHandle.set.

        Raises:
            ArgumentError: one of them is not positive.
        """
        bounds = {"limit": limit, "rate": rate}
        body = {name: one for name, one in bounds.items() if one is not msgspec.UNSET}
        queue: Queue = self._transport.send(Ask("PATCH", self._path(), {}, body), Queue)
        return queue

    def pause(
        self,
        *,
        note: str = "",
        until: datetime | Duration | None = None,
        actor: str | None = None,
    ) -> bool:
        """Start no more of its runs; what runs goes on. False: it was paused.

        Raises:
            ArgumentError: `until` is past, or no moment.
        """
        body = pause_body(note=note, until=until, actor=actor or self._actor)
        return self._done("pause", body)

    def resume(self) -> bool:
        """Start what waits; False if it was not paused."""
        return self._done("resume", None)

    def _done(self, verb: str, body: dict[str, Any] | None) -> bool:
        ask = Ask("POST", self._path(verb), {}, body, is_repeatable=False)
        answer: DoneAnswer = self._transport.send(ask, DoneAnswer)
        return answer.changed

    def _path(self, *more: str) -> tuple[str, ...]:
        return ("queues", self.name, *more)


class CalendarHandle:
    """One named calendar.

    Attributes:
        name: its name.

    Args:
        name: which.
        transport: to the server.
    """

    def __init__(self, name: str, transport: Transport) -> None:
        self.name: Final = name
        self._transport = transport

    def __repr__(self) -> str:
        return f"<calendar {self.name}>"

    def get(self) -> NamedCalendar | None:
        """Return it, or None if nobody has set it."""
        try:
            return self._sent("GET", None)
        except UnknownCalendarError:
            return None

    def set(
        self,
        *,
        dates: Iterable[date] = (),
        weekdays: Iterable[str] = (),
        tz: str | None = None,
    ) -> NamedCalendar:
        """Replace it; jobs that use it are planned anew from now.

        Raises:
            ArgumentError: one of them is invalid; it is named.
        """
        if isinstance(weekdays, str):  # else its letters would count as names
            raise ArgumentError("weekdays", weekdays, 'pass a list, such as ["SAT"]')
        body = {"dates": list(dates), "weekdays": list(weekdays), "tz": tz}
        return self._sent("PUT", body)

    def exclude(self, *days: date) -> NamedCalendar:
        """Add days on which nothing runs; makes the calendar if there is none."""
        return self._sent("PATCH", {"exclude": days})

    def include(self, *days: date) -> NamedCalendar:
        """Take days off it again, so that jobs run on them."""
        return self._sent("PATCH", {"include": days})

    def _sent(self, method: str, body: dict[str, Any] | None) -> NamedCalendar:
        ask = Ask(method, ("calendars", self.name), {}, body)
        calendar: NamedCalendar = self._transport.send(ask, NamedCalendar)
        return calendar


def pause_body(
    *, note: str, until: datetime | Duration | None, actor: str
) -> dict[str, Any]:
    """Return the body of a pause; see wire.bodies.PauseBody.

    Raises:
        ArgumentError: `until` is no moment and no length of time.
    """
    body: dict[str, Any] = {"note": note, "actor": actor}
    if isinstance(until, datetime):
        body["until"] = until
    elif until is not None:
        body["duration"] = length_text(until, "until")
    return body
