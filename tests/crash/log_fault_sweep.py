"""Fail every system call of a log's life, one after the other, and look what is left.

For each call: the life goes on as far as the log lets it. A call may raise only if the
disk did, and with the error of its kind. A failure that the log calls final must be so; one
that it does not must leave it as it was, so the same call succeeds once the disk does.
Then the disk is mended and opened anew: by the same process, after a kill, after power
losses. What was acknowledged is there, nothing else, and the log takes more.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.crash.fault_disk import NO_ROOM, FaultDisk
from tests.crash.fault_sweep import FaultLife, FaultSweep
from tests.crash.log_driver import LogDriver, OpenLog, Options, Step, open_log, read_all
from tests.crash.log_ledger import Violation
from wal.errors import (
    CommitUnknownError,
    DiskFullError,
    LogFailedError,
    StoreError,
    WalError,
)
from wal.filesystem import FileSystem
from wal.testing import MemoryFileSystem

OPENING = frozenset({"open", "reopen", "kill"})


@dataclass
class LogFaultSweep(FaultSweep):
    """Faults in one program on a log.

    Args:
        options: of the first open.
        program: what is done then.
        opener: how logs are opened; a planted fault goes in here.
    """

    violation = Violation

    options: Options
    program: Sequence[Step]
    opener: OpenLog = open_log

    def life(self, index: int) -> FaultLife:
        """Return a new life whose `index`-th call fails; 0: none does."""
        return _Life(self, index)


class _Life(FaultLife):
    """One run of the program on a disk with one fault."""

    def __init__(self, sweep: LogFaultSweep, index: int) -> None:
        super().__init__(sweep.trouble)
        self.sweep = sweep
        disk = FaultDisk(sweep.trouble, index)
        self.driver = LogDriver(disk, sweep.opener, sweep.options)

    @property
    def files(self) -> FileSystem:
        """The disk, which heirs of a killed process have in their turn."""
        return self.driver.disk

    @property
    def where(self) -> str:
        """How far it has come in its program, and the whole of that, for messages."""
        sweep = self.sweep
        program = "; ".join(map(str, sweep.program))
        return f"step {self.driver.done} of {sweep.options} {program}"

    def live(self) -> None:
        """Do all steps, or those up to a final failure."""
        if not self._attempt(None):
            return
        for step in self.sweep.program:
            if not self._attempt(step):
                return
        if self.disk.fault.struck and self.lasts:
            self.disk.mend()  # and it heals by itself
            self._attempt(Step("append", (b"healed",)))
            self._attempt(Step("sync"))

    def _attempt(self, step: Step | None) -> bool:
        """Do one step; return whether the log can go on."""
        for _ in range(2):
            try:
                self._do(step)
            except (OSError, WalError) as error:
                if self._judge(step, error):
                    return False
            except Violation as violation:
                if not self._is_read_only(violation.__cause__):
                    raise
                self.outcome = "open StoreError"
                return False
            else:
                return True
            if self.lasts or (step is not None and step.verb in ("block", "finish")):
                return True  # refused, and the caller goes on without
        raise Violation("what was refused once is refused again by a sound disk")

    def _do(self, step: Step | None) -> None:
        if step is None:
            self.driver.open()
        else:
            self.driver.do(step)

    def _is_read_only(self, cause: object) -> bool:
        """Return whether an open was refused for what the disk does not allow now."""
        return (
            self.sweep.trouble.code == errno.EROFS
            and isinstance(cause, StoreError)
            and "is not writable" in cause.found
        )

    def _judge(self, step: Step | None, error: Exception) -> bool:
        """Look that an error is right; return whether it ended this life."""
        verb = "open" if step is None else step.verb
        if not self.disk.fault.struck or self.disk.fault.healed:
            raise Violation(f"{verb} raised and the disk had not: {error!r}") from error
        log = self.driver.log
        is_final = log is not None and log.failure is not None
        self.outcome = f"{verb} {type(error).__name__}"
        if verb in OPENING:
            return True
        self._require_right_kind(verb, error, is_final=is_final)
        if is_final:
            if self.sweep.trouble.spares_commits:
                raise Violation("a commit met it") from error
            self._require_final()
        return is_final

    def _require_right_kind(
        self, verb: str, error: Exception, *, is_final: bool
    ) -> None:
        code = self.sweep.trouble.code
        match error:
            case CommitUnknownError() | LogFailedError():
                if not is_final:
                    raise Violation(f"{verb} failed for good, not the log") from error
            case DiskFullError():
                if code not in NO_ROOM:
                    raise Violation("a full disk, of a disk that is not") from error
            case OSError():
                if error.errno != code:
                    raise Violation(f"another error than the disk's: {error!r}")
                if verb in ("append", "group") and code in NO_ROOM and not is_final:
                    raise Violation(f"no room is told as {error!r}") from error
            case _:
                raise Violation(f"an error of no right kind: {error!r}") from error

    def _require_final(self) -> None:
        """Nothing is accepted or acknowledged any more, and nothing synced again."""
        log = self.driver.log
        assert log is not None
        calls = self.disk.calls
        for act in (
            lambda: log.append(b"too late"),
            log.make_room,
            log.begin_snapshot,
            lambda: log.sync(log.durable_lsn + 1),
        ):
            try:
                act()
            except (LogFailedError, CommitUnknownError, ValueError):
                continue
            raise Violation("a log that had failed accepts more")
        if log.durable_lsn < self.driver.ledger.acknowledged_lsn:
            raise Violation("what was acknowledged is no longer durable")
        if self.disk.calls != calls:
            raise Violation("a log that had failed touched the disk")

    def look(self) -> None:
        """Open what is left, in every way."""
        disk = self.disk
        if not disk.fault.struck:
            raise Violation("the life was over before")
        if disk.again:
            raise Violation(f"synced again after a failed sync: {disk.again}")
        disk.mend()
        for label, left in self._successors():
            self.sweep.states += 1
            try:
                self._live_on(left)
            except Violation as violation:
                raise Violation(f"{label}: {violation}") from violation

    def _successors(self) -> Iterator[tuple[str, MemoryFileSystem]]:
        disk, rng = self.disk, self.sweep.rng
        yield "killed", disk.killed()
        labels = ["none", "all", f"random {rng.getrandbits(30)}"]
        for label in labels:
            yield f"power loss {label!r}", disk.crashed(label)
        if self.driver.log is not None:
            with contextlib.suppress(OSError, WalError):
                self.driver.log.close()
            if disk.again:
                raise Violation(f"closing synced again what had failed: {disk.again}")
        yield "the same process", disk

    def _live_on(self, disk: MemoryFileSystem) -> None:
        ledger = self.driver.ledger.copy()
        heir = LogDriver(disk, self.sweep.opener, self.driver.options, ledger=ledger)
        try:
            heir.run([Step("append", (b"after",)), Step("sync")])
        except (OSError, WalError) as error:
            raise Violation(f"it is refused or fails: {error!r}") from error
        assert heir.log is not None
        heir.log.check()
        heir.log.close()
        _, found = read_all(disk, self.driver.options, self.sweep.opener)
        ledger.expect(found)
