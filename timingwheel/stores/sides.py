"""The two sides of a shared directory: to hold it, and to ask who does."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from timingwheel.clock import Clock
from timingwheel.engine.life import CLOSED
from timingwheel.errors import EngineClosedError
from timingwheel.jobs.model import Run, RunId
from timingwheel.stores.door import open_door
from timingwheel.stores.door_calls import CALLS
from timingwheel.stores.door_frames import Expect, Forget, Rest
from timingwheel.stores.door_socket import NoDoorError
from timingwheel.stores.embedded import EmbeddedStore, StoreOptions
from timingwheel.stores.line import Line, LineCutError
from timingwheel.stores.nodes import Node
from wal.errors import StoreInUseError

ANSWER_PATIENCE_NS: Final = 30_000_000_000
"""How long a holder may take to open its door: it may have much to recover."""
RETRY_NS: Final = 20_000_000


class Side(Protocol):
    """Whom a shared store asks."""

    def ask(self, call: str, /, *arguments: Any) -> Any:
        """Return what a call gives.

        Raises:
            LineCutError: the holder has gone.
            What the call raises.
        """

    @property
    def is_cut(self) -> bool:
        """Whether the holder has gone; true before anybody hears of it."""

    def opened(self) -> None:
        """Note that the nodes of this process are known: others may come."""

    def rest(self, seen: int) -> None:
        """Have `news` called once there is more than was seen; see Node.rest."""

    def expect(self, run_id: RunId) -> None:
        """Have the end of a run told."""

    def forget(self, run_id: RunId) -> None:
        """Have it not told any more."""

    def close(self) -> None:
        """Let go of everything. Idempotent."""


class SideListener(Protocol):
    """Who hears what a side says unasked; quick, and not back into the store."""

    @property
    def life(self) -> str:
        """A text that no other listener has."""

    def news(self) -> None:
        """Note that a rest is over."""

    def ended(self, runs: Sequence[Run]) -> None:
        """Note that runs have ended."""

    def cut(self, side: Side) -> None:
        """Note that the holder has gone; the calling thread is free to see to that."""


class HeldSide:
    """This process holds the directory.

    Args:
        store: opened.
        directory: its path.
        listener: who hears.
    """

    def __init__(
        self, store: EmbeddedStore, directory: str, listener: SideListener
    ) -> None:
        self.store: Final = store
        self._directory = directory
        self._node = Node(
            store.nodes, life=listener.life, ttl_ns=None, on_news=listener.news
        )
        store.add_listener(listener.ended)

    def ask(self, call: str, /, *arguments: Any) -> Any:
        """Return what a call gives; see Side."""
        known = CALLS[call]
        asked = self._node if known.of_node else self.store
        by_name = dict(zip(known.names, arguments, strict=True))
        return getattr(asked, call)(**by_name)

    @property
    def is_cut(self) -> bool:
        """Whether the holder has gone: never, while this process lives."""
        return False

    def opened(self) -> None:
        """Open the door to other processes."""
        open_door(self.store, self._directory)

    def rest(self, seen: int) -> None:
        """Have `news` called once there is more than was seen."""
        self._node.rest(seen)

    def expect(self, run_id: RunId) -> None:
        """Do nothing: all ends are told here."""

    def forget(self, run_id: RunId) -> None:
        """Do nothing: all ends are told here."""

    def close(self) -> None:
        """Close the store."""
        self.store.close()


class AskedSide:
    """Another process holds the directory, and answers at its door.

    Args:
        directory: its path.
        listener: who hears.

    Raises:
        NoDoorError: nobody answers.
        StoreError: the holder refuses.
    """

    def __init__(self, directory: str, listener: SideListener) -> None:
        self._listener = listener
        self._line = Line.to(directory, self, life=listener.life)
        self._line.start()

    def ask(self, call: str, /, *arguments: Any) -> Any:
        """Return what a call gives; see Side."""
        return self._line.ask(call, *arguments)

    @property
    def is_cut(self) -> bool:
        """Whether the holder has gone."""
        return self._line.is_cut

    def opened(self) -> None:
        """Do nothing: the door is another's."""

    def rest(self, seen: int) -> None:
        """Have `news` called once there is more than was seen."""
        self._say(Rest(seen))

    def expect(self, run_id: RunId) -> None:
        """Have the end of a run told."""
        self._say(Expect(run_id))

    def forget(self, run_id: RunId) -> None:
        """Have it not told any more."""
        self._say(Forget(run_id))

    def _say(self, message: Rest | Expect | Forget) -> None:
        # On another side all of it is said anew.
        with contextlib.suppress(LineCutError):
            self._line.say(message)

    def close(self) -> None:
        """Hang up."""
        self._line.close()

    # -- what comes unasked: see LineListener -----------------------------------------

    def news(self) -> None:
        """Pass it on."""
        self._listener.news()

    def ended(self, runs: list[Run]) -> None:
        """Pass it on."""
        self._listener.ended(runs)

    def cut(self, line: Line) -> None:  # noqa: ARG002 - there is only this one
        """Pass it on."""
        self._listener.cut(self)


class SeekSide(Protocol):
    """Finds a side; see seek_side."""

    def __call__(
        self,
        *,
        listener: SideListener,
        pause: threading.Condition,
        is_closed: Callable[[], bool],
    ) -> Side:
        """Return a side that was just found."""


def seek_side(
    directory: str,
    clock: Clock,
    options: StoreOptions,
    *,
    listener: SideListener,
    pause: threading.Condition,
    is_closed: Callable[[], bool],
) -> Side:
    """Hold a directory if nobody does, else call who does; try until one works.

    Args:
        directory: its absolute path.
        clock: where time comes from.
        options: of the store, should this process hold it.
        listener: who hears what the side says.
        pause: waited on between two tries.
        is_closed: whether to give up; `pause` is notified when that changes.

    Raises:
        StoreInUseError: somebody holds it and does not answer.
        EngineClosedError: it was given up.
        StoreError, LogCorruptError, HistoryError: as EmbeddedStore.open.
    """
    until_ns = clock.monotonic_ns() + ANSWER_PATIENCE_NS
    while True:
        try:
            store = EmbeddedStore.open(directory, clock=clock, **options)
            return HeldSide(store, directory, listener)
        except StoreInUseError as error:
            in_use = error
        try:
            return AskedSide(directory, listener)
        except NoDoorError as error:
            silence = error
        with pause:
            if is_closed():
                raise EngineClosedError(CLOSED)
            now_ns = clock.monotonic_ns()
            if now_ns >= until_ns:
                raise StoreInUseError(
                    directory, f"{in_use.holder}, which does not answer ({silence})"
                )
            clock.wait(pause, min(now_ns + RETRY_NS, until_ns))
