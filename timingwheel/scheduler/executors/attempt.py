"""One attempt from its payload to its Finish, whatever the handler does: it exists once.

    decode ─▶ call the handler ─▶ returned a value      ─▶ OK, with follow-ups
       │                          raised Snooze         ─▶ no end: run again later
       │                          raised, and was asked ─▶ the outcome it was asked with
       │                          raised LeaseLost      ─▶ LOST
       │                          raised anything else  ─▶ ERROR, with its traceback
       └─ does not fit ─▶ ERROR, undecodable: the job is quarantined

A step of ours that fails on the way, as there is no memory for the result or a traceback,
is an error of that attempt: one that has begun ends.

SystemExit and KeyboardInterrupt are errors of the handler like any other: a job that
calls sys.exit() ends its attempt and not its neighbours. A handler that was asked to end
and returns nevertheless has done its work, and that is OK.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import logging
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final

from timingwheel.clock import await_memory
from timingwheel.jobs.errors import PayloadError
from timingwheel.jobs.every import duration_words
from timingwheel.jobs.model import Outcome
from timingwheel.jobs.store import Claim, Finish
from timingwheel.scheduler.attempt_log import AttemptLog, LogTail, clean
from timingwheel.scheduler.context import (
    CURRENT,
    TASK_LOGGER,
    Cancelled,
    Context,
    LeaseLost,
    Snooze,
)
from timingwheel.scheduler.executors.executor import Host, Work, log_ids
from timingwheel.scheduler.observing import Observation
from timingwheel.scheduler.tasks import Task

ERROR_CHARS_MAX: Final = 16_000
_FRAMES_MAX: Final = 50
# Those of this package, and of what runs a coroutine to its end.
_OUTER: Final = tuple(
    os.path.dirname(file) + os.sep
    for file in (__file__, asyncio.__file__, concurrent.futures.__file__)
)
_logger: Final = logging.getLogger("timingwheel")


class Attempt:
    """One attempt, and how it ends.

    Args:
        task: whose handler.
        claim: the run, its payload and the lease.
        context: what the handler gets.
        started_ns: when it began, on the wall clock; set it anew right before `run`.
        log_text: returns the last lines that it logged.
    """

    def __init__(
        self,
        task: Task,
        claim: Claim,
        *,
        context: Context,
        started_ns: int = 0,
        log_text: Callable[[], str] = str,
    ) -> None:
        self.task = task
        self.claim = claim
        self.context = context
        self.started_ns = started_ns
        self._log_text = log_text
        self._error: BaseException | None = None

    def run(self, then: Callable[[Any], Any] | None = None) -> Finish:
        """Call the handler in this thread; a coroutine gets a loop of its own.

        Whatever it does to context variables ends with it.

        Args:
            then: takes what the handler returned, and what this returns is the result.
        """
        return contextvars.copy_context().run(self._observed, then)

    async def run_async(self) -> Finish:
        """Call the handler, a coroutine function, on this loop."""
        observation = self._observation()
        return self._told(observation, await self._run_async())

    async def _run_async(self) -> Finish:
        CURRENT.set(self.context)
        try:
            call = self._decoded()
        except (PayloadError, MemoryError) as error:
            return self._surely(self._undecodable, error)
        try:
            value = await call()
        except BaseException as error:  # noqa: BLE001 - nothing may pass by unreported
            return self._surely(self._raised, error)
        return self._surely(self._returned, value)

    def abandoned(self, outcome: Outcome, words: str) -> Finish:
        """Return the end of an attempt that its executor has given up on."""
        self.context.close()
        if outcome is Outcome.TIMEOUT:
            words = f"{self._timed_out()}: {words}"
        return self._finish(outcome, error=words)

    def _observed(self, then: Callable[[Any], Any] | None) -> Finish:
        observation = self._observation()
        return self._told(observation, self._run(then))

    def _observation(self) -> Observation | None:
        observer = self.task.observer
        return (
            None if observer is None else Observation(observer, self.task, self.claim)
        )

    def _told(self, observation: Observation | None, finish: Finish) -> Finish:
        # Let go of at once: its traceback has this attempt in its frames.
        error, self._error = self._error, None
        if observation is not None:
            with contextlib.suppress(MemoryError):  # in the log of what it raised
                observation.end(finish, error)
        return finish

    def _run(self, then: Callable[[Any], Any] | None) -> Finish:
        CURRENT.set(self.context)
        try:
            call = self._decoded()
        except (PayloadError, MemoryError) as error:
            return self._surely(self._undecodable, error)
        pid = os.getpid()
        try:
            value = self._on_own_loop(call) if self.task.is_async else self._call(call)
            _leave_if_forked(pid, None)
            if then is not None:
                value = then(value)
        except BaseException as error:  # noqa: BLE001 - nothing may pass by unreported
            _leave_if_forked(pid, error)
            return self._surely(self._raised, error)
        return self._surely(self._returned, value)

    def _call(self, call: Callable[[], Any]) -> Any:
        """Call the handler, a plain function."""
        return call()

    def _decoded(self) -> Callable[[], Any]:
        args, kwargs = self.task.codec.decode(self.claim.payload)
        function = self.task.function
        if self.task.takes_ctx:
            return lambda: function(self.context, *args, **kwargs)
        return lambda: function(*args, **kwargs)

    def _on_own_loop(self, call: Callable[[], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            task = asyncio.current_task()
            assert task is not None
            self.context.on_asked(canceller(task))
            return await call()

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(main())
        # Submitted inline by a coroutine: a thread has one running loop at most.
        with ThreadPoolExecutor(1) as pool:
            context = contextvars.copy_context()
            return pool.submit(context.run, asyncio.run, main()).result()

    def _returned(self, value: object) -> Finish:
        drafts = self.context.close()
        try:
            result = self.task.codec.encode_result(value)
        except PayloadError as error:
            # The handler has done its work; doing it again would not mend its result.
            return self._finish(Outcome.ERROR, error=str(error), gives_up=True)
        return self._finish(Outcome.OK, result=result, follow_ups=drafts)

    def _raised(self, error: BaseException) -> Finish:
        context = self.context
        context.close()
        if self.task.observer is not None:
            self._error = error
        if isinstance(error, Snooze):
            return self._finish(Outcome.OK, snooze_ns=error.delay_ns)
        words = error_text(error)
        if isinstance(error, LeaseLost):
            return self._finish(Outcome.LOST, error=words)
        if context.asked is Outcome.TIMEOUT:
            # What it raised, a CancelledError most often, only shows where it was then.
            words = clean(f"{self._timed_out()}\n\n{words}", ERROR_CHARS_MAX)
        if context.asked is not None:
            return self._finish(context.asked, error=words)
        if isinstance(error, Cancelled):
            return self._finish(Outcome.CANCELLED, error=words)
        gives_up = self.task.retry.gives_up(error)
        return self._finish(Outcome.ERROR, error=words, gives_up=gives_up)

    def _timed_out(self) -> str:
        timeout_ns = self.claim.timeout_ns
        return "timed out" + (
            f" after {duration_words(timeout_ns)}" if timeout_ns is not None else ""
        )

    def _undecodable(self, error: PayloadError | MemoryError) -> Finish:
        self.context.close()
        if isinstance(error, MemoryError):  # it may fit another time
            return self._finish(Outcome.ERROR, error="no memory for its payload")
        words = clean(str(error), ERROR_CHARS_MAX)
        return self._finish(Outcome.ERROR, error=words, gives_up=True, undecodable=True)

    def _surely(self, end: Callable[[Any], Finish], found: object) -> Finish:
        """End the attempt, as an error if `end` itself fails: it has begun, so it ends.

        Args:
            end: says how it ended.
            found: what it goes by: a value, or what was raised.
        """
        try:
            return end(found)
        except Exception as fault:  # noqa: BLE001 - nothing may pass by unreported
            fault_words = (
                "MemoryError" if isinstance(fault, MemoryError) else repr(fault)
            )
            if isinstance(found, BaseException):
                found.__traceback__ = None  # and all that the handler's frames hold
        while True:
            try:
                self.context.close()
                words = f"how it ended cannot be told: {fault_words}"
                return self._finish(self.context.asked or Outcome.ERROR, error=words)
            except MemoryError:
                await_memory()

    def _finish(self, outcome: Outcome, **facts: Any) -> Finish:
        return Finish(
            run_id=self.context.run_id,
            token=self.claim.token,
            outcome=outcome,
            started_ns=self.started_ns,
            log=self._log_text(),
            **facts,
        )


def attempt_for(work: Work, host: Host) -> Attempt:
    """Return the attempt of some work in this process, with its context and log."""
    claim, task = work
    tails: list[LogTail] = []  # one, once the handler asks for its log: most do not

    def make_log() -> AttemptLog:
        tail = LogTail(host.clock.wall_ns)
        tails.append(tail)
        logger = TASK_LOGGER.getChild(task.name)
        return AttemptLog(logger, ids=log_ids(work), sink=tail.add)

    context = Context(
        claim,
        beat=lambda: host.heartbeat(work),
        drafter=host.draft,
        make_log=make_log,
    )
    return Attempt(
        task,
        claim,
        context=context,
        started_ns=host.clock.wall_ns(),
        log_text=lambda: tails[0].read() if tails else "",
    )


def may_begin(work: Work, host: Host) -> bool:
    """Ask the host whether the handler may start; a host that fails says no."""
    while True:
        try:
            return host.begin(work)
        except MemoryError:
            await_memory()
        except Exception:
            # Its store has failed, most likely. The executor's threads outlive that.
            _logger.exception("%s did not begin", work.task.name)
            return False


def canceller(task: asyncio.Task[Any]) -> Callable[[], None]:
    """Return a function that cancels a task from any thread; too late does no harm."""
    loop = task.get_loop()

    def cancel() -> None:
        with contextlib.suppress(
            RuntimeError
        ):  # the loop is closed: nothing runs there
            loop.call_soon_threadsafe(task.cancel)

    return cancel


def error_text(error: BaseException) -> str:
    """Return an exception with its traceback from the handler on, at most 16,000 long."""
    try:
        shown = _from_handler_on(error)
        lines = traceback.format_exception(
            type(error), error, shown, limit=-_FRAMES_MAX
        )
        return clean("".join(lines).rstrip(), ERROR_CHARS_MAX)
    except Exception as fault:  # noqa: BLE001 - an exception's own methods can raise too
        name = type(error).__qualname__
        return f"{name}, which cannot be shown ({type(fault).__qualname__})"


def _leave_if_forked(pid: int, error: BaseException | None) -> None:
    """End this process if it is a fork that the handler made and let come back here.

    It would wait for work that never comes, and whoever forked it, for its end.
    """
    if os.getpid() == pid:
        return
    code = 0 if error is None else 1
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(bool(error.code))
    elif error is not None:
        traceback.print_exception(error)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    os._exit(code & 0xFF)


def _from_handler_on(error: BaseException) -> TracebackType | None:
    """Return the traceback without the frames that lead to the handler, if it has more.

    A call that failed before its first line has none, and neither has a command.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OUTER):
        trace = trace.tb_next
    return trace
