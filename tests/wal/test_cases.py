"""Faults that other logs had, each with the outcome that is right.

The numbers are those of the project's list of public bug reports; the docstrings name the
report. Cases that need the engine stand in tests/engine/.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.wal.stores import (
    SEGMENT_BYTES,
    Signalled,
    Worker,
    commit_each,
    frames_of,
    killed_store,
    open_log,
    payloads_of,
    power_losses,
    segment_header,
    segments_of,
)
from wal.errors import CommitUnknownError, LogCorruptError, LogFailedError, WalError
from wal.frame import Flag, encode_records
from wal.log import Log
from wal.recovery import LSN_SKIP
from wal.segment import SEGMENT_HEADER_BYTES
from wal.snapshot import snapshot_name, snapshot_names
from wal.testing import MemoryFileSystem, SimulatedCrash


def wipe(disk: MemoryFileSystem, name: str, start: int, stop: int) -> None:
    disk.overwrite(name, start, bytes(stop - start))


def last_frame(disk: MemoryFileSystem) -> tuple[str, int, int]:
    """Name of the last segment; where its last frame starts and ends."""
    name = segments_of(disk)[-1]
    at, header = frames_of(disk, name)[-1]
    return name, at, at + header.frame_bytes


def assert_refused(disk: MemoryFileSystem) -> LogCorruptError:
    """Opening and reading refuses, twice, and changes no byte."""
    before = disk.snapshot_of_all()
    for _ in range(2):
        with pytest.raises(LogCorruptError) as caught, open_log(disk) as log:
            log.start()
    assert disk.snapshot_of_all() == before
    return caught.value


def checkpoint(log: Log) -> None:
    writer = log.begin_snapshot()
    writer.add(b"state at %d" % log.durable_lsn)
    log.finish_snapshot(writer, reach_lsn=log.durable_lsn)


def whole_state(disk: MemoryFileSystem) -> tuple[int, list[bytes]]:
    """How far the snapshot reaches (checked), and the payloads after it."""
    with open_log(disk) as log:
        covered = log.snapshot.pin_lsn if log.snapshot is not None else 0
        blocks = list(log.snapshot_blocks())
        assert blocks == ([b"state at %d" % covered] if covered else [])
        return covered, [record.payload for record in log.read()]


# -- case 1 ----------------------------------------------------------------------------


def group_across_a_page() -> tuple[MemoryFileSystem, str, int, int]:
    """A group of three records across a 4-KiB edge, after one record."""
    disk = MemoryFileSystem()
    log = open_log(disk, segment_size_bytes=4 * SEGMENT_BYTES)
    commit_each(log, b"before" * 400)
    log.append_group(encode_records([b"a" * 1500, b"b" * 1500, b"c" * 1500]), 3)
    log.commit()
    disk = disk.killed()
    return disk, *last_frame(disk)


def test_a_group_whose_second_page_was_never_written_is_gone_whole(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Case 1, etcd issue 5230: a torn page was read as an error of the checksum."""
    disk, name, start, end = group_across_a_page()
    page = 2 * 4096
    assert start < page < end
    wipe(disk, name, page, end)
    log = open_log(disk, segment_size_bytes=4 * SEGMENT_BYTES)
    assert [record.payload for record in log.read()] == [b"before" * 400]
    report = log.start()
    assert report.last_lsn == 1
    assert report.torn_file is not None
    assert (report.torn_bytes, report.doubtful) == (page - start, False)
    assert len(caplog.records) == 1  # one torn group
    torn = disk.content(report.torn_file)
    assert torn[12] == 3  # of three records, says its header


# -- case 2 ----------------------------------------------------------------------------


def test_the_last_group_with_only_its_second_half_on_the_disk_is_torn() -> None:
    """Case 2, etcd issue 6378: the later of two writes arrived, the earlier did not."""
    disk, name, start, end = group_across_a_page()
    wipe(disk, name, start, (start + end) // 2 // 512 * 512)
    assert payloads_of(disk) == [b"before" * 400]
    open_log(disk).start()


def test_a_flipped_bit_in_a_payload_of_zeros_is_damage_and_not_a_torn_write() -> None:
    """Case 2: where zeros mean "never written", data of zeros must not look like it."""
    payload = bytes(4096)
    size = 4 * SEGMENT_BYTES
    good = killed_store(payload, segment_size_bytes=size)
    name, start, end = last_frame(good)
    assert Flag.MASKED in frames_of(good, name)[0][1].flags
    for at in range(start, end, 97):
        disk = good.copy()
        disk.flip_bit(name, 8 * at + at % 8)
        assert assert_refused(disk).expected_lsn == 1
    assert payloads_of(good) == [payload]


# -- case 3 ----------------------------------------------------------------------------


@pytest.mark.parametrize("crash", ["none", "all"])
@pytest.mark.parametrize(
    "garbage", [b"\xff" * 512, b"TWgf" * 128, bytes(64) + b"\1" * 448]
)
def test_garbage_after_the_end_does_no_harm_to_the_second_recovery_either(
    garbage: bytes, crash: str
) -> None:
    """Case 3, etcd issues 6515 and 11488: new records were written over half of it."""
    disk = killed_store(b"1", b"2")
    name, _, end = last_frame(disk)
    later = -(-end // 512) * 512 + 1024
    disk.overwrite(name, later, garbage)
    log = open_log(disk)
    assert [record.payload for record in log.read()] == [b"1", b"2"]
    commit_each(log, b"3")
    disk = disk.crashed(crash)
    with open_log(disk) as log:
        found = list(log.read())
        assert [record.payload for record in found] == [b"1", b"2", b"3"]
        assert found[-1].lsn == 3 + LSN_SKIP
        assert log.start().torn_file is None
    assert payloads_of(disk) == [b"1", b"2", b"3"]


# -- case 4 ----------------------------------------------------------------------------


@pytest.mark.parametrize("crash", ["none", "all", "names", "bytes"])
def test_a_torn_tail_in_a_segment_that_is_no_longer_the_last_opens_for_ever(
    crash: str,
) -> None:
    """Case 4, etcd issue 2736: the second start refused what the first had repaired."""
    disk = killed_store(b"kept", b"x" * 1500)
    name, start, end = last_frame(disk)
    wipe(disk, name, (start // 512 + 1) * 512, end)
    for _ in range(6):
        assert payloads_of(disk) == [b"kept"]
        open_log(disk).start()
        disk = disk.crashed(crash)
    assert len(segments_of(disk)) > 1


# -- case 6 ----------------------------------------------------------------------------


def test_power_loss_at_any_step_of_a_snapshot_leaves_the_old_or_the_new_state() -> None:
    """Case 6, etcd issues 3498 and 22340: an empty snapshot, its log already gone."""
    states = 0
    for index, after in itertools.product(range(1, 60), (False, True)):
        disk = MemoryFileSystem()
        log = open_log(disk)
        for number in range(2):
            commit_each(log, b"%d" % number * 2000, b"x" * 2000)
            checkpoint(log)
        commit_each(log, b"last")
        disk.crash_at(disk.calls + index, after=after)
        try:
            checkpoint(log)
        except SimulatedCrash:
            for state in power_losses(disk):
                covered, rest = whole_state(state)
                expected = {5: [], 4: [b"last"]}
                assert rest == expected[covered], state.label
                states += 1
        else:
            assert index > 6
            assert states > 60
            return
    raise AssertionError("the checkpoint never ended")


# -- case 7 ----------------------------------------------------------------------------


def three_segments() -> MemoryFileSystem:
    disk = MemoryFileSystem()
    log = open_log(disk)
    commit_each(log, *[bytes([n]) * 1500 for n in range(1, 6)])
    assert len(segments_of(disk)) == 3
    return disk.killed()


@pytest.mark.parametrize("number", [0, 1])
def test_a_segment_before_the_last_that_was_cut_is_refused_not_skipped(
    number: int,
) -> None:
    """Case 7, RocksDB pulls 7701 and 7252: the next log was replayed over a hole."""
    for cut_bytes in (10, "a frame"):
        disk = three_segments()
        name = segments_of(disk)[number]
        end = segment_header(disk, segments_of(disk)[number + 1]).predecessor.offset
        at, _ = frames_of(disk, name)[-1]
        size = end - cut_bytes if isinstance(cut_bytes, int) else at
        disk.put(name, disk.content(name)[:size])
        error = assert_refused(disk)
        assert (error.file, error.offset, error.records_at_stake) == (name, at, 1)
        assert error.expected_lsn == 2 * (number + 1)


# -- case 8 ----------------------------------------------------------------------------


def test_an_unreadable_sector_is_an_error_of_the_disk_and_no_end_of_log() -> None:
    """Case 8, RocksDB issue 6288: EIO was taken for the end, and the rest truncated."""
    disk = three_segments()
    before = disk.snapshot_of_all()
    for name in segments_of(disk):
        for nth in (1, 2):  # its header, then the whole
            disk.fail("pread", errno.EIO, name=name, after=nth)
            with pytest.raises(OSError) as caught:
                payloads_of(disk)
            assert caught.value.errno == errno.EIO
            disk.heal()
    assert disk.snapshot_of_all() == before
    assert len(payloads_of(disk)) == 5


# -- case 10 ---------------------------------------------------------------------------


def test_damage_after_a_full_disk_is_refused_and_no_file_is_removed() -> None:
    """Case 10, Prometheus issues 7245 and 7835: "repair" deleted nearly everything."""
    disk = MemoryFileSystem()
    disk.capacity_bytes = 10 * SEGMENT_BYTES
    log = open_log(disk)
    with pytest.raises(WalError, match="the disk is full"):  # noqa: PT012
        for number in itertools.count():
            commit_each(log, b"%d" % number * 400)
    disk = disk.killed()
    names = segments_of(disk)
    middle = names[len(names) // 2]
    disk.flip_bit(middle, 8 * (SEGMENT_HEADER_BYTES + 100))
    assert assert_refused(disk).file == middle
    disk.flip_bit(middle, 8 * (SEGMENT_HEADER_BYTES + 100))
    assert payloads_of(disk)


# -- case 11 ---------------------------------------------------------------------------


@pytest.mark.parametrize("at", [100, 4096 + 20, 4096 + 90])
def test_damage_in_an_old_segment_stops_no_snapshot_and_is_reported(
    at: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Case 11, Prometheus issue 18552: what could not be compacted grew for ever."""
    disk = MemoryFileSystem()
    log = open_log(disk)
    commit_each(log, *[bytes([n]) * 1500 for n in range(1, 10)])
    victim = segments_of(disk)[1]
    disk.flip_bit(victim, 8 * at)
    for number in range(4):
        commit_each(log, *[b"%d" % number * 1500] * 4)
        checkpoint(log)
    assert log.stats().scrub_errors >= 1
    assert any(victim in record.getMessage() for record in caplog.records)
    assert victim + ".damaged" in disk.names()
    assert len(segments_of(disk)) < 8  # the log is trimmed behind it
    log.close()
    assert whole_state(disk) == (25, [])


# -- case 12 ---------------------------------------------------------------------------


def torn_store() -> MemoryFileSystem:
    disk = killed_store(b"1", b"2", b"x" * 1500)
    name, start, end = last_frame(disk)
    wipe(disk, name, (start // 512 + 1) * 512, end)
    return disk


@pytest.mark.parametrize("make", [torn_store, lambda: killed_store(b"1", b"2")])
def test_a_crash_at_any_step_of_recovery_changes_nothing_of_the_next_one(
    make: Callable[[], MemoryFileSystem],
) -> None:
    """Case 12, Kafka pull 8812: the recovery point had moved before anything was synced.

    Here in its simple form; tests/crash/ nests crashes in crashes.
    """
    for index, after in itertools.product(range(1, 60), (False, True)):
        disk = make()
        disk.crash_at(index, after=after)
        try:
            open_log(disk).start()
        except SimulatedCrash:
            for state in power_losses(disk):
                with open_log(state) as log:
                    found = [record.payload for record in log.read()]
                    assert found == [b"1", b"2"], state.label
                    assert log.append(b"3") > 3
                assert payloads_of(state) == [b"1", b"2", b"3"], state.label
        else:
            assert index > 10
            return
    raise AssertionError("recovery never ended")


# -- case 13 ---------------------------------------------------------------------------


def test_after_one_failed_sync_nothing_is_acknowledged_any_more() -> None:
    """Case 13, beanstalkd issue 536: the log was off, and acknowledgements went on."""
    disk = MemoryFileSystem()
    log = open_log(disk)
    log.start()
    disk.fail("datasync", errno.EIO, name=segments_of(disk)[0], after=5)
    acknowledged = []
    for number in range(10):
        payload = b"%d" % number
        try:
            commit_each(log, payload)
        except CommitUnknownError:
            assert number == 4
            assert log.failure is not None
        except LogFailedError:
            assert number > 4
        else:
            acknowledged.append(payload)
    assert acknowledged == [b"0", b"1", b"2", b"3"]
    for after in (disk.killed(), disk.crashed("none"), disk.crashed("all")):
        found = payloads_of(after)
        assert found[:4] == acknowledged
        assert found[4:] in ([], [b"4"])


# -- case 15 ---------------------------------------------------------------------------


def test_a_crash_at_any_step_of_a_new_segment_leaves_a_log_that_opens() -> None:
    """Case 15, beanstalkd issues 364 and 44: "unknown version 0" of an empty file."""
    for index, after in itertools.product(range(1, 60), (False, True)):
        disk = MemoryFileSystem()
        log = open_log(disk)
        commit_each(log, b"1" * 3000)
        disk.crash_at(disk.calls + index, after=after)
        try:
            commit_each(log, b"2" * 3000)
        except SimulatedCrash:
            for state in power_losses(disk):
                with open_log(state) as again:
                    found = [record.payload for record in again.read()]
                    commit_each(again, b"3")
                assert found in ([b"1" * 3000], [b"1" * 3000, b"2" * 3000]), state.label
                assert payloads_of(state) == [*found, b"3"], state.label
        else:
            assert index > 12
            return
    raise AssertionError("the rotation never ended")


def test_a_segment_without_a_record_is_kept_and_followed() -> None:
    """Case 15: an empty log must not be a broken one."""
    disk = MemoryFileSystem()
    for _ in range(4):
        open_log(disk).start()
        disk = disk.killed()
    with open_log(disk) as log:
        assert list(log.read()) == []
        assert log.append(b"1") == 1 + 4 * LSN_SKIP
    assert payloads_of(disk) == [b"1"]


# -- case 16 ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 300, 448, 1500, 3000])
def test_a_last_group_of_which_only_zeros_arrived_is_torn(size: int) -> None:
    """Case 16, Redis issue 5177 and Valkey issue 1148: a tail of zeros did not open."""
    disk = killed_store(b"kept", b"x" * size)
    wipe(disk, *last_frame(disk))
    with open_log(disk) as log:
        assert [record.payload for record in log.read()] == [b"kept"]
        log.append(b"next")
    assert payloads_of(disk) == [b"kept", b"next"]


# -- case 17 ---------------------------------------------------------------------------


def actions() -> Iterator[tuple[str, ...]]:
    """Every order of the steps of a checkpoint and of records that rotate the log."""
    checkpoint_steps = ("begin", "add", "finish")
    for places in itertools.combinations(range(7), 3):
        steps = iter(checkpoint_steps)
        yield tuple(next(steps) if n in places else "record" for n in range(7))


def test_a_snapshot_beside_rotations_in_any_order_loses_and_doubles_nothing() -> None:
    """Case 17, SQLite's WAL-reset bug: a checkpoint trusted a counter of a former log."""
    for order in actions():
        disk = MemoryFileSystem()
        log = open_log(disk)
        commit_each(log, b"0" * 3000)
        for _ in range(2):
            run(log, order)
        for state in (disk.killed(), disk.crashed("none"), disk.crashed("all")):
            with open_log(state) as again:
                assert again.snapshot is not None
                covered = again.snapshot.pin_lsn
                (block,) = again.snapshot_blocks()
                assert int(block) >= covered
                found = [record.lsn for record in again.read()]
            assert found == list(range(covered + 1, 10)), order


def run(log: Log, order: tuple[str, ...]) -> None:
    writer = None
    for step in order:
        if step == "record":
            commit_each(log, b"x" * 3000)  # each needs a segment of its own
        elif step == "begin":
            writer = log.begin_snapshot()
        elif step == "add":
            assert writer is not None
            writer.add(b"%d" % log.durable_lsn)  # fuzzy: later than the pin
        else:
            assert writer is not None
            log.finish_snapshot(writer, reach_lsn=log.durable_lsn)


def test_a_checkpoint_in_one_thread_and_commits_in_another_agree() -> None:
    """Case 17 with threads: the rotation comes while the snapshot is written."""
    disk = MemoryFileSystem()
    log = open_log(disk)
    commit_each(log, b"0" * 3000)
    waiters = Signalled()
    log._commits._waiters = waiters
    for _ in range(5):
        writer = log.begin_snapshot()
        other = Worker(lambda: commit_each(log, *[b"x" * 3000] * 3))
        writer.add(b"state")
        log.finish_snapshot(writer, reach_lsn=writer._pin_lsn)
        other.outcome()
    log.check()
    log.close()
    with open_log(disk) as again:
        assert again.snapshot is not None
        found = [record.lsn for record in again.read()]
        assert found == list(range(again.snapshot.pin_lsn + 1, 17))


# -- case 19 ---------------------------------------------------------------------------


def kinds(name: str) -> str:
    return "ready" if name.startswith("ready") else name.partition("-")[0]


def test_a_flipped_byte_in_any_kind_of_file_never_passes_unseen() -> None:
    """Case 19, Bitcask issues 212 and 171: a fast path had skipped the checksum."""
    good = MemoryFileSystem()
    with open_log(good) as log:
        for number in range(3):
            commit_each(log, b"%d" % number * 3000, b"x" * 3000)
            checkpoint(log)
        commit_each(log, b"last")
    expected = whole_state(good)
    outcomes: dict[str, set[str]] = {}
    for name in good.names():
        size = len(good.content(name))
        for at in range(0, size, max(1, size // 40)):
            disk = good.copy()
            disk.flip_bit(name, 8 * at)
            try:
                covered, rest = whole_state(disk)
            except WalError:
                outcome = "refused"
            else:
                # The same state, from this snapshot or from the older one and its log.
                assert covered + len(rest) == expected[0] + len(expected[1])
                assert rest[-1:] == [b"last"]
                outcome = "the same" if covered == expected[0] else "the older snapshot"
            outcomes.setdefault(kinds(name), set()).add(outcome)
            assert "refused" in outcomes[kinds(name)] or kinds(name) != "STORE"
    assert outcomes["STORE"] == {"refused"}
    # A segment that a snapshot covers is not needed; the header of each one counts.
    assert outcomes["wal"] == {"refused", "the same"}
    assert outcomes["snap"] == {
        "the older snapshot",
        "the same",
    }  # the newer, the older


def test_a_ready_segment_that_is_not_blank_any_more_is_not_used() -> None:
    """Case 19: what lies ready was written before, so it is looked at before its use."""
    disk = MemoryFileSystem()
    with open_log(disk) as log:
        commit_each(log, b"1" * 3000, b"2" * 3000)
    ready = [name for name in disk.names() if name.startswith("ready")]
    assert ready
    for name in ready:
        disk.flip_bit(name, 8 * (SEGMENT_BYTES - 1))
    with open_log(disk) as log:
        commit_each(log, *[b"x" * 3000] * 3)
        assert not set(ready) & set(disk.names())
    assert len(payloads_of(disk)) == 5


# -- case 21 ---------------------------------------------------------------------------


def test_a_bad_snapshot_is_not_taken_for_an_empty_store() -> None:
    """Case 21, NATS issue 7556: "nothing here", and the data was deleted."""
    disk = MemoryFileSystem()
    with open_log(disk) as log:
        for number in range(4):
            commit_each(log, b"%d" % number * 3000)
            checkpoint(log)
        commit_each(log, b"last")
    assert whole_state(disk) == (4, [b"last"])
    newest, older = snapshot_names(disk)
    assert (newest, older) == (snapshot_name(4), snapshot_name(3))
    disk.flip_bit(newest, 8 * 4100)
    assert whole_state(disk) == (3, [b"3" * 3000, b"last"])
    disk.flip_bit(older, 8 * 4100)
    error = assert_refused(disk)
    assert "no valid snapshot" in error.what
    assert {newest, older} <= set(disk.names())


# -- case 24 ---------------------------------------------------------------------------


def test_the_last_seen_wall_clock_is_in_every_group_and_known_after_a_crash() -> None:
    """Case 24, APScheduler issue 463, SlateDB issue 323, systemd pull 43116.

    Whoever opens the log can see that the clock now is earlier than it was.
    """
    disk = MemoryFileSystem()
    now_ns = 1_000
    log = open_log(disk, wall_ns=lambda: now_ns)
    log.start()
    for now_ns in (5_000, 9_000, 7_000):
        commit_each(log, b"at %d" % now_ns)
    frames = [header for _, header in frames_of(disk, segments_of(disk)[0])]
    assert [frame.wall_ns for frame in frames] == [5_000, 9_000, 7_000]
    with open_log(disk.crashed(), wall_ns=lambda: 2_000) as again:
        assert [group.wall_ns for group in again.groups()] == [5_000, 9_000, 7_000]
        assert again.start().last_wall_ns == 7_000
    log.close()
    with open_log(disk) as again:
        assert again.start().last_wall_ns == 7_000  # of the frame that closed it
