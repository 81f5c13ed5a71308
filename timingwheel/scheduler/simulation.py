"""Sim: a scheduler on a clock and a disk that a test controls, without a thread.

    sim = Sim(setup)                    # setup(app) declares tasks and adds jobs
    sim.advance("1d")                   # from due time to due time, as fast as it goes
    assert [run.state for run in sim.runs("nightly")] == ["succeeded"]

    sim.step_wall("-2h")                # somebody sets the clock back
    sim.crash()                         # the power fails; what was not synced is gone
    sim.advance("1h")                   # nobody serves meanwhile
    sim.restart()                       # recovery, then setup(app) as at every start

A quiet day passes in milliseconds, a thousand runs in a second. The same program with the
same seed does the same twice: handlers run inline, one at a time, in the order of their
ranks, whatever executor their tasks name (a command of a subprocess task is not run).

The idea is FoundationDB's deterministic simulation, in the small.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self

from timingwheel.clock import Clock
from timingwheel.engine.timeline import TICK_NS
from timingwheel.errors import ArgumentError, TimingWheelError
from timingwheel.jobs.durations import Duration, duration_ns
from timingwheel.jobs.model import Run
from timingwheel.jobs.schedule import instant_datetime, instant_ns
from timingwheel.jobs.store import JobStore
from timingwheel.scheduler.handles import Page
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.simulated import KeptHistory, SimClock, SimScheduler
from timingwheel.scheduler.tasks import TaskRegistry
from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.stores.history_retention import Retention
from wal.log import SEGMENT_SIZE_BYTES, Log
from wal.testing import MemoryFileSystem, SimulatedCrash

SIM_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
TURNS_MAX: Final = 1_000_000
"""Turns of the node without time passing; more means that it never comes to rest."""
_IN_MEMORY: Final = ":memory:"
_NEVER: Final = 1 << 62
"""A disk call that no simulation comes to."""

Setup = Callable[[Scheduler], object]
Death = Callable[[MemoryFileSystem], MemoryFileSystem]
"""What the next life finds of a disk that was lost or left."""


class Sim:
    """A program's scheduler in a world that the test moves. Not thread-safe.

    Args:
        setup: what the program does at each start: `setup(app)` declares tasks and adds
            jobs. Add jobs under a `name` or a `key`, as a program must that restarts.
        tasks: the tasks of a Scheduler of the program, or that Scheduler; it is not
            opened. Both may be given.
        seed: of jitter, backoff, and of the disk.
        start: what the wall clock shows at first, aware.
        store: the kind of store; one with a planted fault shows that a test can fail.
        retention: how long ended runs are kept.
        segment_size_bytes: of the log; small ones are changed often.

    Attributes:
        app: the scheduler; a new one after each restart.
        clock: its clock.
        disk: its disk; a new one after each crash.
        history: of ended runs; after each crash a copy of what it had committed.

    Example:
        >>> from timingwheel.scheduler.simulation import Sim
        >>> sim = Sim(tasks=program.app)
        >>> ref = sim.app.add(program.report.call(), cron="0 6 * * *")
        >>> sim.advance("2d")
        >>> len(sim.runs(ref))
        2
    """

    def __init__(
        self,
        setup: Setup | None = None,
        *,
        tasks: Scheduler | TaskRegistry | None = None,
        seed: int = 0,
        start: datetime = SIM_START,
        store: type[EmbeddedStore] = EmbeddedStore,
        retention: Retention | None = None,
        segment_size_bytes: int = SEGMENT_SIZE_BYTES,
    ) -> None:
        if setup is not None and not callable(setup):
            raise ArgumentError("setup", setup, "pass a function of the scheduler")
        self._setup = setup
        self._tasks = tasks.tasks if isinstance(tasks, Scheduler) else tasks
        self._seed = seed
        self._lives = 0
        self.clock: Final = SimClock(wall_ns=instant_ns(start, "start"))
        self._aim_ns = self.clock.monotonic_ns()
        self._store = store
        self._retention = retention
        self._segment_size_bytes = segment_size_bytes
        self.disk = MemoryFileSystem(seed=seed)
        self.history = KeptHistory(_IN_MEMORY)
        self._death: Death = MemoryFileSystem.crashed
        self._app: SimScheduler | None = None
        self.restart()

    @property
    def app(self) -> Scheduler:
        """The scheduler.

        Raises:
            TimingWheelError: it has crashed and was not restarted.
        """
        return self._running()

    @property
    def now(self) -> datetime:
        """What the wall clock shows, in UTC."""
        return instant_datetime(self.clock.wall_ns())

    @property
    def is_down(self) -> bool:
        """Whether it has crashed and was not restarted."""
        return self._app is None

    # -- time -----------------------------------------------------------------------------

    def advance(self, span: Duration) -> Self:
        """Let time pass, and everything happen that is due meanwhile, when it is due.

        After a crash time passes and nothing happens. Returns itself, to go on with.

        Raises:
            ArgumentError: `span` is invalid.
        """
        # What is due at the very end fires a tick later; it is meant all the same. So
        # the clock may be ahead of the aim, by less than that, and the next span counts
        # from the aim.
        if self.clock.monotonic_ns() - self._aim_ns > TICK_NS:
            self._aim_ns = self.clock.monotonic_ns()  # a handler took its time
        self._aim_ns += duration_ns(span, "span")
        end_ns = self._aim_ns + TICK_NS
        self.run_until_idle()
        while True:
            due_ns = self._next_due_ns()
            if due_ns is None or due_ns > end_ns:
                break
            # A due time that has come and yet was not served waits for a later moment.
            self.clock.advance(ns=max(due_ns - self.clock.monotonic_ns(), 1))
            self.run_until_idle()
        self.clock.advance(ns=max(self._aim_ns - self.clock.monotonic_ns(), 0))
        return self.run_until_idle()

    def advance_to(self, moment: datetime) -> Self:
        """Let time pass until the wall clock shows a moment.

        Raises:
            ArgumentError: the moment is past, or no aware datetime.
        """
        ahead_ns = instant_ns(moment, "moment") - self.clock.wall_ns()
        if ahead_ns < 0:
            raise ArgumentError(
                "moment", moment.isoformat(), f"it is {self.now.isoformat()} already"
            )
        return self.advance(timedelta(microseconds=-(-ahead_ns // 1_000)))

    def step_wall(self, delta: Duration) -> Self:
        """Set the wall clock on or back; no time passes.

        Args:
            delta: a length of time; with a `-` in front, or negative, back.
        """
        self.clock.step(_signed_ns(delta))
        return self.run_until_idle()

    def run_until_idle(self) -> Self:
        """Do all that can be done without time passing.

        Raises:
            RuntimeError: it never comes to rest, as a job that adds itself at once.
        """
        with self.crashing():
            for _ in range(TURNS_MAX):
                app = self._app
                if app is None or not app.require_node().turn():
                    return self
        if self._app is None:
            return self
        raise RuntimeError(f"not at rest after {TURNS_MAX:,} turns at {self.now}")

    # -- crashes --------------------------------------------------------------------------

    def crash(self, at: int | None = None, *, choice: str = "none") -> Self:
        """Have the power fail: now, or at a disk call to come.

        What was acknowledged is there after `restart`. What was written and not synced
        may be or not: `choice` says.

        Args:
            at: fail at the at-th disk call from now, 1 or more. None: now.
            choice: which of the legal states the disk is left in; see
                wal.testing.CrashChoice.
        """
        return self._die(at, lambda disk: disk.crashed(choice))

    def kill(self, at: int | None = None) -> Self:
        """Have the process die, as by SIGKILL; the disk goes on.

        Args:
            at: at the at-th disk call from now, 1 or more. None: now.
        """
        return self._die(at, MemoryFileSystem.killed)

    def spare(self) -> Self:
        """Take back a crash or a kill that was to come."""
        self.disk.crash_at(_NEVER)
        return self

    @contextlib.contextmanager
    def crashing(self) -> Iterator[None]:
        """Go down, and end the block, if the disk does within it; see `is_down`.

        Around calls of `app` that a crash to come may meet.
        """
        try:
            yield
        except SimulatedCrash:
            self._go_down()

    def _die(self, at: int | None, death: Death) -> Self:
        if at is not None and (type(at) is not int or at < 1):
            raise ArgumentError("at", at, "pass which disk call from now, from 1")
        self._death = death
        if at is None:
            self._go_down()
        else:
            self.disk.crash_at(self.disk.calls + at)
        return self

    def restart(self) -> Self:
        """Start the program on the disk as it is; stops it first if it runs.

        Raises:
            LogCorruptError: the disk was damaged; see wal.testing.
        """
        app = self._app
        with self.crashing():
            if app is not None:
                app.stop(0)
            self._lives += 1
            self._app = app = SimScheduler(
                self._open, clock=self.clock, tasks=self._tasks
            )
            if self._setup is not None:
                self._setup(app)
            app.start()
        return self.run_until_idle()

    # -- looking --------------------------------------------------------------------------

    def runs(self, job: Any = None, **query: Any) -> Page[Run]:
        """Return runs, oldest nominal time first; arguments as Scheduler.runs."""
        page = self._running().runs(job=job, **query)
        return Page(reversed(page), page.cursor)

    def close(self) -> None:
        """Stop it. Idempotent."""
        with self.crashing():
            if self._app is not None:
                self._app.stop(0)
        self._app = None
        self.history.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- inside ---------------------------------------------------------------------------

    def _running(self) -> SimScheduler:
        if self._app is None:
            raise TimingWheelError("the simulated machine is down: restart() it first")
        return self._app

    def _open(self, clock: Clock) -> JobStore:
        log = Log.open(
            self.disk,
            wall_ns=clock.wall_ns,
            segment_size_bytes=self._segment_size_bytes,
            background=False,
        )
        return self._store(
            log,
            self.history,
            clock=clock,
            background=False,  # a thread would not do the same twice
            retention=self._retention,
            rng=random.Random(f"{self._seed} {self._lives}"),
        )

    def _next_due_ns(self) -> int | None:
        """Return when the node would wake by itself, on the monotonic scale.

        None if it would not, or is down.
        """
        while (app := self._app) is not None:
            asked = self.clock.asked_in(app.require_node().rest)
            if asked:
                times = [at_ns for at_ns in asked if at_ns is not None]
                return min(times, default=None)
            # It would not have waited: there is news that no turn has seen yet.
            self.run_until_idle()
        return None

    def _go_down(self) -> None:
        # First, as it follows the log: what is left of the old life may still write.
        history, former = self.history.fork(), self.history
        disk = self._death(self.disk)
        app, self._app = self._app, None
        if app is not None:
            app.abandon()
        former.end()
        self.disk, self.history = disk, history


def _signed_ns(delta: Duration) -> int:
    if isinstance(delta, str):
        text = delta.strip()
        sign = -1 if text.startswith("-") else 1
        return sign * duration_ns(text.lstrip("+-"), "delta")
    zero = timedelta() if isinstance(delta, timedelta) else 0
    if delta < zero:  # type: ignore[operator]  # zero is of delta's own kind
        return -duration_ns(-delta, "delta")
    return duration_ns(delta, "delta")
