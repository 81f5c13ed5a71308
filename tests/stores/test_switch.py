"""Who seeks another side when one is lost, and who waits for whom meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from timingwheel.errors import EngineClosedError
from timingwheel.stores.line import LineCutError
from timingwheel.stores.sides import Side
from timingwheel.stores.switch import Switch

PATIENCE_S = 30


class Held:
    """A side that goes as the test says; its end waits for the thread that hears of it."""

    def __init__(self) -> None:
        self.is_cut = False
        self.hearing: threading.Thread | None = None

    def ask(self, call: str, /, *arguments: Any) -> Any:
        if self.is_cut:
            raise LineCutError(is_unknown=False)
        return call, *arguments

    def opened(self) -> None: ...

    def rest(self, seen: int) -> None: ...

    def expect(self, run_id: str) -> None: ...

    def forget(self, run_id: str) -> None: ...

    def close(self) -> None:
        hearing = self.hearing
        if hearing is not None and hearing is not threading.current_thread():
            hearing.join(PATIENCE_S)
            assert not hearing.is_alive(), "it waits for the one who waits for it"

    def cut(self, switch: Switch) -> None:
        """The holder goes; a thread hears of it and sees to that."""

        def hear() -> None:
            switch.lose(self)
            switch.look()

        self.is_cut = True
        self.hearing = threading.Thread(target=hear)
        self.hearing.start()


class Sides:
    """Found one after the other; `entering` and `entered` are told of each."""

    def __init__(self) -> None:
        self.found: list[Held] = []
        self.entering: Callable[[Held], None] = lambda side: None
        self.entered: Callable[[Held], None] = lambda side: None
        self.switch = Switch(
            "nowhere",
            seek=self._seek,
            enter=self._enter,
            on_entered=self._note_entered,
        )

    def _enter(self, side: Side) -> None:
        assert isinstance(side, Held)
        self.entering(side)

    def _note_entered(self, side: Side) -> None:
        assert isinstance(side, Held)
        self.entered(side)

    def _seek(self, **more: object) -> Held:
        self.found.append(Held())
        return self.found[-1]


def test_a_side_that_goes_while_it_is_entered_is_left_for_the_next() -> None:
    """Its thread must not wait for the one who seeks: that one waits for its end."""
    sides = Sides()

    def go(side: Held) -> None:
        if side is sides.found[0]:
            side.cut(sides.switch)
            raise LineCutError(is_unknown=False)

    sides.entering = go
    assert sides.switch.current() is sides.found[1]
    assert len(sides.found) == 2


def test_a_side_that_goes_unseen_while_it_is_entered_is_not_taken() -> None:
    sides = Sides()

    def go(side: Held) -> None:
        if side is sides.found[0]:
            side.cut(sides.switch)
            assert side.hearing is not None
            side.hearing.join(PATIENCE_S)

    sides.entering = go
    assert sides.switch.current() is sides.found[1]


def test_a_side_that_goes_as_it_is_taken_is_seen_to_by_the_one_who_seeks() -> None:
    sides = Sides()

    def go(side: Held) -> None:
        if side is sides.found[0]:
            side.cut(sides.switch)
            assert side.hearing is not None
            side.hearing.join(PATIENCE_S)

    sides.entered = go
    assert sides.switch.current() is sides.found[1]
    assert sides.switch.side is sides.found[1]


def test_a_side_that_goes_later_is_seen_to_by_the_one_who_hears_of_it() -> None:
    sides = Sides()
    sides.switch.current()
    sides.found[0].cut(sides.switch)
    assert sides.found[0].hearing is not None
    sides.found[0].hearing.join(PATIENCE_S)
    assert sides.switch.side is sides.found[1]


def test_after_the_end_none_is_sought() -> None:
    sides = Sides()
    sides.switch.current()
    sides.switch.close()
    for seek in (sides.switch.look, sides.switch.current):
        with pytest.raises(EngineClosedError):
            seek()
    assert len(sides.found) == 1
