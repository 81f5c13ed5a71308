"""A small store whose every byte is known, to be damaged and opened.

Damage is what no crash leaves. Its oracle: the log holds all that was acknowledged, or
it is refused and not one byte has changed. A wrong payload never comes out.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tests.crash.log_driver import (
    LogDriver,
    OpenLog,
    Options,
    Step,
    open_log,
    read_entries,
)
from tests.crash.log_ledger import Entry, Ledger, Violation
from tests.crash.log_program import payload
from wal.errors import LogCorruptError, StoreError
from wal.filesystem import read_whole
from wal.log import Log
from wal.reader import LogReader, SegmentReader
from wal.segment import SEGMENT_HEADER_BYTES
from wal.store import LOCK_NAME, read_identity
from wal.testing import MemoryFileSystem, SimulatedCrash

Refusal = LogCorruptError | StoreError
Outcome = list[Entry] | Refusal


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a group stands."""

    file: str
    start: int
    end: int
    first_lsn: int
    last_lsn: int


@dataclass(frozen=True)
class Store:
    """A store after its owner died, all of it on the disk.

    Attributes:
        disk: its files; damage a copy.
        ledger: what was promised.
        frames: every good group, oldest first.
        segments: file names, oldest first.
    """

    disk: MemoryFileSystem
    ledger: Ledger
    frames: list[Frame]
    segments: list[str]
    options: Options
    opener: OpenLog

    def attempt(self, disk: MemoryFileSystem) -> Outcome:
        """Open a damaged copy and read it; return what it holds, or the refusal.

        Raises:
            Violation: something acknowledged is missing, a payload is wrong, or the
                failed open changed a file.
        """
        before = _files(disk)
        log: Log | None = None
        outcome: Outcome
        try:
            log = self.opener(disk, self.options)
            outcome = read_entries(log)
        except (LogCorruptError, StoreError) as error:
            outcome = error
        finally:
            if log is not None:
                log.close()
        if isinstance(outcome, list):
            self.ledger.expect(outcome)
        if _files(disk) != before:
            raise Violation("reading changed the files")
        return outcome

    def flips(self, name: str, bits: Iterable[int]) -> Iterator[tuple[int, Outcome]]:
        """Flip each of these bits of a file alone; yield it and what came of it.

        Raises:
            Violation: as `attempt`, naming the bit.
        """
        disk = self.disk.copy()
        for bit in bits:
            disk.flip_bit(name, bit)
            try:
                yield bit, self.attempt(disk)
            except Violation as violation:
                where = f"{name}, bit {bit % 8} of byte {bit // 8}"
                raise Violation(f"{where}: {violation}") from violation
            disk.flip_bit(name, bit)

    @property
    def everything(self) -> list[Entry]:
        """All that was appended and not lost before the store was built."""
        return self.ledger.entries

    def used_bytes(self, name: str) -> int:
        """Return where the last frame of a segment ends."""
        ends = (frame.end for frame in self.frames if frame.file == name)
        return max(ends, default=SEGMENT_HEADER_BYTES)

    def frame_at(self, name: str, offset: int) -> Frame | None:
        """Return the group that owns a byte."""
        for frame in self.frames:
            if frame.file == name and frame.start <= offset < frame.end:
                return frame
        return None


def build(
    program: Iterable[Step],
    options: Options | None = None,
    opener: OpenLog = open_log,
    *,
    close: bool = False,
    unacknowledged: tuple[bytes, ...] = (),
) -> Store:
    """Run a program, end its process, and return what is on the disk then.

    Args:
        program: what is done.
        options: how the log is opened.
        opener: likewise.
        close: end by closing the log.
        unacknowledged: a last group that is written, and the machine goes off before
            its sync; it came through.
    """
    driver = LogDriver(MemoryFileSystem(), opener, options)
    driver.run(program)
    assert driver.log is not None
    if unacknowledged:
        driver.do(Step("group", unacknowledged))
        driver.crash_at(driver.calls + 2, after=False)
        with contextlib.suppress(SimulatedCrash):
            driver.do(Step("sync"))
        assert driver.disk.off
    if close:
        driver.log.close()
    disk = driver.disk.crashed("all")
    frames = list(_frames(disk))
    if unacknowledged:
        assert frames[-1].last_lsn == driver.ledger.highest_lsn, "it is not there"
    names = [name for name in disk.names() if name.endswith(".seg")]
    return Store(disk, driver.ledger, frames, names, driver.options, opener)


def _files(disk: MemoryFileSystem) -> dict[str, bytes]:
    """Return all files but the lock, which may be made anew and holds nothing."""
    files = disk.snapshot_of_all()
    files.pop(LOCK_NAME, None)
    return files


def _frames(disk: MemoryFileSystem) -> Iterator[Frame]:
    reader = LogReader(disk, read_identity(disk).uuid)
    for header in reader.segments:
        segment = SegmentReader(read_whole(disk, header.name), header)
        start = segment.offset
        for group in segment.groups():
            last_lsn = group.first_lsn + group.record_count - 1
            yield Frame(header.name, start, segment.offset, group.first_lsn, last_lsn)
            start = segment.offset


def plain_program() -> list[Step]:
    """Return a log without snapshots: a rotation, an unclean start, all durable.

    Its payloads look like zeros, like frames, and like nearly nothing.
    """
    text = [payload("text", size) for size in (0, 1, 13, 60)]
    groups = [
        (text[3],),
        (text[2], text[0], text[1]),
        (payload("zeros", 150),),
        (payload("bit", 200),),
        # A rotation.
        (payload("magic", 200),),
        (b"\x01" + bytes(3),) * 3,
        # An unclean start.
        (text[1],),
        (payload("zeros", 390),),
        (text[2], text[1], bytes(8)),
    ]
    steps = [
        step for group in groups for step in (Step("group", group), Step("commit"))
    ]
    steps.insert(2 * 6, Step("kill"))
    return steps


def snapshot_program() -> list[Step]:
    """Return a log with two snapshots, the first segment dropped, records after both."""
    steps: list[Step] = []
    for round_ in range(4):
        steps += [Step("append", (payload("text", 300 + round_),)), Step("commit")] * 2
        steps += [Step("append", (payload("zeros", 60),))]
        if round_ < 3:
            steps += [Step("begin"), Step("finish")]
    return [*steps, Step("commit")]


@functools.cache
def plain() -> Store:
    """The owner was killed; all was acknowledged."""
    return build(plain_program())


@functools.cache
def with_snapshots() -> Store:
    """The log's first part is only in two snapshots."""
    return build(snapshot_program())


@functools.cache
def closed() -> Store:
    """The owner closed the log."""
    return build(plain_program(), close=True)


@functools.cache
def unfinished() -> Store:
    """The last group came through, and nobody was told."""
    return build(plain_program(), unacknowledged=(b"nobody knows", bytes(40)))


STORES: dict[str, Callable[[], Store]] = {
    "plain": plain,
    "closed": closed,
    "unfinished": unfinished,
    "with snapshots": with_snapshots,
}


def assert_refused(outcome: Outcome) -> LogCorruptError:
    """Return the refusal; it must be one."""
    assert isinstance(outcome, LogCorruptError), "it was opened"
    return outcome
