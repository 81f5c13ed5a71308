"""What a soak knows of every timer, in memory that a kill of the victim does not take.

A file a life, mapped by the victim, which writes, and by the parent, which judges: a byte
of marks and the due time of each timer. The victim marks a request *before* it asks and
an answer *after* it has it, so what a mark says of an answer was really acknowledged.

Lives are numbered from 1; ledger 0 holds the standing timers, due in a year. A life's
timers are all cancelled or due before the end of the next one, so two are judged: the
last life's (nothing lost), and the one before (nothing left either).
"""

from __future__ import annotations

import mmap
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ASKED: Final = 1
ACKNOWLEDGED: Final = 2
CANCEL_ASKED: Final = 4
CANCELLED: Final = 8
DELIVERED: Final = 16
AGAIN: Final = 32
"""Delivered once more, after a kill."""
LIVE: Final = 64
"""The store had it when it was opened after the last kill."""
WRONG: Final = 128
"""What no order of events explains, and is counted by its name too."""

TIMERS_MAX: Final = 16 << 20
_NUMBER_BYTES: Final = 8

LOST: Final = "lost"
UNDONE: Final = "cancel undone"
PHANTOM: Final = "never asked for"
UNSERVED: Final = "neither fired nor cancelled a life later"
_WRONG: Final = "wrong"


class Ledger:
    """The marks of one life's timers, by their numbers.

    Args:
        directory: in memory, where the kernel writes no page of it to a disk.
        life: its number.
    """

    def __init__(self, directory: Path, life: int) -> None:
        self.life = life
        self._path = directory / f"life-{life}"
        size = TIMERS_MAX * (1 + _NUMBER_BYTES)
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.truncate(handle, size)
            self._memory = mmap.mmap(handle, size)
        finally:
            os.close(handle)
        view = memoryview(self._memory)
        self.marks = view[:TIMERS_MAX]
        """A byte a timer."""
        self.due_ns = view[TIMERS_MAX:].cast("Q")
        """On the wall clock, as asked for."""

    def forget(self) -> None:
        """Remove it; it is judged for the last time."""
        self.marks.release()
        self.due_ns.release()
        self._path.unlink()

    def clear_live(self) -> None:
        """Before the store is listed anew."""
        self.marks[:] = bytes(self.marks).translate(_WITHOUT_LIVE)

    def judge(self, *, is_over: bool) -> Counter[str]:
        """Return how many timers are how, by the words of `verdicts`.

        Args:
            is_over: whether a whole life has passed since, and all must be served.
        """
        found: Counter[str] = Counter()
        used = bytes(self.marks).rstrip(b"\0")
        for marks, count in Counter(used).items():
            for word in verdicts(marks, is_over=is_over):
                found[word] += count
        return found


_WITHOUT_LIVE: Final = bytes(marks & ~LIVE for marks in range(256))
FAULTS: Final = (LOST, UNDONE, PHANTOM, UNSERVED, _WRONG)


def verdicts(marks: int, *, is_over: bool) -> Iterator[str]:
    """Yield what a timer's marks say, after a kill and the listing of the store."""
    live = bool(marks & LIVE)
    delivered = bool(marks & DELIVERED)
    if marks & WRONG:
        yield _WRONG
    if not marks & ASKED:
        if live or delivered:
            yield PHANTOM
        return
    yield "asked"
    if marks & ACKNOWLEDGED:
        yield "acknowledged"
        if not (live or delivered or marks & CANCEL_ASKED):
            yield LOST
    elif live or delivered:
        yield "survived unacknowledged"
    if marks & CANCELLED:
        yield "cancelled"
        if live or delivered:
            yield UNDONE
    if delivered:
        yield "delivered"
    if marks & AGAIN:
        yield "delivered again"
    if is_over and live and not marks & CANCELLED:
        yield UNSERVED


COUNTERS: Final = (
    "puts",
    "cancels",
    "fires",
    "late_max_ns",
    "wait_max_ns",
    "early",
    "delivered twice in a life",
    "delivered after a cancel",
    "another payload",
    "not known to the store",
)
BAD: Final = COUNTERS[5:]
BUCKETS: Final = 128
_BUCKETS_AN_OCTAVE: Final = 4


class Meters:
    """Counters and two histograms, of lateness and of what a put waits.

    Args:
        directory: as Ledger.
        life: of the victim that counts; each counts from 0.
    """

    def __init__(self, directory: Path, life: int) -> None:
        self._path = directory / f"meters-{life}"
        size = _NUMBER_BYTES * (len(COUNTERS) + 2 * BUCKETS)
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.truncate(handle, size)
            self._memory = mmap.mmap(handle, size)
        finally:
            os.close(handle)
        numbers = memoryview(self._memory).cast("Q")
        self.counters = numbers[: len(COUNTERS)]
        self.late = numbers[len(COUNTERS) :][:BUCKETS]
        self.wait = numbers[len(COUNTERS) + BUCKETS :]

    def take_max(self, name: str) -> int:
        """Return a maximum, which begins anew."""
        at = COUNTERS.index(name)
        found, self.counters[at] = self.counters[at], 0
        return found

    def forget(self) -> None:
        """Remove it."""
        self._path.unlink(missing_ok=True)


def bucket_of(ns: int) -> int:
    """Return which bucket a duration belongs to: four an octave of microseconds."""
    us = max(ns // 1_000, 1)
    octave = us.bit_length() - 1
    part = (us << 2 >> octave) - _BUCKETS_AN_OCTAVE  # 0 to 3
    return min(octave * _BUCKETS_AN_OCTAVE + part, BUCKETS - 1)


def percentile_ms(buckets: list[int], share: float) -> float | None:
    """Return the upper bound of the bucket in which a share of all is reached."""
    total = sum(buckets)
    if not total:
        return None
    seen = 0
    for bucket, count in enumerate(buckets):
        seen += count
        if seen >= share * total:
            octave, part = divmod(bucket, _BUCKETS_AN_OCTAVE)
            us: float = (1 << octave) * (1 + (part + 1) / _BUCKETS_AN_OCTAVE)
            return us / 1_000
    return None
