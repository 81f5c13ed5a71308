"""What a repair rescues, what it says is lost, and that its result is a sound store."""

from __future__ import annotations

import errno
import random

import pytest

from tests.wal.example_stores import (
    SEGMENT_SIZE_BYTES,
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
from tests.wal.stores import closed_store, frames_of, segment_header
from wal.errors import LogCorruptError, StoreError, StoreInUseError
from wal.faults import Lost
from wal.filesystem import Handle
from wal.frame import Flag, Lsn
from wal.inspection import verify
from wal.log import Log
from wal.recovery import LSN_SKIP
from wal.repair import LOST_TAIL_SKIP, Repaired, repair
from wal.segment import NO_PREDECESSOR, SEGMENT_HEADER_BYTES, SegmentEnd
from wal.store import read_identity, take_lock
from wal.testing import MemoryFileSystem, SimulatedCrash


def new_place(seed: int = 7) -> MemoryFileSystem:
    return MemoryFileSystem("new", seed=seed)


def rescued(disk: MemoryFileSystem) -> tuple[MemoryFileSystem, Repaired]:
    """Repair, and hold what is true of every repair."""
    before, calls = disk.snapshot_of_all(), disk.calls
    out = new_place()

    done = repair(disk, out, pause=lambda: None)

    assert disk.snapshot_of_all() == before
    assert disk.calls == calls
    found = verify(out)
    assert found.faults == ()
    assert found.closed
    assert (found.records, found.segments) == (done.records, done.segments)
    identity = read_identity(out)
    assert identity.uuid == done.uuid != before.get("STORE", b"")[24:40]
    assert identity.repaired == bool(done.lost)
    return out, done


def is_lost(lsn: int, losses: tuple[Lost, ...]) -> bool:
    return any(
        part.first <= lsn and (part.last is None or lsn <= part.last) for part in losses
    )


def frame_at(disk: MemoryFileSystem, name: str, frame: int) -> int:
    data = disk.content(name)
    offsets = range(SEGMENT_HEADER_BYTES, len(data), 64)
    return [at for at in offsets if data[at : at + 4] == b"TWgf"][frame]


def flip_body(disk: MemoryFileSystem, name: str, frame: int) -> None:
    disk.flip_bit(name, 8 * (frame_at(disk, name, frame) + 70))


# -- nothing lost ----------------------------------------------------------------------


def test_a_good_store_comes_out_whole() -> None:
    out, done = rescued(store(30))

    assert done.lost == ()
    assert done.next_lsn == 31
    assert records_of(out) == originals(1, 30)
    assert append(open_log(out), 1) == [31]


def test_the_new_store_has_a_new_identity_and_its_old_birthday() -> None:
    disk = store(3)
    out, _ = rescued(disk)

    old, new = read_identity(disk), read_identity(out)

    assert new.uuid != old.uuid
    assert new.created_ns == old.created_ns


def test_a_repaired_store_stays_marked_when_it_is_repaired_again() -> None:
    disk = store(30)
    flip_body(disk, segments_of(disk)[0], 1)
    once, _ = rescued(disk)

    twice = MemoryFileSystem("newer", seed=9)
    done = repair(once, twice)

    assert done.lost == ()
    assert read_identity(twice).repaired
    assert records_of(twice) == records_of(once)


def test_a_torn_tail_is_left_out_and_its_numbers_never_come_back() -> None:
    disk = store(5, close=False)
    (name,) = segments_of(disk)
    disk.overwrite(name, frame_at(disk, name, -1), bytes(64))

    out, done = rescued(disk)

    assert done.lost == ()
    assert [fault.torn for fault in done.faults] == [True]
    assert records_of(out) == originals(1, 4)
    assert append(open_log(out), 1) == [4 + LSN_SKIP + 1]


def test_a_killed_store_gives_out_no_number_that_its_owner_may_have_seen() -> None:
    out, done = rescued(store(5, close=False))

    assert done.lost == ()
    assert records_of(out) == originals(1, 5)
    assert append(open_log(out), 1) == [5 + LSN_SKIP + 1]


def test_skipped_numbers_of_a_start_after_a_crash_are_not_lost() -> None:
    disk = store(5, close=False)
    log = open_log(disk)
    lsns = append(log, 3)
    log.close()

    out, done = rescued(disk)

    assert done.lost == ()
    expected = originals(1, 5) | {lsn: payload_of(lsn) for lsn in lsns}
    assert records_of(out) == expected
    assert done.next_lsn == lsns[-1] + 1


def test_a_flipped_bit_in_a_header_costs_no_record() -> None:
    disk = store(30)
    for name in segments_of(disk):
        damaged = disk.copy()
        damaged.flip_bit(name, 8 * 60 + 1)  # the salt
        out, done = rescued(damaged)
        assert done.lost == ()
        assert records_of(out) == originals(1, 30)


def test_a_store_without_its_identity_comes_out_whole() -> None:
    for damage in ("flip_bit", "remove"):
        disk = store(30)
        created_ns = read_identity(disk).created_ns
        if damage == "flip_bit":
            disk.flip_bit("STORE", 99)
        else:
            disk.remove("STORE")

        out, done = rescued(disk)

        assert done.lost == ()
        assert records_of(out) == originals(1, 30)
        # The first segment is made a moment later than the identity.
        assert 0 < read_identity(out).created_ns - created_ns < 10_000_000


def test_the_new_log_is_that_of_the_source_frame_by_frame_and_synced_all_along() -> (
    None
):
    disk = store(9, close=False)
    out, _ = rescued(disk)

    old = [frame for name in segments_of(disk) for _, frame in frames_of(disk, name)]
    (name, *_) = segments_of(out)
    new = [frame for _, frame in frames_of(out, name)]

    assert [(f.first_lsn, f.record_count, f.wall_ns) for f in new] == [
        (f.first_lsn, f.record_count, f.wall_ns) for f in old
    ]
    assert [f.durable_lsn for f in new] == [f.first_lsn - 1 for f in new]
    assert {f.flags for f in new} == {Flag.ATOMIC}
    header = segment_header(out, name)
    assert (header.segment_id, header.first_lsn) == (1, 1)
    assert header.predecessor == NO_PREDECESSOR
    assert header.created_ns == old[0].wall_ns
    assert header.size_bytes == len(out.content(name))


@pytest.mark.parametrize(("size_bytes", "frames"), [(5056, 7), (5055, 6), (100, 1)])
def test_a_new_segment_is_filled_up_to_its_size_and_holds_a_frame_at_least(
    size_bytes: int, frames: int
) -> None:
    """7 frames of 128 bytes behind a header of 4096, and room for a CLOSE of 64."""
    disk, out = closed_store(*[b"x"] * 14), new_place()

    done = repair(disk, out, segment_size_bytes=size_bytes, pause=lambda: None)

    starts = [segment_header(out, name).first_lsn for name in segments_of(out)]
    assert starts == list(range(1, 15, frames))
    assert done.segments == len(starts)
    assert verify(out).faults == ()
    assert list(records_of(out)) == list(range(1, 15))


def test_of_a_store_without_a_record_none_is_copied() -> None:
    disk = MemoryFileSystem()
    with open_log(disk) as log:
        log.start()

    _, done = rescued(disk)

    assert (done.records, done.first_lsn, done.last_lsn, done.segments) == (0, 0, 0, 1)
    assert done.next_lsn == 1


def test_what_may_be_a_write_under_way_is_looked_at_again() -> None:
    disk = store(5, close=False)
    (name,) = segments_of(disk)
    whole = disk.content(name)
    disk.overwrite(name, frame_at(disk, name, -1), bytes(64))

    done = repair(disk, new_place(), pause=lambda: disk.put(name, whole))

    assert (done.records, done.faults) == (5, ())


# -- something lost --------------------------------------------------------------------


def test_a_flip_in_the_middle_loses_that_group_and_no_other() -> None:
    disk = store(30)
    flip_body(disk, segments_of(disk)[1], 2)  # LSN 10

    out, done = rescued(disk)

    assert done.lost == (Lost(10, 10),)
    expected = originals(1, 30)
    del expected[10]
    assert records_of(out) == expected
    assert append(open_log(out), 1) == [31]


def test_a_missing_segment_loses_its_records_and_no_other() -> None:
    disk = store(30)
    disk.remove(segments_of(disk)[2])

    out, done = rescued(disk)

    assert done.lost == (Lost(15, 21, exact=False),)
    assert records_of(out) == originals(1, 14) | originals(22, 30)


def test_a_header_overwritten_by_zeros_loses_its_segment() -> None:
    disk = store(30)
    disk.overwrite(segments_of(disk)[2], 0, bytes(SEGMENT_HEADER_BYTES))

    out, done = rescued(disk)

    assert done.lost == (Lost(15, 21, exact=False),)
    assert records_of(out) == originals(1, 14) | originals(22, 30)


def test_a_last_segment_that_is_gone_leaves_no_number_to_be_given_twice() -> None:
    disk = store(30)
    disk.overwrite(segments_of(disk)[-1], 0, bytes(SEGMENT_HEADER_BYTES))

    out, done = rescued(disk)

    assert done.lost == (Lost(29, None),)
    assert records_of(out) == originals(1, 28)
    assert append(open_log(out), 1) == [28 + 1 + LOST_TAIL_SKIP]


def test_a_damaged_group_at_the_end_is_lost_and_its_number_never_comes_back() -> None:
    disk = store(30, close=False)
    flip_body(disk, segments_of(disk)[-1], -1)

    out, done = rescued(disk)

    assert done.lost == (Lost(30, 30),)
    assert records_of(out) == originals(1, 29)
    assert append(open_log(out), 1)[0] > 30


def test_losses_that_touch_each_other_stay_readable_and_do_not_overlap() -> None:
    disk = store(30)
    names = segments_of(disk)
    for frame in (2, 3):
        flip_body(disk, names[1], frame)  # 10, 11
    flip_body(disk, names[1], -1)  # 14
    disk.remove(names[2])  # 15 to 21

    _, done = rescued(disk)

    ends = [(lost.first, lost.last) for lost in done.lost]
    assert ends == sorted(ends)
    lost = [lsn for lsn in range(1, 31) if is_lost(lsn, done.lost)]
    assert lost == [10, 11, *range(14, 22)]


# -- snapshots -------------------------------------------------------------------------


def state_of(disk: MemoryFileSystem) -> tuple[list[bytes], dict[int, bytes]]:
    with open_log(disk) as log:
        blocks = list(log.snapshot_blocks())
        return blocks, {record.lsn: record.payload for record in log.read()}


def test_snapshots_are_carried_over_with_the_log_after_them() -> None:
    disk = store(30, snapshots_at=(10, 20, 28))

    out, done = rescued(disk)

    assert snapshots_of(out) == snapshots_of(disk)
    assert [info.pin_lsn for info in done.snapshots] == [28, 20]
    assert done.lost == ()
    assert state_of(out) == state_of(disk)
    assert state_of(out)[0] == [b"state at 28"]


def test_the_log_of_a_repaired_store_is_still_refused_without_its_snapshots() -> None:
    disk = store(30, snapshots_at=(10, 20, 28))
    out, _ = rescued(disk)
    for name in snapshots_of(out):
        out.remove(name)

    with pytest.raises(LogCorruptError, match="the log starts after LSN 14"):
        records_of(out)


@pytest.mark.parametrize(("pin_lsn", "dropped"), [(7, 1), (10, 1), (20, 2)])
def test_a_log_that_needs_its_snapshots_says_where_they_must_reach(
    pin_lsn: int, dropped: int
) -> None:
    """One of 7 begins right behind the snapshot."""
    disk = store(30, snapshots_at=(pin_lsn,))
    for name in segments_of(disk)[:dropped]:
        disk.remove(name)

    out, done = rescued(disk)

    assert done.lost == ()
    header = segment_header(out, segments_of(out)[0])
    assert header.segment_id == 2
    assert header.predecessor == SegmentEnd(1, 0, Lsn(7 * dropped), 0)


def test_a_log_of_which_the_first_record_is_lost_begins_as_if_it_were_the_first() -> (
    None
):
    disk = MemoryFileSystem()
    for count in (1, 5):
        with open_log(disk) as log:
            append(log, count)
    disk.remove(segments_of(disk)[0])

    out, done = rescued(disk)

    assert done.lost == (Lost(1, 1, exact=False),)
    assert records_of(out) == originals(2, 6)
    header = segment_header(out, segments_of(out)[0])
    assert (header.segment_id, header.predecessor) == (1, NO_PREDECESSOR)


def test_a_log_that_needs_a_snapshot_of_one_record_is_refused_without_it() -> None:
    disk = MemoryFileSystem()
    with open_log(disk) as log:
        append(log, 1)
        take_snapshot(log)
    with open_log(disk) as log:
        append(log, 5)
    disk.remove(segments_of(disk)[0])
    out, _ = rescued(disk)
    out.remove(snapshots_of(out)[0])

    with pytest.raises(LogCorruptError, match="the log starts after LSN 1"):
        records_of(out)


def test_one_bad_snapshot_is_left_behind_and_nothing_is_lost() -> None:
    disk = store(30, snapshots_at=(10, 20, 28))
    newest = snapshots_of(disk)[-1]
    disk.flip_bit(newest, 8 * 4100)

    out, done = rescued(disk)

    assert done.lost == ()
    assert state_of(out) == ([b"state at 20"], originals(21, 30))


def test_without_a_good_snapshot_what_they_held_is_lost_and_the_rest_opens() -> None:
    disk = store(30, snapshots_at=(10, 20, 28))
    for name in snapshots_of(disk):
        disk.flip_bit(name, 8 * 4100)

    out, done = rescued(disk)

    assert done.lost == (Lost(1, 14, exact=False),)
    assert state_of(out) == ([], originals(15, 30))


def test_bad_snapshots_beside_the_whole_log_lose_nothing() -> None:
    disk = store(10, snapshots_at=(5,))
    disk.flip_bit(snapshots_of(disk)[0], 8 * 4100)

    out, done = rescued(disk)

    assert done.lost == ()
    assert state_of(out) == ([], originals(1, 10))


def test_a_snapshot_that_reaches_behind_the_readable_log_can_be_opened() -> None:
    disk = store(30, snapshots_at=(29,))
    disk.remove(segments_of(disk)[-1])  # 29 and 30

    out, done = rescued(disk)

    assert done.lost == (Lost(29, None),)
    assert state_of(out) == ([b"state at 29"], {})
    assert append(open_log(out), 1)[0] > 30


def test_numbers_up_to_which_a_snapshot_reaches_never_come_back() -> None:
    disk = store(10, close=False)
    log = open_log(disk)
    append(log, 3)
    take_snapshot(log)
    reach = log.durable_lsn
    name = segments_of(disk)[-1]
    disk = disk.killed()
    disk.remove(name)  # the last segment, and the one before was not cut shorter
    disk.overwrite(segments_of(disk)[-1], SEGMENT_SIZE_BYTES, b"")

    out, done = rescued(disk)

    assert reach > 10 + LSN_SKIP
    assert done.lost == (Lost(11, reach),)
    assert records_of(out) == {}  # all that is left lies before the snapshot
    assert append(open_log(out), 1)[0] > reach


def test_a_store_of_which_only_a_snapshot_is_left_can_be_opened() -> None:
    disk = store(30, snapshots_at=(20,))
    for name in segments_of(disk):
        disk.remove(name)

    out, done = rescued(disk)

    assert done.lost == (Lost(21, None),)
    assert state_of(out) == ([b"state at 20"], {})


# -- anything at all -------------------------------------------------------------------


def assert_honest(damaged: MemoryFileSystem, truth: dict[int, bytes]) -> int:
    """What is read is true, and what is not is told; return the next number."""
    out, done = rescued(damaged)
    read = records_of(out)
    assert read.items() <= truth.items()
    assert not [lsn for lsn in read if is_lost(lsn, done.lost)]
    ends = [lost.last or lost.first for lost in done.lost]
    end = max([*read, *ends], default=0)
    silent = [n for n in truth if n not in read and not is_lost(n, done.lost)]
    # If damage also hides where a file ended, what came after it leaves no trace.
    assert [lsn for lsn in silent if lsn <= end] == []
    assert append(open_log(out), 1) == [done.next_lsn]
    assert done.next_lsn > end
    return 0 if silent else done.next_lsn


def any_store(kind: str) -> tuple[MemoryFileSystem, dict[int, bytes]]:
    """A store and the records that it holds."""
    if kind != "reopened":
        return store(30, close=kind == "closed"), originals(1, 30)
    disk = store(12, close=False)
    log = open_log(disk)
    lsns = append(log, 12)
    log.close()
    return disk, originals(1, 12) | {lsn: payload_of(lsn) for lsn in lsns}


def flipped(disk: MemoryFileSystem, name: str, bit: int) -> MemoryFileSystem:
    damaged = disk.copy()
    damaged.flip_bit(name, bit)
    return damaged


KINDS = ("closed", "killed", "reopened")


@pytest.mark.parametrize("kind", KINDS)
def test_after_any_flipped_bit_what_is_missing_is_named(
    kind: str, rng: random.Random
) -> None:
    disk, truth = any_store(kind)
    names = [*segments_of(disk), "STORE"]
    for _ in range(50):
        name = rng.choice(names)
        bit = rng.randrange(8 * len(disk.content(name)))
        assert assert_honest(flipped(disk, name, bit), truth) > max(truth)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_after_a_flipped_bit_in_every_byte_what_is_missing_is_named(kind: str) -> None:
    disk, truth = any_store(kind)
    for name in [*segments_of(disk), "STORE"]:
        for byte in range(len(disk.content(name))):
            damaged = flipped(disk, name, 8 * byte + byte % 8)
            assert assert_honest(damaged, truth) > max(truth)


@pytest.mark.parametrize("kind", KINDS)
def test_after_several_faults_at_once_what_is_missing_is_named(
    kind: str, rng: random.Random
) -> None:
    disk, truth = any_store(kind)
    for _ in range(50):
        damaged = disk.copy()
        for _ in range(rng.randint(2, 6)):
            damage(damaged, rng)
        if not is_hopeless(damaged):
            assert_honest(damaged, truth)


def damage(disk: MemoryFileSystem, rng: random.Random) -> None:
    name = rng.choice(segments_of(disk))
    size = len(disk.content(name))
    at = rng.randrange(size + 1)
    match rng.randrange(8):
        case 0 if len(segments_of(disk)) > 1:
            disk.remove(name)
        case 1:
            disk.cut(name, at)
        case 2:
            disk.overwrite(name, at, rng.randbytes(rng.randint(1, 600)))
        case 3:
            disk.overwrite(name, at // 512 * 512, bytes(512))
        case _ if size:
            disk.flip_bit(name, rng.randrange(8 * size))
        case _:
            pass


def is_hopeless(disk: MemoryFileSystem) -> bool:
    """Whether not even the identity of the store can be told."""
    try:
        verify(disk, pause=lambda: None)
    except StoreError:
        return True
    return False


# -- what is refused -------------------------------------------------------------------


def test_nothing_is_repaired_in_place_or_into_a_place_that_is_taken() -> None:
    disk = store(3)
    inside = MemoryFileSystem("memory/new")
    with pytest.raises(StoreError, match="never in place"):
        repair(disk, inside)
    with pytest.raises(StoreError, match="never in place"):
        repair(disk, disk)

    taken = new_place()
    taken.put("letter.txt", b"Dear ...")
    before = taken.snapshot_of_all()
    with pytest.raises(StoreError, match="new: is not empty"):
        repair(disk, taken)
    assert taken.snapshot_of_all() == before


def test_a_place_that_is_a_file_is_refused() -> None:
    out = new_place()
    out.fail("exists", errno.ENOTDIR)

    with pytest.raises(StoreError, match="new: is a file"):
        repair(store(3), out)


def test_an_empty_directory_is_taken_but_not_by_two_repairs_at_once() -> None:
    out = new_place()
    out.make_directory()
    take_lock(out)

    with pytest.raises((StoreInUseError, StoreError)):
        repair(store(3), out)
    assert "STORE" not in out.names()


def test_what_is_no_store_is_not_repaired_and_nothing_is_made() -> None:
    empty, out = MemoryFileSystem("empty"), new_place()
    empty.make_directory()

    with pytest.raises(StoreError, match="empty: is empty"):
        repair(empty, out)

    assert not out.exists()


def test_a_repair_that_ends_early_leaves_no_store() -> None:
    disk = store(30)
    whole = new_place()
    repair(disk, whole)

    for call in range(1, whole.calls):
        out = new_place()
        out.fail("pwrite", errno.ENOSPC, after=call)
        try:
            repair(disk, out)
        except OSError:
            assert "STORE" not in out.names()
        else:
            assert verify(out).faults == ()


def test_every_crash_of_a_repair_leaves_no_store_or_a_whole_one() -> None:
    disk = store(12)
    whole = new_place()
    repair(disk, whole)

    for call in range(1, whole.calls + 1):
        out = new_place()
        out.crash_at(call)
        with pytest.raises(SimulatedCrash):
            repair(disk, out)
        for state in out.crash_states(12):
            if state.exists() and "STORE" in state.names():
                assert verify(state).faults == ()
                assert records_of(state) == originals(1, 12)


class Checkpointing(MemoryFileSystem):
    """Its owner writes a checkpoint while a repair reads the n-th file."""

    log: Log | None = None
    reads = 0

    def pread(self, handle: Handle, size_bytes: int, offset: int) -> bytes:
        self.reads -= 1
        if self.reads == 0 and self.log is not None:
            take_snapshot(self.log)
        return super().pread(handle, size_bytes, offset)


def test_a_checkpoint_of_a_live_owner_meanwhile_never_loses_anything_silently() -> None:
    outcomes = set()
    for reads in range(1, 60):
        disk = Checkpointing()
        log = open_log(disk)
        append(log, 15)
        take_snapshot(log)
        append(log, 15)
        disk.log, disk.reads = log, reads
        out = new_place()
        try:
            done = repair(disk, out)
        except StoreError as error:
            outcomes.add(error.found)
            continue
        assert done.lost == ()
        blocks, records = state_of(out)
        assert blocks in ([b"state at 15"], [b"state at 30"])
        assert records == originals(16 if blocks == [b"state at 15"] else 31, 30)
        outcomes.add("copied")
    assert outcomes == {"copied", "its owner wrote a checkpoint meanwhile"}


def test_a_snapshot_that_comes_meanwhile_and_drops_nothing_does_not_matter() -> None:
    disk = Eventful()
    log = open_log(disk)
    append(log, 15)
    disk.after(2, lambda: take_snapshot(log))  # right after the segments were listed
    out = new_place()

    done = repair(disk, out, pause=lambda: None)

    assert len(snapshots_of(disk)) == 1
    assert (done.records, done.snapshots, done.lost) == (15, (), ())


@pytest.mark.parametrize("first", [1, 7])
def test_a_log_that_needs_a_snapshot_which_came_meanwhile_is_not_repaired(
    first: int,
) -> None:
    """Its first segment, of so many records, went before the segments were listed."""
    disk = Eventful()
    with open_log(disk) as log:
        append(log, first)
    log = open_log(disk)
    append(log, 5)

    def checkpoint() -> None:
        take_snapshot(log)
        disk.remove(segments_of(disk)[0])

    disk.after(1, checkpoint)  # right after the snapshots were listed

    with pytest.raises(StoreError, match="wrote a checkpoint meanwhile"):
        repair(disk, new_place(), pause=lambda: None)


class Dropped(MemoryFileSystem):
    """One of its files goes right before it is opened for the n-th time."""

    victim = ""
    opens = 0

    def open(self, name: str, *, writable: bool = False) -> Handle:
        if name == self.victim:
            self.opens -= 1
            if not self.opens:
                self.remove(name)
        return super().open(name, writable=writable)


def test_one_segment_that_was_dropped_before_it_was_read_ends_a_repair() -> None:
    disk = Dropped()
    with open_log(disk) as log:
        append(log, 30)
    disk.victim, disk.opens = segments_of(disk)[0], 3  # listed, looked at, read

    with pytest.raises(StoreError, match="wrote a checkpoint meanwhile"):
        repair(disk, new_place(), pause=lambda: None)
