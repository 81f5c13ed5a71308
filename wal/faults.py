"""What can be wrong with a store, as the tools report it.

Recovery raises at the first fault (wal/errors.py); the tools list all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lost:
    """Numbers of records that cannot be read any more.

    Attributes:
        first: the first of them.
        last: the last one; None if nothing tells how far they went.
        exact: False if some of the numbers may never have been given out: a start after
            a crash skips many, and the proof of it may be lost too.
    """

    first: int
    last: int | None
    exact: bool = True

    @property
    def count(self) -> int | None:
        """How many numbers, None if unknown."""
        return None if self.last is None else self.last - self.first + 1

    def __str__(self) -> str:
        if self.last is None:
            return f"LSN {self.first} and an unknown number after it"
        text = f"LSN {self.first} to {self.last} ({self.count:,} record(s)"
        return f"{text})" if self.exact else f"{text} at most)"


def merge_losses(losses: Iterable[Lost]) -> list[Lost]:
    """Return losses in order, those that overlap as one. Cost: a sort."""
    merged: list[Lost] = []
    for lost in sorted(losses, key=lambda part: part.first):
        before = merged[-1] if merged else None
        if before is None or (before.last is not None and before.last < lost.first):
            merged.append(lost)
        elif before.last is not None:
            last = None if lost.last is None else max(before.last, lost.last)
            merged[-1] = Lost(before.first, last, before.exact and lost.exact)
    return merged


@dataclass(frozen=True, slots=True)
class Fault:
    """A place where a store does not hold what it should.

    Attributes:
        file: its name inside the store.
        offset: where in the file, in bytes.
        expected_lsn: number of the record that should stand there.
        what: what was found.
        torn: a crash can leave this, and the next open cuts it off. Else it is damage.
        doubtful: torn by a rule under which damage would look the same (wal/tail.py).
        next_offset: where the next valid frame of the file starts, None without one.
        next_lsn: its first LSN.
        records_at_stake: how many records a cut at `offset` would lose, at least.
        lost: the acknowledged records that this makes unreadable, None for none.
    """

    file: str
    offset: int
    expected_lsn: int
    what: str
    torn: bool = False
    doubtful: bool = False
    next_offset: int | None = None
    next_lsn: int | None = None
    records_at_stake: int = 0
    lost: Lost | None = None
