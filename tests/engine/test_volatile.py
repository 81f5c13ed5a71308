"""The log that is none: it numbers records and keeps nothing."""

from __future__ import annotations

import pytest

from timingwheel.engine.volatile import VolatileLog
from wal.errors import LogClosedError


def test_records_are_numbered_from_1_without_gaps() -> None:
    log = VolatileLog()
    assert (log.appended_lsn, log.durable_lsn, log.next_lsn) == (0, 0, 1)
    assert log.append_group(b"", 3) == 1
    assert log.append_group(b"", 1, urgent=True) == 4
    assert (log.appended_lsn, log.durable_lsn, log.next_lsn) == (4, 4, 5)


def test_there_is_nothing_to_recover_and_nothing_to_wait_for() -> None:
    log = VolatileLog()
    assert (list(log.groups()), list(log.snapshot_blocks())) == ([], [])
    report = log.start()
    assert (report.clean, report.last_lsn, report.last_wall_ns) == (True, 0, 0)
    assert log.failure is None
    assert not log.congested
    log.admit()
    log.make_room(urgent=True)
    log.commit(log.append_group(b"", 1))
    log.commit_soon(1)


def test_a_closed_one_takes_no_more_records() -> None:
    log = VolatileLog()
    log.close()
    log.close()
    with pytest.raises(LogClosedError, match=r"^the log is closed$"):
        log.append_group(b"", 1)
