"""Looking at a store from outside: every fault is found, and only what is one."""

from __future__ import annotations

import errno
import itertools
import random
import socket
import struct
import time
from pathlib import Path

import pytest

from tests.wal.example_stores import (
    SEGMENT_SIZE_BYTES,
    Eventful,
    append,
    open_log,
    originals,
    records_of,
    segments_of,
    snapshots_of,
    store,
    take_snapshot,
)
from tests.wal.stores import frames_of
from wal.errors import CommitUnknownError, LogCorruptError, StoreError
from wal.faults import Lost
from wal.filesystem import FileSystem
from wal.frame import Flag, chain_of, encode_frame, encode_records
from wal.inspection import (
    Verification,
    check_snapshots,
    iso_utc,
    kind_of,
    stat,
    survey,
    verify,
)
from wal.log import Log
from wal.scan import LOOKS
from wal.segment import SEGMENT_HEADER_BYTES, decode_segment_header
from wal.store import read_identity
from wal.tail import Verdict
from wal.testing import MemoryFileSystem, SimulatedCrash


def unmoved() -> None:
    """Between two looks nothing happens."""


def checked(disk: MemoryFileSystem) -> Verification:
    """What `verify` says, which must leave the disk as it is."""
    before, calls = disk.snapshot_of_all(), disk.calls
    found = verify(disk, pause=unmoved)
    assert disk.snapshot_of_all() == before
    assert disk.calls == calls  # nothing was written, made, synced or locked
    return found


def frame_offsets(disk: MemoryFileSystem, name: str) -> list[int]:
    data = disk.content(name)
    offsets = range(SEGMENT_HEADER_BYTES, len(data), 64)
    return [at for at in offsets if data[at : at + 4] == b"TWgf"]


def flip_body(disk: MemoryFileSystem, name: str, frame: int) -> int:
    """Flip a bit in the first payload of the n-th frame; return the frame's offset."""
    at = frame_offsets(disk, name)[frame]
    disk.flip_bit(name, 8 * (at + 70))
    return at


# -- what is good ----------------------------------------------------------------------


def test_a_closed_store_is_good() -> None:
    disk = store(30)
    found = checked(disk)

    assert found.faults == ()
    assert (found.records, found.first_lsn, found.last_lsn) == (30, 1, 30)
    assert (found.segments, found.frames) == (5, 31)  # CLOSE is a frame too
    frames = [f for name in segments_of(disk) for _, f in frames_of(disk, name)]
    assert found.frame_bytes == sum(frame.frame_bytes for frame in frames)
    assert found.last_wall_ns == frames[-1].wall_ns
    assert not found.busy
    assert found.closed
    assert not found.corrupt
    assert not found.torn


def test_a_killed_store_is_good_and_not_closed() -> None:
    found = checked(store(30, close=False))

    assert found.faults == ()
    assert not found.closed
    assert found.holder.startswith("process 1, open since 2023-11-14")


def test_without_a_lock_nobody_holds_a_store() -> None:
    disk = store(3)
    disk.remove("LOCK")

    assert checked(disk).holder == ""


def test_a_holder_whose_text_is_damaged_is_told_as_it_is() -> None:
    disk = store(3)
    disk.put("LOCK", b" process \xff\n")

    assert checked(disk).holder == "process \N{REPLACEMENT CHARACTER}"


def test_a_store_that_was_reopened_after_a_crash_is_good_though_numbers_are_skipped() -> (
    None
):
    disk = store(10, close=False)
    log = open_log(disk)
    lsns = append(log, 3)
    log.close()

    found = checked(disk)

    assert lsns[0] == 10 + (1 << 20) + 1
    assert found.faults == ()
    assert (found.records, found.last_lsn) == (13, lsns[-1])


def test_a_store_with_snapshots_whose_old_log_is_gone_is_good() -> None:
    found = checked(store(30, snapshots_at=(10, 20, 28)))

    assert found.faults == ()
    assert [info.pin_lsn for info in found.snapshots] == [28, 20]
    assert found.first_lsn > 1


def test_a_snapshot_taken_right_after_a_start_behind_a_crash_is_no_fault() -> None:
    disk = store(10, close=False)
    log = open_log(disk)
    log.start()
    take_snapshot(log)  # pinned at a number that no record has

    assert checked(disk).faults == ()


def test_every_crash_state_of_a_write_is_good_or_torn_never_corrupt() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, 2)
    log.append(b"x" * 600)
    disk.crash_at(disk.calls + 2)
    with pytest.raises(SimulatedCrash):
        log.commit()

    states = [checked(state) for state in disk.crash_states(500)]

    assert len(states) > 2
    assert not any(found.corrupt for found in states)
    assert any(found.torn for found in states)


# -- verify and recovery agree ---------------------------------------------------------


def verdict_of_recovery(disk: MemoryFileSystem) -> LogCorruptError | Verdict:
    try:
        with open_log(disk) as log:
            for _ in log.groups():
                pass
            reader = log._recovery._reader
    except LogCorruptError as error:
        return error
    assert reader is not None
    assert reader.tail is not None
    return reader.tail.verdict


def assert_agreement(disk: MemoryFileSystem) -> None:
    found, expected = checked(disk), verdict_of_recovery(disk)
    if isinstance(expected, LogCorruptError):
        assert found.corrupt
        first = next(fault for fault in found.faults if not fault.torn)
        assert first.file == expected.file
        assert first.offset == expected.offset
        assert first.records_at_stake >= expected.records_at_stake
        if expected.offset:
            assert first.expected_lsn == expected.expected_lsn
            assert first.what == expected.what
            assert first.next_offset == expected.next_offset
            assert first.next_lsn == expected.next_lsn
    elif expected is Verdict.CUT:
        assert found.torn
        assert len(found.faults) == 1
    else:
        assert found.faults == ()


def test_verify_and_recovery_agree_on_every_flipped_bit_of_a_last_segment() -> None:
    disk = store(4, close=False)
    (name,) = segments_of(disk)
    end = frame_offsets(disk, name)[-1] + 64 * 3

    for bit in range(8 * SEGMENT_HEADER_BYTES, 8 * end, 7):
        damaged = disk.copy()
        damaged.flip_bit(name, bit)
        assert_agreement(damaged)


def test_verify_and_recovery_agree_on_every_length_of_a_last_segment() -> None:
    for disk in (store(4), store(4, close=False)):
        (name,) = segments_of(disk)
        for size in range(0, len(disk.content(name)), 13):
            damaged = disk.copy()
            damaged.cut(name, size)
            assert_agreement(damaged)


def test_verify_and_recovery_agree_on_damage_anywhere_in_a_longer_log(
    rng: random.Random,
) -> None:
    disk = store(20)
    for _ in range(300):
        damaged = disk.copy()
        name = rng.choice(segments_of(disk))
        damaged.flip_bit(name, rng.randrange(8 * len(disk.content(name))))
        assert_agreement(damaged)


# -- what is not -----------------------------------------------------------------------


def test_a_flipped_bit_names_file_offset_lsns_and_records_at_stake() -> None:
    disk = store(30)
    name = segments_of(disk)[1]
    at = flip_body(disk, name, 2)

    (fault,) = checked(disk).faults

    assert not fault.torn
    assert (fault.file, fault.offset, fault.expected_lsn) == (name, at, 10)
    assert fault.next_offset == frame_offsets(disk, name)[3]
    assert fault.next_lsn == 11
    assert fault.records_at_stake == 5  # 10 to 14, the end of this segment
    assert fault.lost == Lost(10, 10)


def test_damage_before_the_end_of_a_closed_log_is_told_from_a_lost_end() -> None:
    """A closed segment is short, and a reader that stops early never sees CLOSE."""
    disk = store(4)
    (name,) = segments_of(disk)
    at = flip_body(disk, name, 1)

    (fault,) = checked(disk).faults
    error = verdict_of_recovery(disk)

    assert "proves that LSN 2 had been synced" in fault.what
    assert isinstance(error, LogCorruptError)
    for found in (fault, error):
        assert (found.offset, found.next_lsn, found.records_at_stake) == (at, 3, 3)
        assert found.next_offset == frame_offsets(disk, name)[2]


def test_every_one_of_several_faults_is_listed() -> None:
    disk = store(30)
    names = segments_of(disk)
    places = [(names[0], flip_body(disk, names[0], 0))]
    places += [(names[2], flip_body(disk, names[2], n)) for n in (1, 4)]
    places += [(names[-1], flip_body(disk, names[-1], 0))]

    found = checked(disk)

    assert [(fault.file, fault.offset) for fault in found.faults] == places
    assert found.records == 26


def test_neighbouring_damaged_frames_are_two_faults() -> None:
    disk = store(30)
    name = segments_of(disk)[1]
    offsets = [flip_body(disk, name, frame) for frame in (2, 3)]

    found = checked(disk)

    assert [fault.offset for fault in found.faults] == offsets
    assert [fault.lost for fault in found.faults] == [Lost(10, 10), Lost(11, 11)]


def test_a_missing_segment_is_named_with_the_records_it_held() -> None:
    disk = store(30)
    names = segments_of(disk)
    disk.remove(names[2])  # 15 to 21

    (fault,) = checked(disk).faults

    assert (fault.file, fault.offset, fault.expected_lsn) == (names[3], 0, 15)
    assert "1 segment(s) missing" in fault.what
    assert fault.lost == Lost(15, 21, exact=False)


def test_a_missing_first_segment_is_a_fault_only_if_no_snapshot_covers_it() -> None:
    disk = store(30, snapshots_at=(10,))
    disk.remove(segments_of(disk)[0])
    assert checked(disk).faults == ()

    disk.remove(snapshots_of(disk)[0])
    (fault,) = checked(disk).faults
    assert (fault.file, fault.offset) == (segments_of(disk)[0], 0)
    assert "the log starts after LSN 7" in fault.what
    assert fault.lost == Lost(1, 7, exact=False)


def test_a_missing_last_segment_shows_by_the_length_of_the_one_before() -> None:
    disk = store(30)
    disk.remove(segments_of(disk)[-1])

    (fault,) = checked(disk).faults

    assert fault.file == segments_of(disk)[-1]
    assert "its end was cut off" in fault.what
    assert fault.lost == Lost(29, None)


def test_a_missing_last_segment_shows_if_a_snapshot_reaches_further() -> None:
    disk = store(30, snapshots_at=(29,))
    disk.remove(segments_of(disk)[-1])
    name = segments_of(disk)[-1]
    disk.overwrite(name, SEGMENT_SIZE_BYTES, b"")  # as if it had not been shortened

    (fault,) = checked(disk).faults

    assert "the log ends before LSN 29" in fault.what
    assert fault.lost == Lost(29, 29)


def test_a_damaged_header_is_a_fault_though_the_frames_behind_it_are_read() -> None:
    disk = store(30)
    name = segments_of(disk)[2]
    for bit in (8 * 2000, 8 * 56 + 3):  # in the padding; in the salt itself
        damaged = disk.copy()
        damaged.flip_bit(name, bit)

        found = checked(damaged)

        (fault,) = found.faults
        assert (fault.file, fault.offset) == (name, 0)
        assert "damaged segment header" in fault.what
        assert fault.lost is None
        assert found.records == 30


def test_a_header_that_is_gone_takes_its_segment_with_it() -> None:
    disk = store(30)
    names = segments_of(disk)
    disk.overwrite(names[2], 0, bytes(SEGMENT_HEADER_BYTES))

    header, gap = checked(disk).faults

    assert (header.file, header.offset) == (names[2], 0)
    assert (gap.file, gap.lost) == (names[3], Lost(15, 21, exact=False))


def test_a_gone_header_of_the_last_segment_leaves_the_loss_open() -> None:
    disk = store(30)
    name = segments_of(disk)[-1]
    disk.overwrite(name, 0, bytes(SEGMENT_HEADER_BYTES))

    (fault,) = checked(disk).faults

    assert fault.lost == Lost(29, None)


def test_a_damaged_header_of_an_empty_last_segment_loses_nothing() -> None:
    disk = store(30)
    open_log(disk).start()
    name = segments_of(disk)[-1]
    disk.flip_bit(name, 8 * 2000)

    (fault,) = checked(disk).faults

    assert fault.file == name
    assert fault.lost is None


def test_damage_at_the_end_of_a_segment_shows_though_its_successor_is_useless() -> None:
    disk = store(30)
    names = segments_of(disk)
    flip_body(disk, names[-2], -1)  # LSN 28
    disk.overwrite(names[-1], 0, bytes(SEGMENT_HEADER_BYTES))

    (fault,) = checked(disk).faults

    assert fault.lost == Lost(28, None)


def test_a_torn_tail_is_no_damage() -> None:
    disk = store(3, close=False)
    (name,) = segments_of(disk)
    last = frame_offsets(disk, name)[-1]
    disk.overwrite(name, last, bytes(64))  # the header's sector never came

    found = checked(disk)

    (fault,) = found.faults
    assert fault.torn
    assert fault.lost is None
    assert found.torn
    assert not found.corrupt
    assert found.records == 2


def test_a_last_segment_without_its_end_is_damage() -> None:
    disk = store(3, close=False)
    (name,) = segments_of(disk)
    disk.cut(name, SEGMENT_SIZE_BYTES - 512)

    (fault,) = checked(disk).faults

    assert "its end was cut off" in fault.what
    assert not fault.torn


def test_one_bad_snapshot_is_a_fault_and_two_bad_ones_lose_what_they_covered() -> None:
    disk = store(30, snapshots_at=(10, 20, 28))
    newest, older = reversed(snapshots_of(disk))
    disk.flip_bit(newest, 8 * 4100)

    (fault,) = checked(disk).faults
    assert (fault.file, fault.offset) == (newest, 4096)
    assert fault.lost is None

    disk.flip_bit(older, 8 * 4100)
    *snapshots, start = checked(disk).faults
    assert [fault.file for fault in snapshots] == [newest, older]
    assert start.lost == Lost(1, 14, exact=False)


def test_a_snapshot_that_is_damaged_is_told_by_its_name() -> None:
    disk = store(3)
    disk.put("snap-0000000000000000.snap", b"bad")

    (fault,) = checked(disk).faults

    assert (fault.file, fault.expected_lsn) == ("snap-0000000000000000.snap", 0)
    assert fault.what.startswith("snapshot: ")


def test_a_segment_of_another_store_is_not_taken_for_ours() -> None:
    disk, other = store(30), store(30)
    name = segments_of(disk)[1]
    stranger = MemoryFileSystem(seed=1)
    log = open_log(stranger)
    append(log, 30)
    log.close()
    disk.put(name, stranger.content(name))
    assert other.content(name) != stranger.content(name)

    foreign, gap = checked(disk).faults

    assert foreign.what == "the segment of another store"
    assert gap.lost == Lost(8, 14, exact=False)


def test_a_renamed_segment_is_read_by_what_its_header_says() -> None:
    disk = store(30)
    name = segments_of(disk)[1]
    disk.put("wal-0000000000000009-0000000000000099.seg", disk.content(name))
    disk.remove(name)

    found = checked(disk)

    (fault,) = found.faults
    assert f"the header of {name}: the file was renamed" in fault.what
    assert found.records == 30


def test_a_copy_of_a_segment_under_another_name_is_not_read_twice() -> None:
    disk = store(30)
    name = segments_of(disk)[1]
    disk.put("wal-0000000000000009-0000000000000099.seg", disk.content(name))

    found = checked(disk)

    (fault,) = found.faults
    assert f"the same segment as {name}" in fault.what
    assert found.records == 30


def forged(
    disk: MemoryFileSystem,
    at: int,
    payloads: list[bytes],
    *,
    record_count: int,
    first_lsn: int,
) -> bytes:
    """A frame for that place of the only segment, following the frame before it."""
    (name,) = segments_of(disk)
    data = disk.content(name)
    header = decode_segment_header(data[:SEGMENT_HEADER_BYTES], name)
    assert header is not None
    return encode_frame(
        encode_records(payloads),
        record_count=record_count,
        first_lsn=first_lsn,
        durable_lsn=first_lsn - 1,
        wall_ns=1,
        chain_crc=chain_of(data, at - 128),
        flags=Flag.NONE,
        seed=header.seed,
        offset=at,
    )


def test_a_frame_that_holds_but_makes_no_sense_is_a_fault() -> None:
    disk = store(2, close=False)
    (name,) = segments_of(disk)
    at = frame_offsets(disk, name)[-1]
    disk.overwrite(
        name, at, forged(disk, at, [b"one", b"two"], record_count=3, first_lsn=2)
    )

    (fault,) = checked(disk).faults

    assert "do not add up" in fault.what
    assert fault.lost == Lost(2, 4)


def test_a_frame_whose_number_has_passed_is_not_read_again() -> None:
    disk = store(2, close=False)
    (name,) = segments_of(disk)
    at = frame_offsets(disk, name)[-1] + 128
    disk.overwrite(name, at, forged(disk, at, [b"one"], record_count=1, first_lsn=2))

    found = checked(disk)

    (fault,) = found.faults
    assert (fault.offset, fault.next_offset, fault.lost) == (at, None, Lost(3, None))
    assert "does not follow" in fault.what
    assert found.records == 2


def test_a_damaged_identity_is_a_fault_and_the_log_is_still_checked() -> None:
    disk = store(30)
    disk.flip_bit("STORE", 8 * 30)
    found = checked(disk)
    (fault,) = found.faults
    assert (fault.file, fault.offset, fault.expected_lsn) == ("STORE", 0, 1)
    assert found.corrupt
    assert found.records == 30

    disk.remove("STORE")
    found = checked(disk)
    assert [fault.what for fault in found.faults] == ["missing, though a log is there"]
    assert found.records == 30


def test_without_its_identity_a_store_is_that_of_a_segment_even_of_a_damaged_one() -> (
    None
):
    disk = store(3)
    uuid = read_identity(disk).uuid
    disk.remove("STORE")
    disk.flip_bit(segments_of(disk)[0], 8 * 2000)

    assert survey(disk).uuid == uuid
    found = checked(disk)
    assert [fault.file for fault in found.faults] == ["STORE", segments_of(disk)[0]]
    assert found.records == 3


def test_without_its_identity_a_store_is_that_of_most_segments() -> None:
    disk, other = store(30), MemoryFileSystem(seed=1)
    uuid = read_identity(disk).uuid
    append(open_log(other), 3)
    first = segments_of(disk)[0]
    disk.put(first, other.content(segments_of(other)[0]))
    disk.remove("STORE")

    assert survey(disk).uuid == uuid


def test_a_store_without_any_segment_is_corrupt() -> None:
    disk = store(3)
    for name in segments_of(disk):
        disk.remove(name)

    (fault,) = checked(disk).faults

    assert fault.what == "there is no segment of the log"
    assert (fault.file, fault.offset, fault.expected_lsn) == ("STORE", 0, 1)
    assert fault.records_at_stake == 1
    assert fault.lost == Lost(1, None)


# -- what is no store ------------------------------------------------------------------


def test_what_is_no_store_is_refused_by_name() -> None:
    missing = MemoryFileSystem("nowhere")
    with pytest.raises(StoreError, match="nowhere: does not exist"):
        verify(missing)

    empty = MemoryFileSystem("void")
    empty.make_directory()
    with pytest.raises(StoreError, match="void: is empty"):
        verify(empty)

    letters = MemoryFileSystem("letters")
    letters.put("to-mother.txt", b"Dear ...")
    with pytest.raises(StoreError, match=r"is not a store: it holds to-mother\.txt"):
        verify(letters)


def test_a_birth_that_a_crash_cut_off_is_no_store_and_no_damage() -> None:
    whole = MemoryFileSystem()
    append(open_log(whole), 1)
    unborn = 0
    for call in range(1, whole.calls + 1):
        disk = MemoryFileSystem()
        disk.crash_at(call)
        with pytest.raises(SimulatedCrash):
            append(open_log(disk), 1)
        for state in disk.crash_states(50):
            if state.exists() and "STORE" in state.names():
                assert not checked(state).corrupt
            else:
                unborn += 1
                with pytest.raises(StoreError, match=r"is empty|does not exist"):
                    checked(state)
    assert unborn > 10


def test_a_store_of_a_newer_format_is_refused_and_not_called_damaged() -> None:
    from wal.checksum import crc32c

    disk = store(3)
    data = bytearray(disk.content("STORE"))
    struct.pack_into("<H", data, 8, 2)
    struct.pack_into("<I", data, 48, crc32c(bytes(data[:48])))
    disk.put("STORE", bytes(data))

    with pytest.raises(
        StoreError, match=r"format 2\.0, and this version reads up to 1"
    ):
        verify(disk)


def test_an_unreadable_disk_is_an_error_that_names_the_file_and_no_verdict() -> None:
    disk = store(30)
    name = segments_of(disk)[1]
    disk.fail("pread", errno.EIO, name=name, after=2)

    with pytest.raises(OSError, match=name):
        verify(disk)


def test_the_verdict_rests_on_the_disk_and_not_on_what_a_failed_sync_left() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, 2)
    disk.fail("datasync", errno.EIO)
    log.append(b"never on the disk")
    with pytest.raises(CommitUnknownError):
        log.commit()

    assert verify(disk, pause=unmoved).records == 2


# -- beside a live owner ---------------------------------------------------------------


def half_written(disk: MemoryFileSystem, log: Log, lsn: int) -> bytes:
    """Commit a record, then take its frame's body out again; return the whole file."""
    name = segments_of(disk)[-1]
    append(log, 1)
    whole = disk.content(name)
    at = frame_offsets(disk, name)[-1]
    disk.overwrite(name, at + 64, bytes(8))
    return whole


def test_a_write_under_way_is_no_fault() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, 3)
    name = segments_of(disk)[-1]
    whole = half_written(disk, log, 4)
    looks = []

    def complete_at_the_third_look() -> None:
        looks.append(1)
        if len(looks) == 3:
            disk.put(name, whole)

    found = verify(disk, pause=complete_at_the_third_look)

    assert found.faults == ()
    assert found.busy
    assert found.records == 4
    assert len(looks) == 3


def test_what_stays_half_written_is_judged_after_a_few_looks() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, 3)
    half_written(disk, log, 4)
    looks = []

    found = verify(disk, pause=lambda: looks.append(1))

    assert len(looks) == 5
    assert len(found.faults) == 1
    assert not found.busy


def test_damage_in_the_middle_is_found_though_the_log_is_being_written() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, 3)
    name = segments_of(disk)[-1]
    at = flip_body(disk, name, 1)

    def write_on() -> None:
        append(log, 1)

    found = verify(disk, pause=write_on)

    assert [(fault.file, fault.offset) for fault in found.faults] == [(name, at)]
    assert found.faults[0].lost == Lost(2, 2)


def test_a_log_that_moves_on_to_a_new_segment_meanwhile_is_good() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, 3)
    whole = half_written(disk, log, 4)

    def go_on() -> None:
        disk.put(segments_of(disk)[0], whole)
        append(log, 12)

    found = verify(disk, pause=go_on)

    assert len(segments_of(disk)) > 1
    assert found.faults == ()
    assert found.busy


def test_segments_and_snapshots_that_the_owner_drops_meanwhile_are_no_fault() -> None:
    disk = Eventful()
    log = open_log(disk)
    append(log, 10)
    take_snapshot(log)
    append(log, 10)
    take_snapshot(log)
    append(log, 10)
    first = segments_of(disk)[0]

    def two_checkpoints() -> None:
        for _ in range(2):
            append(log, 8)
            take_snapshot(log)

    for look in range(8):  # the checkpoints come at a later look each time
        append(log, 8)
        disk.after(look, two_checkpoints)
        assert verify(disk, pause=unmoved).faults == ()
    assert first not in segments_of(disk)


def test_a_snapshot_that_came_after_the_log_was_read_proves_nothing_of_its_end() -> (
    None
):
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, 10)
    take_snapshot(log)
    acts = iter([2, 0])  # checkpoints after the snapshot, and after the last segment

    def checkpoints(_done: int, _total: int) -> None:
        for _ in range(next(acts, 1)):
            append(log, 30)
            take_snapshot(log)

    found = verify(disk, progress=checkpoints, pause=unmoved)

    assert found.last_lsn < log.durable_lsn
    assert found.faults == ()


@pytest.mark.parametrize("segment", [0, 1])
def test_a_log_that_is_dropped_to_its_last_segment_meanwhile_is_good(
    segment: int,
) -> None:
    """A snapshot reaches further than what was read, and the rest is gone."""
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, 12)
    take_snapshot(log)
    left = [*segments_of(disk)]
    skip = iter([False] * (1 + segment))  # after the snapshot, and a segment or none

    def checkpoints(_done: int, _total: int) -> None:
        if next(skip, True):
            while left[-1] in segments_of(disk):
                append(log, 30)
                take_snapshot(log)

    found = verify(disk, progress=checkpoints, pause=unmoved)

    assert left[-1] not in segments_of(disk)
    assert found.faults == ()
    assert not found.closed


def test_a_snapshot_that_is_dropped_meanwhile_hides_no_older_one() -> None:
    disk = store(30, snapshots_at=(10, 20))
    newest = snapshots_of(disk)[-1]
    disk.fail("open", errno.ENOENT, name=newest)

    valid, faults = check_snapshots(disk, read_identity(disk).uuid)

    assert [info.pin_lsn for info in valid] == [10]
    assert faults == []


def test_a_snapshot_that_comes_meanwhile_and_is_not_needed_is_not_counted() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, 3)

    found = verify(disk, progress=lambda *_: take_snapshot(log), pause=unmoved)

    assert snapshots_of(disk)
    assert found.snapshots == ()


def test_a_file_that_somebody_else_takes_away_is_an_error() -> None:
    disk = store(30)
    gone = segments_of(disk)[2]
    disk.fail("open", errno.ENOENT, name=gone, after=3)

    with pytest.raises(FileNotFoundError, match=gone):
        verify(disk)


# -- in figures ------------------------------------------------------------------------


def test_stat_counts_files_by_kind_and_bytes_by_record() -> None:
    disk = store(30, snapshots_at=(10, 20))
    disk.put("wal-0000000000000001-0000000000000001.seg.00001000.torn", b"torn")
    disk.put("snap-0000000000000001.snap.damaged", b"bad")

    stats = stat(disk)

    assert stats.files["segment"] == (
        len(segments_of(disk)),
        sum(len(disk.content(name)) for name in segments_of(disk)),
    )
    assert stats.files["snapshot"][0] == 2
    assert stats.files["ready"][0] == 1
    assert stats.files["torn"] == (1, 4)
    assert stats.files["damaged"] == (1, 3)
    assert stats.files["other"] == (2, len(disk.content("STORE")))  # and an empty LOCK
    assert stats.bytes_per_record == pytest.approx(
        stats.verification.frame_bytes / stats.verification.records
    )
    assert stats.identity == survey(disk).identity


def test_a_store_in_figures_is_looked_at_as_often_as_one_that_is_verified() -> None:
    disk = store(3, close=False)
    (name,) = segments_of(disk)
    disk.overwrite(name, frame_offsets(disk, name)[-1], bytes(64))
    looks: list[int] = []

    stats = stat(disk, pause=lambda: looks.append(1))

    assert stats.verification.torn
    assert len(looks) == LOOKS


def test_a_store_without_records_has_no_bytes_per_record() -> None:
    disk = MemoryFileSystem()
    open_log(disk).start()

    stats = stat(disk)

    assert stats.verification.records == 0
    assert stats.bytes_per_record == 0.0


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("STORE", "other"),
        ("LOCK", "other"),
        ("ready-00000001.tmp", "ready"),
        ("filling.tmp", "temporary"),
        ("wal-0000000000000001-0000000000000001.seg", "segment"),
        ("wal-1-1.seg", "other"),
        ("snap-0000000000000001.snap", "snapshot"),
    ],
)
def test_a_file_is_known_by_its_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_progress_counts_each_snapshot_and_each_segment_when_it_is_done() -> None:
    disk = store(30, snapshots_at=(20,))
    names = (*snapshots_of(disk), *segments_of(disk))
    ends = list(itertools.accumulate(len(disk.content(name)) for name in names))
    steps: list[tuple[int, int]] = []

    verify(disk, progress=lambda *step: steps.append(step))

    # A segment is done when the next one begins; before the first one nothing is.
    assert steps == [(end, ends[-1]) for end in (ends[0], *ends)]


def test_progress_tells_no_more_than_the_whole() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, 3)
    take_snapshot(log)
    steps: list[tuple[int, int]] = []

    def more(*step: int) -> None:
        if not steps:
            append(log, 30)
        steps.append((step[0], step[1]))

    verify(disk, progress=more, pause=unmoved)

    total = steps[0][1]
    assert len(steps) > 4
    assert steps[-1] == (total, total)


def test_times_are_shown_to_the_nanosecond_in_utc() -> None:
    assert iso_utc(1_700_000_000_000_000_001) == "2023-11-14T22:13:20.000000001Z"
    assert iso_utc(2**64 - 1).startswith("2554-")
    assert iso_utc(0) == "never"


def test_times_are_shown_in_utc_wherever_the_process_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as here:
        here.setenv("TZ", "XXX-9")
        time.tzset()
        shown = iso_utc(1_700_000_000_000_000_001)
    time.tzset()
    assert shown == "2023-11-14T22:13:20.000000001Z"


def test_what_is_read_is_what_was_written() -> None:
    assert records_of(store(30)) == originals(1, 30)


def test_a_socket_in_the_directory_is_no_file_of_the_store(tmp_path: Path) -> None:
    """As another layer may keep one there, by which others ask the owner."""
    log = Log.open(tmp_path / "store", wall_ns=lambda: 0)
    log.append(b"kept")
    log.commit()
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "store" / "DOOR"))
        files = FileSystem(tmp_path / "store")
        assert "DOOR" not in survey(files).sizes
        assert verify(files).faults == ()
    log.close()
