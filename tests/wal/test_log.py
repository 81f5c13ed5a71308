"""The log as its callers see it: records, modes, options, limits, the end."""

from __future__ import annotations

import errno
import itertools
import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wal.stores import (
    SEGMENT_BYTES,
    WALL_NS,
    Worker,
    closed_store,
    commit_each,
    frames_of,
    killed_store,
    lsns_of,
    open_log,
    payloads_of,
    segments_of,
)
from wal.errors import (
    CommitUnknownError,
    LogClosedError,
    LogFailedError,
    RecordTooLargeError,
    StoreInUseError,
)
from wal.frame import encode_records
from wal.log import (
    SEGMENT_SIZE_BYTES_MAX,
    SEGMENT_SIZE_BYTES_MIN,
    UNSYNCED_BYTES_MAX,
    UNSYNCED_RECORDS_MAX,
    Log,
    RoomNeededError,
)
from wal.pool import ready_names
from wal.testing import MemoryFileSystem


@pytest.fixture
def disk() -> MemoryFileSystem:
    return MemoryFileSystem("the/store")


@pytest.fixture
def log(disk: MemoryFileSystem) -> Log:
    log = open_log(disk)
    log.start()
    return log


# -- records in, records out -----------------------------------------------------------


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(st.binary(max_size=200), st.integers(0, 3900).map(bytes)), max_size=25
    ),
    st.data(),
)
def test_what_was_committed_comes_back_in_order_and_whole(
    payloads: list[bytes], draw: st.DataObject
) -> None:
    disk = MemoryFileSystem()
    closes = draw.draw(st.sets(st.integers(0, 24)))
    log = open_log(disk)
    for number, payload in enumerate(payloads):
        if number in closes:
            log.close()
            log = open_log(disk)
        assert log.append(payload) == number + 1
        if draw.draw(st.booleans()):
            log.commit()
    log.close()
    assert payloads_of(disk) == payloads
    assert lsns_of(disk) == list(range(1, len(payloads) + 1))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        bytes(3000),
        (0xA5C3_5A3C).to_bytes(4, "little") * 700,
        b"x" * 440 + bytes(4),
        b"TWgf" * 500,
    ],
    ids=["empty", "zeros", "the mask itself", "zeros at the end", "magic"],
)
def test_any_payload_survives_power_loss_and_close(payload: bytes) -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    log.commit(log.append(payload))
    assert payloads_of(disk.crashed()) == [payload]
    log.close()
    assert payloads_of(disk) == [payload]


def test_records_of_a_group_hold_together_and_number_on(log: Log) -> None:
    body = encode_records([b"a", b"b", b"c"])
    assert log.append_group(body, 3) == 1
    assert (log.next_lsn, log.appended_lsn, log.durable_lsn) == (4, 3, 0)
    log.commit()
    assert log.durable_lsn == 3
    assert log.append(b"d") == 4


@pytest.mark.parametrize(
    ("joined_bytes", "counts"),
    [(0, [1] * 6), (207, [1] * 6), (208, [2, 2, 2]), (519, [4, 2]), (1 << 20, [6])],
)
def test_small_groups_are_read_as_one_up_to_the_bytes_that_were_asked_for(
    joined_bytes: int, counts: list[int]
) -> None:
    disk = killed_store(*[b"%d" % number * 100 for number in range(6)])
    with open_log(disk) as log:
        groups = list(log.groups(joined_bytes=joined_bytes))
    assert [group.record_count for group in groups] == counts
    assert [group.first_lsn for group in groups] == [
        1 + sum(counts[:place]) for place in range(len(counts))
    ]


def test_one_commit_writes_one_frame_however_many_records_wait(
    log: Log, disk: MemoryFileSystem
) -> None:
    for number in range(20):
        log.append(b"%d" % number)
    calls = disk.calls
    log.commit()
    assert [call.op for call in disk.trace[calls:]] == ["pwrite", "datasync"]
    ((_, frame),) = frames_of(disk, segments_of(disk)[0])
    assert frame.record_count == 20


def test_committing_an_earlier_record_does_not_wait_for_later_ones(log: Log) -> None:
    first = log.append(b"x" * 3000)
    log.append(b"y" * 3000)  # another frame, in another segment
    log.commit(first)
    assert log.durable_lsn == 1
    log.commit()
    assert log.durable_lsn == 2


def test_a_record_is_not_durable_before_its_commit(
    log: Log, disk: MemoryFileSystem
) -> None:
    log.commit(log.append(b"kept"))
    log.append(b"lost")
    assert payloads_of(disk.crashed("none")) == [b"kept"]
    assert payloads_of(disk.killed()) == [b"kept"]


def test_bytes_like_payloads_are_taken_and_text_is_refused(log: Log) -> None:
    for payload in (bytearray(b"array"), memoryview(b"view")):
        log.append(payload)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        log.append("text")  # type: ignore[arg-type]
    log.close()
    assert log.appended_lsn == 2


def test_listeners_hear_of_commits(log: Log) -> None:
    heard: list[int] = []
    log.add_listener(lambda: heard.append(log.durable_lsn))
    commit_each(log, b"1", b"2")
    assert heard == [1, 2]


def test_the_wall_clock_is_data_and_never_order() -> None:
    disk = MemoryFileSystem()
    for hour in (10, 9, 11):
        with open_log(disk, wall_ns=lambda hour=hour: hour * 10**12) as log:
            log.append(b"%d" % hour)
    assert payloads_of(disk) == [b"10", b"9", b"11"]
    with open_log(disk) as log:
        walls = [group.wall_ns for group in log.groups()]
        assert walls == [10**13, 9 * 10**12, 11 * 10**12]
        assert log.start().last_wall_ns == 11 * 10**12


def test_stats_tell_how_it_stands(log: Log) -> None:
    commit_each(log, b"1234")
    log.append(b"12")
    stats = log.stats()
    assert (stats.appended_lsn, stats.durable_lsn) == (2, 1)
    assert (stats.bytes_waiting, stats.records_waiting) == (6, 1)
    assert (stats.segment_id, stats.segment_offset) == (1, 4096 + 128)
    assert (stats.segments_ready, stats.disk_full, stats.scrub_errors) == (0, False, 0)
    assert log.bytes_written == 8


# -- the two modes of a log ------------------------------------------------------------


def test_a_log_is_read_before_it_is_appended_to(disk: MemoryFileSystem) -> None:
    log = open_log(closed_store(b"1", b"2"))
    assert log.stats is not None
    assert [record.payload for record in log.read()] == [b"1", b"2"]
    with pytest.raises(LogClosedError, match="read once"):
        log.groups()
    log.append(b"3")
    assert log.report is not None
    with pytest.raises(LogClosedError):
        next(log.read())


APPEND_MODE: list[tuple[str, Callable[[Log], object]]] = [
    ("durable_lsn", lambda log: log.durable_lsn),
    ("appended_lsn", lambda log: log.appended_lsn),
    ("next_lsn", lambda log: log.next_lsn),
    ("congested", lambda log: log.congested),
    ("admit", lambda log: log.admit()),
    ("append_group", lambda log: log.append_group(encode_records([b"x"]), 1)),
    ("make_room", lambda log: log.make_room()),
    ("commit", lambda log: log.commit()),
    ("sync", lambda log: log.sync()),
    ("commit_soon", lambda log: log.commit_soon(0)),
    ("add_listener", lambda log: log.add_listener(lambda: None)),
    ("stats", lambda log: log.stats()),
    ("begin_snapshot", lambda log: log.begin_snapshot()),
]


@pytest.mark.parametrize(("name", "call"), APPEND_MODE)
@pytest.mark.parametrize("durability", ["durable", "interval"])
def test_read_mode_refuses_what_belongs_to_append_mode(
    name: str, call: Callable[[Log], object], durability: str, disk: MemoryFileSystem
) -> None:
    log = open_log(disk, durability=durability)
    before = disk.snapshot_of_all()
    with pytest.raises(LogClosedError, match="read mode"):
        call(log)
    assert disk.snapshot_of_all() == before
    assert log.failure is None


def test_opening_and_reading_changes_no_byte() -> None:
    for disk in (killed_store(b"1"), closed_store(b"1"), closed_store()):
        before = disk.snapshot_of_all()
        payloads_of(disk)
        assert disk.snapshot_of_all() == before


@pytest.mark.parametrize("lsn", [1, 2, 2**63])
def test_a_record_that_was_never_appended_cannot_be_waited_for(
    log: Log, disk: MemoryFileSystem, lsn: int
) -> None:
    calls = disk.calls
    for wait in (log.commit, log.sync, log.commit_soon):
        with pytest.raises(
            ValueError, match=f"lsn={lsn}: the last record appended is 0"
        ):
            wait(lsn)
    assert disk.calls == calls


# -- options ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("durability", "eventual"),
        ("durability", ""),
        ("durability", None),
        ("interval_ms", 0),
        ("interval_ms", 0.5),
        ("interval_ms", -1),
        ("interval_ms", 60_001),
        ("interval_ms", float("nan")),
        ("interval_ms", float("inf")),
        ("segment_size_bytes", SEGMENT_SIZE_BYTES_MIN - 512),
        ("segment_size_bytes", SEGMENT_SIZE_BYTES_MIN + 1),
        ("segment_size_bytes", SEGMENT_SIZE_BYTES_MAX + 512),
        ("segment_size_bytes", 0),
        ("segment_size_bytes", -8192),
        ("reserve_bytes", -1),
    ],
)
def test_an_option_out_of_range_is_named_and_nothing_is_made(
    disk: MemoryFileSystem, option: str, value: object
) -> None:
    with pytest.raises(ValueError, match=f"{option}={value!r}: use "):
        open_log(disk, **{option: value})
    assert disk.calls == 0


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("interval_ms", 1),
        ("interval_ms", 60_000),
        ("segment_size_bytes", SEGMENT_SIZE_BYTES_MIN),
        ("segment_size_bytes", SEGMENT_SIZE_BYTES_MAX),
        ("reserve_bytes", 0),
    ],
)
def test_the_bounds_of_an_option_are_in_its_range(
    disk: MemoryFileSystem, option: str, value: int
) -> None:
    open_log(disk, **{option: value}).close()


def test_a_log_runs_its_threads_unless_it_is_told_not_to(
    disk: MemoryFileSystem,
) -> None:
    before = set(threading.enumerate())
    log = Log.open(
        disk,
        wall_ns=lambda: WALL_NS,
        segment_size_bytes=SEGMENT_BYTES,
        reserve_bytes=0,
    )
    with log:
        log.start()
        names = {each.name for each in set(threading.enumerate()) - before}
        assert names == {"wal-commit", "wal-pool"}


@pytest.mark.parametrize("size", [SEGMENT_SIZE_BYTES_MIN, 6144])
def test_the_smallest_segments_work(size: int) -> None:
    disk = MemoryFileSystem()
    payloads = [bytes([n]) * 890 for n in range(10)]
    with open_log(disk, segment_size_bytes=size) as log:
        commit_each(log, *payloads)
    assert payloads_of(disk) == payloads


# -- limits ----------------------------------------------------------------------------


def test_a_record_that_no_frame_can_hold_changes_nothing(
    log: Log, disk: MemoryFileSystem
) -> None:
    limit = SEGMENT_BYTES - 4096 - 128 - 4
    calls = disk.calls
    with pytest.raises(RecordTooLargeError) as caught:
        log.append(bytes(limit + 1))
    assert "raise segment_size_bytes" in str(caught.value)
    assert (log.appended_lsn, log.stats().bytes_waiting) == (0, 0)
    assert disk.calls == calls
    log.commit(log.append(bytes(limit)))
    assert payloads_of(disk.killed()) == [bytes(limit)]


def test_a_large_first_record_goes_into_a_segment_of_full_size() -> None:
    disk = MemoryFileSystem()
    with open_log(disk, segment_size_bytes=4 << 20) as log:
        log.append(b"x" * (2 << 20))  # the opening segment has 1 MiB
        log.commit()
        assert log.stats().segment_id == 2
        sizes = [len(disk.content(name)) for name in segments_of(disk)]
        assert sizes == [4096, 4 << 20]
    assert payloads_of(disk) == [b"x" * (2 << 20)]


def test_too_much_unsynced_makes_the_next_caller_wait(disk: MemoryFileSystem) -> None:
    log = open_log(disk, segment_size_bytes=32 << 20)
    log.start()
    body = encode_records([b""] * 1000)
    while not log.congested:
        assert log.stats().records_waiting <= UNSYNCED_RECORDS_MAX
        log.append_group(body, 1000)
    assert log.durable_lsn == 0
    log.admit()
    assert log.durable_lsn == log.appended_lsn
    assert log.stats().records_waiting == 0


@pytest.mark.parametrize("durability", ["durable", "interval"])
def test_append_never_lets_more_than_the_limit_wait(durability: str) -> None:
    disk = MemoryFileSystem()
    log = open_log(disk, segment_size_bytes=16 << 20, durability=durability)
    payload = b"x" * (1 << 20)
    for _ in range(11):
        log.append(payload)
        assert log.stats().bytes_waiting <= UNSYNCED_BYTES_MAX + 2 * len(payload)
    assert log.durable_lsn > 0
    log.close()
    assert len(payloads_of(disk)) == 11


def test_admit_raises_if_the_disk_fails_meanwhile(disk: MemoryFileSystem) -> None:
    log = open_log(disk, segment_size_bytes=32 << 20)
    log.start()
    while not log.congested:
        log.append_group(encode_records([b""] * 10_000), 10_000)
    disk.fail("datasync", errno.EIO)
    with pytest.raises(CommitUnknownError):
        log.admit()


def test_at_least_one_segment_is_held_in_reserve(log: Log) -> None:
    log.make_room()
    assert log.stats().segments_ready == 2  # that one, and the one asked for


def test_a_group_that_needs_a_segment_says_so_instead_of_waiting(log: Log) -> None:
    log.append(b"x" * 3000)
    body = encode_records([b"y" * 3000])
    for urgent in (False, True):
        with pytest.raises(RoomNeededError) as caught:
            log.append_group(body, 1, urgent=urgent)
        assert caught.value.urgent == urgent
        assert "make_room, then try again" in str(caught.value)
    assert log.next_lsn == 2
    log.make_room()
    assert log.append_group(body, 1) == 2


# -- snapshots -------------------------------------------------------------------------


def test_a_snapshot_is_pinned_at_what_is_durable(log: Log) -> None:
    commit_each(log, b"1", b"2")
    log.append(b"3")
    writer = log.begin_snapshot()
    writer.add(b"state")
    info, _ = log.finish_snapshot(writer, reach_lsn=3)
    assert (info.pin_lsn, info.reach_lsn) == (2, 3)
    assert log.durable_lsn == 3  # a snapshot may only hold what is durable


def test_the_files_of_a_log_are_told_and_no_others(
    disk: MemoryFileSystem, log: Log
) -> None:
    """Closing any handle of an SQLite file in this process would drop its locks."""
    disk.close(disk.create("history.db"))
    disk.fail("open", errno.EIO, name="history.db", times=None)
    commit_each(log, b"1")
    assert log.file_sizes() == dict.fromkeys(segments_of(disk), SEGMENT_BYTES)
    log.finish_snapshot(log.begin_snapshot(), reach_lsn=1)
    assert len(log.file_sizes()) == len(segments_of(disk)) + 1
    assert log.segment_sizes() == [SEGMENT_BYTES] * len(segments_of(disk))


def test_a_snapshot_cannot_reach_what_was_never_appended(
    log: Log, disk: MemoryFileSystem
) -> None:
    commit_each(log, b"1")
    writer = log.begin_snapshot()
    with pytest.raises(ValueError, match="lsn=2: the last record appended is 1"):
        log.finish_snapshot(writer, reach_lsn=2)
    writer.abandon()
    assert not [name for name in disk.names() if name.startswith("snap")]


def test_what_is_found_damaged_is_counted_snapshot_after_snapshot(
    log: Log, disk: MemoryFileSystem
) -> None:
    for damaged in range(3):
        commit_each(log, b"1")
        info, _ = log.finish_snapshot(log.begin_snapshot(), reach_lsn=log.appended_lsn)
        assert log.stats().scrub_errors == damaged
        disk.flip_bit(info.name, 8 * 100)


def test_a_snapshot_of_a_log_that_failed_is_not_finished(
    log: Log, disk: MemoryFileSystem
) -> None:
    commit_each(log, b"1")
    writer = log.begin_snapshot()
    lsn = log.append(b"2")
    disk.fail("datasync", errno.EIO, name=segments_of(disk)[0])
    with pytest.raises(CommitUnknownError):
        log.finish_snapshot(writer, reach_lsn=lsn)
    with pytest.raises(LogFailedError):
        log.finish_snapshot(writer, reach_lsn=1)
    assert not [name for name in disk.names() if name.endswith(".snap")]


# -- the end ---------------------------------------------------------------------------


def test_close_commits_marks_and_unlocks(log: Log, disk: MemoryFileSystem) -> None:
    log.append(b"1")
    with pytest.raises(StoreInUseError):
        open_log(disk.other_process())
    log.close()
    assert [each for each in disk.unsynced() if "LOCK" not in each] == []
    with open_log(disk.other_process()) as again:
        assert [record.payload for record in again.read()] == [b"1"]
        assert again.start().clean


def test_close_may_be_called_again_and_by_many(log: Log) -> None:
    for worker in [Worker(log.close) for _ in range(8)]:
        worker.outcome()
    log.close()


@pytest.mark.parametrize("durability", ["durable", "interval"])
def test_a_closed_log_refuses_everything_but_looking(durability: str) -> None:
    log = open_log(MemoryFileSystem(), durability=durability)
    log.append(b"1")
    log.close()
    for call in (
        lambda: log.append(b"x"),
        lambda: log.append_group(encode_records([b"x"]), 1),
        log.make_room,
        log.begin_snapshot,
        log.groups,
    ):
        with pytest.raises(LogClosedError):
            call()
    assert log.durable_lsn == 1
    assert log.stats().appended_lsn == 1


def test_a_log_closed_in_read_mode_was_never_there(disk: MemoryFileSystem) -> None:
    log = open_log(disk)
    log.close()
    assert disk.names() == ["LOCK"]
    with pytest.raises(LogClosedError):
        log.append(b"x")
    with pytest.raises(LogClosedError, match="the/store: the log is closed"):
        log.start()
    with pytest.raises(LogClosedError, match="the/store: the log is closed"):
        log.stats()
    with pytest.raises(LogClosedError, match="the/store: a log is read once"):
        log.groups()


def test_the_room_of_ready_segments_is_given_back_one_by_one_in_read_mode() -> None:
    disk = closed_store(b"1")
    for number in (1, 2):
        disk.put(f"ready-{number:08x}.tmp", bytes(SEGMENT_BYTES))
    with open_log(disk) as log:
        for left in (1, 0):
            assert log.drop_ready()
            assert len(ready_names(disk)) == left
        assert not log.drop_ready()
        assert [record.payload for record in log.read()] == [b"1"]


def test_a_log_without_a_record_is_closed_and_opened_again(
    disk: MemoryFileSystem,
) -> None:
    for _ in range(3):
        with open_log(disk) as log:
            assert log.start().clean
    with open_log(disk) as log:
        assert log.append(b"1") == 1


def test_the_with_block_closes_when_it_raises(disk: MemoryFileSystem) -> None:
    def work() -> None:
        with open_log(disk) as log:
            log.append(b"1")
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert payloads_of(disk) == [b"1"]


def test_syncs_are_timed_by_the_clock_that_was_given(disk: MemoryFileSystem) -> None:
    ticks = itertools.count(0, 1_000)
    with Log.open(disk, wall_ns=lambda: 1, monotonic_ns=lambda: next(ticks)) as log:
        log.commit(log.append(b"one"))
        assert (log.syncs.sum_ns, sum(log.syncs.counts)) == (1_000, 1)
        log.commit(log.append(b"two"))
        assert (log.syncs.sum_ns, sum(log.syncs.counts)) == (2_000, 2)


def test_without_a_clock_no_sync_is_timed(disk: MemoryFileSystem) -> None:
    with Log.open(disk, wall_ns=lambda: 1) as log:
        log.commit(log.append(b"one"))
        assert sum(log.syncs.counts) == 0
