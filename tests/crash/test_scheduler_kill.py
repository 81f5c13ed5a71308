"""A real scheduler, killed with SIGKILL at any moment, keeps what it has promised.

The victim (scheduler_victim.py) runs jobs of all kinds in threads: one-time and recurring
ones, some that may start only once, that fail at first, that add others, that are
cancelled while they come due. Its diary, a file beside the store, says what was
acknowledged and which handlers started and ended. The parent kills it, again and again, on
one directory; then a last life ends what is left, and the ledger (scheduler_ledger.py)
holds the diary against the store.

As in test_kill.py, a kill takes a process away and not the power: a sync that is missing
shows in the crash states alone.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import select
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from tests.crash import scheduler_victim
from tests.crash.scheduler_ledger import Diary, Found, Ledger, ended_in_log
from tests.crash.scheduler_victim import Orders, Work
from tests.crash.test_kill import INTERRUPTED, SILENCE_S
from tests.crash.victim import Halt
from timingwheel.jobs.model import Outcome, Run, RunState
from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.stores.history_entries import HistoryRun
from timingwheel.stores.records import Kind
from wal.log import Log

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([scheduler_victim.__name__])

When = Callable[["Reports"], bool]


class Reports:
    """What a life has told so far."""

    def __init__(self) -> None:
        self.count = 0
        self.since_open = 0
        self.kinds: Counter[str] = Counter()
        self.is_open = False
        self.calls: dict[str, str] = {}
        self.snapshots = 0

    def note(self, line: str) -> None:
        self.count += 1
        self.since_open += self.is_open
        kind, _, rest = line.partition(" ")
        self.kinds[kind] += 1
        if kind == "opened":
            self.is_open = True
        elif kind == ">":
            thread, _, call = rest.partition(" ")
            self.calls[thread] = call
            self.snapshots += call.startswith("rename snap-")
        elif kind == "<":
            self.calls.pop(rest, None)

    def interrupted(self) -> str:
        """What the kill interrupted, as far as the reports tell."""
        calls = " ".join(self.calls.values())
        if not self.is_open:
            return "while opening"
        for signs, what in INTERRUPTED.items():
            if any(sign in calls for sign in signs):
                return what
        return "in between"


@dataclass
class Kills:
    """Lives on one directory, each ended by SIGKILL, and their diary."""

    directory: Path
    rng: random.Random
    snapshots: bool = True
    lives: int = 0
    where: Counter[str] = field(default_factory=Counter)
    snapshots_written: int = 0

    def kill(
        self, when: When, *, work: Work = "load", halt: Halt | None = None
    ) -> Reports:
        """Let a life work, and kill it as soon as `when(reports)` holds."""
        reports, _ = self._live(self._orders(work, halt), when)
        self.where[reports.interrupted()] += 1
        return reports

    def kill_at_random(self) -> None:
        """Kill after a random number of reports, one in four times while it opens."""
        if self.rng.random() < 0.25:
            count = self.rng.randint(1, 80)
            self.kill(lambda reports: reports.count >= count)
        else:
            count = self.rng.randint(0, 1_500)
            self.kill(lambda reports: reports.since_open >= count)

    def end(self) -> Ledger:
        """End what is left, and judge; every promise must have been kept."""
        reports, code = self._live(self._orders("drain"), lambda _: False)
        ledger = Ledger(self.diary(), self.found())
        ledger.judge()
        print(f"{self.where.total()} kills {dict(self.where)}: {ledger.summary()}")
        assert not ledger.faults, ledger.summary()
        assert code == 0
        assert reports.kinds["closed"]
        return ledger

    def diary(self) -> Diary:
        diary = Diary()
        diary.read((self.directory / "diary").read_text().splitlines())
        return diary

    def found(self) -> Found:
        """Read the store as the next life would find it."""
        store = EmbeddedStore.open(self.directory / "store", create=False)
        try:
            store.check()
            return Found.of(store)
        finally:
            store.close()

    def _orders(self, work: Work, halt: Halt | None = None) -> Orders:
        return Orders(
            self.lives,
            self.rng.getrandbits(32),
            work,
            snapshots=self.snapshots,
            halt=halt,
        )

    def _live(self, orders: Orders, when: When) -> tuple[Reports, int | None]:
        self.lives += 1
        self.directory.mkdir(exist_ok=True)
        reader, writer = _processes.Pipe(duplex=False)
        with reader:
            with writer:
                process = _processes.Process(
                    target=scheduler_victim.run,
                    args=(
                        str(self.directory / "store"),
                        str(self.directory / "diary"),
                        orders,
                        writer,
                    ),
                    daemon=True,
                )
                process.start()
            try:
                reports = self._listen(reader, when, process.kill)
            finally:
                process.kill()
                process.join()
        self.snapshots_written += reports.snapshots
        code = process.exitcode
        process.close()
        return reports, code

    def _listen(
        self, pipe: Connection, when: When, kill: Callable[[], None]
    ) -> Reports:
        """Take in every line to the last; kill once, when it is time."""
        reports = Reports()
        rest = b""
        killed = False
        while True:
            ready, _, _ = select.select([pipe], [], [], SILENCE_S)
            assert ready, f"nothing was reported for {SILENCE_S} s"
            data = os.read(pipe.fileno(), 1 << 16)
            if not data:
                return reports
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                reports.note(line.decode())
                if not killed and when(reports):
                    killed = True
                    self._wait_a_little()
                    kill()

    def _wait_a_little(self) -> None:
        """Up to a millisecond, so that the kill does not always follow a report."""
        end = time.monotonic() + self.rng.random() / 1_000
        while time.monotonic() < end:
            pass


def survive_random_kills(kills: Kills, count: int) -> Ledger:
    for _ in range(count):
        kills.kill_at_random()
    ledger = kills.end()
    assert kills.where.total() == count
    for kind in ("near", "slow", "far", "flaky", "parent", "once", "key", "every"):
        assert ledger.runs_of_kind(kind), f"nothing of kind {kind} ran"
    assert kills.snapshots_written, "no snapshot was written"
    return ledger


def test_eight_kills_at_random_moments_break_no_promise(
    tmp_path: Path, rng: random.Random
) -> None:
    survive_random_kills(Kills(tmp_path, rng), 8)


def test_what_the_log_says_of_ended_runs_is_what_the_history_says(
    tmp_path: Path, rng: random.Random
) -> None:
    """Without snapshots the log is whole, so it tells all that the history must have."""
    kills = Kills(tmp_path, rng, snapshots=False)
    for _ in range(3):
        kills.kill_at_random()
    kills.end()
    assert ended_in_log(runs_in_log(tmp_path / "store"), kills.found()) == []


def test_a_run_that_a_kill_cut_off_starts_again_unless_it_may_not(
    tmp_path: Path, rng: random.Random
) -> None:
    """Case 4: attempt 1 is lost and attempt 2 starts at once; at_most_once ends lost."""
    kills = Kills(tmp_path, rng)
    kills.kill(lambda reports: reports.kinds["start"] == 2, work="hold")
    ledger = kills.end()
    (again,) = ledger.runs_of_kind("hold")
    (once,) = ledger.runs_of_kind("once")
    assert again.state is RunState.SUCCEEDED
    assert ledger.outcomes(again) == [Outcome.LOST, Outcome.OK]
    assert once.state is RunState.LOST
    assert ledger.outcomes(once) == [Outcome.LOST]


def test_a_kill_right_after_a_cancel_does_not_undo_it(
    tmp_path: Path, rng: random.Random
) -> None:
    """Case 21: cancel() was true, so the job never starts, however soon the kill."""
    kills = Kills(tmp_path, rng)
    kills.kill(lambda reports: reports.kinds["cancelled"] == 1, work="race")
    ledger = kills.end()
    (run,) = ledger.runs_of_kind("soon")
    assert run.state is RunState.CANCELLED
    assert ledger.outcomes(run) == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_between_claim_and_start_at_every_write_leaves_no_run_without_an_owner(
    tmp_path: Path, rng: random.Random, when: Literal["before", "after"]
) -> None:
    """Case 14: whatever the log holds at the kill, the next life ends both runs."""
    lost = 0
    for nth in itertools.count(1):
        kills = Kills(tmp_path / str(nth), rng)
        halt = Halt("*", "wal-*.seg", when, nth)
        if not kills.kill(is_halted, work="two", halt=halt).kinds["halted"]:
            break
        ledger = kills.end()
        lost += ledger.outcomes_seen()[Outcome.LOST]
    assert nth > 8, "a life of two jobs writes more often than that"
    assert lost > 2, "no kill fell between a claim and an end"


def is_halted(reports: Reports) -> bool:
    return reports.kinds["halted"] > 0


@pytest.mark.long
def test_a_hundred_and_fifty_kills_at_random_moments_break_no_promise(
    tmp_path: Path, rng: random.Random, record_property: Callable[[str, object], None]
) -> None:
    kills = Kills(tmp_path, rng)
    ledger = survive_random_kills(kills, 150)
    record_property("summary", f"{dict(kills.where)}: {ledger.summary()}")


def runs_in_log(directory: Path) -> dict[str, Run]:
    """Return how each run ended, by the log alone."""
    ended: dict[str, Run] = {}
    decode = msgspec.msgpack.Decoder(HistoryRun).decode
    with Log.open(directory, wall_ns=time.time_ns, create=False) as log:
        for record in log.read():
            if record.payload[0] in {Kind.RUN_ENDED, Kind.PLAIN_ENDED}:
                run = decode(record.payload[1:]).run
                ended[run.id] = run
    return ended
