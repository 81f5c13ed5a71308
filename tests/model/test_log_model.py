"""The log against a naive list, under every order of calls, crashes and faults.

The oracle is `log_ledger`: what was appended, and what was acknowledged. Crashes at every
disk call are swept in tests/crash; here hypothesis looks for the orders of things.
"""

from __future__ import annotations

import contextlib
import errno
import logging

import pytest
from hypothesis import Phase, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.crash.log_driver import LogDriver, Options, Step, read_all
from tests.crash.log_program import KINDS, SEGMENT_SIZES, payload
from wal.errors import (
    CommitUnknownError,
    DiskFullError,
    LogClosedError,
    LogFailedError,
    WalError,
)
from wal.log import Durability
from wal.testing import MemoryFileSystem

DURABILITIES: tuple[Durability, ...] = ("durable", "interval")
FAULTS = (
    "pwrite",
    "datasync",
    "sync",
    "sync_dir",
    "rename",
    "create",
    "unlink",
    "open",
)
READ_FAULTS = ("pread", "open", "names", "size_bytes", "exists")


def payloads(size_max: int) -> st.SearchStrategy[bytes]:
    odd = st.builds(payload, st.sampled_from(KINDS), st.integers(0, size_max))
    return st.one_of(st.binary(max_size=40), odd)


appends = st.builds(Step, st.just("append"), st.tuples(payloads(880)))
groups = st.builds(
    Step, st.just("group"), st.lists(payloads(280), min_size=1, max_size=3).map(tuple)
)
commits = st.builds(Step, st.sampled_from(["commit", "commit", "sync"]))
work = st.lists(st.one_of(appends, groups, commits), min_size=1, max_size=12)
options = st.builds(
    Options, st.sampled_from(SEGMENT_SIZES), st.sampled_from(DURABILITIES)
)


class LogMachine(RuleBasedStateMachine):
    """A caller that does anything, on a disk that does anything.

    `armed` tells whether some coming disk call fails; `down` whether the log is of no
    more use, because one did, or because the disk has no room to open it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._logger = logging.getLogger("wal")
        self._level = self._logger.level
        self._logger.setLevel(logging.CRITICAL)
        self.driver = LogDriver(MemoryFileSystem())
        self.driver.open()
        self.armed = False
        self.down = False

    def teardown(self) -> None:
        self._logger.setLevel(self._level)

    # -- what a caller does --------------------------------------------------------------

    @precondition(lambda self: not self.down)
    @rule(steps=work)
    def append_and_commit(self, steps: list[Step]) -> None:
        for step in steps:
            if not self.down:
                self._do(step)

    @precondition(lambda self: not self.down)
    @rule(between=work, finish=st.booleans())
    def snapshot(self, between: list[Step], finish: bool) -> None:
        self._do(Step("begin"))
        self.append_and_commit(between)
        if finish and not self.down:
            self._do(Step("finish"))

    @precondition(lambda self: not self.down)
    @rule(options=options)
    def reopen(self, options: Options) -> None:
        self._do(Step("reopen", options=options))

    # -- what happens to it --------------------------------------------------------------

    @rule(options=options, power=st.none() | st.integers(0, 1 << 30))
    def crash(self, options: Options, power: int | None) -> None:
        """The process dies, or the machine; the next one meets no fault of the former."""
        if power is not None:
            self.driver.disk = self.driver.disk.crashed(f"random {power}")
        self.armed = self.down = False
        self._do(Step("kill", options=options))

    @rule(free_blocks=st.none() | st.integers(0, 3))
    def fill_disk_or_give_space_back(self, free_blocks: int | None) -> None:
        disk = self.driver.disk
        disk.capacity_bytes = None
        if free_blocks is not None:
            disk.capacity_bytes = disk.used_bytes + 4096 * free_blocks

    @precondition(lambda self: not self.armed and not self.down)
    @rule(op=st.sampled_from(FAULTS), after=st.integers(1, 4), steps=work)
    def fail_once(self, op: str, after: int, steps: list[Step]) -> None:
        self.driver.disk.fail(op, errno.EIO, after=after)
        self.armed = True
        self.append_and_commit(steps)

    @rule(op=st.sampled_from(FAULTS + READ_FAULTS), after=st.integers(1, 12))
    def fail_while_opening(self, op: str, after: int) -> None:
        """A disk that cannot be read is no verdict: the next open finds everything."""
        disk = self.driver.disk.killed()
        disk.fail(op, errno.EIO, after=after)
        code: int | None = errno.EIO
        try:
            log, found = read_all(disk, self.driver.options)
            log.start()
        except DiskFullError:
            assert disk.capacity_bytes is not None
        except OSError as error:
            event(f"an open failed in {op}")
            code = error.errno
        else:
            self.driver.ledger.copy().recovered(found)
        assert code in (errno.EIO, errno.ENOSPC)
        self.driver.disk = disk
        self.crash(self.driver.options, None)

    @precondition(lambda self: self.down)
    @rule()
    def close_what_failed_and_open_again(self) -> None:
        """The same process, on the same disk, which shows what a failed sync lost."""
        driver = self.driver
        if driver.log is not None:
            if driver.log.report is not None and driver.log.failure is not None:
                assert_failed(driver)
            with contextlib.suppress(OSError, WalError):
                driver.log.close()
        driver.disk.heal()
        self.armed = False
        try:
            driver.open()
        except DiskFullError:
            assert driver.disk.capacity_bytes is not None
        else:
            event("opened again in place")
            self.down = False

    # -- what always holds ---------------------------------------------------------------

    @invariant()
    def the_log_is_sound(self) -> None:
        log, ledger = self.driver.log, self.driver.ledger
        if self.down or self.armed or log is None:
            return
        log.check()
        waiting = [e for e in ledger.entries if e.lsn > log.durable_lsn]
        assert log.durable_lsn >= ledger.acknowledged_lsn
        assert log.stats().records_waiting == len(waiting)

    def _do(self, step: Step) -> None:
        """Do a step, which may fail only if there is a reason."""
        full = self.driver.disk.capacity_bytes is not None
        opens = step.verb in ("reopen", "kill")
        code: int | None = None
        try:
            self.driver.do(step)
        except DiskFullError:
            event(f"{step.verb}: disk full")
            assert full
            self.down = opens
        except (CommitUnknownError, LogFailedError) as error:
            event(f"{step.verb}: {type(error).__name__}")
            assert self.armed
            self.down = True
        except OSError as error:
            code = error.errno
            event(f"{step.verb}: {errno.errorcode[code or 0]}")
            # A snapshot that failed leaves the log as it is.
            log = self.driver.log
            self.down = opens or (log is not None and log.failure is not None)
        assert code is None or self.armed or (full and code == errno.ENOSPC)


def assert_failed(driver: LogDriver) -> None:
    """A failure is final: nothing more is accepted, and nothing acknowledged."""
    assert driver.log is not None
    with pytest.raises((LogFailedError, LogClosedError)):
        driver.do(Step("append", (b"too late",)))
    with pytest.raises((LogFailedError, LogClosedError, CommitUnknownError)):
        driver.log.sync(driver.log.durable_lsn + 1)


LogMachine.TestCase.settings = settings(
    stateful_step_count=20,
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
TestLog = LogMachine.TestCase
