"""Several processes in one directory: who runs what, and what a kill of the holder costs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from timingwheel.jobs.model import RunState
from timingwheel.scheduler.scheduler import Scheduler
from wal.errors import StoreInUseError

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60
ADDED_BETWEEN_KILLS = 60
HELD = 12


class Member:
    """One of the processes."""

    def __init__(self, process: subprocess.Popen[str], role: str) -> None:
        self.process = process
        self.role = role

    @property
    def pid(self) -> int:
        return self.process.pid

    def tell(self, *words: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def do(self, *words: object) -> None:
        self.tell(*words)
        assert self.hear() == f"done {words[0]}"

    def stop(self) -> None:
        self.tell("stop")
        assert self.hear() == "stopped"
        assert self.process.wait(PATIENCE_S) == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)


class Group:
    """The processes of one directory, and the journal of what their handlers did."""

    def __init__(self, place: Path) -> None:
        self.data = place / "data"
        self._journal = place / "journal"
        self._journal.touch()
        self.members: list[Member] = []

    def start(self) -> Member:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.scheduler.sharing_program", str(self.data)],
            cwd=ROOT,
            env={**os.environ, "JOURNAL": str(self._journal)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        member = Member(process, "")
        self.members.append(member)
        member.role = member.hear()
        return member

    def journal(self, kind: str) -> list[list[str]]:
        """Return what stands behind a word, line by line."""
        lines = (line.split() for line in self._journal.read_text().splitlines())
        return [words[1:] for words in lines if words[0] == kind]

    def holder(self) -> Member:
        """Return the member that holds the directory, once one does."""
        found: list[Member] = []

        def is_known() -> bool:
            named = re.match(r"process (\d+),", (self.data / "LOCK").read_text())
            found[:] = [
                member
                for member in self.living()
                if named is not None and member.pid == int(named[1])
            ]
            return bool(found)

        self.wait_until(is_known)
        return found[0]

    def living(self) -> list[Member]:
        return [one for one in self.members if one.process.poll() is None]

    def wait_for_adds(self, count: int) -> None:
        """Return when each member that lives and adds has added so many jobs more."""
        before = self._adds()
        adding = [str(one.pid) for one in self.living() if before[str(one.pid)]]
        self.wait_until(
            lambda: all(self._adds()[pid] >= before[pid] + count for pid in adding)
        )

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Return when something is so: the processes tell it by files alone."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline_s, self._journal.read_text()[-2_000:]
            threading.Event().wait(0.01)

    def _adds(self) -> Counter[str]:
        return Counter(token.split("-")[1] for (token,) in self.journal("added"))

    def end(self) -> None:
        for member in self.members:
            member.kill()
            member.process.communicate()  # closes its pipes, too


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    yield made
    made.end()


def test_four_processes_share_a_job_and_each_time_of_it_runs_once(group: Group) -> None:
    """Case 1, with if_held="client"."""
    members = [group.start() for _ in range(4)]
    assert [member.role for member in members] == ["holder", *["client"] * 3]
    for member in members:
        member.do("tick")
    for member in members:
        member.do("drain")
    for member in members:
        member.stop()
    assert [token for token, _ in group.journal("ran")] == ["tick"] * 5
    with Scheduler(group.data) as app:
        assert [run.state for run in app.runs()] == [RunState.SUCCEEDED] * 5
    assert not (group.data / "DOOR").exists()


def test_handlers_of_one_process_go_on_when_the_holder_is_killed(group: Group) -> None:
    """They may run only once, so an attempt that was given up would show as lost."""
    holder, other, third = [group.start() for _ in range(3)]
    for number in range(HELD):
        holder.do("hold", number)
    group.wait_until(lambda: len(group.journal("held")) == HELD)
    held = Counter(pid for _, pid in group.journal("held"))
    assert held.total() > held[str(holder.pid)], "all of them, by chance"
    holder.kill()
    for member in (other, third):
        member.do("release")
    for member in (other, third):
        member.do("drain")
    with Scheduler(group.data, if_held="client") as app:
        states = Counter(run.state for run in app.runs(task="hold", limit=HELD))
    assert states[RunState.LOST] == held[str(holder.pid)]
    assert states[RunState.SUCCEEDED] == HELD - held[str(holder.pid)]
    assert len(group.journal("held")) == HELD


def test_no_acknowledged_job_is_lost_and_none_runs_twice_that_may_not_by_kills_of_holders(
    group: Group,
) -> None:
    members = [group.start() for _ in range(4)]
    for member in members[1:]:
        member.do("load")
    group.wait_until(lambda: len(group.journal("added")) > ADDED_BETWEEN_KILLS)
    for _ in range(2):
        group.wait_for_adds(ADDED_BETWEEN_KILLS)
        group.holder().kill()
    group.wait_for_adds(ADDED_BETWEEN_KILLS)
    assert len(group.living()) == 2
    for member in group.living():
        member.tell("drain")
    for member in group.living():
        assert member.hear() == "done drain"
    for member in group.living():
        member.stop()
    ran = Counter(token for token, _ in group.journal("ran"))
    added = {token for (token,) in group.journal("added")}
    asked = {token for (token,) in group.journal("ask")}
    assert ran.keys() <= asked
    assert max(n for token, n in ran.items() if token.startswith("once")) == 1
    with Scheduler(group.data) as app:
        states: Counter[tuple[str, RunState]] = Counter()
        cursor: str | None = None
        while True:
            page = app.runs(limit=1_000, cursor=cursor)
            states.update((run.task, run.state) for run in page)
            cursor = page.cursor
            if cursor is None:
                break
    lost = states["mark_once", RunState.LOST]
    missing = {token for token in added if not ran[token]}
    assert not {token for token in missing if token.startswith("again")}
    assert len(missing) <= lost
    assert {state for _, state in states} <= {RunState.SUCCEEDED, RunState.LOST}
    assert states["mark", RunState.LOST] == 0


def test_who_does_not_ask_is_told_how(group: Group) -> None:
    holder = group.start()
    with pytest.raises(StoreInUseError, match='if_held="client"') as refused:
        Scheduler(group.data).start()
    assert str(holder.pid) in refused.value.holder
