"""What the manager thread waits for."""

from __future__ import annotations

import contextlib
import sys
import threading
from functools import partial

import pytest

from tests.scheduler.executors.stage import PATIENCE_S
from timingwheel.scheduler.executors.messages import Ready
from timingwheel.scheduler.executors.process_slot import ProcessSlot
from timingwheel.scheduler.executors.switchboard import Switchboard


def ignore(slot: ProcessSlot) -> None:
    """Takes note of no exit."""


def nothing() -> None:
    """Only wakes."""


def test_an_order_wakes_the_thread_that_waits_and_orders_keep_their_order() -> None:
    done: list[int] = []
    with contextlib.closing(Switchboard()) as board:

        def give_orders() -> None:
            for number in range(99):
                board.order(partial(done.append, number))

        thread = threading.Thread(target=give_orders)
        thread.start()
        while len(done) < 99:
            assert board.wait() == []
            board.obey()
        thread.join(PATIENCE_S)
    assert done == list(range(99))


def test_orders_beyond_what_wakes_are_not_lost() -> None:
    done: list[int] = []
    with contextlib.closing(Switchboard()) as board:
        for number in range(5_000):  # more than a socket holds bytes to wake with
            board.order(partial(done.append, number))
        board.wait()
        board.obey()
    assert done == list(range(5_000))


def test_a_fault_in_an_order_is_logged_and_the_next_is_carried_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done: list[int] = []
    with contextlib.closing(Switchboard()) as board:
        board.order(partial(done.remove, 1))
        board.order(partial(done.append, 2))
        board.wait()
        board.obey()
    assert done == [2]
    assert "goes on after a fault" in caplog.text


def test_an_order_after_the_end_is_no_fault() -> None:
    board = Switchboard()
    board.close()
    board.order(nothing)


def test_a_child_that_speaks_is_heard_until_it_is_not_watched_any_more() -> None:
    slot = ProcessSlot(ignore, sys.executable)
    with contextlib.closing(Switchboard()) as board:
        board.watch(slot)
        assert board.wait() == [slot]
        assert slot.receive() == [Ready()]
        board.unwatch(slot)
        board.unwatch(slot)
        slot.close(PATIENCE_S)
        board.order(nothing)
        assert board.wait() == []
