"""The process that test_kill.py kills: an engine under load that reports all it does.

Every line goes to the parent in one write to a pipe, so it is there whole or not at all,
and it outlives the writer: what the parent reads was really reported before the kill.
What a caller asks for is reported before the call, what the engine answered after it:

    ask OP COUNT DUE_NS        made OP FIRST_ID         schedule, schedule_many
    cancel ID                  cancelled ID 0|1
    move ID DUE_NS             moved ID 0|1             reschedule
    fired ID TOKEN CRC NOW_NS  returned ID | raised ID  a handler
                               done ID                  it is durably acknowledged
    opening                    timer ID DUE_NS FIRED TOKEN CRC, ...
                               opened COUNT SNAPSHOT TORN_BYTES
    closing                    closed COUNT
    > THREAD CALL FILE         < THREAD                 a call of the file system
    halted                                              it waits for the kill
    error TEXT                                          what must not happen
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import itertools
import logging
import os
import random
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Literal

from timingwheel import TimerEngine
from wal.filesystem import FileSystem, Handle
from wal.frame import MAGIC
from wal.log import Durability

SEGMENT_SIZE_BYTES = 32 << 10
SNAPSHOT_EVERY_BYTES = 64 << 10
PAGE_BYTES = 4_096
HOUR_S = 3_600.0
LIVE_MAX = 120
"""Far timers that a life leaves alone; with more, they are cancelled."""


@dataclass(frozen=True)
class Halt:
    """A call of the file system at which the process stops and waits for its end.

    Attributes:
        call: its name.
        file: pattern of the file's name.
        when: before the call, after it, or with the first page of a frame written.
        nth: at the how-manieth such call.
    """

    call: str
    file: str
    when: Literal["before", "after", "within"]
    nth: int = 1


@dataclass(frozen=True)
class Orders:
    """What a life is to do.

    Attributes:
        life: its number, the first part of every token.
        seed: of its random choices.
        work: load until killed; or deliver what is due soon, then close; or close.
        halt: where to stop and wait.
        durability: of the engine.
    """

    life: int
    seed: int
    work: Literal["load", "drain", "look"] = "load"
    halt: Halt | None = None
    durability: Durability = "durable"


def payload_of(token: str) -> bytes:
    """Return what a timer carries: its name and up to 1,200 bytes, often all zero."""
    digest = hashlib.sha256(token.encode()).digest()
    size = int.from_bytes(digest[:2], "little") % 1_200
    filler = bytes(size) if digest[2] < 64 else (digest * (size // 32 + 1))[:size]
    return token.encode() + b"|" + filler


def token_of(payload: bytes) -> str:
    """Return the name at the beginning of a payload."""
    return payload.partition(b"|")[0].decode(errors="backslashreplace") or "?"


class Journal:
    """The pipe to the parent."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe  # kept, or the descriptor would be closed
        self._fd = pipe.fileno()

    def __call__(self, *words: object) -> None:
        try:
            os.write(self._fd, (" ".join(map(str, words)) + "\n").encode())
        except OSError:
            os._exit(9)  # nobody listens any more


class ReportedFiles(FileSystem):
    """The real disk; every call that changes it is reported, before and after."""

    def __init__(self, path: str, journal: Journal, halt: Halt | None) -> None:
        super().__init__(path)
        self._journal = journal
        self._halt = halt
        self._seen = itertools.count(1)
        self._names: dict[int, str] = {}

    def make_directory(self) -> None:
        with self._call("make_directory", "."):
            super().make_directory()

    def sync_dir(self) -> None:
        with self._call("sync_dir", "."):
            super().sync_dir()

    def rename(self, old: str, new: str) -> None:
        with self._call("rename", new):
            super().rename(old, new)
        for handle, name in list(self._names.items()):
            if name == old:
                self._names[handle] = new

    def unlink(self, name: str) -> None:
        with self._call("unlink", name):
            super().unlink(name)

    def create(self, name: str) -> Handle:
        with self._call("create", name):
            handle = super().create(name)
        self._names[handle] = name
        return handle

    def open(self, name: str, *, writable: bool = False) -> Handle:
        handle = super().open(name, writable=writable)
        self._names[handle] = name
        return handle

    def lock(self, name: str) -> Handle | None:
        handle = super().lock(name)
        if handle is not None:
            self._names[handle] = name
        return handle

    def pwrite(self, handle: Handle, data: bytes, offset: int) -> int:
        name = self._names[handle]
        first_page = PAGE_BYTES - offset % PAGE_BYTES
        # The kernel copies page by page, and a kill can cut a write only between them.
        if data[:4] == MAGIC and len(data) > first_page and self._is_at("within", name):
            super().pwrite(handle, data[:first_page], offset)
            self._wait_for_the_end()
        with self._call("pwrite", name):
            return super().pwrite(handle, data, offset)

    def truncate(self, handle: Handle, size_bytes: int) -> None:
        with self._call("truncate", self._names[handle]):
            super().truncate(handle, size_bytes)

    def datasync(self, handle: Handle) -> None:
        with self._call("datasync", self._names[handle]):
            super().datasync(handle)

    def sync(self, handle: Handle) -> None:
        with self._call("sync", self._names[handle]):
            super().sync(handle)

    @contextlib.contextmanager
    def _call(self, call: str, name: str) -> Iterator[None]:
        halt = self._halt
        is_here = (
            halt is not None
            and halt.when != "within"
            and halt.call in (call, "*")
            and self._is_at(halt.when, name)
        )
        self._journal(">", threading.get_ident(), call, name)
        if is_here and halt is not None and halt.when == "before":
            self._wait_for_the_end()
        try:
            yield
        finally:
            if is_here:
                self._wait_for_the_end()
            self._journal("<", threading.get_ident())

    def _is_at(self, when: str, name: str) -> bool:
        halt = self._halt
        return (
            halt is not None
            and halt.when == when
            and fnmatch.fnmatch(name, halt.file)
            and next(self._seen) == halt.nth
        )

    def _wait_for_the_end(self) -> None:
        self._journal("halted")
        threading.Event().wait()


class Life:
    """One life of the process: open, work, and die."""

    def __init__(self, directory: str, orders: Orders, journal: Journal) -> None:
        self._orders = orders
        self._journal = journal
        self._ops = itertools.count()
        self._far: deque[int] = deque()
        self._returned: deque[int] = deque()
        self._soon: set[int] = set()
        self._attempts: dict[int, int] = {}
        self._changed = threading.Condition()
        journal("opening")
        self._engine = TimerEngine(
            ReportedFiles(directory, journal, orders.halt),
            on_fire=self._on_fire,
            durability=orders.durability,
            interval_ms=60_000,
            workers=4,
            snapshot_every_bytes=SNAPSHOT_EVERY_BYTES,
            autostart=False,
            segment_size_bytes=SEGMENT_SIZE_BYTES,
            reserve_bytes=2 * SEGMENT_SIZE_BYTES,
        )

    def run(self) -> None:
        self._report_what_is_there()
        self._engine._core.check()
        self._engine.start()
        if self._orders.work == "load":
            self._load()
        if self._orders.work == "drain":
            self._drain()
        self._journal("closing")
        self._journal("closed", self._engine.close())

    def _report_what_is_there(self) -> None:
        soon_ns = time.time_ns() + 60_000_000_000
        timers = self._engine.timers(limit=1_000_000)
        for timer in timers:
            self._journal(
                "timer",
                timer.id,
                timer.deadline_ns,
                int(timer.fired),
                token_of(timer.payload),
                zlib.crc32(timer.payload),
            )
            self._attempts[timer.id] = timer.attempt
            if timer.deadline_ns < soon_ns:
                self._soon.add(timer.id)
            else:
                self._far.append(timer.id)
        report = self._engine.report
        assert report is not None
        snapshot = report.snapshot is not None
        self._journal("opened", len(timers), int(snapshot), report.torn_bytes)

    def _on_fire(self, timer_id: int, payload: bytes) -> None:
        token = token_of(payload)
        crc = zlib.crc32(payload)
        self._journal("fired", timer_id, token, crc, time.time_ns())
        attempt = self._attempts[timer_id] = self._attempts.get(timer_id, 0) + 1
        # At the first attempt alone: later ones would have to wait too long.
        if self._orders.work == "load" and attempt == 1 and crc % 8 == 0:
            self._journal("raised", timer_id)
            raise RuntimeError(token)
        self._journal("returned", timer_id)
        self._returned.append(timer_id)
        with self._changed:
            self._soon.discard(timer_id)
            self._changed.notify_all()

    def _drain(self) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: not self._soon, timeout=60):
                self._journal("error", f"never delivered: {sorted(self._soon)}")

    def _load(self) -> None:
        works: list[Callable[[random.Random], None]] = [
            *[self._schedule_one] * 2,
            self._schedule_batch,
            self._cancel_one,
            self._move_one,
            self._race_with_a_deadline,
            self._confirm_returned,
            self._write_snapshot,
        ]
        started = [
            threading.Thread(target=self._repeat, args=(work, number), daemon=True)
            for number, work in enumerate(works)
        ]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()

    def _repeat(self, work: Callable[[random.Random], None], number: int) -> None:
        rng = random.Random(f"{self._orders.seed}.{number}")
        try:
            while True:
                work(rng)
        except BaseException as error:
            self._journal("error", repr(error))
            raise

    # -- what the threads of a load do, again and again ---------------------------------

    def _schedule_one(self, rng: random.Random) -> None:
        delay_s = rng.choice([0.0, rng.random() / 4, HOUR_S * rng.randint(1, 9)])
        timer_id = self._schedule(delay_s)
        if delay_s >= HOUR_S:
            self._far.append(timer_id)

    def _schedule(self, delay_s: float) -> int:
        op, token = self._ask(1, delay_s)
        timer_id = self._engine.schedule(delay_s, payload_of(f"{token}.0"))
        self._journal("made", op, timer_id)
        return timer_id

    def _schedule_batch(self, rng: random.Random) -> None:
        count = rng.randint(2, 16)
        delay_s = rng.choice([rng.random() / 4, HOUR_S * rng.randint(1, 9)])
        op, token = self._ask(count, delay_s)
        ids = self._engine.schedule_many(
            [delay_s] * count,
            [payload_of(f"{token}.{place}") for place in range(count)],
        )
        self._journal("made", op, ids[0])
        if delay_s >= HOUR_S:
            self._far.extend(ids)

    def _ask(self, count: int, delay_s: float) -> tuple[int, str]:
        op = next(self._ops)
        self._journal("ask", op, count, time.time_ns() + int(delay_s * 1e9))
        return op, f"{self._orders.life}.{op}"

    def _cancel_one(self, rng: random.Random) -> None:
        if len(self._far) <= LIVE_MAX:
            self._schedule_one(rng)
            return
        self._cancel(self._far.popleft())

    def _cancel(self, timer_id: int) -> None:
        self._journal("cancel", timer_id)
        self._journal("cancelled", timer_id, int(self._engine.cancel(timer_id)))

    def _move_one(self, rng: random.Random) -> None:
        try:
            timer_id = self._far[rng.randrange(len(self._far))]
        except (IndexError, ValueError):
            self._schedule_one(rng)
            return
        self._move(timer_id, HOUR_S * rng.randint(10, 99))

    def _move(self, timer_id: int, delay_s: float) -> bool:
        self._journal("move", timer_id, time.time_ns() + int(delay_s * 1e9))
        done = self._engine.reschedule(timer_id, delay_s)
        self._journal("moved", timer_id, int(done))
        return done

    def _race_with_a_deadline(self, rng: random.Random) -> None:
        """Cancel or move a timer that may have fired, or be in its handler, by then."""
        timer_id = self._schedule(rng.random() / 50)
        if rng.random() < 0.5:
            self._cancel(timer_id)
        elif self._move(timer_id, HOUR_S * rng.randint(1, 9)):
            self._far.append(timer_id)

    def _confirm_returned(self, rng: random.Random) -> None:
        """Find timers that are gone, and wait for a commit that comes after that."""
        gone = []
        for _ in range(len(self._returned)):
            timer_id = self._returned.popleft()
            if self._engine.get(timer_id) is None:
                gone.append(timer_id)
            else:
                self._returned.append(timer_id)
        self._schedule_one(rng)
        for timer_id in gone:
            self._journal("done", timer_id)

    def _write_snapshot(self, rng: random.Random) -> None:
        for _ in range(rng.randint(1, 20)):
            self._schedule_one(rng)
        self._engine.snapshot()


class _Alarm(logging.Handler):
    """Reports what the engine itself finds alarming."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(logging.ERROR)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        self._journal("error", record.getMessage())


def run(directory: str, orders: Orders, pipe: Connection) -> None:
    """Live. For a process of its own."""
    journal = Journal(pipe)
    for name in ("timingwheel", "wal"):
        logging.getLogger(name).addHandler(_Alarm(journal))
        logging.getLogger(name).propagate = False
    try:
        Life(directory, orders, journal).run()
    except BaseException as error:
        journal("error", repr(error))
        raise
