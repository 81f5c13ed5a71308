"""python -m bench.reliability: the same faults on our store and on its peers, made for real.

Each try begins with timers that were acknowledged one by one, does one thing to the store,
opens it again and reads all of it. What comes back is compared with what was acknowledged:

    kept      all of it is there, as it was
    noticed   the store, or its reader, says that something is wrong
    silent    it opens and answers as if nothing were, and some are missing or changed

After a fault that is no damage (a kill, a torn tail, a full disk) only *kept* is right: to
refuse is a false refusal. After damage *kept* and *noticed* are.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.disk import work_directory
from bench.machine import about, first_lines
from bench.reliability_subjects import SUBJECTS, RefusedError, Subject, payload_of

KEPT: Final = "kept"
NOTICED: Final = "noticed"
SILENT: Final = "silent"
SIZE_BYTES: Final = 100
TORN_BYTES: Final = 3_000
TIMERS: Final = {number: payload_of(number, SIZE_BYTES) for number in range(200)}
SECTOR_BYTES: Final = 512
FULL_SIZE_BYTES: Final = 4_096
FULL_DISK_MIB: Final = 96
LEFT_BYTES: Final = 1 << 20
FULL_PUTS_MAX: Final = 100_000
CANCELS: Final = 20
HEALED_WITHIN_S: Final = 10.0
KILL_WITHIN_S: Final = 0.5
_POLL_S: Final = 0.1


@dataclass
class Tally:
    """What became of the tries of one fault on one store.

    Attributes:
        fault: which.
        store: by name.
        tries: how many.
        outcomes: KEPT, NOTICED, SILENT -> tries.
        acknowledged: timers, in all tries together.
        lost: of them.
        changed: of them: there, with other bytes.
        notes: whatever else was counted.
        words: one message of each kind of refusal.
    """

    fault: str
    store: str
    tries: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    lost: int = 0
    changed: int = 0
    notes: Counter[str] = field(default_factory=Counter)
    words: list[str] = field(default_factory=list)

    def judge(self, subject: Subject, wanted: dict[int, bytes]) -> None:
        """Open the store, read all, and count what came of it."""
        self.tries += 1
        self.acknowledged += len(wanted)
        try:
            subject.open()
            found = subject.everything()
        except RefusedError as error:
            self.outcomes[NOTICED] += 1
            self.say(str(error))
            return
        by_number = {payload[:10]: payload for payload in found}
        lost = changed = 0
        for number, payload in wanted.items():
            there = by_number.get(b"%010d" % number)
            lost += there is None
            changed += there is not None and there != payload
        # One whose number has changed is missing under its own, and counts as that.
        self.lost += lost
        self.changed += changed
        self.outcomes[SILENT if lost or changed else KEPT] += 1

    def say(self, words: str) -> None:
        """Keep a message, if none of its kind is there."""
        kind = words[:40]
        if all(not kept.startswith(kind) for kept in self.words):
            self.words.append(words[:300])


Contents = dict[Path, bytes]
Fault = Callable[[type[Subject], Path, random.Random, int], Tally]


# -- damage ----------------------------------------------------------------------------


def flipped_bit(
    make: type[Subject], place: Path, rng: random.Random, tries: int
) -> Tally:
    """Flip one bit of what the files of a store hold, after a kill or a clean end."""
    tally = Tally("one flipped bit", make.name)
    subject = make(place / "store")
    with _ended(subject):
        kept = []
        for kill in (True, False):
            subject.open()
            _fill(subject)
            subject.kill() if kill else subject.close()
            subject.end()
            kept.append(_contents(subject))
            _remove(subject)
        for number in range(tries):
            _write(_flipped(kept[number % 2], rng))
            tally.judge(subject, TIMERS)
            _remove(subject)
    return tally


def _flipped(contents: Contents, rng: random.Random) -> Contents:
    # Zeros at the end are space that was made ready, and hold nothing.
    used = {path: len(content.rstrip(b"\0")) for path, content in contents.items()}
    at = rng.randrange(sum(used.values()))
    for path, size in used.items():
        if at < size:
            content = bytearray(contents[path])
            content[at] ^= 1 << rng.randrange(8)
            return {**contents, path: bytes(content)}
        at -= size
    raise AssertionError("not reached")


# -- what is no damage -----------------------------------------------------------------


def torn_tail(
    make: type[Subject], place: Path, rng: random.Random, tries: int
) -> Tally:
    """Have a power loss cut the write of one more timer, which nobody was promised."""
    return _torn_write("a torn tail", make, place, rng, tries=tries)


def torn_head(
    make: type[Subject], place: Path, rng: random.Random, tries: int
) -> Tally:
    """Likewise, and what arrived is the end of the write: sectors come in any order."""
    return _torn_write("a torn head", make, place, rng, tries=tries, second=True)


def _torn_write(
    fault: str,
    make: type[Subject],
    place: Path,
    rng: random.Random,
    *,
    tries: int,
    second: bool = False,
) -> Tally:
    tally = Tally(fault, make.name)
    subject = make(place / "store")
    with _ended(subject):
        subject.open()
        _fill(subject)
        before = _contents(subject)
        subject.put(len(TIMERS), payload_of(len(TIMERS), TORN_BYTES))
        subject.kill()
        subject.end()
        after = _contents(subject)
        _remove(subject)
        for _ in range(tries):
            _write(_torn(before, after, rng, second=second))
            tally.judge(subject, TIMERS)
            _remove(subject)
    return tally


def _torn(
    before: Contents, after: Contents, rng: random.Random, *, second: bool
) -> Contents:
    """Return files of which only one part of what was written has reached the disk.

    Args:
        before: the write.
        after: the write.
        rng: where it tears: between two sectors, or at the end of the file anywhere.
        second: the part behind the tear arrives, else the one before it.
    """
    torn = {}
    for path, new in after.items():
        old = before.get(path, b"")
        size = len(old)
        old = old.ljust(len(new), b"\0")
        places = [at for at in range(len(new)) if new[at] != old[at]]
        if not places:
            torn[path] = new
            continue
        at = rng.randint(places[0], places[-1])
        if second or len(new) == size:
            at -= at % SECTOR_BYTES  # a sector is written whole or not at all
        if second:
            torn[path] = old[:at] + new[at:]
        elif len(new) > size:
            torn[path] = new[:at]  # the file has not grown to its end
        else:
            torn[path] = new[:at] + old[at:]
    return torn


def kill_9(make: type[Subject], place: Path, rng: random.Random, tries: int) -> Tally:
    """Kill it at a random moment under load."""
    tally = Tally("kill -9 under load", make.name)
    subject = make(place / "store")
    wanted: dict[int, bytes] = {}
    number = 0
    with _ended(subject):
        subject.open()
        for _ in range(tries):
            timer = threading.Timer(rng.uniform(0, KILL_WITHIN_S), subject.kill)
            timer.start()
            with contextlib.suppress(RefusedError):
                while True:
                    number += 1
                    subject.put(number, payload_of(number, SIZE_BYTES))
                    wanted[number] = payload_of(number, SIZE_BYTES)
            timer.join()
            subject.end()
            tally.judge(subject, wanted)
    tally.acknowledged = len(wanted)
    return tally


def full_disk(
    make: type[Subject], place: Path, _rng: random.Random, tries: int
) -> Tally:
    """Fill the disk under a store, cancel, make space again, and kill it."""
    tally = Tally("a full disk", make.name)
    for _ in range(tries):
        with _small_disk(place / "disk") as disk:
            subject = make(disk / "store")
            with _ended(subject):
                subject.open()
                wanted = _fill_up(subject, disk, tally)
                subject.kill()
                subject.end()
                tally.judge(subject, wanted)
    return tally


def _fill_up(subject: Subject, disk: Path, tally: Tally) -> dict[int, bytes]:
    wanted: dict[int, bytes] = {}

    def put(number: int) -> None:
        payload = payload_of(number, FULL_SIZE_BYTES)
        subject.put(number, payload)
        wanted[number] = payload

    for number in range(CANCELS):
        put(number)
    filler = disk / "filler"
    # It may itself be taking space meanwhile, and be the one who gets the last of it.
    with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while shutil.disk_usage(disk).free > LEFT_BYTES:
            file.write(bytes(LEFT_BYTES // 16))
    number = CANCELS
    try:
        while number < FULL_PUTS_MAX:
            put(number)
            number += 1
        tally.notes["acknowledged on, without end"] += 1
    except RefusedError as error:
        tally.notes["refused a timer"] += 1
        tally.say(str(error))
    for cancelled in range(CANCELS):
        with contextlib.suppress(RefusedError):
            if subject.cancel(cancelled):
                tally.notes["cancels acknowledged"] += 1
        wanted.pop(cancelled)  # its outcome may be unknown: nothing is asked of it
    tally.notes["cancels asked for"] += CANCELS
    filler.unlink()
    end = time.monotonic() + HEALED_WITHIN_S
    while time.monotonic() < end:
        number += 1
        try:
            put(number)
        except RefusedError:
            time.sleep(_POLL_S)
        else:
            tally.notes["went on by itself when there was space"] += 1
            break
    return wanted


@contextlib.contextmanager
def _small_disk(at: Path) -> Iterator[Path]:
    """Mount a file system of its own, in memory; needs the rights to."""
    at.mkdir()
    size = f"size={FULL_DISK_MIB}m,mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(at)], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)
        at.rmdir()


# -- inside ----------------------------------------------------------------------------


@contextlib.contextmanager
def _ended(subject: Subject) -> Iterator[None]:
    try:
        yield
    finally:
        subject.end()


def _fill(subject: Subject) -> None:
    for number, payload in TIMERS.items():
        subject.put(number, payload)


def _contents(subject: Subject) -> Contents:
    return {path: path.read_bytes() for path in subject.data_files()}


def _write(contents: Contents) -> None:
    for path, content in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        used = content.rstrip(b"\0")
        path.write_bytes(used)
        os.truncate(path, len(content))


def _remove(subject: Subject) -> None:
    with contextlib.suppress(RefusedError):
        subject.close()
    shutil.rmtree(subject.directory)


FAULTS: Final[dict[str, tuple[Fault, int]]] = {
    "flipped-bit": (flipped_bit, 400),
    "torn-tail": (torn_tail, 200),
    "torn-head": (torn_head, 200),
    "kill": (kill_9, 50),
    "full-disk": (full_disk, 3),
}
"""Name -> what makes it, and how often."""


def table(tallies: Sequence[Tally]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield (
        "| fault | store | tries | kept | noticed | silent | acknowledged | lost | changed |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|"
    for one in tallies:
        counts = " | ".join(str(one.outcomes[how]) for how in (KEPT, NOTICED, SILENT))
        yield (
            f"| {one.fault} | {one.store} | {one.tries} | {counts} "
            f"| {one.acknowledged:,} | {one.lost:,} | {one.changed:,} |"
        )
    yield ""
    for one in tallies:
        if one.notes:
            told = ", ".join(f"{name}: {count}" for name, count in one.notes.items())
            yield f"- {one.fault}, {one.store}, {one.tries} times: {told}"


def main() -> int:
    """Try the faults and print the table; return 1 if ours failed any."""
    asked = _parser().parse_args()
    asked.dir.mkdir(parents=True, exist_ok=True)
    facts = about(asked.dir)
    print(*first_lines(facts, asked.dir), sep="\n", flush=True)
    tallies = []
    with work_directory(asked.dir) as place:
        for name in asked.only or FAULTS:
            fault, tries = FAULTS[name]
            for make in SUBJECTS:
                if asked.store and make.name.split()[0] not in asked.store:
                    continue
                at = place / f"{name}-{make.name.split()[0]}"
                at.mkdir()
                rng = random.Random(f"{asked.seed} {name}")
                begun = time.monotonic()
                tally = fault(make, at, rng, max(int(tries * asked.share), 1))
                tallies.append(tally)
                print(
                    f"{tally.fault}, {tally.store}: {dict(tally.outcomes)}, "
                    f"{time.monotonic() - begun:.0f} s",
                    flush=True,
                )
    print("", *table(tallies), sep="\n")
    for one in tallies:
        for words in one.words:
            print(f"said, {one.fault}, {one.store}: {words}")
    if asked.json is not None:
        found = {
            "about": facts | {"seed": asked.seed},
            "tallies": [vars(one) for one in tallies],
        }
        asked.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    ours = [one for one in tallies if one.store == SUBJECTS[0].name]
    return int(any(one.outcomes[SILENT] for one in ours))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.reliability",
        description="The same faults on our store and on its peers; full-disk mounts a "
        "tmpfs, and so needs to be root.",
    )
    add = parser.add_argument
    add("--only", action="append", choices=[*FAULTS])
    add("--store", action="append", help="timingwheel, SQLite, Redis, beanstalkd")
    add("--share", type=float, default=1.0, help="of the tries; %(default)s")
    add("--seed", type=int, default=1)
    add("--dir", type=Path, default=Path("bench/out"), help="on a disk; %(default)s")
    add("--json", type=Path, metavar="FILE")
    return parser


if __name__ == "__main__":
    sys.exit(main())
