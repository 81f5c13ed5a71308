"""Faults that other logs had, each with the right outcome, by the number of its report.

The threads are public; what they told is in the name and the docstring of each test. The
cases that the sweeps hold already: 6, 12 and 15 also in `test_log_crash_states`; 3 also
in `test_planted_faults`; 7, 8, 19 and 21 in `test_log_damage`.
"""

from __future__ import annotations

import errno
import random

import pytest

from tests.crash.crash_sweep import Sweep
from tests.crash.damaged_store import build
from tests.crash.log_driver import (
    LogDriver,
    Options,
    Step,
    open_log,
    read_all,
    read_entries,
)
from tests.crash.log_ledger import Entry
from wal.errors import CommitUnknownError, LogCorruptError, LogFailedError
from wal.frame import HEADER_BYTES
from wal.testing import MemoryFileSystem, SimulatedCrash

pytestmark = pytest.mark.usefixtures("quiet_log")

LARGE = Options(16384)


def torn(payloads: tuple[bytes, ...], state: str, *before: Step) -> LogDriver:
    """Return a driver whose last group was written, not synced, and torn by a crash.

    Args:
        payloads: of the group.
        state: what came through of its write: "head k" or "tail k", in sectors.
        before: what was done, and acknowledged, before.
    """
    driver = LogDriver(MemoryFileSystem(), options=LARGE)
    driver.run([*before, Step("sync")])
    driver.do(Step("group", payloads))
    driver.crash_at(driver.calls + 1, after=True)
    with pytest.raises(SimulatedCrash):
        driver.do(Step("sync"))
    kind, sectors = state.split()
    write = len(driver.disk.unsynced())
    driver.disk = driver.disk.crashed(f"{kind} {write} {sectors}")
    return driver


def acknowledged(driver: LogDriver) -> list[Entry]:
    ledger = driver.ledger
    return [e for e in ledger.entries if e.lsn <= ledger.acknowledged_lsn]


# etcd-io/etcd/issues/5230
def test_case_1_a_group_torn_at_a_page_is_gone_whole_and_reported() -> None:
    # The group starts 192 bytes before the page that begins at 8192.
    filler = Step("append", (b"x" * (4096 - 192 - HEADER_BYTES - 4),))
    driver = torn((b"a" * 100, b"b" * 100, b"c" * 100), "head 1", filler)
    log, found = read_all(driver.disk, LARGE)
    assert found == acknowledged(driver)
    report = log.start()
    assert report.torn_file is not None
    assert not report.clean
    assert not report.doubtful
    assert 0 < report.torn_bytes <= 192
    assert report.last_lsn == 1


# etcd-io/etcd/issues/6378
def test_case_2_a_group_whose_second_half_came_first_is_torn() -> None:
    driver = torn((b"x" * 2000,), "tail 2", Step("append", (b"kept",)))
    log, found = read_all(driver.disk, LARGE)
    assert found == acknowledged(driver)
    assert log.start().torn_file is not None


def test_case_2_a_flipped_bit_in_four_kibibytes_of_zeros_is_refused() -> None:
    store = build([Step("append", (bytes(4096),)), Step("commit")], LARGE)
    frame = store.frames[-1]
    # An odd number of bits, so that each bit of a byte is met.
    bits = range(8 * frame.start, 8 * frame.end, 13)
    for _, outcome in store.flips(frame.file, bits):
        assert isinstance(outcome, LogCorruptError)
        assert (outcome.offset, outcome.records_at_stake) == (frame.start, 1)


# etcd-io/etcd/issues/6515, 11488
def test_case_3_what_lay_behind_a_cut_stays_cut_at_the_second_restart() -> None:
    driver = torn((b"garbage" * 300,), "tail 1", Step("append", (b"kept",)))
    driver.open()
    # As long as what was cut: in the old place it would end inside the garbage.
    driver.do(Step("append", (b"new" * 300,)))
    driver.do(Step("sync"))
    driver.disk = driver.disk.crashed("all")
    _, found = read_all(driver.disk, LARGE)
    assert found == driver.ledger.entries
    assert len(found) == 2


# etcd-io/etcd/issues/2736
def test_case_4_a_torn_tail_in_an_older_segment_is_met_at_every_restart() -> None:
    driver = torn((b"torn" * 300,), "tail 1", Step("append", (b"kept",)))
    wanted = acknowledged(driver)
    for _ in range(5):
        driver.open()
        assert driver.ledger.entries == wanted
        driver.disk = driver.disk.killed()


# etcd-io/etcd/issues/3498, 22340
def test_case_6_a_crash_around_a_snapshot_never_leaves_neither_old_nor_new(
    rng: random.Random,
) -> None:
    work = [Step("append", (b"x" * 500,)), Step("append", (b"y" * 500,)), Step("sync")]
    snapshot = [Step("begin"), Step("block"), Step("finish")]
    driver = LogDriver(MemoryFileSystem())
    driver.run([*work, *snapshot, *work, *snapshot, *work])
    first = driver.calls
    program = [*work, *snapshot, *work, *snapshot, *work, *snapshot]
    sweep = Sweep(Options(), program, rng, states_max=40)
    sweep.run(start=first)
    assert sweep.points > 20


# prometheus/prometheus/issues/7245, 7835
def test_case_10_a_full_disk_and_damage_in_the_middle_delete_nothing() -> None:
    steps = [Step("append", (b"x" * 700,)), Step("commit")] * 4
    store = build(steps)
    middle = store.frames[1]
    disk = store.disk.copy()
    disk.capacity_bytes = disk.used_bytes
    disk.flip_bit(middle.file, 8 * (middle.start + HEADER_BYTES))
    outcome = store.attempt(disk)  # which looks that no byte has changed
    assert isinstance(outcome, LogCorruptError)
    assert outcome.file == middle.file


# prometheus/prometheus/issues/18552
@pytest.mark.parametrize("offset", [100, 4096 + 80])
def test_case_11_damage_in_an_old_segment_stops_no_snapshot_and_is_reported(
    offset: int,
) -> None:
    work = [Step("append", (b"x" * 700,)), Step("commit")] * 2
    snapshot = [Step("begin"), Step("finish")]
    driver = LogDriver(MemoryFileSystem())
    driver.run([*work, *snapshot, *work])
    oldest = next(name for name in driver.disk.names() if name.endswith(".seg"))
    driver.disk.flip_bit(oldest, 8 * offset)
    for step in [*snapshot, *work, *snapshot, *work]:
        driver.do(step)
    assert driver.log is not None
    assert driver.log.stats().scrub_errors == 1
    kept_aside = [name for name in driver.disk.names() if name.startswith(oldest)]
    assert len(kept_aside) == 1
    assert kept_aside[0].endswith(".damaged")
    _, found = read_all(driver.disk.killed(), driver.options)
    assert found == driver.ledger.entries


# beanstalkd/beanstalkd/issues/536
@pytest.mark.parametrize("restart", ["killed", "none", "all"])
def test_case_13_after_a_failed_sync_nothing_is_acknowledged_any_more(
    restart: str,
) -> None:
    driver = LogDriver(MemoryFileSystem(), options=LARGE)
    driver.open()
    driver.disk.fail("datasync", errno.EIO, after=5)
    step = Step("append", (b"x",))
    for _ in range(4):
        driver.do(step)
        driver.do(Step("commit"))
    driver.do(step)
    with pytest.raises(CommitUnknownError):
        driver.do(Step("commit"))
    assert driver.log is not None
    assert isinstance(driver.log.failure, OSError)
    for _ in range(3):
        with pytest.raises(LogFailedError):
            driver.do(step)
    disk = driver.disk
    disk = disk.killed() if restart == "killed" else disk.crashed(restart)
    _, found = read_all(disk, LARGE)
    driver.ledger.expect(found)
    assert len(found) in (4, 5)


# beanstalkd/beanstalkd/issues/364, 44
def test_case_15_a_process_killed_at_any_call_of_a_birth_leaves_what_opens() -> None:
    whole = MemoryFileSystem()
    open_log(whole, Options()).start()
    for call in range(1, whole.calls + 1):
        for after in (False, True):
            disk = MemoryFileSystem()
            disk.crash_at(call, after=after)
            with pytest.raises(SimulatedCrash):
                open_log(disk, Options()).start()
            driver = LogDriver(disk.killed())
            driver.run([Step("append", (b"born",)), Step("commit")])
            _, found = read_all(driver.disk.killed(), Options())
            assert found == driver.ledger.entries


# redis/redis/issues/5177; valkey-io/valkey/issues/1148
def test_case_16_zeros_in_the_place_of_the_last_group_are_no_damage() -> None:
    steps = [Step("append", (b"x" * size,)) for size in (100, 900, 2000)]
    store = build([s for step in steps for s in (step, Step("commit"))], LARGE)
    last = store.frames[-1]
    disk = store.disk.copy()
    disk.overwrite(last.file, last.start, bytes(last.end - last.start))
    log = open_log(disk, LARGE)
    assert read_entries(log) == store.everything[:2]
    log.start()


# sqlite.org/wal.html#the_wal_reset_bug
def test_case_17_a_snapshot_that_races_rotations_holds_what_the_log_holds() -> None:
    """A snapshot begun and ended at any two places among appends that rotate."""
    count = 7
    for begin in range(count):
        for end in range(begin, count):
            driver = LogDriver(MemoryFileSystem())
            driver.open()
            for number in range(count):
                driver.do(Step("append", (bytes([number]) * 400,)))
                if number % 2:
                    driver.do(Step("commit"))
                if number == begin:
                    driver.do(Step("begin"))
                if begin < number < end:
                    driver.do(Step("block"))
                if number == end:
                    driver.do(Step("finish"))
            driver.do(Step("commit"))
            for disk in (driver.disk.killed(), driver.disk.crashed("none")):
                log, found = read_all(disk, Options())
                assert found == driver.ledger.entries
                assert log.snapshot is not None
