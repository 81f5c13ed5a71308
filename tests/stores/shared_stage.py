"""The shared store on the stage: everything goes through the door of the one that holds.

The holder is the embedded store of EmbeddedStage, on a disk that can crash; the store that
the tests use is a line to it, in the same process and on the same manual clock.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Callable
from typing import Any, cast

from tests.stores.embedded_stage import EmbeddedStage
from timingwheel.stores.door import Door
from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.stores.shared_store import SharedStore
from timingwheel.stores.sides import AskedSide, Side, SideListener


class LostPlaceError(Exception):
    """The stage is down: there is no holder to seek."""


class SharedStage(EmbeddedStage):
    """A shared store that asks, and the embedded store that it asks.

    Attributes:
        held: the embedded one.
    """

    held: EmbeddedStore

    def __init__(self, **options: Any) -> None:
        self._place = tempfile.mkdtemp(prefix="timingwheel-")
        super().__init__(**options)

    def open(self) -> None:
        super().open()
        self.held = self.store
        self.held.nodes.patience_ns = 0  # the only node there is comes with the stage
        door = Door(self.held, self._place)
        self.held.before_close.append(door.close)
        self.shared = SharedStore(self._place, self.clock, self._seek)
        self.store = cast("EmbeddedStore", self.shared)  # it has what the tests use

    def _seek(
        self,
        *,
        listener: SideListener,
        pause: threading.Condition,
        is_closed: Callable[[], bool],
    ) -> Side:
        if not self.is_open:
            raise LostPlaceError
        return AskedSide(self._place, listener)

    def stop(self, *, crash: bool = False) -> None:
        self.is_open = False
        self.store = self.held
        try:
            super().stop(crash=crash)
        finally:
            self.shared.close()

    def snapshot(self) -> None:
        self.held.snapshot()

    def purge(self) -> None:
        self.store, shared = self.held, self.store
        super().purge()
        self.store = shared

    def end_all(self) -> None:
        if self.is_open:
            self.store = self.held
        with contextlib.suppress(AttributeError):
            self.is_open, was_open = False, self.is_open
            self.shared.close()
            self.is_open = was_open
        super().end_all()
        shutil.rmtree(self._place)
