"""A fuzzer's bytes, read as numbers and pieces: what is missing counts as zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Source:
    """Reads from the front; never raises."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __len__(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        """The next `size` bytes, or as many as there are."""
        piece = self._data[self._at : self._at + size]
        self._at += len(piece)
        return piece

    def number(self, size: int) -> int:
        """A little-endian number of `size` bytes."""
        return int.from_bytes(self.take(size), "little")

    def piece(self) -> bytes:
        """As many bytes as the next one says."""
        return self.take(self.number(1))

    def choice(self, items: Sequence[Item]) -> Item:
        return items[self.number(1) % len(items)]
