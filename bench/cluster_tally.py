"""How many jobs some processes have done, told without a word: a shared file of numbers.

One number a process, so none waits for another. Imports the standard library alone: a peer
may need another Python than ours.
"""

from __future__ import annotations

import mmap
from pathlib import Path

PROCESSES_MAX = 64
_BYTES = 8


class Tally:
    """Numbers in a file that several processes map, each process writing its own.

    Args:
        path: of the file; made, all zero, if it is not there.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(PROCESSES_MAX * _BYTES))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), PROCESSES_MAX * _BYTES)
        self._numbers = memoryview(self._map).cast("q")

    def add(self, place: int, count: int = 1) -> None:
        """Add to the number of the process that asks."""
        self._numbers[place] += count

    def total(self) -> int:
        """Return the sum of all."""
        return sum(self._numbers)

    def close(self) -> None:
        """Let go of the file."""
        self._numbers.release()
        self._map.close()
