"""A host that records, and claims to give it: what every executor is tested with."""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import threading
from collections.abc import Callable, Mapping

from timingwheel.clock import Clock, SystemClock
from timingwheel.errors import EngineFailedError
from timingwheel.jobs.errors import TaskError
from timingwheel.jobs.model import Draft, JobId, Payload, Run, RunState
from timingwheel.jobs.store import Claim, Finish
from timingwheel.jobs.triggers import Delay, Trigger
from timingwheel.scheduler.context import LeaseLost
from timingwheel.scheduler.executors.executor import Work
from timingwheel.scheduler.tasks import Call, Task

PATIENCE_S = 30.0
"""How long a test waits for what must come; it is never waited for in full."""

_tokens = itertools.count(1)


class RecordingHost:
    """A host that lets everything begin and keeps what it is told.

    Args:
        clock: whose time the executor lives by.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self.refused: set[int] = set()
        self.stolen: set[int] = set()
        self.has_failed = False
        self.begun: list[int] = []
        self.finishes: list[Finish] = []
        self.beats: list[int] = []
        self.alerts: list[str] = []
        self.on_begin: Callable[[Work], None] = _nothing
        self.on_end: Callable[[Finish], None] = _nothing

    @property
    def clock(self) -> Clock:
        return self._clock

    def begin(self, work: Work) -> bool:
        self.on_begin(work)
        with self._changed:
            if work.claim.token in self.refused:
                return False
            self.begun.append(work.claim.token)
            self._changed.notify_all()
            return True

    def ended(self, finish: Finish) -> None:
        self.on_end(finish)
        with self._changed:
            self.finishes.append(finish)
            self._changed.notify_all()

    def heartbeat(self, work: Work) -> None:
        with self._changed:
            if self.has_failed:
                raise EngineFailedError("the disk is gone")
            if work.claim.token in self.stolen:
                raise LeaseLost("the run belongs to another worker")
            self.beats.append(work.claim.token)
            self._changed.notify_all()

    def draft(self, call: Call, options: Mapping[str, object]) -> Draft:
        if options.keys() - {"delay"}:
            raise TaskError("options", dict(options), "this host knows delay alone")
        delay_s = options.get("delay", 0)
        assert isinstance(delay_s, int)
        trigger = Trigger(when=Delay(delay_s * 1_000_000_000))
        return Draft(task=call.task.name, payload=call.payload, trigger=trigger)

    def alert(self, message: str) -> None:
        with self._changed:
            self.alerts.append(message)
            self._changed.notify_all()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until what this host was told makes a condition true."""
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE_S), (
                self.begun,
                self.finishes,
                self.alerts,
            )

    def wait_for_ends(self, count: int) -> list[Finish]:
        """Wait until so many attempts have ended, and return all that have."""
        self.wait_until(lambda: len(self.finishes) >= count)
        return [*self.finishes]


def work_of(call: Call, *, task: Task | None = None, attempt: int = 1) -> Work:
    """Return a claimed attempt of a call, with a token of its own."""
    run = Run(
        job_id=JobId("0b5d7c9e-5a5f-8000-8000-000000000001"),
        nominal_ns=1_700_000_000_000_000_000,
        due_ns=1_700_000_060_000_000_000,
        state=RunState.RUNNING,
        task=call.task.name,
        attempts=attempt,
    )
    found = task or call.task
    assert isinstance(found, Task)
    return Work(_claim(run, call.payload), found)


def _claim(run: Run, payload: Payload) -> Claim:
    return Claim(
        run=run, payload=payload, token=next(_tokens), timeout_ns=None, last=False
    )


def _nothing(thing: object) -> None:
    """Stands where a test may put something that happens first."""


class Door:
    """A door that handlers knock at, also from another process, and wait to be opened.

    Attributes:
        address: what to pass to a handler.
    """

    def __init__(self, directory: str) -> None:
        self.address = f"{directory}/door"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.settimeout(PATIENCE_S)
        self._listener.bind(self.address)
        self._listener.listen(64)
        self._callers: list[socket.socket] = []

    def wait_for_knock(self) -> int:
        """Wait until the next handler stands there, and return its process's number."""
        caller, _ = self._listener.accept()
        caller.settimeout(PATIENCE_S)
        self._callers.append(caller)
        return int(caller.makefile().readline().split()[0])

    @property
    def has_knock(self) -> bool:
        """Whether somebody stands there whom nobody has waited for."""
        return bool(select.select([self._listener], [], [], 0)[0])

    def wait_for_end(self) -> None:
        """Wait until the last that knocked is gone, without having been let in."""
        assert self._callers[-1].recv(1) == b""

    def open(self) -> None:
        """Let in all who stand there."""
        while self._callers:
            caller = self._callers.pop()
            with contextlib.suppress(OSError):
                caller.sendall(b"!")
            caller.close()

    def close(self) -> None:
        """Let in all, and be gone."""
        self.open()
        self._listener.close()
