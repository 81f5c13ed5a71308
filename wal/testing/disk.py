"""What a disk may hold after a power loss: the model behind `MemoryFileSystem`.

A file has *durable* bytes, *visible* bytes (what reads return) and, between the two, the
un-synced operations in order. A directory has the same three for its names. A crash
keeps the durable part and some of the un-synced operations:

- any subset of the writes, each of them torn into any subset of its 512-byte sectors,
  and later ones without earlier ones. A sector goes to the disk as the cache held it
  right after the write, so bytes that share a sector never come in the wrong order;
- a file may have grown to the end of a write whose bytes are lost: they read as zeros;
- any subset of the truncations;
- any subset of the changes of names, but of two that touch the same name the later one
  never without the earlier one: else a rename could lose the file from both names;
- names and bytes independently: an empty file under a new name, bytes without a name.

A sync that failed leaves its operations as they are until the next sync of that file
*succeeds*: then they are lost for good, though reads still show them, because the kernel
had marked their pages clean.

Source: ALICE (Pillai et al., OSDI 2014) for the states; Rebello et al., ATC 2020 for
failed syncs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from wal.filesystem import SECTOR_BYTES


class Fate(NamedTuple):
    """What a crash leaves of one operation.

    `sectors` has bit i set if the write's i-th sector came through; `grown` tells
    whether the file reaches the write's end in any case.
    """

    sectors: int
    grown: bool


LOST: Final = Fate(0, grown=False)
KEPT: Final = Fate(1, grown=True)


@dataclass(frozen=True, slots=True)
class Write:
    """An un-synced write: whole sectors as the cache held them right after it."""

    number: int
    name: str
    start: int  # offset of the first sector
    end: int  # the file's last byte in these sectors, plus one
    image: bytes  # padded with zeros to whole sectors

    @property
    def sector_count(self) -> int:
        """How many sectors it touches."""
        return len(self.image) // SECTOR_BYTES

    def whole(self) -> Fate:
        """Return the fate of an operation that a crash spares."""
        return Fate((1 << self.sector_count) - 1, grown=True)

    def apply(self, content: bytearray, fate: Fate) -> None:
        """Put the sectors that came through into `content`."""
        for first, stop in _runs(fate.sectors):
            low = first * SECTOR_BYTES
            if len(content) < self.start + low:
                content.extend(bytes(self.start + low - len(content)))
            # The padding counts only where the file goes on behind it, which it does
            # if a truncation was lost.
            end = min(self.start + stop * SECTOR_BYTES, max(self.end, len(content)))
            content[self.start + low : end] = self.image[low : end - self.start]
        if fate.grown and len(content) < self.end:
            content.extend(bytes(self.end - len(content)))

    def __str__(self) -> str:
        return f"write {self.name} {self.start}-{self.end}"


@dataclass(frozen=True, slots=True)
class Truncate:
    """An un-synced change of a file's length."""

    number: int
    name: str
    size_bytes: int

    def whole(self) -> Fate:
        """Return the fate of an operation that a crash spares."""
        return KEPT

    def apply(self, content: bytearray, fate: Fate) -> None:
        """Cut or extend `content`, unless the operation was lost."""
        if fate.sectors:
            _resize(content, self.size_bytes)

    def __str__(self) -> str:
        return f"truncate {self.name} {self.size_bytes}"


@dataclass(frozen=True, slots=True, eq=False)
class NameChange:
    """An un-synced create (adds), unlink (removes) or rename (both, in one step)."""

    number: int
    inode: Inode
    removes: str | None
    adds: str | None

    def whole(self) -> Fate:
        """Return the fate of an operation that a crash spares."""
        return KEPT

    @property
    def touched(self) -> set[str]:
        """The names whose meaning it changes."""
        return {name for name in (self.removes, self.adds) if name is not None}

    def apply(self, names: dict[str, Inode]) -> None:
        """Change `names` as this operation does."""
        if self.removes is not None:
            names.pop(self.removes, None)
        if self.adds is not None:
            names[self.adds] = self.inode

    def __str__(self) -> str:
        if self.removes is None:
            return f"create {self.adds}"
        if self.adds is None:
            return f"unlink {self.removes}"
        return f"rename {self.removes} to {self.adds}"


Operation = Write | Truncate | NameChange


class Inode:
    """One file's bytes. Invariant: without a failed sync, visible = durable + pending.

    The two arrays may be shared with the copies that crash states are made of; they are
    copied before the first change (`_own`).
    """

    __slots__ = ("_durable", "_failed", "_owned", "_stale", "pending", "visible")

    def __init__(self, content: bytearray) -> None:
        self.replace(content)

    def replace(self, content: bytearray) -> None:
        """Make `content` the file's bytes, on the disk and in the cache."""
        self.visible = content
        self.pending: list[Write | Truncate] = []
        self._durable = content
        self._owned = False  # one array serves as both until the first change
        self._failed = 0  # how many of `pending`, from the first, a failed sync took
        self._stale = False  # visible shows bytes that are lost for good

    def write(self, number: int, name: str, *, data: bytes, offset: int) -> None:
        """Write to the cache and remember the sectors; zeros fill a gap before them."""
        if not data:
            return
        self._own()
        visible = self.visible
        if len(visible) < offset:
            visible.extend(bytes(offset - len(visible)))
        visible[offset : offset + len(data)] = data
        start = offset // SECTOR_BYTES * SECTOR_BYTES
        stop = -(-(offset + len(data)) // SECTOR_BYTES) * SECTOR_BYTES
        end = min(stop, len(visible))
        image = bytes(visible[start:end]).ljust(stop - start, b"\0")
        self.pending.append(Write(number, name, start, end, image))

    def truncate(self, number: int, name: str, size_bytes: int) -> None:
        """Change the length in the cache; zeros fill what it grows by."""
        if size_bytes != len(self.visible):
            self._own()
            _resize(self.visible, size_bytes)
            self.pending.append(Truncate(number, name, size_bytes))

    def sync(self) -> None:
        """Make all pending operations durable but those of a failed sync: they go."""
        if self.pending:
            self._own()
            for operation in self.pending[self._failed :]:
                operation.apply(self._durable, operation.whole())
            self._stale = self._stale or self._failed > 0
            self._failed = 0
            self.pending.clear()

    def fail_sync(self) -> None:
        """Mark all pending operations as lost at the next sync, if not at a crash."""
        self._failed = len(self.pending)

    def forget_cache(self) -> None:
        """Let reads show the disk where pages are clean, also wrongly clean ones."""
        if self._stale or self._failed:
            self._own()
            del self.pending[: self._failed]
            self.visible[:] = self._durable
            for operation in self.pending:
                operation.apply(self.visible, operation.whole())
            self._failed = 0
            self._stale = False

    def fork(self) -> Inode:
        """Return an independent copy, pending operations and all."""
        twin = Inode(self.visible)
        twin.pending = self.pending.copy()
        twin._durable = self._durable
        twin._failed, twin._stale = self._failed, self._stale
        self._owned = False
        return twin

    def after_crash(self, fates: dict[int, Fate]) -> Inode:
        """Return the file as a crash leaves it, nothing pending."""
        self._owned = False  # the result may share the durable bytes
        survivors = [(o, fates[o.number]) for o in self.pending if o.number in fates]
        if not survivors:
            return Inode(self._durable)
        content = bytearray(self._durable)
        for operation, fate in survivors:
            operation.apply(content, fate)
        return Inode(content)

    def _own(self) -> None:
        if not self._owned:
            self._durable = bytearray(self._durable)
            self.visible = bytearray(self.visible)
            self._owned = True


class Disk:
    """One directory of files. Invariant: visible names = durable names + changes."""

    def __init__(self) -> None:
        self.present = False
        self.names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._changes: list[NameChange] = []
        self._number = 0

    def create(self, name: str) -> Inode:
        """Return the empty file of that name, made or emptied."""
        inode = self.names.get(name)
        if inode is None:
            inode = Inode(bytearray())
            self._change(inode, removes=None, adds=name)
        else:
            self.truncate(inode, name, 0)
        return inode

    def rename(self, old: str, new: str) -> None:
        """Move a name onto another one."""
        if old != new:
            self._change(self.names[old], removes=old, adds=new)

    def unlink(self, name: str) -> None:
        """Remove a name."""
        self._change(self.names[name], removes=name, adds=None)

    def write(self, inode: Inode, name: str, *, data: bytes, offset: int) -> None:
        """Write to the cache."""
        inode.write(self._next_number(), name, data=data, offset=offset)

    def truncate(self, inode: Inode, name: str, size_bytes: int) -> None:
        """Change a file's length in the cache."""
        inode.truncate(self._next_number(), name, size_bytes)

    def sync_names(self) -> None:
        """Make all changes of names durable."""
        self._durable_names = dict(self.names)
        self._changes.clear()

    def unsynced(self) -> list[Operation]:
        """Return what a crash may take, oldest first."""
        found: list[Operation] = list(self._changes)
        for inode in self._inodes():
            found.extend(inode.pending)
        return sorted(found, key=lambda operation: operation.number)

    def fork(self) -> Disk:
        """Return an independent copy, un-synced operations and all."""
        twins = {inode: inode.fork() for inode in self._inodes()}
        twin = Disk()
        twin.present = self.present
        twin.names = {name: twins[inode] for name, inode in self.names.items()}
        twin._durable_names = {n: twins[i] for n, i in self._durable_names.items()}
        twin._changes = [
            NameChange(c.number, twins[c.inode], c.removes, c.adds)
            for c in self._changes
        ]
        twin._number = self._number
        return twin

    def after_crash(self, fates: dict[int, Fate]) -> Disk:
        """Return the disk as a crash leaves it, nothing un-synced.

        Args:
            fates: by the operations' numbers; what is absent is lost.
        """
        names = dict(self._durable_names)
        for change in self._changes:
            if change.number in fates:
                change.apply(names)
        disk = Disk()
        disk.present = self.present
        disk.names = {n: inode.after_crash(fates) for n, inode in names.items()}
        disk.sync_names()
        return disk

    def fingerprint(self) -> object:
        """Return a value that two disks share only if they hold the same files."""
        return tuple(
            (name, len(inode.visible), hash(bytes(inode.visible)))
            for name, inode in sorted(self.names.items())
        )

    def _inodes(self) -> set[Inode]:
        """Return the files that have a name, had one, or may get one back."""
        found = {*self.names.values(), *self._durable_names.values()}
        return found.union(change.inode for change in self._changes)

    def _change(self, inode: Inode, *, removes: str | None, adds: str | None) -> None:
        change = NameChange(self._next_number(), inode, removes, adds)
        change.apply(self.names)
        self._changes.append(change)

    def _next_number(self) -> int:
        self._number += 1
        return self._number


def _runs(mask: int) -> Iterator[tuple[int, int]]:
    """Yield (first, stop) of each run of set bits, lowest first."""
    at = 0
    while mask:
        zeros = (mask & -mask).bit_length() - 1
        mask >>= zeros
        ones = (~mask & (mask + 1)).bit_length() - 1
        yield at + zeros, at + zeros + ones
        mask >>= ones
        at += zeros + ones


def _resize(content: bytearray, size_bytes: int) -> None:
    if size_bytes < len(content):
        del content[size_bytes:]
    else:
        content.extend(bytes(size_bytes - len(content)))
