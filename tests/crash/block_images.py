"""Images that a power loss may leave of the disk under a real ext4.

    python -m tests.crash.block_images WORK SEED IMAGES_PER_FLUSH [sync|no-sync]

ext4 lies on a loop device, that on the file of `block_device`, which records. What a disk
may hold after a power loss is all up to some flush, and any of the writes after it, in any
order and torn between sectors. Each such image is mounted, so that ext4 replays its own
journal, and the store on it is held to what it had promised by that flush.

The program wants mount and process namespaces of its own (`test_block_images` makes them):
however it ends, its mounts and its server end with it. With `no-sync` the store's log does
not sync, and the program is to fail.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from tests.crash.block_device import MOUNTED, RECORDED
from tests.crash.store_driver import Promises, StoreDriver
from tests.stores.stage import draft, every
from timingwheel.scheduler.simulated import KeptHistory
from timingwheel.testing import ManualClock
from wal.filesystem import SECTOR_BYTES, FileSystem, Handle
from wal.testing import MemoryFileSystem

IMAGE_BYTES: Final = 12 << 20
WORK_BYTES: Final = 256 << 20
PARTS: Final = 6
RECORDING: Final = "recording"
FATES: Final = ("all", "some", "torn")


@dataclass(frozen=True)
class Write:
    """What arrived at the disk; None in place of one is a flush."""

    offset: int
    data: bytes


@dataclass(frozen=True)
class Told:
    """What had been promised when so many flushes had been recorded."""

    flushes: int
    promises: Promises
    wall_ns: int


@dataclass(frozen=True)
class Life:
    """A life of the store, as its disk saw it.

    Attributes:
        base: the disk before the first event.
        events: what arrived then.
        told: what was promised, after each step.
    """

    base: bytes
    events: list[Write | None]
    told: list[Told]


@dataclass(frozen=True)
class Image:
    """What the disk may hold, and what it is held to."""

    name: str
    data: bytes
    told: Told


class NoSync(FileSystem):
    """Says that what was written is there, and has not looked."""

    def datasync(self, handle: Handle) -> None:
        """Do nothing."""


# -- making ------------------------------------------------------------------------------


def run(*words: str | Path) -> None:
    """Run a command of the system; CalledProcessError if it fails."""
    subprocess.run([*map(str, words)], check=True)


def make_image(path: Path) -> None:
    """Make a file that holds an empty ext4 with a journal, nothing left for later."""
    with path.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    lazy = "lazy_itable_init=0,lazy_journal_init=0"
    run("mkfs.ext4", "-q", "-b", "1024", "-J", "size=2", "-E", lazy, path)


@contextlib.contextmanager
def mounted(image: Path, place: Path) -> Iterator[Path]:
    """Mount an image by a loop device; ext4 replays its journal."""
    place.mkdir(exist_ok=True)
    run("mount", "-t", "ext4", "-o", "loop,noatime", image, place)
    try:
        yield place
    finally:
        run("umount", place)


@contextlib.contextmanager
def recording(image: Path, record: Path, work: Path) -> Iterator[Path]:
    """Mount an image by a disk that records; yield where."""
    place = work / "fuse"
    place.mkdir()
    program = [sys.executable, "-m", "tests.crash.block_device", place, image, record]
    server = subprocess.Popen([*map(str, program)], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    if server.stdout.readline().strip() != MOUNTED:
        raise OSError("FUSE is not permitted here")
    with mounted(place / "disk", work / "top") as found:
        yield found
    run("umount", place)
    server.wait()


def read_record(record: Path) -> list[Write | None]:
    """Return writes and flushes, None for a flush, in the order of their arrival."""
    raw, at = record.read_bytes(), 0
    found: list[Write | None] = []
    while at < len(raw):
        kind, offset, size = RECORDED.unpack_from(raw, at)
        at += RECORDED.size
        found.append(None if kind == b"F" else Write(offset, raw[at : at + size]))
        at += size
    return found


def driver_on(files: FileSystem, directory: Path, told: Told | None) -> StoreDriver:
    """Return a driver of the store in a real directory, its history beside it."""
    return StoreDriver(
        cast("MemoryFileSystem", files),  # which opens, and is asked for no crash
        KeptHistory(str(directory.with_name("history.db"))),
        clock=ManualClock() if told is None else ManualClock(wall_ns=told.wall_ns),
        promises=None if told is None else deepcopy(told.promises),
    )


def live(driver: StoreDriver) -> Iterator[None]:
    """Do a little of everything, part by part; yield after each step."""
    driver.open()
    yield
    for number in range(PARTS):
        label = f"part {number}"
        trio = [(f"{label} {x}", draft(1, name=f"{label} {x}"), "") for x in "abc"]
        driver.put_many(trio)
        yield
        driver.put(f"{label} now", 0)
        yield
        driver.put(f"{label} often", every(2, runs_max=3))
        yield
        driver.put(f"{label} off", 900, fates="cancelled")
        yield
        driver.cancel(f"{label} off")
        yield
        driver.advance(3)
        yield
        driver.turn()
        yield
        driver.finish()
        yield
        if number % 3 == 2:
            driver.snapshot()
            yield
        if number % 4 == 3:
            driver.close()
            driver.reopen()
            yield


def record_life(work: Path, kind: type[FileSystem]) -> Life:
    """Lead a store on a recording disk through its life."""
    image, record = work / "image", work / "record"
    make_image(image)
    base, told = image.read_bytes(), []
    with recording(image, record, work) as place:
        print(RECORDING, flush=True)
        directory = place / "jobs"
        directory.mkdir()
        driver = driver_on(kind(str(directory)), directory, None)
        try:
            for _ in live(driver):
                flushes = read_record(record).count(None)
                promises = deepcopy(driver.promises)
                told.append(Told(flushes, promises, driver.clock.wall_ns()))
        finally:
            driver.end()
    return Life(base, read_record(record), told)


def images(life: Life, rng: random.Random, per_flush: int) -> Iterator[Image]:
    """Yield images of each flush from the first promise on, none twice.

    Args:
        life: what is torn.
        rng: chooses fates.
        per_flush: at most so many; the first of them has all up to the flush, no more.
    """
    disk, seen = bytearray(life.base), set[int]()
    places = [i for i, event in enumerate(life.events) if event is None]
    for number, place in enumerate(places, 1):
        before = places[number - 2] if number > 1 else 0
        for event in life.events[before:place]:
            _write(disk, event)
        told = [told for told in life.told if told.flushes <= number]
        if not told:
            continue  # the store had not been opened yet
        end = places[number] if number < len(places) else len(life.events)
        later = life.events[place + 1 : end]
        for turn in range(per_flush):
            fates = FATES[(number + turn) % len(FATES)] if turn else "none"
            image = bytearray(disk)
            for event in later:
                _write(image, _fate(event, fates, rng))
            data = bytes(image)
            key = hash((data, told[-1].flushes, len(told)))
            if key not in seen:
                seen.add(key)
                name = f"flush {number}, {fates} of {len(later)} writes after it"
                yield Image(name, data, told[-1])


def _fate(event: Write | None, fates: str, rng: random.Random) -> Write | None:
    if event is None or fates == "none" or (fates != "all" and rng.random() < 0.5):
        return None
    if fates != "torn":
        return event
    kept = rng.randint(0, len(event.data) // SECTOR_BYTES) * SECTOR_BYTES
    if rng.random() < 0.5:
        return Write(event.offset, event.data[:kept])
    return Write(event.offset + kept, event.data[kept:])


def _write(disk: bytearray, event: Write | None) -> None:
    if event is not None:
        disk[event.offset : event.offset + len(event.data)] = event.data


def check_image(image: Image, work: Path) -> None:
    """Mount an image and live on with the store in it.

    Raises:
        Broken: it does not hold what was promised.
    """
    copy = work / "copy"
    copy.write_bytes(image.data)
    with mounted(copy, work / "look") as place:
        directory = place / "jobs"
        driver = driver_on(FileSystem(str(directory)), directory, image.told)
        try:
            driver.open_and_live_on()
        finally:
            driver.end()


def main(work: Path, seed: str, per_flush: int, kind: type[FileSystem]) -> None:
    """Record a life, and check the images of its disk."""
    run("mount", "-t", "tmpfs", "-o", f"size={WORK_BYTES}", "tmpfs", work)
    life, looked = record_life(work, kind), 0
    flushes = life.events.count(None)
    print(f"{len(life.events) - flushes} writes, {flushes} flushes", flush=True)
    for image in images(life, random.Random(seed), per_flush):
        try:
            check_image(image, work)
        except Exception as error:
            raise AssertionError(f"{image.name}: {error}") from error
        looked += 1
    print(f"{looked} images held what was promised", flush=True)


if __name__ == "__main__":
    _work, _seed, _count, _kind = sys.argv[1:]
    main(
        Path(_work), _seed, int(_count), {"sync": FileSystem, "no-sync": NoSync}[_kind]
    )
