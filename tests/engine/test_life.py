"""What ends an engine, what does not, and what each call says of it from then on."""

from __future__ import annotations

import errno

import pytest

from timingwheel.engine.life import CLOSED, Life
from timingwheel.engine.volatile import VolatileLog
from timingwheel.errors import ArgumentError, EngineClosedError, EngineFailedError
from wal.errors import DiskFullError, LogClosedError, LogFailedError


@pytest.fixture
def log() -> VolatileLog:
    return VolatileLog()


@pytest.fixture
def life(log: VolatileLog) -> Life:
    return Life(log)


def append(log: VolatileLog) -> int:
    """Append a record and return its LSN."""
    return log.append_group(b"", 1)


def test_a_new_engine_lives(life: Life) -> None:
    life.require_alive()
    assert (life.closed, life.failed, life.has_failed, life.forked) == (
        None,
        None,
        False,
        False,
    )


@pytest.mark.parametrize(
    "error",
    [
        DiskFullError("log", OSError(errno.ENOSPC, "No space left on device")),
        ArgumentError("delay", -1, "time only goes on"),
    ],
    ids=["of the log", "of the engine"],
)
def test_what_is_refused_in_time_ends_nothing(
    life: Life, log: VolatileLog, error: Exception
) -> None:
    append(log)
    life.broke_off(error, applied_lsn=0)
    life.require_alive()
    assert not life.has_failed


def test_an_error_before_the_record_or_after_its_effect_ends_nothing(
    life: Life, log: VolatileLog
) -> None:
    life.broke_off(MemoryError(), applied_lsn=0)
    lsn = append(log)
    life.broke_off(KeyboardInterrupt(), applied_lsn=lsn)
    life.require_alive()
    assert life.failed is None


def test_an_error_between_a_record_and_its_effect_is_the_end_and_its_cause(
    life: Life, log: VolatileLog
) -> None:
    lsn = append(log)
    first, later = MemoryError("first"), MemoryError("later")
    life.broke_off(first, applied_lsn=lsn - 1)
    life.broke_off(later, applied_lsn=lsn - 1)
    life.fail(later)
    assert life.has_failed
    with pytest.raises(EngineFailedError, match="a change was cut off") as found:
        life.require_alive()
    assert found.value.__cause__ is first


def test_once_it_has_failed_no_change_that_came_through_mends_it(
    life: Life, log: VolatileLog
) -> None:
    error = MemoryError()
    life.fail(error)
    life.broke_off(KeyboardInterrupt(), applied_lsn=append(log))
    with pytest.raises(EngineFailedError, match="a change was cut off") as found:
        life.require_alive()
    assert found.value.__cause__ is error


def test_a_failure_of_the_log_is_one_of_the_engine_and_comes_first(
    life: Life, log: VolatileLog
) -> None:
    life.fail(MemoryError())
    log.failure = OSError(errno.EIO, "gone")
    assert life.has_failed
    with pytest.raises(EngineFailedError, match="the disk failed") as found:
        life.require_alive()
    assert found.value.__cause__ is log.failure


def test_the_log_alone_may_have_failed(life: Life, log: VolatileLog) -> None:
    log.failure = OSError(errno.EIO, "gone")
    assert life.has_failed


def test_a_closed_engine_says_so_whatever_failed_before(life: Life) -> None:
    life.fail(MemoryError())
    life.close()
    assert not life.forked
    with pytest.raises(EngineClosedError, match=CLOSED):
        life.require_alive()


def test_the_child_of_a_fork_is_told_what_to_do(life: Life) -> None:
    life.leave_to_parent()
    assert life.forked
    with pytest.raises(EngineClosedError, match="a fork of the engine's owner"):
        life.require_alive()


def test_what_the_log_refuses_is_said_in_the_engines_words(life: Life) -> None:
    failed = life.in_engine_words(LogFailedError("log", OSError(errno.EIO, "gone")))
    assert type(failed) is EngineFailedError
    assert "the disk failed" in str(failed)
    closed = life.in_engine_words(LogClosedError("the log is closed"))
    assert type(closed) is EngineClosedError
    assert str(closed) == CLOSED


def test_after_its_close_the_log_refuses_because_of_that(life: Life) -> None:
    life.leave_to_parent()
    told = life.in_engine_words(LogFailedError("log", OSError(errno.EIO, "gone")))
    assert type(told) is EngineClosedError
    assert str(told) == life.closed
