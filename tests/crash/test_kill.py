"""A real process, killed with SIGKILL at any moment, loses nothing it acknowledged.

The victim (victim.py) is a TimerEngine under load: several threads schedule, cancel and
reschedule, handlers return and raise, small segments rotate all the time, snapshots are
written. It reports through a pipe what it is about to ask and what was answered. The
parent kills it, and the next life on the same directory first reports what it found; the
ledger (timer_ledger.py) holds that against all that had been acknowledged.

What this proves and what it does not: SIGKILL takes a *process* away. The kernel lives
on and keeps what was written, synced or not, so these tests see a reply before its
write, a lost or doubled delivery, a recovery that cannot read what a real process leaves.
They cannot see a missing sync: that shows only when the *power* goes, and is the business
of the crash states that tests/crash/test_log_crash_states.py enumerates.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import random
import select
import shutil
import time
import zlib
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

import pytest

from tests.crash import victim
from tests.crash.timer_ledger import Ledger
from tests.crash.victim import Halt, Orders
from wal.log import Durability

SILENCE_S = 60.0
"""A victim that reports nothing for so long hangs."""

# Each life is a fork of a server that has imported everything: 10 ms, and not 200.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([victim.__name__])


@dataclass
class Kills:
    """Lives on one directory, each ended by SIGKILL, and their ledger."""

    directory: Path
    rng: random.Random
    durability: Durability = "durable"
    ledger: Ledger = field(default_factory=Ledger)
    lives: int = 0
    where: Counter[str] = field(default_factory=Counter)

    def kill(
        self, when: Callable[[Ledger, int], bool], halt: Halt | None = None
    ) -> None:
        """Let a life work, and kill it as soon as `when(ledger, lines read)` holds."""
        self._live(
            Orders(self.lives, self._seed(), "load", halt, self.durability), when
        )
        self.where[self._interrupted()] += 1

    def kill_at_random(self) -> None:
        """Kill after a random number of reports, one in four times while it opens."""
        if self.rng.random() < 0.25:
            reports = self.rng.randint(1, 150)
            self.kill(lambda _, read: read >= reports)
        else:
            reports = self.rng.randint(0, 1_200)
            self.kill(lambda ledger, _: ledger.reports_since_open >= reports)

    def end(self) -> None:
        """Deliver what is due, close, and look once more; every promise must be kept."""
        self._close("drain")
        self.look()
        print(self.summary())

    def look(self) -> None:
        """Open, judge what is there, and close; every promise must be kept."""
        self._close("look")

    def _close(self, work: Literal["drain", "look"]) -> None:
        code = self._live(Orders(self.lives, self._seed(), work), lambda *_: False)
        assert not self.ledger.faults, self.ledger.examples
        assert code == 0
        assert self.ledger.is_open

    def summary(self) -> str:
        where = ", ".join(f"{n} {what}" for what, n in self.where.most_common())
        return f"{self.where.total()} kills ({where}): {self.ledger.summary()}"

    def _live(self, orders: Orders, when: Callable[[Ledger, int], bool]) -> int | None:
        self.lives += 1
        self.ledger.begin(orders.life)
        reader, writer = _processes.Pipe(duplex=False)
        with reader:
            with writer:
                process = _processes.Process(
                    target=victim.run,
                    args=(str(self.directory), orders, writer),
                    daemon=True,
                )
                process.start()
            try:
                self._listen(reader, lambda read: when(self.ledger, read), process.kill)
            finally:
                process.kill()
                process.join()
        code = process.exitcode
        process.close()
        return code

    def _listen(
        self, pipe: Connection, when: Callable[[int], bool], kill: Callable[[], None]
    ) -> None:
        """Note every line to the last; kill once, when it is time."""
        rest = b""
        read = 0
        killed = False
        while True:
            if not select.select([pipe], [], [], SILENCE_S)[0]:
                self.ledger.note(f"error nothing reported for {SILENCE_S} s")
                kill()
            data = os.read(pipe.fileno(), 1 << 16)
            if not data:
                assert not rest, "a line was cut, so a write to the pipe was not atomic"
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                read += 1
                self.ledger.note(line.decode())
            if not killed and when(read):
                killed = True
                self._wait_a_little()
                kill()

    def _wait_a_little(self) -> None:
        """Up to a millisecond, so that the kill does not always follow a report."""
        end = time.monotonic() + self.rng.random() / 1_000
        while time.monotonic() < end:
            pass

    def _seed(self) -> int:
        return self.rng.getrandbits(32)

    def _interrupted(self) -> str:
        """What the kill interrupted, as far as the reports tell."""
        calls = " ".join(self.ledger.open_calls.values())
        if not self.ledger.is_open:
            return "while opening"
        for signs, what in INTERRUPTED.items():
            if any(sign in calls for sign in signs):
                return what
        return "in between"


INTERRUPTED = {
    ("snapshot.tmp", "snap-", "unlink"): "in a snapshot",
    ("write ready-", "sync ready-", "rename wal-", "sync_dir"): "in a rotation",
    ("pwrite wal-",): "in a write",
    ("datasync wal-",): "in a sync",
}
"""Calls of the file system that tell what was going on."""


def survive_random_kills(kills: Kills, count: int) -> None:
    for _ in range(count):
        kills.kill_at_random()
        assert not kills.ledger.faults, kills.ledger.examples
    kills.end()
    assert kills.where.total() == count
    for what in ("made", "cancelled", "moved", "raised", "delivered", "confirmed"):
        assert kills.ledger.counts[what], f"nothing was {what}: {kills.summary()}"


@pytest.mark.parametrize("part", [1, 2])
def test_fifty_kills_at_random_moments_lose_nothing(
    tmp_path: Path,
    rng: random.Random,
    part: int,
    record_property: Callable[[str, object], None],
) -> None:
    kills = Kills(tmp_path, random.Random(f"{rng.random()} {part}"))
    survive_random_kills(kills, 25)
    record_property("summary", kills.summary())


@pytest.mark.long
def test_five_hundred_kills_at_random_moments_lose_nothing(
    tmp_path: Path, rng: random.Random, record_property: Callable[[str, object], None]
) -> None:
    kills = Kills(tmp_path, rng)
    survive_random_kills(kills, 500)
    record_property("summary", kills.summary())


HALTS = {
    "with a part of a frame written": Halt("pwrite", "wal-*.seg", "within", 3),
    "before a frame is written": Halt("pwrite", "wal-*.seg", "before", 9),
    "when a frame is written and not synced": Halt("pwrite", "wal-*.seg", "after", 9),
    "when a frame is synced and not acknowledged": Halt(
        "datasync", "wal-*.seg", "after", 9
    ),
    "when a new segment has its header and no name": Halt(
        "sync", "ready-*.tmp", "after", 3
    ),
    "before a new segment gets its name": Halt("rename", "wal-*.seg", "before", 3),
    "when a new segment has its name": Halt("rename", "wal-*.seg", "after", 3),
    "when a new segment has its name durably": Halt("sync_dir", ".", "after", 4),
    "while a segment to come is zero-filled": Halt("pwrite", "filling.tmp", "after", 5),
    "in the middle of a snapshot": Halt("pwrite", "snapshot.tmp", "after", 2),
    "before a snapshot is synced": Halt("sync", "snapshot.tmp", "before", 2),
    "before a snapshot gets its name": Halt("rename", "snap-*.snap", "before", 2),
    "when a snapshot has its name": Halt("rename", "snap-*.snap", "after", 2),
    "before an old segment is dropped": Halt("unlink", "wal-*.seg", "before", 2),
    "when an old segment is dropped": Halt("unlink", "wal-*.seg", "after", 2),
    "when an old snapshot is dropped": Halt("unlink", "snap-*.snap", "after", 1),
}


@pytest.mark.parametrize("halt", HALTS.values(), ids=HALTS.keys())
def test_a_kill_loses_nothing(tmp_path: Path, rng: random.Random, halt: Halt) -> None:
    kills = Kills(tmp_path, rng)
    kills.kill(lambda _, read: read >= 300)
    kills.kill(lambda ledger, _: ledger.is_halted, halt)
    assert kills.ledger.is_halted, "the process never came to that call"
    kills.end()


def test_a_kill_at_any_call_of_opening_loses_nothing(
    tmp_path: Path, rng: random.Random
) -> None:
    first = Kills(tmp_path / "first", rng)
    first.kill(lambda _, read: read >= 1_000)
    call = 0
    is_open = False
    while not is_open:
        call += 1
        copy = shutil.copytree(first.directory, tmp_path / str(call))
        kills = dataclasses.replace(
            first, directory=copy, ledger=deepcopy(first.ledger), where=Counter()
        )
        halt = Halt("*", "*", "before", call)
        kills.kill(lambda ledger, _: ledger.is_halted or ledger.is_open, halt)
        is_open = kills.ledger.is_open
        kills.look()
    assert call > 10


def test_kills_in_recoveries_of_recoveries_lose_nothing(
    tmp_path: Path, rng: random.Random
) -> None:
    kills = Kills(tmp_path, rng)
    kills.kill(lambda _, read: read >= 1_000)
    # Opening takes more calls each time, since each life leaves a segment.
    while not kills.ledger.is_open or kills.lives == 1:
        halt = Halt("*", "*", "before", 1 + 2 * kills.lives)
        kills.kill(lambda ledger, _: ledger.is_halted or ledger.is_open, halt)
    assert kills.where["while opening"] >= 5, kills.summary()
    kills.end()


# ---------------------------------------- does the harness see what it is to look for?


def test_timers_acknowledged_from_memory_are_seen_to_be_lost(
    tmp_path: Path, rng: random.Random
) -> None:
    """Under durability="interval" a kill may take the last interval, here a minute."""
    kills = Kills(tmp_path, rng, durability="interval")
    kills.kill(lambda ledger, _: ledger.counts["made"] >= 50)
    kills.kill(lambda ledger, _: ledger.is_open)
    print(kills.summary())
    assert kills.ledger.faults["an acknowledged timer lost"] > 0


def crc(token: str) -> int:
    return zlib.crc32(victim.payload_of(token))


FAR_NS = 1_800_000_000 * 10**9
FAR = f"{FAR_NS} 0 0.0.0 {crc('0.0.0')}"
"""The only timer of these stories, as a new life finds it."""

FAULTS = {
    "an acknowledged timer lost": ["|", "opened 0 0 0"],
    "a cancelled timer is there": ["cancel 7", "cancelled 7 1", "|", f"timer 7 {FAR}"],
    "a cancelled timer fired": [
        *("cancel 7", "cancelled 7 1"),
        f"fired 7 0.0.0 {crc('0.0.0')} {FAR_NS}",
    ],
    "a wrong payload": ["|", f"timer 7 {FAR_NS} 0 0.0.0 12345"],
    "a wrong payload ": [f"fired 7 0.0.1 {crc('0.0.1')} {FAR_NS}"],
    "a timer fired early": [f"fired 7 0.0.0 {crc('0.0.0')} {FAR_NS - 61 * 10**9}"],
    "a timer is there after its acknowledgement": [
        *(f"fired 7 0.0.0 {crc('0.0.0')} {FAR_NS}", "returned 7", "done 7"),
        *("|", f"timer 7 {FAR}"),
    ],
    "a timer fired again after all": [
        *(f"fired 7 0.0.0 {crc('0.0.0')} {FAR_NS}", "returned 7", "done 7"),
        f"fired 7 0.0.0 {crc('0.0.0')} {FAR_NS}",
    ],
    "a timer that was gone came back": [
        *("cancel 7", "|", "opened 0 0 0", "|", f"timer 7 {FAR}"),
    ],
    "a deadline lost": [
        *(f"move 7 {2 * FAR_NS}", "moved 7 1", "|", f"timer 7 {FAR}"),
    ],
    "half a batch": [
        *(f"ask 1 2 {FAR_NS}", "|", f"timer 7 {FAR}"),
        *(f"timer 9 {FAR_NS} 0 0.1.1 {crc('0.1.1')}",),
    ],
    "a timer from nowhere": [
        *("|", f"timer 7 {FAR}", f"timer 8 {FAR_NS} 0 0.5.0 {crc('0.5.0')}"),
    ],
    "an id given twice": [f"ask 1 1 {FAR_NS}", "made 1 7"],
    "a wrong count": ["closing", "closed 0"],
    "an error": ["error LogCorruptError"],
}


@pytest.mark.parametrize(("kind", "story"), FAULTS.items(), ids=FAULTS.keys())
def test_the_ledger_sees(kind: str, story: list[str]) -> None:
    ledger = tell([f"ask 0 1 {FAR_NS}", "made 0 7", *story])
    assert ledger.faults[kind.strip()] == 1, ledger.summary()


@pytest.mark.parametrize(
    "story",
    [
        ["|", f"timer 7 {FAR}"],
        ["cancel 7", "|", f"timer 7 {FAR}"],
        ["cancel 7", "|", "opened 0 0 0"],
        [f"fired 7 0.0.0 {crc('0.0.0')} {FAR_NS}", "returned 7", "|", f"timer 7 {FAR}"],
        [f"fired 7 0.0.0 {crc('0.0.0')} {FAR_NS}", "returned 7", "|", "opened 0 0 0"],
        [f"ask 1 1 {FAR_NS}", "|", f"timer 7 {FAR}"],
        [f"move 7 {2 * FAR_NS}", "|", f"timer 7 {FAR}"],
    ],
)
def test_the_ledger_leaves_the_innocent_alone(story: list[str]) -> None:
    ledger = tell([f"ask 0 1 {FAR_NS}", "made 0 7", *story])
    assert not ledger.faults, ledger.summary()


def tell(story: list[str]) -> Ledger:
    """Read a story of lives, parted by `|`; each but the first is opened by hand."""
    ledger = Ledger()
    lives = "\n".join(story).split("\n|\n")
    for life, lines in enumerate(lives):
        ledger.begin(life)
        for line in lines.split("\n"):
            ledger.note(line)
        found = lines.count("timer ")
        if life and "opened" not in lines:
            ledger.note(f"opened {found} 0 0")
    return ledger
