"""The embedded store on the stage: a manual clock, and disks that can be crashed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.stores.stage import SECOND, Stage
from timingwheel.engine.timeline import TICK_NS
from timingwheel.jobs.store import RunQuery
from timingwheel.scheduler.simulated import KeptHistory
from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.stores.history_retention import Retention
from timingwheel.testing import ManualClock
from wal.testing import MemoryFileSystem

SEGMENT_SIZE_BYTES = 256 << 10


class EmbeddedStage(Stage):
    """An embedded store, its disk and its history.

    Args:
        directory: a real one; None: a disk in memory, which can crash.
        options: of every EmbeddedStore.open.
    """

    grain_ns = TICK_NS
    store: EmbeddedStore

    def __init__(self, directory: Path | None = None, **options: Any) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.disk = MemoryFileSystem()
        self.history = KeptHistory(":memory:")
        self.retention = options.pop("retention", Retention())
        self.seed = options.pop("seed", 0)
        self.is_open = False
        self._directory = directory
        self._options: dict[str, Any] = {
            "segment_size_bytes": SEGMENT_SIZE_BYTES,
            "reserve_bytes": 1,
            **options,
        }
        self.start()

    def advance(self, seconds: float) -> None:
        self.clock.advance(ns=round(seconds * SECOND))

    def step_wall(self, seconds: float) -> None:
        self.clock.step(round(seconds * SECOND))

    def snapshot(self) -> None:
        self.store.snapshot()

    def purge(self) -> None:
        self.store.runs(RunQuery(limit=1))  # so that all that is final is there
        self.store._history.purge(self.clock.wall_ns(), self.retention)

    def stop(self, *, crash: bool = False) -> None:
        self.store.check()
        self.is_open = False
        if not crash:
            self.store.close()
            return
        assert self._directory is None, "a real disk is not crashed by a test"
        former = self.history
        self.disk, self.history = self.wreck()
        self.store.close()  # its threads must end; what it writes, nobody reads
        former.end()

    def wreck(self, label: str = "none") -> tuple[MemoryFileSystem, KeptHistory]:
        """Return what a power loss leaves now."""
        history = self.history.fork()  # first, as it follows the log
        return self.disk.crashed(label), history

    def open(self) -> None:
        self.store = EmbeddedStore.open(
            self.disk if self._directory is None else self._directory,
            clock=self.clock,
            history=self.history if self._directory is None else None,
            retention=self.retention,
            rng=random.Random(self.seed),
            **self._options,
        )
        self.is_open = True

    def end_all(self) -> None:
        """Check once more and close."""
        if self.is_open:
            self.store.check()
            self.store.close()
        self.history.end()
