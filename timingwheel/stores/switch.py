"""Which side of a shared directory to ask: found when it is needed, and anew when lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

from timingwheel.engine.life import CLOSED
from timingwheel.errors import EngineClosedError
from timingwheel.stores.door_calls import CALLS
from timingwheel.stores.door_errors import HolderLostError
from timingwheel.stores.line import FORKED, LineCutError
from timingwheel.stores.sides import Side


class Seek(Protocol):
    """Finds a side; see sides.seek_side."""

    def __call__(
        self, *, pause: threading.Condition, is_closed: Callable[[], bool]
    ) -> Side:
        """Return a side that was just found."""


class Switch:
    """Asks the side that there is. Thread-safe.

    Invariant: one thread at a time seeks a side; all others wait for what it finds, or
    seek themselves if it fails.

    Args:
        directory: for messages.
        seek: finds a side.
        enter: has a side know what is at work here, before it is used.
        on_entered: called when it can be used.
    """

    def __init__(
        self,
        directory: str,
        *,
        seek: Seek,
        enter: Callable[[Side], None],
        on_entered: Callable[[Side], None],
    ) -> None:
        self._directory: Final = directory
        self._seek = seek
        self._enter = enter
        self._on_entered = on_entered
        self._make_locks()
        self._side: Side | None = None
        self._seeker: threading.Thread | None = None
        self._closed: str | None = None

    def _make_locks(self) -> None:
        self._lock = threading.Lock()
        self._moved = threading.Condition(self._lock)
        self._pause = threading.Condition()

    @property
    def side(self) -> Side | None:
        """The side that there is; None while it is sought."""
        return self._side

    def ask(self, call: str, *arguments: Any, again: bool | None = None) -> Any:
        """Return what a call gives, from whoever holds.

        Args:
            call: its name.
            arguments: in their order.
            again: whether it may be asked twice; None: as CALLS says.

        Raises:
            HolderLostError: the holder went meanwhile, and the call may have been done.
            EngineClosedError: this is closed, or a forked child.
            What the call raises, and what `seek` does.
        """
        if again is None:
            again = CALLS[call].again
        while True:
            side = self.current()
            try:
                return side.ask(call, *arguments)
            except LineCutError as cut:
                self.lose(side)
                if cut.is_unknown and not again:
                    raise HolderLostError(self._directory, call) from None

    def current(self) -> Side:
        """Return the side to ask; seek one if there is none.

        Raises:
            EngineClosedError: this is closed, or a forked child.
            What `seek` raises.
        """
        side = self._side
        if side is not None:
            return side
        with self._lock:
            while True:
                if self._closed is not None:
                    raise EngineClosedError(self._closed)
                if self._side is not None:
                    return self._side
                if self._seeker is None:
                    break
                self._moved.wait()
            self._seeker = threading.current_thread()
        return self._sought()

    def look(self) -> None:
        """Seek a side if there is none, unless somebody is at it: it waits for nobody.

        Raises:
            As current.
        """
        with self._lock:
            if self._side is not None or self._seeker is not None:
                return
            if self._closed is not None:
                raise EngineClosedError(self._closed)
            self._seeker = threading.current_thread()
        self._sought()

    def lose(self, side: Side) -> None:
        """Ask a side no more: its holder has gone."""
        with self._lock:
            if self._side is side:
                self._side = None

    def close(self) -> None:
        """Close the side that there is, and seek none any more. Idempotent."""
        with self._lock:
            if self._closed is not None:
                return
            self._closed = CLOSED
            side, self._side = self._side, None
            self._moved.notify_all()
        with self._pause:
            self._pause.notify_all()
        if side is not None:
            side.close()
        with self._lock:
            # Else the directory might be held for a moment after this has returned.
            while self._seeker not in {None, threading.current_thread()}:
                self._moved.wait()

    def leave_to_parent(self) -> None:
        """In a forked child: the side is the parent's; all calls here raise."""
        # Another thread of the parent may have held one of them at the fork.
        self._make_locks()
        self._closed, self._side, self._seeker = FORKED, None, None

    def _sought(self) -> Side:
        """Return a side, as the one who seeks; then nobody does any more."""
        try:
            while True:
                side = self._found()
                with self._lock:
                    # A side that was lost meanwhile nobody else sees to: see `look`.
                    if self._side is side or self._closed is not None:
                        self._rest()
                        return side
        except BaseException:
            with self._lock:
                self._rest()
            raise

    def _rest(self) -> None:
        """Seek no more; the lock is held."""
        self._seeker = None
        self._moved.notify_all()

    def _found(self) -> Side:
        while True:
            side = self._seek(pause=self._pause, is_closed=self._is_closed)
            try:
                self._enter(side)
                with self._lock:
                    if self._closed is not None:
                        raise EngineClosedError(self._closed)
                    if side.is_cut:
                        raise LineCutError(is_unknown=False)
                    self._side = side
            except LineCutError:
                side.close()
                continue
            except BaseException:
                side.close()
                raise
            self._on_entered(side)
            return side

    def _is_closed(self) -> bool:
        return self._closed is not None
