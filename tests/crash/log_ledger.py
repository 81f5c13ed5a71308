"""What the callers of a log know, and what a recovered log must therefore hold.

The ledger is the oracle of every crash test: two naive lists and one number. It knows
nothing of frames, segments or files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace


class Violation(AssertionError):  # noqa: N818 - it is the finding, not an error of ours
    """The log broke a promise."""


def digest(payload: bytes) -> bytes:
    """Return 8 bytes that stand for a payload."""
    return hashlib.blake2b(payload, digest_size=8).digest()


@dataclass(frozen=True, slots=True)
class Entry:
    """One record, its payload by its digest, so that snapshots of many stay small."""

    lsn: int
    digest: bytes


@dataclass(slots=True)
class Ledger:
    """What was appended, what was acknowledged, and which numbers were given out.

    Invariants: `entries` ascend; those up to `acknowledged_lsn` must survive whatever
    happens; no number up to `highest_lsn` may be given to another record.
    """

    entries: list[Entry] = field(default_factory=list)
    group_ends: set[int] = field(default_factory=lambda: {0})
    """The last LSN of each group: where a cut may lie."""
    acknowledged_lsn: int = 0
    highest_lsn: int = 0

    def copy(self) -> Ledger:
        """Return an independent twin."""
        return replace(self, entries=[*self.entries], group_ends={*self.group_ends})

    def appended(self, first_lsn: int, payloads: Iterable[bytes]) -> None:
        """Note a group that the log has accepted.

        Raises:
            Violation: one of its numbers was given to another record before.
        """
        if first_lsn <= self.highest_lsn:
            raise Violation(
                f"LSN {first_lsn} was given out again; {self.highest_lsn} was reached"
            )
        for place, payload in enumerate(payloads):
            self.highest_lsn = first_lsn + place
            self.entries.append(Entry(self.highest_lsn, digest(payload)))
        self.group_ends.add(self.highest_lsn)

    def acknowledged(self) -> None:
        """Note that all that was appended is promised to be durable."""
        self.acknowledged_lsn = self.highest_lsn

    def expect(self, found: list[Entry]) -> None:
        """Check what an opened log holds.

        Raises:
            Violation: a hole, a wrong or an unknown record, an acknowledged one lost,
                or half a group.
        """
        for place, entry in enumerate(found):
            if place == len(self.entries):
                raise Violation(f"LSN {entry.lsn} came back and was never appended")
            wanted = self.entries[place]
            if entry.lsn != wanted.lsn:
                raise Violation(f"LSN {entry.lsn} came back instead of {wanted.lsn}")
            if entry.digest != wanted.digest:
                raise Violation(f"LSN {entry.lsn} came back with a wrong payload")
        last_lsn = found[-1].lsn if found else 0
        lost = [e.lsn for e in self.entries[len(found) :]]
        if lost and lost[0] <= self.acknowledged_lsn:
            raise Violation(
                f"LSN {lost[0]} is lost; acknowledged up to {self.acknowledged_lsn}"
            )
        if last_lsn not in self.group_ends:
            raise Violation(f"half a group came back: up to LSN {last_lsn}")

    def recovered(self, found: list[Entry]) -> None:
        """Check what an opened log holds; from now on all of it must stay.

        What recovery showed once it may never take back: somebody acted on it.

        Raises:
            Violation: as `expect`.
        """
        self.expect(found)
        self.entries = found
        self.acknowledged_lsn = max(
            self.acknowledged_lsn, found[-1].lsn if found else 0
        )
