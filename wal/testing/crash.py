"""Which of the un-synced operations a crash keeps: one choice, and all the telling ones.

What any choice may do is in `wal.testing.disk`; this module only picks, and names each pick
by a label that brings it back.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from wal.testing.disk import KEPT, LOST, Fate, NameChange, Operation, Write

CrashKind = Literal[
    "none", "all", "names", "bytes", "drop", "keep", "size", "head", "tail", "random"
]
_TEARS_MAX: Final = 32  # boundaries at which one write is torn in `crash_choices`


@dataclass(frozen=True, slots=True)
class CrashChoice:
    """Which of the un-synced operations a crash keeps.

    `n` counts the un-synced operations from 1, oldest first, as
    `MemoryFileSystem.unsynced` lists them.

        none        all are lost                 all         all are kept
        names       names kept, bytes lost       bytes       bytes kept, names lost
        drop n      all kept but the n-th        keep n      all lost but the n-th
        size n      all kept, of the n-th (a write) only the length
        head n k    all kept, of the n-th (a write) only its first k sectors
        tail n k    all kept, of the n-th (a write) all but its first k sectors
        random s    each has a random fate, from the seed s

    A change of names that is dropped takes later ones of the same names with it; one
    that is kept brings the earlier ones.
    """

    kind: CrashKind
    number: int = 0
    sectors: int = 0

    @property
    def label(self) -> str:
        """The choice in one line; `parse` reads it back."""
        if self.kind in ("none", "all", "names", "bytes"):
            return self.kind
        if self.kind in ("head", "tail"):
            return f"{self.kind} {self.number} {self.sectors}"
        return f"{self.kind} {self.number}"

    @classmethod
    def parse(cls, label: str) -> CrashChoice:
        """Return the choice that has this label.

        Raises:
            ValueError: no choice has it.
        """
        kind, *numbers = label.split()
        for known in get_args(CrashKind):
            if kind == known:
                choice = cls(known, *map(int, numbers[:2]))
                if choice.label == label:
                    return choice
        raise ValueError(f"{label!r} is not the label of a crash state")

    def fates(self, operations: Sequence[Operation]) -> dict[int, Fate]:
        """Return what is left of each operation, by its number; the lost are absent.

        Raises:
            ValueError: the choice names an operation that is not there, or tears one
                that is not a write.
        """
        rule = self._rule(operations)
        fates = {o.number: fate for o in operations if (fate := rule(o)) != LOST}
        changes = [o for o in operations if isinstance(o, NameChange)]
        if self.kind == "drop":
            _drop_followers(changes, fates)
        else:
            _keep_predecessors(changes, fates)
        return fates

    def _rule(self, operations: Sequence[Operation]) -> Callable[[Operation], Fate]:
        if self.kind == "random":
            return _random_rule(random.Random(self.number))
        if self.kind in ("none", "all", "names", "bytes"):
            names = self.kind in ("all", "names")
            files = self.kind in ("all", "bytes")
            return lambda operation: (
                operation.whole()
                if (names if isinstance(operation, NameChange) else files)
                else LOST
            )
        if not 1 <= self.number <= len(operations):
            raise ValueError(f"{self.label!r}: there are {len(operations)} operations")
        chosen = operations[self.number - 1]
        if self.kind == "keep":
            return lambda operation: chosen.whole() if operation is chosen else LOST
        fate = LOST if self.kind == "drop" else self._torn(chosen)
        return lambda operation: fate if operation is chosen else operation.whole()

    def _torn(self, chosen: Operation) -> Fate:
        if not isinstance(chosen, Write):
            message = f"{self.label!r}: {chosen} cannot be torn"
            raise ValueError(message)  # noqa: TRY004 - the label is wrong, not a type
        if self.kind == "size":
            return Fate(0, grown=True)
        head = (1 << self.sectors) - 1
        every = chosen.whole().sectors
        sectors = head & every if self.kind == "head" else every & ~head
        return Fate(sectors, grown=False)


def crash_choices(operations: Sequence[Operation], seed: int) -> Iterator[CrashChoice]:
    """Yield the telling choices first, newest operation first, then random ones for ever.

    Some of them leave the same disk.
    """
    for kind in ("none", "all", "names", "bytes"):
        yield CrashChoice(kind)
    for number in range(len(operations), 0, -1):
        yield CrashChoice("drop", number)
        yield CrashChoice("keep", number)
    writes = [n for n, o in enumerate(operations, 1) if isinstance(o, Write)]
    if writes:
        last = operations[writes[-1] - 1]
        assert isinstance(last, Write)
        for boundary in _boundaries(last.sector_count):
            yield CrashChoice("head", writes[-1], boundary)
            yield CrashChoice("tail", writes[-1], boundary)
    for number in reversed(writes):
        yield CrashChoice("size", number)
    first = seed * 1_000_000
    while True:
        yield CrashChoice("random", first)
        first += 1


def _boundaries(sector_count: int) -> list[int]:
    """Return where to tear a write: everywhere, or spread over it if it is long."""
    if sector_count <= _TEARS_MAX:
        return list(range(1, sector_count))
    last = sector_count - 1
    return [1 + i * (last - 1) // (_TEARS_MAX - 1) for i in range(_TEARS_MAX)]


def _random_rule(source: random.Random) -> Callable[[Operation], Fate]:
    # One state loses about half of the names, another hardly any: bytes without a name
    # tell nothing, so uniform choices alone would waste most states.
    name_odds = source.choice((0.5, 0.9, 1.0))

    def rule(operation: Operation) -> Fate:
        if not isinstance(operation, Write):
            odds = name_odds if isinstance(operation, NameChange) else 0.5
            return KEPT if source.random() < odds else LOST
        every = operation.whole().sectors
        head = (1 << source.randint(0, operation.sector_count)) - 1
        some = source.getrandbits(operation.sector_count)
        sectors = source.choice((0, every, head, every & ~head, some, some))
        return Fate(sectors, grown=source.random() < 0.5)

    return rule


def _drop_followers(changes: Sequence[NameChange], fates: dict[int, Fate]) -> None:
    broken: set[str] = set()
    for change in changes:
        if change.number not in fates or broken & change.touched:
            fates.pop(change.number, None)
            broken |= change.touched


def _keep_predecessors(changes: Sequence[NameChange], fates: dict[int, Fate]) -> None:
    needed: set[str] = set()
    for change in reversed(changes):
        if change.number in fates or needed & change.touched:
            fates[change.number] = KEPT
            needed |= change.touched
