"""Schedulers that do the same jobs: ours, APScheduler on SQLite, and huey on SQLite.

All keep jobs on the disk so that they survive, and run plain functions in threads of this
process. What they promise beyond that is not alike, and the notes say it: we keep a record
of every run and start a run again that a crash cut off; the peers take a job off the disk
when it starts, or before, and what was running at a crash is gone. They do less for a
job, so a ratio is never to our advantage for that.

A peer that is not installed is left out.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from bench.rounds import OURS
from bench.stores import LOAD_STEP
from timingwheel.jobs.model import Draft
from timingwheel.jobs.triggers import At, CronRule, Delay, Moment, Trigger
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.tasks import Call, Task, TaskRegistry

PAYLOAD = "x" * 60
HOUR = timedelta(hours=1)
NS = 1_000_000_000

LAGS: list[int] = []
"""How late `stamp` was called, ns. The peers import their functions by name."""


def no_op(payload: str) -> None:
    """Do nothing: what is left is the scheduler's own work."""
    del payload


def stamp(due_ns: int) -> None:
    """Note how late it is."""
    LAGS.append(time.time_ns() - due_ns)


class Ends:
    """Counts the runs that have ended, from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0

    def note(self, runs: int = 1) -> None:
        """Note that so many more have ended."""
        with self._changed:
            self._count += runs
            self._changed.notify_all()

    def wait(self, runs: int) -> None:
        """Return when so many have ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._count >= runs)

    @property
    def count(self) -> int:
        """How many have ended."""
        return self._count


class Rival(ABC):
    """A scheduler on a directory of its own, opened, which starts nothing yet.

    Attributes:
        peer: its name in the table.
        equal: see PairedRow.
        note: what one must know to read its figures.
        ends: of the runs; ours count when they are durable.

    Args:
        directory: where its files go; made.
        workers: handlers at once; 1 is its simplest way to run one after the other.
    """

    peer: str
    equal = True
    note = ""

    def __init__(self, directory: Path, *, workers: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.ends = Ends()
        self.open(directory, workers)

    @abstractmethod
    def open(self, directory: Path, workers: int) -> None:
        """Open it."""

    @abstractmethod
    def schedule(self) -> object:
        """Make a job that is due in an hour; it is on the disk when this returns."""

    @abstractmethod
    def load_no_ops(self, jobs: int) -> None:
        """Make so many jobs that are due at once and do nothing."""

    @abstractmethod
    def load_stamps(self, dues_ns: Iterable[int]) -> None:
        """Make a job for each due time that notes how late it was."""

    def load_stamps_later(self, jobs: int) -> None:
        """Make so many that are due long after anybody waits for them."""
        self.load_stamps([time.time_ns() + 2 * 3_600 * NS] * jobs)

    def load_cron(self, jobs: int, due: datetime) -> None:
        """Make so many cron jobs that note how late they were, daily at a second.

        Raises:
            NotImplementedError: it has no cron to the second.
        """
        raise NotImplementedError

    @abstractmethod
    def start(self) -> None:
        """Begin to run what is due."""

    @abstractmethod
    def close(self) -> None:
        """Stop; nothing of it runs any more."""


TASKS = TaskRegistry()
NO_OP = TASKS.register(Task(no_op, name="no_op"))
STAMP = TASKS.register(Task(stamp, name="stamp"))


class Ours(Rival):
    """Scheduler, durable, inline or in threads."""

    peer = OURS

    def open(self, directory: Path, workers: int) -> None:
        self._app = Scheduler(
            directory,
            slots=workers,
            executor="thread" if workers > 1 else "inline",
            tasks=TASKS,
        )
        store = self._app.desk.store
        store.add_listener(lambda runs: self.ends.note(len(runs)))
        self._put = store.put

    def schedule(self) -> object:
        return self._app.schedule(NO_OP.call(PAYLOAD), HOUR)

    def load_no_ops(self, jobs: int) -> None:
        draft = draft_of(NO_OP.call(PAYLOAD), Delay(0))
        self._load(draft for _ in range(jobs))

    def load_stamps(self, dues_ns: Iterable[int]) -> None:
        self._load(draft_of(STAMP.call(due_ns), At(due_ns)) for due_ns in dues_ns)

    def load_cron(self, jobs: int, due: datetime) -> None:
        rule = CronRule(expression=f"{due.second} {due.minute} {due.hour} * * *")
        draft = draft_of(STAMP.call(int(due.timestamp()) * NS), rule)
        self._load(draft for _ in range(jobs))

    def start(self) -> None:
        self._app.start()

    def close(self) -> None:
        self._app.stop(grace=1)

    def _load(self, drafts: Iterable[Draft]) -> None:
        # One commit for many, as a program does that has many at once.
        rest = iter(drafts)
        while step := list(islice(rest, LOAD_STEP)):
            self._put(step)


def draft_of(call: Call, when: Moment) -> Draft:
    """Return a job as the scheduler would hand it to its store."""
    return Draft(task=call.task.name, payload=call.payload, trigger=Trigger(when=when))


class APScheduler(Rival):
    """APScheduler 3 with its SQLAlchemy job store on SQLite, all as it comes."""

    peer = "APScheduler"
    note = "one SQLite transaction a job; keeps no runs, loses what runs at a crash"

    def open(self, directory: Path, workers: int) -> None:
        events: Any = importlib.import_module("apscheduler.events")
        background: Any = importlib.import_module("apscheduler.schedulers.background")
        pool: Any = importlib.import_module("apscheduler.executors.pool")
        self._scheduler = background.BackgroundScheduler(
            jobstores={"default": self._make_store(directory)},
            executors={"default": pool.ThreadPoolExecutor(workers)},
            job_defaults={"misfire_grace_time": None},
            timezone=UTC,
        )
        self._scheduler.add_listener(
            lambda _: self.ends.note(),
            events.EVENT_JOB_EXECUTED | events.EVENT_JOB_ERROR,
        )
        self._scheduler.start(paused=True)

    def _make_store(self, directory: Path) -> object:
        stores: Any = importlib.import_module("apscheduler.jobstores.sqlalchemy")
        return stores.SQLAlchemyJobStore(f"sqlite:///{directory / 'jobs.sqlite'}")

    def schedule(self) -> object:
        due = datetime.now(UTC) + HOUR
        return self._scheduler.add_job(no_op, "date", run_date=due, args=[PAYLOAD])

    def load_no_ops(self, jobs: int) -> None:
        now = datetime.now(UTC)
        for _ in range(jobs):
            self._scheduler.add_job(no_op, "date", run_date=now, args=[PAYLOAD])

    def load_stamps(self, dues_ns: Iterable[int]) -> None:
        for due_ns in dues_ns:
            due = datetime.fromtimestamp(due_ns / NS, UTC)
            self._scheduler.add_job(stamp, "date", run_date=due, args=[due_ns])

    def load_cron(self, jobs: int, due: datetime) -> None:
        for _ in range(jobs):
            self._scheduler.add_job(
                stamp,
                "cron",
                hour=due.hour,
                minute=due.minute,
                second=due.second,
                args=[int(due.timestamp()) * NS],
            )

    def start(self) -> None:
        self._scheduler.resume()

    def close(self) -> None:
        self._scheduler.shutdown()


class Huey(Rival):
    """huey's SqliteHuey with fsync, and its consumer in threads."""

    peer = "huey"
    note = "takes a job off the disk when it starts: a crash loses what runs"
    poll_seconds = 0.1

    def open(self, directory: Path, workers: int) -> None:
        api: Any = importlib.import_module("huey")
        consumer: Any = importlib.import_module("huey.consumer")
        signals: Any = importlib.import_module("huey.signals")
        self._huey = self._make(api, directory)
        self._no_op = self._huey.task()(no_op)
        self._stamp = self._huey.task()(stamp)
        self._huey.signal(signals.SIGNAL_COMPLETE)(lambda *_: self.ends.note())

        class InThisProcess(consumer.Consumer):  # type: ignore[misc]
            def _set_signal_handlers(self) -> None:
                """Leave the signals of a benchmark alone."""

        # It polls; at the finest interval that its manual speaks of.
        self._consumer = InThisProcess(
            self._huey,
            workers=workers,
            periodic=False,
            initial_delay=self.poll_seconds,
            max_delay=self.poll_seconds,
        )
        self._started = False

    def _make(self, api: Any, directory: Path) -> Any:
        return api.SqliteHuey(filename=str(directory / "huey.sqlite"), fsync=True)

    def schedule(self) -> object:
        return self._no_op.schedule((PAYLOAD,), delay=HOUR.total_seconds())

    def load_no_ops(self, jobs: int) -> None:
        for _ in range(jobs):
            self._no_op(PAYLOAD)

    def load_stamps(self, dues_ns: Iterable[int]) -> None:
        for due_ns in dues_ns:
            eta = datetime.fromtimestamp(due_ns / NS, UTC)
            self._stamp.schedule((due_ns,), eta=eta)

    def start(self) -> None:
        self._consumer.start()
        self._started = True

    def close(self) -> None:
        if self._started:
            self._consumer.stop(graceful=True)
        self._huey.storage.close()


PEERS: tuple[tuple[str, type[Rival]], ...] = (
    ("apscheduler", APScheduler),
    ("huey", Huey),
)


def rivals() -> Sequence[type[Rival]]:
    """Return us and all peers that are installed."""
    installed = [kind for name, kind in PEERS if importlib.util.find_spec(name)]
    return [Ours, *installed]
