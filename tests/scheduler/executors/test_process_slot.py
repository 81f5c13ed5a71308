"""One child as its executor sees it."""

from __future__ import annotations

import select
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.scheduler.executors import handlers
from tests.scheduler.executors.stage import PATIENCE_S, work_of
from timingwheel.scheduler.executors.messages import Line, Ready, Start
from timingwheel.scheduler.executors.process_slot import ProcessSlot
from timingwheel.scheduler.tasks import Call, Task


class Exits:
    """An `on_exit` to wait for."""

    def __init__(self) -> None:
        self.slots: list[ProcessSlot] = []
        self._came = threading.Event()

    def __call__(self, slot: ProcessSlot) -> None:
        self.slots.append(slot)
        self._came.set()

    def wait(self) -> None:
        assert self._came.wait(PATIENCE_S)


@pytest.fixture
def exits() -> Exits:
    return Exits()


@pytest.fixture
def slot(exits: Exits) -> Iterator[ProcessSlot]:
    slot = ProcessSlot(exits, sys.executable)
    yield slot
    slot.close(PATIENCE_S)


def start(call: Call) -> Start:
    assert isinstance(call.task, Task)
    return Start(
        claim=work_of(call).claim,
        place=call.task.place,
        name=call.task.name,
        options=b"",
        main=None,
    )


def test_what_a_child_had_said_before_it_ended_is_not_lost(
    slot: ProcessSlot, exits: Exits
) -> None:
    slot.send(start(handlers.say_and_die.call(3)))
    exits.wait()
    assert slot.exit_code == 1
    texts = [one.text for one in slot.drain() if isinstance(one, Line)]
    assert texts == ["line 0", "line 1", "line 2", "about to die"]
    assert slot.receive() is None


def test_a_child_that_is_let_go_ends_by_itself(slot: ProcessSlot, exits: Exits) -> None:
    assert select.select([slot.connection], [], [], PATIENCE_S)[0]
    assert slot.receive() == [Ready()]
    slot.close(PATIENCE_S)
    assert slot.exit_code == 0
    assert exits.slots == [slot]


def test_a_killed_child_is_reaped_and_takes_what_is_sent_to_it(
    slot: ProcessSlot, exits: Exits
) -> None:
    slot.kill()
    exits.wait()
    assert slot.exit_code == -9
    slot.send(start(handlers.add.call(1)))
    assert not slot.has_unsent
    slot.kill()  # once it is reaped, its number may be somebody else's
    assert slot.is_killed


def test_what_a_child_does_not_take_at_once_is_kept_for_it(
    slot: ProcessSlot, exits: Exits
) -> None:
    big = start(handlers.add_text.call("x" * 900_000))
    slot.send(big)
    before = slot.has_unsent  # it has not even started, and a socket holds little
    slot.kill()
    exits.wait()
    slot.flush()
    assert (before, slot.has_unsent) == (True, False)
    assert [type(one) for one in slot.drain()] in ([], [Ready])
