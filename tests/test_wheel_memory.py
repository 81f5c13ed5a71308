"""The compiled wheel when memory runs out: an error, and nothing has changed.

CPython's own test module makes every allocation fail from the n-th on. Each operation is
tried with n from 0 until it needs no more, the first ones all and then in growing steps.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterator

import pytest

from tests.wheel_bodies import CompiledWheel, needs_the_compiled_wheel
from timingwheel.wheel import TimerWheel

_testcapi = pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
pytestmark = needs_the_compiled_wheel

Timer = tuple[int, int]  # deadline, key


def runs_out(operation: Callable[[], object], allocations: int) -> bool:
    """Run an operation that has so many allocations left; say whether that was few."""
    _testcapi.set_nomemory(allocations, 0)
    try:
        operation()
    except MemoryError:
        return True
    finally:
        _testcapi.remove_mem_hooks()
    return False


def a_wheel(
    rng: random.Random, timers: int
) -> tuple[TimerWheel, list[Timer], list[int]]:
    """A wheel at tick 1,000 with timers behind, near and far, and some cancelled."""
    wheel = CompiledWheel(1_000)
    pending = [
        (1_000 + rng.choice((-5, 1, 300, 70_000)) * rng.randrange(1, 9), key)
        for key in range(timers)
    ]
    handles = [wheel.insert(*timer) for timer in pending]
    for place in range(0, timers, 5):
        wheel.cancel(handles[place])
    living = [place for place in range(timers) if place % 5]
    return wheel, [pending[at] for at in living], [handles[at] for at in living]


def in_order(timers: list[Timer]) -> list[int]:
    return [key for _, key in sorted(timers)]


def out_of_memory(
    timers: int, operation_on: Callable[[TimerWheel], Callable[[], object]]
) -> Iterator[tuple[TimerWheel, list[Timer], list[int]]]:
    """Yield a wheel on which the operation has just failed, for each way it can fail."""
    allocations = 0
    while True:
        wheel, pending, handles = a_wheel(random.Random(timers), timers)
        if not runs_out(operation_on(wheel), allocations):
            return
        wheel.check()
        yield wheel, pending, handles
        allocations += 1 + allocations // 16


@pytest.mark.parametrize("deadline", [2_000, 990, 10**9])
@pytest.mark.parametrize("timers", [0, 1, 64, 300])
def test_an_insert_without_memory_has_inserted_nothing(
    deadline: int, timers: int
) -> None:
    failures = 0
    for wheel, pending, _ in out_of_memory(
        timers, lambda wheel: lambda: wheel.insert(deadline, -1)
    ):
        failures += 1
        assert len(wheel) == len(pending)
        wheel.insert(deadline, 10**9)
        wheel.check()
        assert wheel.advance(2**40) == in_order([*pending, (deadline, 10**9)])
    assert failures >= (10 if timers == 0 else 1)


def test_a_batch_without_memory_has_inserted_nothing() -> None:
    deadlines = array("q", [990, 1_000, 5_000, 10**9, 80_000]) * 2_000
    keys = array("q", [-1]) * len(deadlines)
    failures = 0
    for wheel, pending, handles in out_of_memory(
        300, lambda wheel: lambda: wheel.insert_many(deadlines, keys)
    ):
        failures += 1
        assert len(wheel) == len(pending)
        assert wheel.advance(2**40) == in_order(pending)
        assert not any(map(wheel.cancel, handles))
        assert len(wheel.insert_many(deadlines, keys)) == len(deadlines)
        wheel.check()
    assert failures >= 12, "the table, its tree, the pool and the heap were not all met"


@pytest.mark.parametrize("max_fire", [None, 1, 500])
def test_an_advance_without_memory_has_fired_nothing(max_fire: int | None) -> None:
    failures = 0
    for wheel, pending, handles in out_of_memory(
        1_600, lambda wheel: lambda: wheel.advance(100_000, max_fire)
    ):
        failures += 1
        assert len(wheel) == len(pending)
        assert wheel.next_due() == min(pending)[0]
        # What was on its way out can still be cancelled, and what is inserted now takes
        # its place among it.
        gone = sorted(range(len(pending)), key=pending.__getitem__)[:400:3]
        assert all(wheel.cancel(handles[at]) for at in gone)
        late = [
            (pending[gone[-1]][0] - 1, 10_000),
            (301 + 1_000, 10_001),
            (990, 10_002),
        ]
        for timer in late:
            wheel.insert(*timer)
        wheel.check()
        left = [each for at, each in enumerate(pending) if at not in set(gone)] + late
        left.sort()

        back = [key for deadline, key in left if deadline <= 994]
        assert wheel.advance(994) == back
        out = array("q", [0] * 50)
        assert wheel.advance_into(100_000, out) == 50
        rest = [key for _, key in left][len(back) :]
        assert out.tolist() == rest[:50]
        wheel.check()
        assert wheel.advance(2**40) == rest[50:]
        wheel.check()
    assert failures >= (20 if max_fire != 1 else 1)


def test_what_an_advance_without_memory_left_is_swept_and_cleared() -> None:
    for wheel, pending, handles in out_of_memory(
        1_600, lambda wheel: lambda: wheel.advance(100_000)
    ):
        order = sorted(range(len(pending)), key=pending.__getitem__)
        kept = order[::40]
        for at in set(order) - set(kept):
            assert wheel.cancel(handles[at])
        wheel.check()
        assert wheel.advance(100_000, 20) == [pending[at][1] for at in kept[:20]]
        assert wheel.clear() == len(kept) - 20
        wheel.check()


@pytest.mark.parametrize(
    ("operation_on", "changes"),
    [
        (lambda wheel: lambda: wheel.advance_into(2**40, array("q", [0]) * 5_000), 1),
        (
            lambda wheel: (
                lambda: wheel.cancel_many(array("q", range(2**32, 2**32 + 1_600)))
            ),
            1,
        ),
        (lambda wheel: wheel.next_due, 0),
        (lambda wheel: wheel.clear, 1),
    ],
    ids=["advance_into", "cancel_many", "next_due", "clear"],
)
def test_what_needs_no_memory_but_for_its_answer_is_done_whole_or_not_at_all(
    operation_on: Callable[[TimerWheel], Callable[[], object]], changes: int
) -> None:
    for wheel, pending, _ in out_of_memory(1_600, operation_on):
        assert len(wheel) in {len(pending), len(pending) * (1 - changes)}
        if len(wheel):
            assert wheel.advance(2**40) == in_order(pending)
