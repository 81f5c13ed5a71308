"""Client: the words of Scheduler, by URL.

    with Client("http://127.0.0.1:8765") as app:
        ref = app.add(send.call("a@x"), delay=30, key="inv-17")
        app.run(ref).wait(timeout="1m")

A program that can import the tasks passes their calls, and the server need not know them;
one that cannot calls a task by name: `NamedTask("mail:send").call(to="a@x")`. Errors are
those that a Scheduler raises, and three more: no server there, no answer, no access.
"""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from timingwheel.client.questions import ClientQuestions
from timingwheel.client.requests import ClientRequests
from timingwheel.client.transport import Transport
from timingwheel.clock import Clock, SystemClock
from timingwheel.jobs.durations import Duration, duration_ns
from timingwheel.scheduler.options import checked_text
from timingwheel.scheduler.pausing import user_name
from timingwheel.scheduler.tasks import TaskRegistry, checked_registry

TIMEOUT_SECONDS: Final = 30.0
PATIENCE: Final = "5s"


class Client(ClientRequests, ClientQuestions):
    """A scheduler that a server has. Thread-safe.

    Args:
        url: of the server, such as "http://127.0.0.1:8765".
        token: what it knows this program by.
        timeout: how long an answer may take.
        patience: how long to try again where that is safe: what never left, and what
            has the same effect twice.
        actor: who pauses and cancels, unless a call says so; the user by default.
        tasks: tasks that are known here, for the results of their runs.
        clock: what to wait by.

    Raises:
        ArgumentError: an argument is invalid. Nothing is sent yet.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: Duration = TIMEOUT_SECONDS,
        patience: Duration = PATIENCE,
        actor: str | None = None,
        tasks: TaskRegistry | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.tasks = checked_registry(tasks)
        self.url: Final = url
        self._actor = None if actor is None else checked_text(actor, "actor")
        self._transport = Transport(
            url,
            token=token,
            timeout_s=duration_ns(timeout, "timeout", zero=False) / 1e9,
            patience_ns=duration_ns(patience, "patience"),
            clock=SystemClock() if clock is None else clock,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all connections. Idempotent."""
        self._transport.close()

    @property
    def actor(self) -> str:
        """Who pauses and cancels, unless a call says so."""
        if self._actor is None:
            self._actor = user_name()
        return self._actor
