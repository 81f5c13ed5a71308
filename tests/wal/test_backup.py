"""A copy of a log whose owner goes on: at every read of the copy, the owner acts."""

from __future__ import annotations

import contextlib
import errno
import itertools
import random
from collections.abc import Callable

import pytest

from tests.wal.example_stores import (
    Eventful,
    append,
    open_log,
    originals,
    payload_of,
    records_of,
    segments_of,
    snapshots_of,
    store,
    take_snapshot,
)
from tests.wal.stores import frames_of, killed_store
from wal.backup import TRIES, copy_live
from wal.errors import (
    CommitUnknownError,
    LogCorruptError,
    LogFailedError,
    StoreError,
    WalError,
)
from wal.filesystem import FileSystem, Handle, read_whole
from wal.inspection import verify
from wal.log import Log
from wal.store import STORE_NAME, is_store
from wal.testing import MemoryFileSystem, SimulatedCrash


def unmoved() -> None:
    """Between two looks nothing happens."""


def place() -> MemoryFileSystem:
    out = MemoryFileSystem("copy")
    out.make_directory()
    return out


class Watched(FileSystem):
    """A disk, as a reader sees it whose every call something else precedes.

    Args:
        disk: what is read.
        act: called before each look at it.
    """

    def __init__(self, disk: MemoryFileSystem, act: Callable[[], object]) -> None:
        super().__init__(disk.path)
        self._disk = disk
        self._act = act

    def exists(self) -> bool:
        return self._disk.exists()

    def names(self) -> list[str]:
        self._act()
        return self._disk.names()

    def open(self, name: str, *, writable: bool = False) -> Handle:
        assert not writable
        self._act()
        return self._disk.open(name)

    def close(self, handle: Handle) -> None:
        self._disk.close(handle)

    def size_bytes(self, handle: Handle) -> int:
        self._act()
        return self._disk.size_bytes(handle)

    def pread(self, handle: Handle, size_bytes: int, offset: int) -> bytes:
        """Read in pieces with acts in between, as a long read goes on beside writes."""
        parts = []
        for at in range(offset, offset + size_bytes, 512):
            self._act()
            count = min(512, offset + size_bytes - at)
            parts.append(self._disk.pread(handle, count, at))
            if len(parts[-1]) < count:
                break
        return b"".join(parts)

    def forget_cache(self, handle: Handle) -> None:
        self._disk.forget_cache(handle)


class Owner:
    """A log at work on a disk: it appends, and now and then drops what is old."""

    def __init__(self, rng: random.Random, *, snapshot_share: float) -> None:
        self.disk = MemoryFileSystem()
        self.log: Log = open_log(self.disk)
        self._rng = rng
        self._snapshot_share = snapshot_share
        self._acts_left = 120  # then it rests, or no copy could keep up
        append(self.log, rng.randint(1, 40))

    def act(self) -> None:
        chance = self._rng.random()
        if chance > 0.1 or not self._acts_left:
            return
        self._acts_left -= 1
        chance *= 10
        if chance < self._snapshot_share:
            take_snapshot(self.log)
        else:
            append(self.log, self._rng.randint(1, 3))


def judge(out: MemoryFileSystem, durable_lsn: int) -> None:
    """Require that a copy is good, opens, and has what was durable."""
    found = verify(out, pause=unmoved)
    assert found.faults == ()
    assert found.last_lsn >= durable_lsn
    covered = max((info.pin_lsn for info in found.snapshots), default=0)
    held = records_of(out)
    wanted = range(covered + 1, found.last_lsn + 1)
    assert {lsn: held[lsn] for lsn in wanted} == {
        lsn: payload_of(lsn) for lsn in wanted
    }


@pytest.mark.parametrize("snapshot_share", [0.0, 0.02, 0.1])
def test_a_copy_beside_an_owner_at_work_opens_and_holds_what_was_durable(
    rng: random.Random, snapshot_share: float
) -> None:
    for _ in range(8):
        owner = Owner(rng, snapshot_share=snapshot_share)
        durable_lsn = owner.log.durable_lsn
        out = place()
        found = copy_live(Watched(owner.disk, owner.act), out, pause=unmoved)
        assert found.last_lsn <= owner.log.durable_lsn
        judge(out, durable_lsn)
        owner.log.close()


def test_a_plain_copy_beside_an_owner_at_work_is_seen_to_be_bad(
    rng: random.Random,
) -> None:
    """The control: file after file, as cp does it."""
    bad = 0
    for _ in range(8):
        owner = Owner(rng, snapshot_share=0.1)
        source, out = Watched(owner.disk, owner.act), place()
        durable_lsn = owner.log.durable_lsn
        try:
            for name in source.names():
                data = read_whole(source, name)
                handle = out.create(name)
                out.pwrite(handle, data, 0)
                out.close(handle)
            judge(out, durable_lsn)
        except (AssertionError, OSError, WalError):
            bad += 1
        owner.log.close()
    assert bad > 4


def test_what_comes_meanwhile_is_in_the_copy() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, 5)

    def meanwhile(follow: Callable[[], None]) -> None:
        for _ in range(4):
            append(log, 10)
            take_snapshot(log)
            follow()

    out = place()
    first_lsn = log.durable_lsn
    copy_live(disk, out, meanwhile=meanwhile, pause=unmoved)
    judge(out, log.durable_lsn)
    # The owner has dropped what the copy begins with.
    assert set(segments_of(out)) - set(segments_of(disk))
    assert log.durable_lsn > first_lsn
    log.close()


def test_a_copy_that_its_owner_overtakes_is_begun_anew() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, 5)
    tries = 0

    def meanwhile(_follow: Callable[[], None]) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            for _ in range(4):
                append(log, 30)
                take_snapshot(log)

    out = place()
    copy_live(disk, out, meanwhile=meanwhile, pause=unmoved)
    assert tries == 3
    judge(out, log.durable_lsn)
    log.close()


def test_an_owner_that_is_always_faster_is_named_and_nothing_is_left() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, 5)

    def meanwhile(_follow: Callable[[], None]) -> None:
        for _ in range(4):
            append(log, 30)
            take_snapshot(log)

    out = place()
    with pytest.raises(StoreError, match=f"faster than it could be copied, {TRIES}"):
        copy_live(disk, out, meanwhile=meanwhile, pause=unmoved)
    assert out.names() == []
    log.close()


def test_a_copy_of_a_closed_store_has_its_bytes() -> None:
    disk, out = store(30, snapshots_at=[10, 20]), place()
    copy_live(disk, out, pause=unmoved)
    for name in (*segments_of(disk), *snapshots_of(disk), STORE_NAME):
        assert out.content(name) == disk.content(name)


def test_a_torn_tail_is_left_out_and_what_was_acknowledged_stays() -> None:
    torn = 0
    for call in range(1, 17):  # among them the one that writes the frame
        disk = MemoryFileSystem()
        log = open_log(disk)
        append(log, 15)
        disk.crash_at(disk.calls + call)
        with contextlib.suppress(SimulatedCrash, LogFailedError, CommitUnknownError):
            log.append(bytes(range(1, 201)) * 4)
            log.commit()
        for left in disk.crash_states(seed=call, limit=20):
            if verify(left, pause=unmoved).torn:
                torn += 1
                out = place()
                copy_live(left, out, pause=unmoved)
                assert records_of(out) == originals(1, 15)
    assert torn


@pytest.mark.parametrize("kind", [segments_of, snapshots_of])
def test_damage_is_refused_by_name_and_the_copy_is_no_store(
    kind: Callable[[MemoryFileSystem], list[str]],
) -> None:
    disk, out = store(30, snapshots_at=[10, 20]), place()
    name = kind(disk)[-1]
    disk.flip_bit(name, 8 * (4096 + 20))
    (fault,) = verify(disk, pause=unmoved).faults
    with pytest.raises(LogCorruptError, match=name) as caught:
        copy_live(disk, out, pause=unmoved)
    assert STORE_NAME not in out.names()
    error = caught.value
    assert (error.file, error.offset, error.what) == (name, fault.offset, fault.what)
    assert error.expected_lsn == fault.expected_lsn
    assert (error.next_offset, error.next_lsn) == (fault.next_offset, fault.next_lsn)
    assert error.records_at_stake == fault.records_at_stake


def test_a_missing_segment_is_damage_and_no_owner_that_was_faster() -> None:
    disk, out = store(30), place()
    disk.unlink(segments_of(disk)[1])
    with pytest.raises(LogCorruptError, match="missing"):
        copy_live(disk, out, pause=unmoved)
    disk = store(30, snapshots_at=[10, 20])
    for name in snapshots_of(disk):
        disk.unlink(name)
    with pytest.raises(LogCorruptError, match="no snapshot"):
        copy_live(disk, place(), pause=unmoved)


def test_a_copy_that_is_cut_off_at_any_call_is_whole_or_no_store() -> None:
    """Also after a power loss: what the disk keeps of it is chosen at random."""
    disk = store(20, snapshots_at=[8, 16])
    whole = 0
    done = place()
    copy_live(disk, done, pause=unmoved)
    for call in range(1, done.calls - place().calls + 1):
        out = place()
        out.crash_at(out.calls + call)
        with pytest.raises(SimulatedCrash):
            copy_live(disk, out, pause=unmoved)
        for left in out.crash_states(seed=call, limit=4):
            if STORE_NAME not in left.names():
                with pytest.raises(StoreError):
                    is_store(left, create=False)
                continue
            whole += 1
            judge(left, 20)
    assert whole


def sizes_in_order(disk: MemoryFileSystem) -> list[int]:
    """The sizes of what is copied, file by file."""
    names = (*segments_of(disk), *snapshots_of(disk)[::-1])
    return [len(disk.content(name)) for name in names]


def test_progress_counts_each_file_once_and_ends_at_the_whole() -> None:
    disk = store(30, snapshots_at=[10, 20])
    steps: list[tuple[int, int]] = []

    copy_live(disk, place(), progress=lambda *step: steps.append(step), pause=unmoved)

    sizes = sizes_in_order(disk)
    ends = list(itertools.accumulate(sizes))
    assert steps == [(end, sum(sizes)) for end in ends]


def test_progress_tells_no_more_than_the_whole_when_more_comes_meanwhile() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, 5)
    before = sum(sizes_in_order(disk))
    steps: list[tuple[int, int]] = []

    def meanwhile(_follow: Callable[[], None]) -> None:
        append(log, 1)

    copy_live(
        disk,
        place(),
        meanwhile=meanwhile,
        progress=lambda *step: steps.append(step),
        pause=unmoved,
    )

    assert steps == [(before, before), (2 * before, 2 * before)]


def test_no_other_file_is_opened_not_even_for_its_size() -> None:
    """In the process that has a database open, that would end SQLite's locks."""
    disk = store(5)
    disk.put("history.db", b"x")
    disk.fail("open", errno.EIO, name="history.db")

    out = place()
    copy_live(disk, out, pause=unmoved)

    assert "history.db" not in out.names()


def test_what_was_copied_is_not_read_again() -> None:
    disk = store(30)
    first = segments_of(disk)[0]
    out = place()

    def meanwhile(_follow: Callable[[], None]) -> None:
        disk.flip_bit(first, 8 * (4096 + 70))

    copy_live(disk, out, meanwhile=meanwhile, pause=unmoved)

    assert verify(out).faults == ()


def test_a_segment_without_a_record_is_copied_to_its_end() -> None:
    disk = MemoryFileSystem()
    for count in (0, 3):
        with open_log(disk) as log:
            log.start()
            append(log, count)

    out = place()
    copy_live(disk, out, pause=unmoved)

    for name in segments_of(disk):
        assert out.content(name) == disk.content(name)


def test_what_may_be_a_write_under_way_is_looked_at_again() -> None:
    disk = store(5, close=False)
    (name,) = segments_of(disk)
    whole = disk.content(name)
    disk.overwrite(name, 4096 + 4 * 128, bytes(64))
    out = place()

    copy_live(disk, out, pause=lambda: disk.put(name, whole))

    assert records_of(out) == originals(1, 5)


@pytest.mark.parametrize("size_bytes", [10, 400_000])
def test_behind_the_last_good_frame_a_copy_has_zeros(size_bytes: int) -> None:
    """Also where that lies behind the first piece that is copied."""
    payloads = [b"x" * size_bytes] * 6
    disk, out = killed_store(*payloads, segment_size_bytes=2 << 20), place()
    name = segments_of(disk)[-1]
    at, _ = frames_of(disk, name)[-1]
    disk.overwrite(name, at, bytes(64))  # a torn frame, with its body

    copy_live(disk, out, pause=unmoved)

    assert disk.content(name)[at:].strip(b"\0")
    assert not out.content(name)[at:].strip(b"\0")
    assert len(out.content(name)) == len(disk.content(name))


def test_what_looks_damaged_when_the_copied_segment_is_gone_is_looked_at_anew() -> None:
    disk, out = MemoryFileSystem(), Eventful("copy")
    out.make_directory()
    log = open_log(disk)
    append(log, 7)
    (copied,) = segments_of(disk)
    tries: list[int] = []

    def meanwhile(_follow: Callable[[], None]) -> None:
        tries.append(1)
        if len(tries) > 1:
            return
        append(log, 10)
        take_snapshot(log)
        disk.remove(copied)
        name = segments_of(disk)[0]
        whole = disk.content(name)
        disk.flip_bit(name, 8 * (4096 + 70))
        out.after(0, lambda: disk.put(name, whole))  # when the copy is begun anew

    copy_live(disk, out, meanwhile=meanwhile, pause=unmoved)

    assert len(tries) == 2
    judge(out, 17)
    log.close()


def test_an_owner_that_drops_one_segment_too_early_is_faster_and_not_damaged() -> None:
    disk, out = MemoryFileSystem(), place()
    log = open_log(disk)
    append(log, 5)

    def meanwhile(_follow: Callable[[], None]) -> None:
        copied = segments_of(out)[-1]
        while len([name for name in segments_of(disk) if name > copied]) < 2:
            append(log, 1)
        for name in segments_of(disk)[:-1]:
            disk.remove(name)

    with pytest.raises(StoreError, match="faster than it could be copied"):
        copy_live(disk, out, meanwhile=meanwhile, pause=unmoved)
    log.close()


class LateReader(MemoryFileSystem):
    """Something happens right before a piece at 8 MiB of a file is read to be copied."""

    event: Callable[[], object] | None = None

    def pread(self, handle: Handle, size_bytes: int, offset: int) -> bytes:
        if offset == 8 << 20 and self.event is not None:
            event, self.event = self.event, None
            event()
        return super().pread(handle, size_bytes, offset)


def test_while_a_large_snapshot_is_copied_the_log_is_followed() -> None:
    disk, out = LateReader(), place()
    log = open_log(disk)
    append(log, 3)
    writer = log.begin_snapshot()
    for _ in range(8):
        writer.add(bytes(1 << 20))  # a few bytes go around each: 8 MiB and some more
    log.finish_snapshot(writer, reach_lsn=log.appended_lsn)
    (segment,), (snapshot,) = segments_of(disk), snapshots_of(disk)
    disk.event = lambda: append(log, 1)

    copy_live(disk, out, pause=unmoved)

    calls = [(call.op, call.name) for call in out.trace]
    again = [i for i, call in enumerate(calls) if call == ("create", segment)]
    assert len(again) == 2
    assert calls.index(("create", snapshot)) < again[1]
    assert again[1] < calls.index(("sync", snapshot))
    log.close()
