"""python -m bench.soak: hours of a steady load, with kill -9 every minute or so.

A process makes timers, cancels every second one and has the others fire, all durably, in
a real directory; ten thousand more are due in a year. It is killed, started again, killed
now and then while it opens, and after each start all that it had acknowledged is looked
for (`bench.soak_ledger`). Meanwhile its memory, descriptors and disk are sampled, with
rates and lateness: what grows with the hours shows.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, get_args

from bench.disk import work_directory
from bench.machine import about, first_lines
from bench.progress import clock_text
from bench.soak_ledger import BAD, COUNTERS, FAULTS, Ledger, Meters, percentile_ms
from wal.log import Durability

RATE: Final = 5_000
KILL_EVERY_S: Final = 60.0
_KILL_SPREAD: Final = (0.75, 1.25)
OPENING_KILLS: Final = 5
"""One kill in so many is followed by another one while the store opens."""
LONG_LIFE: Final = (0.4, 0.7)
"""Of the time; from when to when there are no kills."""
OPENING_WITHIN_S: Final = 1.0
START_S: Final = 120.0
MEMORY: Final = Path("/dev/shm")
"""Where the kernel writes nothing to a disk."""


class Sample(NamedTuple):
    """The victim at a moment, and what it has done since the last one.

    Attributes:
        at_s: since the soak began.
        life: of the victim.
        rss_bytes: its memory, without files and the ledger.
        descriptors: that it has open.
        disk_bytes: blocks of the data directory.
        files: in it.
        puts, cancels, fires: a second, acknowledged.
        late_p50_ms, late_p99_ms, late_max_ms: from the due time to the handler.
        put_p50_ms, put_p99_ms, put_max_ms: from the call to the durable answer.
    """

    at_s: float
    life: int
    rss_bytes: int
    descriptors: int
    disk_bytes: int
    files: int
    puts: float
    cancels: float
    fires: float
    late_p50_ms: float | None
    late_p99_ms: float | None
    late_max_ms: float
    put_p50_ms: float | None
    put_p99_ms: float | None
    put_max_ms: float


class Kill(NamedTuple):
    """A kill, and what the next start found.

    Attributes:
        at_s: since the soak began.
        while_opening: whether it came before the victim had opened the store.
        down_s: from the kill until the store served again.
        opened_s: what the last opening took.
        timers: in the store then.
        torn_bytes: cut off by it.
        judged: verdict -> timers of the last life.
    """

    at_s: float
    while_opening: bool
    down_s: float
    opened_s: float
    timers: int
    torn_bytes: int
    judged: dict[str, int]


@dataclass
class Soak:
    """A soak under way.

    Args:
        store: the data directory; made by the victim.
        memory: where ledgers and meters live.
        rate: turns a second, each two puts, a cancel and a fire.
        seconds: between two samples.
        kill_every_s: between two kills, about.
        long_life_s: from when to when nobody is killed, since memory that grows would
            not show in a minute.
        durability: of the engine; only "durable" can be without faults.
        rng: when to kill.
    """

    store: Path
    memory: Path
    rate: float
    seconds: float
    kill_every_s: float
    long_life_s: tuple[float, float]
    durability: Durability
    rng: random.Random
    samples: list[Sample] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)

    def run(self, end_s: float) -> None:
        """Load, kill and judge, until so many seconds have passed."""
        life = 1
        facts = self._spawn(life)
        self._start = time.monotonic()
        try:
            self._go()
            while True:
                self._sample_until(min(self._next_kill_s(), end_s), life)
                if self._process.poll() is not None:
                    self.faults["the victim ended by itself"] += 1
                    return
                killed_s = self._now()
                self._kill()
                while_opening = len(self.kills) % OPENING_KILLS == OPENING_KILLS - 1
                life += 1
                if while_opening:
                    self._kill_while_opening(life)
                facts = self._spawn(life)
                judged = self._judge(life)
                self.kills.append(
                    Kill(
                        at_s=round(killed_s, 3),
                        while_opening=while_opening,
                        down_s=round(self._now() - killed_s, 3),
                        opened_s=facts["opened_s"],
                        timers=int(facts["timers"]),
                        torn_bytes=int(facts["torn_bytes"]),
                        judged=dict(judged),
                    )
                )
                self.faults["damage in doubt"] += int(facts["doubtful"])
                self._tell()
                if self._now() >= end_s:
                    return
                self._go()
        finally:
            self._kill()

    # -- the victim -------------------------------------------------------------------

    def _spawn(self, life: int) -> dict[str, float]:
        self._begin(life)
        words = self._process.stdout
        assert words is not None
        with selectors.DefaultSelector() as ready:
            ready.register(words, selectors.EVENT_READ)
            if not ready.select(START_S):
                raise TimeoutError(f"the store did not open within {START_S} s")
        line = words.readline()
        if not line:
            raise RuntimeError("the victim ended while it opened the store")
        facts: dict[str, float] = json.loads(line)
        return facts

    def _begin(self, life: int) -> None:
        command = [sys.executable, "-m", "bench.soak_victim", str(self.store)]
        orders = [str(self.memory), str(life), str(self.rate), self.durability]
        self._process = subprocess.Popen(
            [*command, *orders],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def _go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _next_kill_s(self) -> float:
        at_s = self._now() + self.kill_every_s * self.rng.uniform(*_KILL_SPREAD)
        begin_s, end_s = self.long_life_s
        return end_s if begin_s < at_s < end_s else at_s

    def _kill_while_opening(self, life: int) -> None:
        self._begin(life)
        time.sleep(self.rng.uniform(0.2, 0.2 + OPENING_WITHIN_S))
        self._kill()

    # -- what it has acknowledged -----------------------------------------------------

    def _judge(self, life: int) -> Counter[str]:
        """Judge the standing timers and the two lives before this one."""
        judged = Counter[str]()
        meters = Meters(self.memory, life - 1)
        for name in BAD:
            self.faults[name] += meters.counters[COUNTERS.index(name)]
        for one in sorted({0, life - 2, life - 1}):
            ledger = Ledger(self.memory, one)
            is_over = 0 < one == life - 2
            found = ledger.judge(is_over=is_over)
            for word in FAULTS:
                self.faults[word] += found[word]
            if one == life - 1:
                judged = found
            if is_over:
                self.totals.update({w: n for w, n in found.items() if w not in FAULTS})
                ledger.forget()
                Meters(self.memory, one).forget()
        return judged

    # -- samples ----------------------------------------------------------------------

    def _sample_until(self, end_s: float, life: int) -> None:
        meters = Meters(self.memory, life)
        before = _Reading.of(meters)
        while self._now() < end_s and self._process.poll() is None:
            time.sleep(max(min(self.seconds, end_s - self._now()), 0))
            after = _Reading.of(meters)
            with contextlib.suppress(OSError, IndexError):  # it may have ended
                self.samples.append(self._sample(life, meters, before, after))
            before = after

    def _sample(
        self, life: int, meters: Meters, before: _Reading, after: _Reading
    ) -> Sample:
        seconds = after.at_s - before.at_s
        puts, cancels, fires = (
            round((after.counts[at] - before.counts[at]) / seconds, 1)
            for at in range(3)
        )
        late = [b - a for a, b in zip(before.late, after.late, strict=True)]
        wait = [b - a for a, b in zip(before.wait, after.wait, strict=True)]
        pid = self._process.pid
        disk_bytes, files = _disk(self.store)
        return Sample(
            at_s=round(self._now(), 3),
            life=life,
            rss_bytes=_anonymous_bytes(pid),
            descriptors=len(os.listdir(f"/proc/{pid}/fd")),
            disk_bytes=disk_bytes,
            files=files,
            puts=puts,
            cancels=cancels,
            fires=fires,
            late_p50_ms=percentile_ms(late, 0.5),
            late_p99_ms=percentile_ms(late, 0.99),
            late_max_ms=meters.take_max("late_max_ns") / 1e6,
            put_p50_ms=percentile_ms(wait, 0.5),
            put_p99_ms=percentile_ms(wait, 0.99),
            put_max_ms=meters.take_max("wait_max_ns") / 1e6,
        )

    def _now(self) -> float:
        return time.monotonic() - self._start

    def _tell(self) -> None:
        last, kill = self.samples[-1], self.kills[-1]
        faults = {name: count for name, count in self.faults.items() if count}
        print(
            f"{clock_text(last.at_s)}  {last.puts:,.0f} puts, {last.cancels:,.0f} "
            f"cancels, {last.fires:,.0f} fires a second; {last.rss_bytes >> 20} MiB, "
            f"{last.descriptors} descriptors, {last.disk_bytes >> 20} MiB of disk; "
            f"down {kill.down_s:.1f} s; faults: {faults or 'none'}",
            flush=True,
        )


class _Reading(NamedTuple):
    at_s: float
    counts: list[int]
    late: list[int]
    wait: list[int]

    @classmethod
    def of(cls, meters: Meters) -> _Reading:
        return cls(
            time.monotonic(),
            meters.counters.tolist(),
            meters.late.tolist(),
            meters.wait.tolist(),
        )


def _anonymous_bytes(pid: int) -> int:
    """Return the memory that is the process's own: neither files nor the ledger."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
    raise OSError("no RssAnon")


def _disk(directory: Path) -> tuple[int, int]:
    """Return the bytes of blocks in a directory, and its files."""
    total = files = 0
    for entry in os.scandir(directory):
        with contextlib.suppress(FileNotFoundError):
            total += entry.stat().st_blocks * 512
            files += 1
    return total, files


@contextlib.contextmanager
def _memory_directory() -> Iterator[Path]:
    place = MEMORY if MEMORY.is_dir() else None
    name = tempfile.mkdtemp(prefix="soak-", dir=place)
    try:
        yield Path(name)
    finally:
        shutil.rmtree(name, ignore_errors=True)


def main() -> int:
    """Run a soak; return 0 if it found no fault, 1 if one."""
    asked = _parser().parse_args()
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.dir.mkdir(parents=True, exist_ok=True)
    facts = about(asked.dir)
    print(*first_lines(facts, asked.dir), sep="\n", flush=True)
    with work_directory(asked.dir) as place, _memory_directory() as memory:
        soak = Soak(
            store=place / "store",
            memory=memory,
            rate=asked.rate,
            seconds=asked.sample,
            kill_every_s=asked.kill_every,
            long_life_s=(
                asked.minutes * 60 * LONG_LIFE[0],
                asked.minutes * 60 * LONG_LIFE[1],
            ),
            durability=asked.durability,
            rng=random.Random(asked.seed),
        )
        try:
            soak.run(asked.minutes * 60)
        except KeyboardInterrupt:
            print("interrupted; this was seen before")
    faults = {name: count for name, count in soak.faults.items() if count}
    found = {
        "about": {
            **facts,
            "rate": asked.rate,
            "minutes": asked.minutes,
            "sample_s": asked.sample,
            "kill_every_s": asked.kill_every,
            "durability": asked.durability,
            "seed": asked.seed,
        },
        "faults": faults,
        "totals": dict(soak.totals),
        "sample_fields": Sample._fields,
        "samples": soak.samples,
        "kills": [kill._asdict() for kill in soak.kills],
    }
    asked.json.write_text(json.dumps(found), encoding="utf-8")
    print(f"wrote {asked.json}; faults: {faults or 'none'}")
    return 1 if faults else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.soak",
        description="Hours of steady load with kills; prints any fault it finds.",
    )
    add = parser.add_argument
    add("--minutes", type=float, default=60, help="default: %(default)s")
    add(
        "--rate",
        type=float,
        default=RATE,
        help="cancels a second, as many fires, and twice as many puts; %(default)s",
    )
    add(
        "--sample", type=float, default=5.0, help="seconds between samples; %(default)s"
    )
    add(
        "--kill-every",
        type=float,
        default=KILL_EVERY_S,
        metavar="SECONDS",
        help="about, 10 or more; %(default)s",
    )
    add(
        "--durability",
        choices=get_args(Durability),
        default="durable",
        help='"interval" to see that what a kill takes is seen; %(default)s',
    )
    add("--seed", type=int, default=1, help="of the moments of kills; %(default)s")
    add("--dir", type=Path, default=Path("bench/out"), help="on a disk; %(default)s")
    add("--json", type=Path, default=Path("bench/out/soak.json"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
