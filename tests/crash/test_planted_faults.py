"""The crash and damage sweeps see faults: each one planted is reported.

A harness that reports nothing proves nothing. Here the same sweeps that the log passes
run over logs with one fault each, and must find it.
"""

from __future__ import annotations

import random

import pytest

from tests.crash import planted_faults as faults
from tests.crash.crash_sweep import Sweep
from tests.crash.damaged_store import build
from tests.crash.log_driver import LogDriver, OpenLog, Options, Step, open_log
from tests.crash.log_ledger import Violation
from tests.crash.log_program import short
from wal.errors import LogCorruptError
from wal.testing import MemoryFileSystem, SimulatedCrash

pytestmark = [pytest.mark.usefixtures("quiet_log"), pytest.mark.timeout(300)]

CRASH_FAULTS: dict[str, tuple[OpenLog, str]] = {
    "reply before commit": (faults.all_by(faults.RepliesBeforeCommit), "is lost"),
    "no directory sync": (
        faults.all_on(faults.WithoutDirectorySync),
        "is lost|refused",
    ),
    "no directory sync for new segments": (
        faults.all_recovered_by(faults.SegmentsWithoutDirectorySync),
        "is lost|refused",
    ),
    "no datasync": (faults.all_on(faults.WithoutDataSync), "is lost"),
    "no datasync of frames": (
        faults.all_recovered_by(faults.FramesWithoutDataSync),
        "is lost",
    ),
    "new segments named before they are synced": (
        faults.all_recovered_by(faults.SegmentsWithoutFileSync),
        "refused",
    ),
    "snapshots named before they are synced": (
        faults.all_by(faults.SnapshotsWithoutSync),
        "no valid snapshot reaches further",
    ),
    "names of a killed owner not synced": (
        faults.all_recovered_by(faults.TrustsNamesThatAKilledOwnerLeft),
        "holds a log .* but no STORE|missing between",
    ),
    "numbers reused after a cut": (
        faults.all_recovered_by(faults.ReusesNumbers),
        "given out again",
    ),
    "old tail appended to": (
        faults.all_recovered_by(faults.AppendsToTheOldTail),
        "given out again",
    ),
}


def crash_sweep(opener: OpenLog) -> None:
    Sweep(Options(5120), short(), random.Random(7), opener, states_max=8).run()


@pytest.mark.parametrize("fault", CRASH_FAULTS)
def test_the_crash_sweep_reports(fault: str) -> None:
    opener, found = CRASH_FAULTS[fault]
    with pytest.raises(Violation, match=found) as report:
        crash_sweep(opener)
    print(f"{fault}: {str(report.value).partition(chr(10))[0]}")


def test_the_same_crash_sweep_reports_nothing_without_a_fault() -> None:
    crash_sweep(open_log)


# -- faults that only damage brings to light ----------------------------------------------


def damage_sweep(opener: OpenLog) -> None:
    """Flip every 7th bit of the groups, the last of which is zeros over two sectors."""
    groups = [(b"one", b"two"), (b"three",), (bytes(700),)]
    steps = [step for g in groups for step in (Step("group", g), Step("commit"))]
    store = build(steps, Options(8192), opener)
    for frame in store.frames:
        for _ in store.flips(frame.file, range(8 * frame.start, 8 * frame.end, 7)):
            pass


DAMAGE_FAULTS: dict[str, tuple[OpenLog, str]] = {
    # The second group's successor no longer proves that it was synced.
    "durable_lsn one group stale": (
        faults.all_recovered_by(faults.StaleDurableLsn),
        "LSN 3 is lost",
    ),
    # A damaged last group looks as if a part of it had never been written.
    "no masks": (faults.all_recovered_by(faults.WithoutMasks), "LSN 4 is lost"),
}


@pytest.mark.parametrize("fault", DAMAGE_FAULTS)
def test_the_damage_sweep_reports(fault: str) -> None:
    opener, found = DAMAGE_FAULTS[fault]
    with pytest.raises(Violation, match=found) as report:
        damage_sweep(opener)
    print(f"{fault}: {report.value}")


def test_the_same_damage_sweep_reports_nothing_without_a_fault() -> None:
    damage_sweep(open_log)


# -- the second restart -----------------------------------------------------------------


APPENDED = b"appended" * 41  # in the old tail it would end within what was left there


def second_restart(opener: OpenLog) -> list[bytes]:
    """A group torn so that its first sector is lost; then one more record; and again.

    etcd-io/etcd issues 6515 and 11488: what lay behind the cut came back to life under
    the record that was appended over its beginning.
    """
    driver = LogDriver(MemoryFileSystem(), opener, Options(8192))
    driver.run([Step("append", (b"kept",)), Step("commit")])
    driver.do(Step("append", (b"torn" * 400,)))
    driver.crash_at(driver.calls + 1, after=True)
    with pytest.raises(SimulatedCrash):
        driver.do(Step("commit"))
    torn = len(driver.disk.unsynced())
    second = opener(driver.disk.crashed(f"tail {torn} 1"), driver.options)
    assert [record.payload for record in second.read()] == [b"kept"]
    disk = second._files
    assert isinstance(disk, MemoryFileSystem)
    second.append(APPENDED)
    second.commit()
    third = opener(disk.crashed("all"), driver.options)
    return [record.payload for record in third.read()]


def test_the_second_restart_is_clean() -> None:
    assert second_restart(open_log) == [b"kept", APPENDED]


def test_the_second_restart_refuses_if_the_old_tail_was_appended_to() -> None:
    with pytest.raises(LogCorruptError):
        second_restart(faults.all_recovered_by(faults.AppendsToTheOldTail))
