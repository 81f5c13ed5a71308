"""Random programs on the wheel, compared step by step with a naive oracle.

The oracle keeps (deadline, serial) in one sorted list and knows no levels, no handles'
inside, no budget's position: what it says is the contract.
"""

from __future__ import annotations

from array import array
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sortedcontainers import SortedDict

from tests.wheel_bodies import WHEELS
from timingwheel.wheel import TimerWheel
from timingwheel.wheel_arguments import DEADLINE_MAX, INT64_MIN


class Oracle:
    """Timers in firing order, each found by its handle."""

    def __init__(self, now_tick: int) -> None:
        self.now_tick = now_tick
        self.by_order: SortedDict[tuple[int, int], int] = SortedDict()  # -> handle
        self.by_handle: dict[int, tuple[int, int]] = {}
        self.serials = 0

    def insert(self, deadline: int, handle: int) -> int:
        """Add a timer whose key is its serial number."""
        self.serials += 1
        self.by_order[deadline, self.serials] = handle
        self.by_handle[handle] = (deadline, self.serials)
        return self.serials

    def cancel(self, handle: int) -> bool:
        timer = self.by_handle.pop(handle, None)
        if timer is not None:
            del self.by_order[timer]
        return timer is not None

    def advance(self, now_tick: int, max_fire: int | None) -> list[int]:
        self.now_tick = max(self.now_tick, now_tick)
        fired: list[int] = []
        while self.by_order and len(fired) != max_fire:
            (deadline, serial), handle = self.by_order.peekitem(0)
            if deadline > now_tick:
                break
            self.cancel(handle)
            fired.append(serial)
        return fired

    def first_deadline(self) -> int | None:
        return self.by_order.peekitem(0)[0][0] if self.by_order else None


near = st.integers(-3, 600)
around_a_boundary = st.builds(
    lambda power, factor, offset: 256**power * factor + offset,
    st.integers(0, 7),
    st.sampled_from([1, 2, 127, 255]),
    st.integers(-1, 1),
)
distances = near | around_a_boundary | st.integers(-300, 2**20)
budgets = st.none() | st.integers(0, 4) | st.integers(0, 300)


def tick(value: int) -> int:
    return min(max(value, INT64_MIN), DEADLINE_MAX)


class WheelMachine(RuleBasedStateMachine):
    """The programs: every method of the wheel, with what a caller may pass."""

    body: ClassVar[type[TimerWheel]]

    @initialize(
        start=st.sampled_from([0, 0, 1, 255, 65_530, 2**40 - 1, DEADLINE_MAX - 70_000]),
        generation_bits=st.sampled_from([1, 2, 3, 28]),
    )
    def start(self, start: int, generation_bits: int) -> None:
        self.wheel = self.body(start, generation_bits=generation_bits)
        self.oracle = Oracle(start)
        self.handles: list[int] = []  # all ever given out
        self.known: set[int] = set()

    def _note(self, handle: int) -> None:
        assert handle not in self.known, "a handle was given out twice"
        self.known.add(handle)
        self.handles.append(handle)

    def _a_handle(self, data: st.DataObject) -> int:
        # Late ones are more often live.
        back = data.draw(st.integers(0, 5) | st.integers(0, len(self.handles) - 1))
        return self.handles[max(0, len(self.handles) - 1 - back)]

    @rule(distance=distances)
    def insert(self, distance: int) -> None:
        deadline = tick(self.oracle.now_tick + distance)
        handle = self.wheel.insert(deadline, self.oracle.serials + 1)
        self._note(handle)
        self.oracle.insert(deadline, handle)

    @rule(
        distances=st.lists(distances, max_size=20),
        copies=st.sampled_from([1, 1, 1, 30]),
    )
    def insert_many(self, distances: list[int], copies: int) -> None:
        deadlines = [tick(self.oracle.now_tick + each) for each in distances] * copies
        first_key = self.oracle.serials + 1
        handles = self.wheel.insert_many(
            array("q", deadlines),
            array("q", range(first_key, first_key + len(deadlines))),
        )
        for deadline, handle in zip(deadlines, handles, strict=True):
            self._note(handle)
            self.oracle.insert(deadline, handle)

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), generations=st.sampled_from([0, 0, 0, 0, 1, -1]))
    def cancel(self, data: st.DataObject, generations: int) -> None:
        handle = self._a_handle(data) + generations * 2**32
        assert self.wheel.cancel(handle) == self.oracle.cancel(handle)

    @rule(handle=st.integers(-(2**70), 2**70))
    def cancel_what_is_no_handle(self, handle: int) -> None:
        assert self.wheel.cancel(handle) == self.oracle.cancel(handle)

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), share=st.sampled_from([2, 3, 100]), repeat=st.booleans())
    def cancel_many(self, data: st.DataObject, share: int, repeat: bool) -> None:
        # Every share-th handle of a stretch, stale ones too.
        start = data.draw(st.integers(0, len(self.handles) - 1))
        chosen = self.handles[start : start + 400 : share] * (2 if repeat else 1)
        expected = sum(self.oracle.cancel(handle) for handle in chosen)
        assert self.wheel.cancel_many(array("q", chosen)) == expected

    @rule(distance=distances, max_fire=budgets)
    def advance(self, distance: int, max_fire: int | None) -> None:
        now = tick(self.oracle.now_tick + distance)
        expected = self.oracle.advance(now, max_fire)
        assert self.wheel.advance(now, max_fire) == expected

    @rule(distance=st.integers(-2, 2), max_fire=budgets)
    def advance_close_to_the_first(self, distance: int, max_fire: int | None) -> None:
        # With a budget before it, this goes back among the timers that are due.
        now = tick((self.oracle.first_deadline() or 0) + distance)
        expected = self.oracle.advance(now, max_fire)
        assert self.wheel.advance(now, max_fire) == expected

    @rule(distance=near, size=st.integers(0, 40))
    def advance_into(self, distance: int, size: int) -> None:
        now = tick(self.oracle.now_tick + distance)
        expected = self.oracle.advance(now, size)
        out = array("q", [-1] * size)
        assert self.wheel.advance_into(now, out) == len(expected)
        assert out.tolist() == expected + [-1] * (size - len(expected))

    @rule(max_fire=budgets)
    def advance_to_next_due(self, max_fire: int | None) -> None:
        now = self.wheel.next_due()
        if now is not None:
            expected = self.oracle.advance(now, max_fire)
            assert self.wheel.advance(now, max_fire) == expected

    @rule()
    def next_due(self) -> None:
        # A rule and no invariant: asking may move timers on, and not asking is a
        # program too.
        answer, first = self.wheel.next_due(), self.oracle.first_deadline()
        assert (answer is None) == (first is None)
        if answer is None or first is None:
            return
        assert answer <= first
        now = self.oracle.now_tick
        if first <= now or first ^ now < 256:
            assert answer == first
        else:
            assert answer > now, "a timer that is not due counts as due"

    @precondition(lambda self: len(self.handles) > 20)
    @rule()
    def clear(self) -> None:
        assert self.wheel.clear() == len(self.oracle.by_handle)
        for handle in list(self.oracle.by_handle):
            self.oracle.cancel(handle)

    @invariant()
    def every_invariant_holds(self) -> None:
        self.wheel.check()
        assert len(self.wheel) == len(self.oracle.by_handle)
        assert self.wheel.now_tick == self.oracle.now_tick

    def teardown(self) -> None:
        if hasattr(self, "wheel"):
            expected = self.oracle.advance(DEADLINE_MAX, None)
            assert self.wheel.advance(DEADLINE_MAX) == expected
            self.wheel.check()


@pytest.mark.parametrize("body", WHEELS)
def test_random_programs_agree_with_a_sorted_list(body: type[TimerWheel]) -> None:
    machine = type("Machine", (WheelMachine,), {"body": body})
    run_state_machine_as_test(machine, settings=settings(stateful_step_count=60))
