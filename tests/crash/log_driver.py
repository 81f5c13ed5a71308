"""One caller of a log: runs a program step by step and keeps the ledger.

A program is a list of steps. The caller survives closing, killing and opening again, and
carries a crash that is to come over to the disk's next life, so that "the n-th disk call
of the program" has one meaning however many processes the program goes through.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypedDict

from tests.crash.log_ledger import Entry, Ledger, Violation, digest
from wal.errors import LogCorruptError, StoreError
from wal.frame import encode_records
from wal.log import Durability, Log, RoomNeededError
from wal.snapshot import SnapshotWriter
from wal.testing import MemoryFileSystem

Verb = Literal[
    "append", "group", "sync", "commit", "begin", "block", "finish", "reopen", "kill"
]

_ENTRY: Final = struct.Struct("<Q8s")
_START_NS: Final = 1_700_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Options:
    """How a log is opened."""

    segment_size_bytes: int = 5120
    durability: Durability = "durable"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a caller does.

    append: one record. group: records that hold together. sync, commit: as the log has
    them. begin, block, finish: a snapshot. reopen: close, then open with `options`.
    kill: the process dies, and a new one opens with `options`.
    """

    verb: Verb
    payloads: tuple[bytes, ...] = ()
    options: Options = Options()

    def __str__(self) -> str:
        sizes = ",".join(str(len(payload)) for payload in self.payloads)
        if self.verb in ("reopen", "kill"):
            sizes = f"{self.options.segment_size_bytes} {self.options.durability}"
        return f"{self.verb} {sizes}".strip()


OpenLog = Callable[[MemoryFileSystem, Options], Log]


class LogArguments(TypedDict):
    """What `Log.open` and `Log` both take."""

    wall_ns: Callable[[], int]
    durability: Durability
    interval_ms: float
    segment_size_bytes: int
    reserve_bytes: int
    background: bool


def open_log(disk: MemoryFileSystem, options: Options) -> Log:
    """Open a log as the programs do: no threads, so each run is the same."""
    return Log.open(disk, **arguments(disk, options))


def arguments(disk: MemoryFileSystem, options: Options) -> LogArguments:
    """Return the arguments that go with the options."""
    return {
        "wall_ns": lambda: _START_NS + disk.calls,
        "durability": options.durability,
        "interval_ms": 50,
        "segment_size_bytes": options.segment_size_bytes,
        "reserve_bytes": 0,
        "background": False,
    }


class LogDriver:
    """A process, and its successors, on one disk.

    Attributes:
        disk: of the present life.
        ledger: what was promised so far.
        log: the open log, None before the first `open`.
        done: how many steps were completed.
    """

    def __init__(
        self,
        disk: MemoryFileSystem,
        open_log: OpenLog = open_log,
        options: Options | None = None,
        *,
        ledger: Ledger | None = None,
    ) -> None:
        self.disk = disk
        self.ledger = ledger if ledger is not None else Ledger()
        self.log: Log | None = None
        self.options = options if options is not None else Options()
        self.done = 0
        self._open_log = open_log
        self._calls_before = 0
        self._crash: tuple[int, bool] | None = None
        self._snapshot: SnapshotWriter | None = None

    @property
    def calls(self) -> int:
        """Disk calls over all lives."""
        return self._calls_before + self.disk.calls

    def crash_at(self, index: int, *, after: bool) -> None:
        """Let the power fail at the `index`-th disk call over all lives."""
        self._crash = (index, after)
        self._arm()

    def run(self, steps: Iterable[Step]) -> None:
        """Open, and do all steps. SimulatedCrash passes through.

        Raises:
            Violation: the log broke a promise.
        """
        self.open()
        for step in steps:
            self.do(step)

    def open(self) -> None:
        """Open the log, check what it holds, and start it."""
        self.log, found = read_all(self.disk, self.options, self._open_log)
        self.ledger.recovered(found)
        self.log.start()

    def do(self, step: Step) -> None:
        """Do one step."""
        match step.verb:
            case "append" | "group":
                self._append(step.payloads)
            case "sync":
                self._opened.sync()
                self.ledger.acknowledged()
            case "commit":
                self._opened.commit()
                if self.options.durability == "durable":
                    self.ledger.acknowledged()
            case "begin":
                self._abandon_snapshot()
                self._snapshot = self._opened.begin_snapshot()
                self._add_block()
            case "block":
                self._add_block()
            case "finish":
                self._finish_snapshot()
            case "reopen":
                self._reopen(step.options)
            case "kill":
                self._kill(step.options)
        self.done += 1

    @property
    def _opened(self) -> Log:
        assert self.log is not None
        return self.log

    def _append(self, payloads: tuple[bytes, ...]) -> None:
        log, body = self._opened, encode_records(payloads)
        log.admit()
        while True:
            try:
                first_lsn = log.append_group(body, len(payloads))
            except RoomNeededError:
                log.make_room()
            else:
                break
        self.ledger.appended(first_lsn, payloads)

    def _add_block(self) -> None:
        # Fuzzy: a later block knows records that came after the pin.
        if self._snapshot is not None and self.ledger.entries:
            self._snapshot.add(encode_state(self.ledger.entries))

    def _finish_snapshot(self) -> None:
        if self._snapshot is None:
            return
        self._add_block()
        snapshot, self._snapshot = self._snapshot, None
        self._opened.finish_snapshot(snapshot, reach_lsn=self._opened.appended_lsn)
        self.ledger.acknowledged()  # a snapshot holds only what is durable

    def _reopen(self, options: Options) -> None:
        self._abandon_snapshot()
        self._opened.close()
        self.ledger.acknowledged()
        self.options = options
        self.open()

    def _kill(self, options: Options) -> None:
        self._snapshot = None
        self._calls_before += self.disk.calls
        self.disk = self.disk.killed()
        self._arm()
        self.options = options
        self.open()

    def _abandon_snapshot(self) -> None:
        if self._snapshot is not None:
            self._snapshot.abandon()
            self._snapshot = None

    def _arm(self) -> None:
        if self._crash is not None:
            index, after = self._crash
            self.disk.crash_at(index - self._calls_before, after=after)


def read_all(
    disk: MemoryFileSystem, options: Options, opener: OpenLog = open_log
) -> tuple[Log, list[Entry]]:
    """Open a log and return it, still in read mode, with all that it holds.

    Raises:
        Violation: it refuses what a crash may have left, or contradicts itself.
        OSError: the disk cannot be read; the log is closed again.
    """
    log: Log | None = None
    try:
        log = opener(disk, options)
        return log, read_entries(log)
    except (LogCorruptError, StoreError) as error:
        raise Violation(f"a legal state was refused: {error}") from error
    except OSError:
        if log is not None:
            log.close()
        raise


def read_entries(log: Log) -> list[Entry]:
    """Return all that a log in read mode holds, its snapshot and what follows.

    Raises:
        Violation: the two contradict each other.
        LogCorruptError: as the log does.
    """
    entries = {entry.lsn: entry for entry in decode_state(log.snapshot_blocks())}
    pin_lsn = log.snapshot.pin_lsn if log.snapshot is not None else 0
    last_lsn = 0
    for record in log.read():
        if record.lsn <= last_lsn:
            raise Violation(f"LSN {record.lsn} was read after {last_lsn}")
        last_lsn = record.lsn
        entry = Entry(record.lsn, digest(record.payload))
        if record.lsn <= pin_lsn and record.lsn not in entries:
            raise Violation(f"LSN {record.lsn} is missing in the snapshot")
        if entries.setdefault(record.lsn, entry) != entry:
            raise Violation(f"log and snapshot differ in LSN {record.lsn}")
    return [entries[lsn] for lsn in sorted(entries)]


def encode_state(entries: Iterable[Entry]) -> bytes:
    """Return a snapshot's block that holds these entries."""
    return b"".join(_ENTRY.pack(entry.lsn, entry.digest) for entry in entries)


def decode_state(blocks: Iterable[bytes]) -> Iterator[Entry]:
    """Yield what the blocks of a snapshot hold; later ones repeat earlier ones."""
    for block in blocks:
        for lsn, found in _ENTRY.iter_unpack(block):
            yield Entry(lsn, found)
