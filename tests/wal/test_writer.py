"""The write side: where records will go, and how frames get there.

`FramePlan` is tried against the writer that follows it: whatever is added, each frame
must land where it was planned, in blocks that are owned.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from wal.errors import RecordTooLargeError
from wal.frame import BODY_BYTES_MAX, HEADER_BYTES, Flag, decode_records, encode_records
from wal.plan import FramePlan, PendingFrame
from wal.pool import SegmentPool
from wal.reader import LogReader
from wal.segment import NO_PREDECESSOR, SEGMENT_HEADER_BYTES, SegmentEnd
from wal.testing import MemoryFileSystem, SimulatedCrash
from wal.writer import SegmentWriter

OPENING_BYTES = SEGMENT_HEADER_BYTES + 1024


class Bench:
    """A plan and the writer that follows it, on one disk."""

    def __init__(
        self,
        disk: MemoryFileSystem | None = None,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        opening_bytes: int = SEGMENT_BYTES,
        predecessor: SegmentEnd = NO_PREDECESSOR,
        first_lsn: int = 1,
    ) -> None:
        self.disk = disk if disk is not None else MemoryFileSystem()
        self.disk.make_directory()
        self.pool = SegmentPool(
            self.disk, size_bytes=segment_bytes, reserve=1, background=False
        )
        self.pool.start([])
        handle = self.disk.create("opening.tmp")
        self.disk.pwrite(handle, bytes(opening_bytes), 0)
        self.writer = SegmentWriter(
            self.disk,
            UUID,
            self.pool,
            predecessor=predecessor,
            first_lsn=first_lsn,
            blank=("opening.tmp", handle),
            wall_ns=lambda: WALL_NS,
        )
        self.plan = FramePlan(
            self.pool,
            next_lsn=first_lsn,
            segment_size_bytes=segment_bytes,
            offset=self.writer.offset,
            size=self.writer.header.size_bytes,
        )
        self.durable_lsn = first_lsn - 1

    def add(self, *payloads: bytes, urgent: bool = False) -> int:
        """Plan a group, and make room for it if it needs that."""
        body, count = encode_records(payloads), len(payloads)
        lsn = self.plan.add(body, record_count=count, urgent=urgent)
        if lsn is None:
            self.pool.wait(urgent=urgent)
            lsn = self.plan.add(body, record_count=count, urgent=urgent)
        assert lsn is not None
        return lsn

    def flush(self, *, relaxed: bool = False, everything: bool = False) -> None:
        """Write and sync what the plan gives."""
        for frame in self.plan.take(everything=everything):
            self.write(frame, relaxed=relaxed)
        self.writer.sync()
        self.plan.written()
        self.durable_lsn = self.writer.end().last_lsn

    def write(self, frame: PendingFrame, *, relaxed: bool = False) -> None:
        self.writer.write(frame, durable_lsn=self.durable_lsn, relaxed=relaxed)

    def read(self) -> list[bytes]:
        groups = LogReader(self.disk, UUID).groups()
        return [payload for group in groups for payload in decode_records(group.body)]

    def ops(self, since: int) -> list[tuple[str, str]]:
        return [(call.op, call.name) for call in self.disk.trace[since:]]


@pytest.fixture
def bench() -> Bench:
    return Bench()


# -- the plan --------------------------------------------------------------------------


def test_what_is_added_before_a_take_goes_together(bench: Bench) -> None:
    assert [bench.add(b"a"), bench.add(b"b", b"c"), bench.add(b"d")] == [1, 2, 4]
    (frame,) = bench.plan.take(everything=False)
    assert (frame.first_lsn, frame.last_lsn, frame.record_count) == (1, 4, 4)
    assert bytes(frame.body) == encode_records([b"a", b"b", b"c", b"d"])
    assert not frame.rotate


def test_nothing_is_added_to_a_frame_that_was_taken(bench: Bench) -> None:
    bench.add(b"a")
    (taken,) = bench.plan.take(everything=False)
    bench.add(b"b")
    assert taken.record_count == 1
    bench.flush()
    bench.flush()
    assert bench.read() == [b"a", b"b"]


def test_one_frame_is_taken_at_a_time_or_all_that_wait(bench: Bench) -> None:
    for _ in range(3):
        bench.add(b"x" * 3000)
    assert len(bench.plan.take(everything=False)) == 1
    bench.flush(everything=False)
    assert len(bench.plan.take(everything=True)) == 2
    bench.flush()
    assert not bench.plan
    assert bench.plan.take(everything=True) == []


def test_what_was_taken_and_not_written_comes_first_next_time(bench: Bench) -> None:
    bench.add(b"a")
    first = bench.plan.take(everything=False)[0]
    bench.add(b"b")
    assert bench.plan.take(everything=False) == [first]
    frames = bench.plan.take(everything=True)
    assert frames[0] is first
    assert [frame.first_lsn for frame in frames] == [1, 2]


def test_the_plan_counts_what_waits_until_it_is_written(bench: Bench) -> None:
    bench.add(b"four")
    bench.add(b"12", b"3456")
    size = 4 * 3 + 4 + 2 + 4
    assert (bench.plan.bytes_waiting, bench.plan.records_waiting) == (size, 3)
    bench.plan.take(everything=False)
    assert (bench.plan.bytes_waiting, bench.plan.records_waiting) == (size, 3)
    bench.flush()
    assert (bench.plan.bytes_waiting, bench.plan.records_waiting) == (0, 0)
    assert bench.plan.bytes_written == size


def test_a_group_that_no_frame_can_hold_changes_nothing(bench: Bench) -> None:
    limit = bench.plan.body_bytes_max
    assert limit == SEGMENT_BYTES - SEGMENT_HEADER_BYTES - 2 * HEADER_BYTES
    with pytest.raises(RecordTooLargeError) as caught:
        bench.plan.add(bytes(limit + 1), record_count=1, urgent=False)
    assert (caught.value.size_bytes, caught.value.limit_bytes) == (limit + 1, limit)
    assert isinstance(caught.value, ValueError)
    assert not bench.plan
    assert bench.plan.next_lsn == 1
    assert bench.plan.bytes_waiting == 0


def test_a_frame_is_never_larger_than_its_format_allows() -> None:
    bench = Bench(segment_bytes=20 << 20, opening_bytes=20 << 20)
    assert bench.plan.body_bytes_max == BODY_BYTES_MAX
    bench.add(b"x" * (5 << 20))
    bench.add(b"y" * (5 << 20))
    frames = bench.plan.take(everything=True)
    assert [frame.rotate for frame in frames] == [False, False]


def test_the_largest_group_fits_a_fresh_segment_with_its_close_frame(
    bench: Bench,
) -> None:
    bench.add(b"x" * (bench.plan.body_bytes_max - 4))
    bench.flush()
    assert bench.writer.offset == SEGMENT_BYTES - HEADER_BYTES
    bench.writer.close(mark=True)
    name = segments_of(bench.disk)[-1]
    assert len(bench.disk.content(name)) == SEGMENT_BYTES
    assert Flag.CLOSE in frames_of(bench.disk, name)[-1][1].flags


@pytest.mark.parametrize("over", [0, 1])
def test_a_segment_of_the_pool_keeps_room_for_its_close_frame_too(
    bench: Bench, over: int
) -> None:
    for payload in (b"x" * 3000, b"y" * 1000):  # the second one rotates
        bench.add(payload)
        bench.flush()
    left = SEGMENT_BYTES - HEADER_BYTES - bench.writer.offset
    bench.add(b"z" * (left - HEADER_BYTES - 4 + over))
    bench.flush()
    assert bench.writer.header.segment_id == 2 + over
    bench.writer.close(mark=True)
    assert len(bench.read()) == 3


def test_a_group_that_needs_an_unready_segment_changes_nothing(bench: Bench) -> None:
    bench.add(b"x" * 3000)
    before = bench.plan.next_lsn, bench.plan.bytes_waiting
    body = encode_records([b"y" * 3000])
    assert bench.plan.add(body, record_count=1, urgent=False) is None
    assert (bench.plan.next_lsn, bench.plan.bytes_waiting) == before
    bench.flush()
    assert bench.read() == [b"x" * 3000]


def test_a_smaller_group_still_fits_after_one_that_did_not(bench: Bench) -> None:
    bench.add(b"x" * 3000)
    assert bench.plan.add(bytes(3000), record_count=1, urgent=False) is None
    assert bench.plan.add(encode_records([b"y"]), record_count=1, urgent=False) == 2
    bench.flush()
    assert bench.read() == [b"x" * 3000, b"y"]


def test_urgent_groups_go_into_the_reserve(bench: Bench) -> None:
    bench.pool.wait(urgent=True)  # one, which is the reserve
    bench.add(b"x" * 3000)
    body = encode_records([b"y" * 3000])
    assert bench.plan.add(body, record_count=1, urgent=False) is None
    assert bench.plan.add(body, record_count=1, urgent=True) == 2


SIZES = st.lists(
    st.one_of(st.integers(0, 200), st.integers(0, SEGMENT_BYTES)),
    min_size=1,
    max_size=4,
)


@given(
    st.lists(st.one_of(SIZES, st.sampled_from(["one", "all"])), max_size=30),
    st.sampled_from([OPENING_BYTES, SEGMENT_BYTES]),
)
def test_every_frame_lands_where_it_was_planned(
    steps: list[list[int] | str], opening_bytes: int
) -> None:
    bench = Bench(opening_bytes=opening_bytes)
    expected: list[bytes] = []
    for number, step in enumerate(steps):
        if isinstance(step, str):
            bench.flush(everything=step == "all")
            continue
        payloads = [bytes([number % 251 + 1]) * size for size in step]
        try:
            lsn = bench.add(*payloads)
        except RecordTooLargeError:
            continue
        assert lsn == len(expected) + 1
        expected += payloads
        bench.pool.check()
    bench.flush(everything=True)
    assert bench.read() == expected
    assert bench.durable_lsn == len(expected)
    assert bench.pool.ready >= 0
    for name in segments_of(bench.disk):
        size = segment_header(bench.disk, name).size_bytes
        assert len(bench.disk.content(name)) <= size  # never grown: blocks it owned
        end = sum(header.frame_bytes for _, header in frames_of(bench.disk, name))
        assert SEGMENT_HEADER_BYTES + end <= size - HEADER_BYTES  # room for CLOSE


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
