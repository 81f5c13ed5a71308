"""Ctrl-C at every place where Python can deliver it, in the middle of append and commit.

CPython hands a signal to Python code after a call and where a loop jumps back, nowhere
else. The first test raises KeyboardInterrupt at each such place in turn; the others
raise it from each disk call, with threads that wait behind the interrupted one.
"""

from __future__ import annotations

import dis
import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import pytest

import wal.commit
import wal.log
import wal.plan
import wal.pool
import wal.writer
from tests.wal.stores import (
    HookedDisk,
    Signalled,
    Worker,
    frames_of,
    open_log,
    payloads_of,
    segments_of,
)

TRACED = {
    module.__file__ for module in (wal.commit, wal.log, wal.plan, wal.pool, wal.writer)
}

NEVER = 0
Trace = Callable[[FrameType, str, Any], Any]


class CtrlC:
    """A trace function that raises KeyboardInterrupt at the `point`-th place.

    Attributes:
        where: it was raised; "" if the work has fewer places.
    """

    def __init__(self, point: int) -> None:
        self.where = ""
        self._left = point
        self._former = sys.gettrace()

    def during(self, work: Callable[[], None]) -> bool:
        """Do the work and return whether it was interrupted."""
        sys.settrace(self)
        try:
            work()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(self._former)
        return False

    def aside(self, work: Callable[[], None]) -> None:
        """Do something that is no part of what is interrupted."""
        sys.settrace(self._former)
        work()
        sys.settrace(self)

    def __call__(self, frame: FrameType, event: str, arg: object) -> Trace | None:
        if frame.f_code.co_filename not in TRACED:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        names = opcode_names(frame.f_code)
        before = ""

        def at_opcode(frame: FrameType, event: str, arg: object) -> Any:
            nonlocal before
            if event == "opcode":
                delivers = before.startswith(("CALL", "JUMP_BACKWARD", "RESUME"))
                before = names.get(frame.f_lasti, "")
                if delivers:
                    self._pass(frame)
            return at_opcode

        return at_opcode

    def _pass(self, frame: FrameType) -> None:
        self._left -= 1
        if self._left == 0:
            self.where = f"{frame.f_code.co_qualname}, line {frame.f_lineno}"
            raise KeyboardInterrupt


@functools.cache
def opcode_names(code: CodeType) -> dict[int, str]:
    """The name of each instruction, by its place."""
    return {each.offset: each.opname for each in dis.get_instructions(code)}


class Story:
    """Two records committed, the second in a new segment; a thread waits meanwhile.

    Attributes:
        known: the records whose number the caller got.
    """

    def __init__(self, point: int) -> None:
        self.known: dict[int, bytes] = {}
        self.ctrl_c = CtrlC(point)
        self._disk = HookedDisk()
        self._log = open_log(self._disk)
        self._log.start()
        self._waiters = Signalled()
        self._log._commits._waiters = self._waiters
        self._follower: Worker | None = None

    def interrupt(self) -> bool:
        """Run it; return whether Ctrl-C came."""
        self._disk.hook = self._at_disk_call
        interrupted = self.ctrl_c.during(self._commit_two)
        self._disk.hook = None
        if self._follower is not None:
            self._follower.outcome()
        return interrupted

    def go_on(self) -> None:
        """Use the log as if nothing had happened, and look at all that it holds."""
        Worker(self._log.commit).outcome()  # what there is, with nothing new behind it
        for payload in (b"after", b"and" * 1000):
            self._append(payload)
        Worker(self._log.commit).outcome()
        self._log.check()
        stats = self._log.stats()
        assert (stats.bytes_waiting, stats.records_waiting) == (0, 0)
        self._log.close()
        with open_log(self._disk.killed()) as reader:
            found: dict[int, bytes] = {r.lsn: r.payload for r in reader.read()}
        for lsn, payload in self.known.items():
            assert found.get(lsn) == payload
        assert sorted(found) == list(range(1, len(found) + 1))

    def _commit_two(self) -> None:
        for payload in (b"1" * 3000, b"2" * 3000):
            self._log.commit(self._append(payload))

    def _append(self, payload: bytes) -> int:
        lsn = self._log.append(payload)
        assert lsn not in self.known
        self.known[lsn] = payload
        return lsn

    def _at_disk_call(self, op: str, name: str, done: bool) -> None:
        if op == "datasync" and name.startswith("wal-") and self._follower is None:
            self.ctrl_c.aside(self._follow)

    def _follow(self) -> None:
        lsn = self._append(b"follower")
        self._follower = Worker(lambda: self._log.commit(lsn))
        self._waiters.wait_for(1)


@pytest.mark.parametrize("first", range(1, 5))
def test_ctrl_c_at_any_place_loses_no_record_and_strands_nobody(first: int) -> None:
    for point in itertools.count(first, 4):
        if sys.version_info >= (3, 12):  # reports opcodes only of code traced before
            Story(NEVER).interrupt()
        story = Story(point)
        interrupted = story.interrupt()
        try:
            story.go_on()
        except BaseException as error:
            error.add_note(f"Ctrl-C {point}, in {story.ctrl_c.where}")
            raise
        if not interrupted:
            assert point > 150
            break


# -- from the disk calls ---------------------------------------------------------------


class InterruptedDisk(HookedDisk):
    """Raises KeyboardInterrupt once, at the n-th moment after it was armed.

    Each disk call has two: before it and right after it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hook = self._count
        self.moments_left = -1
        self.at_interrupt: Callable[[], None] = lambda: None
        self.where = ""

    def _count(self, op: str, name: str, done: bool) -> None:
        if self.moments_left < 0:
            return
        self.moments_left -= 1
        if self.moments_left < 0:
            self.where = f"{'after' if done else 'before'} {op} {name}"
            self.at_interrupt()
            raise KeyboardInterrupt


class InterruptedCommit:
    """The commit of a group that rotates, interrupted while two threads wait behind it.

    Attributes:
        disk: of the log.
        log: the log.
        interrupted: whether there was such a moment.
    """

    def __init__(self, moment: int, durability: str) -> None:
        self.disk = InterruptedDisk()
        self.log = open_log(self.disk, durability=durability)
        self.log.sync(self.log.append(b"1" * 2000))
        lsn = self.log.append(b"2" * 3000)
        self._waiters = Signalled()
        self.log._commits._waiters = self._waiters
        self._followers: list[Worker] = []
        self.disk.at_interrupt = self._follow
        self.disk.moments_left = moment
        try:
            self.log.sync(lsn)
        except KeyboardInterrupt:
            self.interrupted = True
        else:
            self.interrupted = False
        for follower in self._followers:
            follower.outcome()
        self.disk.hook = None

    def _follow(self) -> None:
        for payload in (b"3", b"4"):
            lsn = self.log.append(payload)
            self._followers.append(Worker(functools.partial(self._sync, lsn)))
            self._waiters.wait_for(len(self._followers))

    def _sync(self, lsn: int) -> None:
        self.log.sync(lsn)
        assert self.log.durable_lsn >= lsn


def interrupted_commits(durability: str = "durable") -> Iterator[InterruptedCommit]:
    """One for each moment."""
    for moment in itertools.count():
        commit = InterruptedCommit(moment, durability)
        if not commit.interrupted:
            assert moment >= 14
            return
        yield commit


@pytest.mark.parametrize("durability", ["durable", "interval"])
def test_a_leader_interrupted_at_any_disk_call_strands_nobody(durability: str) -> None:
    expected = [b"1" * 2000, b"2" * 3000, b"3", b"4"]
    for commit in interrupted_commits(durability):
        where = commit.disk.where
        assert commit.log.durable_lsn == 4, where
        commit.log.check()
        assert payloads_of(commit.disk.crashed()) == expected, where
        commit.log.close()
        assert payloads_of(commit.disk) == expected, where


def test_the_next_leader_completes_the_very_same_frame() -> None:
    for commit in interrupted_commits():
        _, second = segments_of(commit.disk)
        frames = [frame for _, frame in frames_of(commit.disk, second)]
        # One frame for the interrupted record, one for those who came meanwhile.
        found = [(f.first_lsn, f.record_count, f.durable_lsn) for f in frames]
        assert found == [(2, 1, 1), (3, 2, 2)], commit.disk.where


def test_a_lone_interrupted_caller_may_try_again() -> None:
    for moment in range(4):
        disk = InterruptedDisk()
        log = open_log(disk)
        lsn = log.append(b"1")
        disk.moments_left = moment
        with pytest.raises(KeyboardInterrupt):
            log.commit(lsn)
        log.commit(lsn)
        assert payloads_of(disk.crashed()) == [b"1"], disk.where
        assert len(frames_of(disk, segments_of(disk)[0])) == 1


def test_an_interrupted_close_commits_what_was_appended() -> None:
    for moment in range(4):
        disk = InterruptedDisk()
        log = open_log(disk)
        log.append(b"1")
        disk.moments_left = moment
        with pytest.raises(KeyboardInterrupt):
            log.close()
        log.close()
        assert payloads_of(disk.crashed()) == [b"1"], disk.where


@pytest.mark.parametrize("moment", range(4))
def test_a_close_that_was_interrupted_twice_is_an_unclean_end(moment: int) -> None:
    """Else the next life would use the number of a record that was never durable."""
    disk = InterruptedDisk()
    log = open_log(disk)
    lsn = log.append(b"1")

    def once_more() -> None:
        disk.at_interrupt = lambda: None
        disk.moments_left = 0

    disk.at_interrupt = once_more
    disk.moments_left = moment
    with pytest.raises(KeyboardInterrupt):
        log.close()
    with open_log(disk.crashed()) as again:
        assert not again.start().clean
        assert again.append(b"2") > lsn
