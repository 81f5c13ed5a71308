"""The write side: how frames get where the plan put them.

The plan itself: tests/wal/test_plan.py.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from tests.wal.stores import (
    SEGMENT_BYTES,
    UUID,
    WALL_NS,
    HookedDisk,
    frames_of,
    power_losses,
    segment_header,
    segments_of,
)
from tests.wal.write_bench import OPENING_BYTES, Bench
from wal.bodies import PendingFrame
from wal.frame import HEADER_BYTES, Flag
from wal.reader import LogReader
from wal.segment import SEGMENT_HEADER_BYTES
from wal.testing import SimulatedCrash


@pytest.fixture
def bench() -> Bench:
    return Bench()


# -- the writer ------------------------------------------------------------------------


def test_a_segment_has_its_header_on_the_disk_before_its_name_and_then_the_name() -> (
    None
):
    bench = Bench()
    name = segments_of(bench.disk)[0]
    assert bench.ops(3) == [
        ("pwrite", "opening.tmp"),
        ("sync", "opening.tmp"),
        ("rename", "opening.tmp"),
        ("sync_dir", ""),
    ]
    assert bench.disk.unsynced() == []
    header = segment_header(bench.disk, name)
    assert header == bench.writer.header
    assert header.store_uuid == UUID
    assert header.created_ns == WALL_NS
    assert header.size_bytes == SEGMENT_BYTES


def test_a_successor_names_the_exact_end_of_the_one_before(bench: Bench) -> None:
    bench.add(b"x" * 3000)
    bench.flush()
    end = bench.writer.end()
    bench.add(b"y" * 3000)
    bench.flush()
    assert bench.writer.header.predecessor == end
    assert bench.writer.header.segment_id == 2
    assert bench.writer.header.first_lsn == 2
    assert bench.read() == [b"x" * 3000, b"y" * 3000]


def test_each_segment_has_its_own_salt(bench: Bench) -> None:
    for _ in range(3):
        bench.add(b"x" * 3000)
        bench.flush()
    salts = {segment_header(bench.disk, name).salt for name in segments_of(bench.disk)}
    assert len(salts) == 3


def test_a_frame_says_how_far_the_log_was_synced_when_it_was_written(
    bench: Bench,
) -> None:
    for payload in (b"1", b"2", b"3"):
        bench.add(payload)
        bench.flush()
    frames = [header for _, header in frames_of(bench.disk, segments_of(bench.disk)[0])]
    assert [frame.durable_lsn for frame in frames] == [0, 1, 2]
    assert [frame.flags for frame in frames] == [Flag.ATOMIC] * 3
    assert [frame.wall_ns for frame in frames] == [WALL_NS] * 3


def test_relaxed_frames_are_written_one_after_the_other_without_a_sync(
    bench: Bench,
) -> None:
    calls = bench.disk.calls
    for payload in (b"1", b"2"):
        bench.add(payload)
        for frame in bench.plan.take(everything=True):
            bench.write(frame, relaxed=True)
        bench.plan.written()
    assert [op for op, _ in bench.ops(calls)] == ["pwrite", "pwrite"]
    frames = [header for _, header in frames_of(bench.disk, segments_of(bench.disk)[0])]
    assert [frame.durable_lsn for frame in frames] == [0, 0]
    assert [Flag.RELAXED in frame.flags for frame in frames] == [True, True]


def test_the_first_frame_of_a_segment_costs_one_write_and_one_sync(
    bench: Bench,
) -> None:
    bench.add(b"1")
    calls = bench.disk.calls
    bench.flush()
    assert [op for op, _ in bench.ops(calls)] == ["pwrite", "datasync"]


def test_unsynced_bytes_are_synced_before_a_durable_frame_is_written(
    bench: Bench,
) -> None:
    bench.add(b"1")
    for frame in bench.plan.take(everything=True):
        bench.write(frame, relaxed=True)
    bench.plan.written()
    bench.add(b"2")
    calls = bench.disk.calls
    bench.flush()
    assert [op for op, _ in bench.ops(calls)] == ["datasync", "pwrite", "datasync"]


@pytest.mark.parametrize("relaxed", [False, True], ids=["durable", "relaxed"])
def test_rotation_syncs_the_old_segment_before_the_new_header_is_written(
    bench: Bench, relaxed: bool
) -> None:
    bench.add(b"x" * 3000)
    (frame,) = bench.plan.take(everything=True)
    bench.write(frame, relaxed=relaxed)
    bench.plan.written()
    bench.add(b"y" * 3000)
    (old,) = segments_of(bench.disk)
    calls = bench.disk.calls
    bench.flush(relaxed=relaxed)
    new = segments_of(bench.disk)[1]
    assert bench.ops(calls) == [
        ("datasync", old),
        ("pwrite", "ready-00000001.tmp"),
        ("sync", "ready-00000001.tmp"),
        ("rename", "ready-00000001.tmp"),
        ("sync_dir", ""),
        ("truncate", old),
        ("pwrite", new),
        ("datasync", new),
    ]


def test_a_segment_that_has_a_successor_is_cut_to_its_length(bench: Bench) -> None:
    # So if the successor's file is ever lost, the length of this one tells.
    bench.add(b"x" * 1000)
    bench.flush()
    end = bench.writer.end()
    bench.add(b"y" * 3000)
    bench.flush()
    first, second = segments_of(bench.disk)
    assert len(bench.disk.content(first)) == end.offset
    assert len(bench.disk.content(second)) == SEGMENT_BYTES


def test_a_former_segment_that_cannot_be_cut_stops_nothing(bench: Bench) -> None:
    bench.add(b"x" * 1000)
    bench.flush()
    bench.disk.fail("truncate", errno.EIO)
    bench.add(b"y" * 3000)
    bench.flush()
    assert bench.read() == [b"x" * 1000, b"y" * 3000]


def test_a_first_record_too_large_for_the_opening_segment_opens_the_next_one() -> None:
    # The two segments begin with the same LSN, and only the second may hold the record.
    bench = Bench(opening_bytes=OPENING_BYTES)
    assert bench.add(b"x" * 2000) == 1
    bench.flush()
    first, second = segments_of(bench.disk)
    assert len(bench.disk.content(first)) == SEGMENT_HEADER_BYTES
    assert frames_of(bench.disk, first) == []
    assert segment_header(bench.disk, second).first_lsn == 1
    assert bench.read() == [b"x" * 2000]
    assert bench.pool.in_hand is None


def test_short_writes_are_continued(bench: Bench) -> None:
    bench.disk.short_writes(100)
    for payload in (b"x" * 3000, b"y" * 3000):
        bench.add(payload)
        bench.flush()
    bench.writer.close(mark=True)
    assert bench.read() == [b"x" * 3000, b"y" * 3000]


# -- closing ---------------------------------------------------------------------------


def test_closing_ends_the_segment_with_its_last_frame_durably(bench: Bench) -> None:
    bench.add(b"x")
    bench.flush()
    bench.writer.close(mark=True)
    (name,) = segments_of(bench.disk)
    frames = frames_of(bench.disk, name)
    at, last = frames[-1]
    assert last.flags == Flag.ATOMIC | Flag.CLOSE
    assert (last.first_lsn, last.record_count, last.durable_lsn) == (2, 0, 1)
    assert len(bench.disk.content(name)) == at + HEADER_BYTES
    assert bench.disk.unsynced() == []


def test_the_close_frame_is_on_the_disk_before_the_file_is_cut(bench: Bench) -> None:
    calls = bench.disk.calls
    bench.writer.close(mark=True)
    ops = [op for op, _ in bench.ops(calls)]
    assert ops == ["pwrite", "datasync", "truncate", "sync"]


def test_closing_without_a_mark_writes_nothing(bench: Bench) -> None:
    calls = bench.disk.calls
    bench.writer.close(mark=False)
    assert bench.disk.calls == calls
    with pytest.raises(OSError):
        bench.writer.sync()


def test_a_mark_that_cannot_be_written_still_closes_the_file(bench: Bench) -> None:
    bench.disk.fail("datasync", errno.EIO)
    with pytest.raises(OSError):
        bench.writer.close(mark=True)
    with pytest.raises(OSError) as caught:
        bench.writer.sync()
    assert caught.value.errno == errno.EBADF


# -- interrupted -----------------------------------------------------------------------


class Interrupting(HookedDisk):
    """Raises KeyboardInterrupt once, at the n-th moment from when it is armed.

    Each call has two moments: before it and right after it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hook = self._count
        self.moments_left: int | None = None
        self.where = ""

    def _count(self, op: str, name: str, done: bool) -> None:
        if self.moments_left is None:
            return
        self.moments_left -= 1
        if self.moments_left < 0:
            self.moments_left = None
            self.where = f"{'after' if done else 'before'} {op} {name}"
            raise KeyboardInterrupt


def interrupted_rotations() -> Iterator[tuple[Bench, Interrupting, PendingFrame]]:
    """A bench for each moment at which writing a frame that rotates is interrupted."""
    for moment in range(100):
        disk = Interrupting()
        bench = Bench(disk)
        bench.add(b"x" * 3000)
        bench.flush()
        bench.add(b"y" * 3000)
        (frame,) = bench.plan.take(everything=False)
        disk.moments_left = moment
        try:
            bench.write(frame)
            bench.writer.sync()
        except KeyboardInterrupt:
            yield bench, disk, frame
        else:
            assert moment == 14  # seven calls, before and after
            return


def test_writing_again_after_ctrl_c_completes_the_very_same_frame() -> None:
    for bench, disk, frame in interrupted_rotations():
        sealed = frame.sealed
        bench.flush()
        assert sealed is None or frame.sealed is sealed, disk.where
        assert bench.read() == [b"x" * 3000, b"y" * 3000], disk.where
        assert bench.durable_lsn == 2
        assert bench.writer.header.segment_id == 2, disk.where
        assert bench.pool.ready == 1, disk.where
        assert bench.pool.in_hand is None
        bench.pool.check()
        bench.add(b"z" * 3000)
        bench.flush()
        assert bench.read() == [b"x" * 3000, b"y" * 3000, b"z" * 3000], disk.where


def test_a_power_loss_after_ctrl_c_in_a_rotation_leaves_no_half_header() -> None:
    # The interrupted rotation may have named the file already; what is written over its
    # header then must be the very same bytes, or a torn sector would look like damage.
    crashes = 0
    for index in range(1, 9):
        for bench, disk, frame in interrupted_rotations():
            disk.crash_at(disk.calls + index)
            try:
                bench.write(frame)
                bench.writer.sync()
            except SimulatedCrash:
                crashes += 1
                for state in power_losses(disk):
                    groups = list(LogReader(state, UUID).groups())
                    assert [group.first_lsn for group in groups] in ([1], [1, 2]), (
                        f"Ctrl-C {disk.where}, crash at {index}, {state.label}"
                    )
    assert crashes > 40
