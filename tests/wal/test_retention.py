"""What is dropped, in which order, and what is kept because it is damaged."""

from __future__ import annotations

import errno
import logging

import pytest

from tests.wal.stores import (
    commit_each,
    frames_of,
    open_log,
    payloads_of,
    segments_of,
)
from wal.errors import LogCorruptError
from wal.log import Log
from wal.retention import DAMAGED_SUFFIX, SNAPSHOTS_KEPT, Retired, retire
from wal.segment import SEGMENT_HEADER_BYTES
from wal.snapshot import SnapshotWriter, snapshot_name, snapshot_names
from wal.testing import MemoryFileSystem, SimulatedCrash


@pytest.fixture
def log() -> Log:
    log = open_log(MemoryFileSystem())
    log.start()
    return log


def disk_of(log: Log) -> MemoryFileSystem:
    files = log._files
    assert isinstance(files, MemoryFileSystem)
    return files


def fill_segment(log: Log, *, times: int = 1) -> None:
    """Commit a record that needs a segment of its own."""
    for _ in range(times):
        commit_each(log, b"%4d" % log.next_lsn * 800)


def snapshot(log: Log) -> str:
    """Write a snapshot of the durable state, and drop nothing; return its name."""
    writer = SnapshotWriter(
        disk_of(log), log.identity.uuid, pin_lsn=log.durable_lsn, wall_ns=0
    )
    writer.add(b"state at %d" % log.durable_lsn)
    return writer.finish(reach_lsn=log.durable_lsn).name


def retired(log: Log) -> Retired:
    return retire(disk_of(log), log.identity.uuid)


# -- what is dropped -------------------------------------------------------------------


def test_nothing_is_dropped_before_two_snapshots_cover_it(log: Log) -> None:
    fill_segment(log, times=3)
    assert retired(log) == Retired()
    snapshot(log)
    assert retired(log) == Retired()
    assert len(segments_of(disk_of(log))) == 3


def test_two_snapshots_and_the_log_since_the_older_one_stay(log: Log) -> None:
    snapshots = []
    for _ in range(4):
        fill_segment(log, times=2)
        snapshots.append(snapshot(log))
    before = segments_of(disk_of(log))
    result = retired(log)
    # Segments 1 to 5 end at or before LSN 6, where the older of the two is pinned; the
    # sixth does too, and is the one whose successor says so.
    assert result.dropped == [snapshots[1], snapshots[0], *before[:6]]
    assert result.damaged == []
    assert snapshot_names(disk_of(log)) == [snapshots[3], snapshots[2]]
    assert segments_of(disk_of(log)) == before[6:]
    log.close()
    assert payloads_of(disk_of(log)) == []  # the newer snapshot covers all


def test_a_segment_with_one_record_that_is_needed_stays_whole(log: Log) -> None:
    commit_each(log, b"1", b"2")
    snapshot(log)
    commit_each(log, b"3")
    fill_segment(log, times=2)
    snapshot(log)
    assert retired(log).dropped == []
    assert len(segments_of(disk_of(log))) == 2


def test_the_last_segment_always_stays(log: Log) -> None:
    fill_segment(log)
    snapshot(log)
    fill_segment(log)
    snapshot(log)
    snapshot_of_the_end = snapshot(log)  # the same pin: it takes the name over
    assert snapshot_names(disk_of(log))[0] == snapshot_of_the_end
    retired(log)
    (last,) = segments_of(disk_of(log))
    assert last.endswith("0000000000000002.seg")


def test_a_snapshot_of_an_empty_log_counts(log: Log) -> None:
    assert snapshot(log) == snapshot_name(0)
    fill_segment(log)
    snapshot(log)
    assert retired(log) == Retired()
    fill_segment(log)
    snapshot(log)
    assert snapshot_name(0) in retired(log).dropped


# -- the order -------------------------------------------------------------------------


def test_names_go_oldest_first_with_a_directory_sync_after_each_segment(
    log: Log,
) -> None:
    for _ in range(3):
        fill_segment(log, times=2)
        snapshot(log)
    disk = disk_of(log)
    oldest = snapshot_names(disk)[-1]
    first = segments_of(disk)
    calls = disk.calls
    retired(log)
    ops = [(call.op, call.name) for call in disk.trace[calls:]]
    assert ops == [
        ("unlink", oldest),
        ("sync_dir", ""),
        ("unlink", first[0]),
        ("sync_dir", ""),
        ("unlink", first[1]),
        ("sync_dir", ""),
        ("unlink", first[2]),
        ("sync_dir", ""),
        ("unlink", first[3]),
        ("sync_dir", ""),
    ]


def test_a_crash_while_dropping_never_leaves_a_hole(log: Log) -> None:
    for _ in range(3):
        fill_segment(log, times=2)
        snapshot(log)
    fill_segment(log)
    expected = payloads_of(disk_of(log).copy())
    for index in range(1, 100):
        for after in (False, True):
            disk = disk_of(log).copy()
            disk.crash_at(index, after=after)
            try:
                retire(disk, log.identity.uuid)
            except SimulatedCrash:
                for label in ("none", "all"):
                    assert payloads_of(disk.crashed(label)) == expected, label
            else:
                assert index > 5
                return
    raise AssertionError("it never ended")


# -- damage ----------------------------------------------------------------------------


def three_snapshots(log: Log) -> MemoryFileSystem:
    for _ in range(3):
        fill_segment(log, times=2)
        snapshot(log)
    return disk_of(log)


def test_a_damaged_snapshot_is_set_aside_and_does_not_count(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    disk = three_snapshots(log)
    newest, middle, oldest = snapshot_names(disk)
    disk.flip_bit(newest, 8 * 4100)
    result = retired(log)
    assert result.damaged == [newest]
    assert snapshot_names(disk) == [middle, oldest]
    assert newest + DAMAGED_SUFFIX in disk.names()
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert f"kept as {newest}{DAMAGED_SUFFIX}" in record.getMessage()
    assert not {middle, oldest} & set(result.dropped)


def test_with_only_one_good_snapshot_left_no_segment_is_dropped(log: Log) -> None:
    disk = three_snapshots(log)
    newest, middle, _ = snapshot_names(disk)
    disk.flip_bit(newest, 8 * 4100)
    disk.flip_bit(middle, 8 * 4100)
    before = segments_of(disk)
    assert retired(log).dropped == []
    assert segments_of(disk) == before


@pytest.mark.parametrize("place", ["body", "frame header", "segment header"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_damaged_old_segment_is_set_aside_and_the_log_is_trimmed_behind_it(
    log: Log, number: int, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk = three_snapshots(log)
    segments = segments_of(disk)
    at = {
        "body": SEGMENT_HEADER_BYTES + 100,
        "frame header": SEGMENT_HEADER_BYTES + 20,
        "segment header": 30,
    }[place]
    content = disk.content(segments[number])
    disk.flip_bit(segments[number], 8 * at)
    result = retired(log)
    assert segments_of(disk) == segments[4:]
    assert segments[number] in result.damaged
    assert sorted(result.damaged + result.dropped[1:]) == segments[:4]
    kept = disk.content(segments[number] + DAMAGED_SUFFIX)
    assert len(kept) == len(content)
    assert kept != content
    assert [r for r in caplog.records if r.levelno == logging.ERROR]
    log.close()
    assert payloads_of(disk) == []


def test_damage_in_a_segment_that_is_needed_is_left_alone(log: Log) -> None:
    disk = three_snapshots(log)
    last = segments_of(disk)[-1]
    at, _ = frames_of(disk, last)[0]
    disk.flip_bit(last, 8 * (at + 100))
    result = retired(log)
    assert result.damaged == []
    assert last in disk.names()


def test_a_damaged_header_that_is_needed_brings_no_older_segment_into_doubt(
    log: Log,
) -> None:
    disk = three_snapshots(log)
    segments = segments_of(disk)
    disk.flip_bit(segments[-1], 8 * 30)
    result = retired(log)
    assert result.damaged == []
    assert result.dropped[1:] == segments[:4]


def test_bytes_past_the_end_of_an_old_segment_are_no_damage(log: Log) -> None:
    disk = three_snapshots(log)
    first = segments_of(disk)[0]
    disk.put(first, disk.content(first) + b"what a crash before the cut left")
    assert first in retired(log).dropped


# -- the disk --------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["unlink", "sync_dir", "pread", "open"])
def test_an_error_stops_it_and_what_is_left_goes_next_time(log: Log, op: str) -> None:
    disk = three_snapshots(log)
    before = payloads_of(disk.copy())
    disk.fail(op, errno.EIO, after=2)
    with pytest.raises(OSError):
        retired(log)
    assert payloads_of(disk.copy()) == before
    retired(log)
    assert len(snapshot_names(disk)) == SNAPSHOTS_KEPT
    assert len(segments_of(disk)) == 2
    assert payloads_of(disk.copy()) == before


# -- as the log does it ----------------------------------------------------------------


def checkpoint(log: Log) -> Retired:
    writer = log.begin_snapshot()
    writer.add(b"state at %d" % log.durable_lsn)
    _, result = log.finish_snapshot(writer, reach_lsn=log.durable_lsn)
    return result


def test_checkpoints_keep_the_store_small(log: Log) -> None:
    for _ in range(10):
        fill_segment(log, times=2)
        checkpoint(log)
        assert len(segments_of(disk_of(log))) <= 5
        assert len(snapshot_names(disk_of(log))) <= SNAPSHOTS_KEPT


def test_a_checkpoint_reports_what_its_scrub_found(log: Log) -> None:
    fill_segment(log, times=3)
    first = segments_of(disk_of(log))[0]
    disk_of(log).flip_bit(first, 8 * 40)
    checkpoint(log)
    assert log.stats().scrub_errors == 0
    fill_segment(log)
    result = checkpoint(log)
    assert result.damaged == [first]
    assert log.stats().scrub_errors == 1
    fill_segment(log)
    checkpoint(log)
    assert log.stats().scrub_errors == 1
    log.close()
    assert payloads_of(disk_of(log)) == []


def test_nothing_is_dropped_before_the_new_snapshot_was_read_back(log: Log) -> None:
    class Forgetful(MemoryFileSystem):
        def rename(self, old: str, new: str) -> None:
            super().rename(old, new)
            if new.endswith(".snap") and self.bad:
                self.flip_bit(new, 8 * 4100)

        bad = False

    disk = Forgetful()
    log = open_log(disk)
    log.start()
    for _ in range(2):
        fill_segment(log, times=2)
        checkpoint(log)
    fill_segment(log, times=2)
    before = [name for name in disk.names() if not name.startswith("ready")]
    disk.bad = True
    with pytest.raises(ValueError, match="does not hold"):
        checkpoint(log)
    after = [name for name in disk.names() if not name.startswith("ready")]
    assert set(after) - set(before) == {snapshot_name(6)}
    assert set(before) <= set(after)
    log.close()
    with open_log(disk) as reopened:
        assert reopened.snapshot is not None
        assert reopened.snapshot.pin_lsn == 4
        assert len(list(reopened.read())) == 2


def test_a_log_that_lost_a_needed_segment_header_still_refuses_to_open(
    log: Log,
) -> None:
    disk = three_snapshots(log)
    retired(log)
    last = segments_of(disk)[-1]
    disk.flip_bit(last, 8 * 40)
    log.close()
    with pytest.raises(LogCorruptError):
        open_log(disk)
