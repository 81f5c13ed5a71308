"""Random programs on both bodies of the wheel at once: every answer must be the same.

The state machine of test_wheel_model compares each body with an oracle after few steps and
checks it at every one; this one is made to go far, a million steps in some minutes. Handles
alone may differ between the bodies, for each chooses its own free places.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable

import pytest

from tests.wheel_bodies import CompiledWheel, needs_the_compiled_wheel
from timingwheel.wheel import TimerWheel
from timingwheel.wheel_arguments import DEADLINE_MAX, INT64_MIN

UNITS = (0, 1, 1, 10, 255, 256, 257, 70_000, 2**24, 2**40, 2**62)
ODD_ARGUMENTS = (None, 1.5, "7", True, -1, 0, 2**63, -(2**63), 10**30, -(10**30))

Answer = tuple[str, object]


def answer_of(call: Callable[..., object], *arguments: object) -> Answer:
    """What a call does: the type and text of its error, or what it returns."""
    try:
        answer = call(*arguments)
    except (TypeError, ValueError, OverflowError) as error:
        return type(error).__name__, str(error)
    return type(answer).__name__, answer


class BothBodies:
    """A plain and a compiled wheel that live through the same."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        start = rng.choice((0, 1, 255, 65_530, 2**40 - 1, DEADLINE_MAX - 70_000))
        # Few generations wear places out soon; a few thousand timers never fill it.
        bits = rng.choice((1, 3, 28))
        self.plain = TimerWheel(start, generation_bits=bits)
        self.compiled: TimerWheel = CompiledWheel(start, generation_bits=bits)
        self.handles: list[tuple[int, int]] = []  # in either body, live and stale
        self.keys = 0

    def tick(self) -> int:
        away = self.rng.choice(UNITS) * self.rng.randrange(-2, 9)
        return min(max(self.plain.now_tick + away, INT64_MIN), DEADLINE_MAX)

    def same(self, name: str, *arguments: object) -> object:
        plain = answer_of(getattr(self.plain, name), *arguments)
        compiled = answer_of(getattr(self.compiled, name), *arguments)
        assert compiled == plain, (name, arguments)
        return plain[1]

    def insert(self) -> None:
        deadline = self.tick()
        plain = self.plain.insert(deadline, self.keys)
        compiled = self.compiled.insert(deadline, self.keys)
        self.handles.append((plain, compiled))
        self.keys += 1

    def insert_many(self) -> None:
        deadlines = array("q", [self.tick() for _ in range(self.rng.randrange(40))])
        keys = array("q", range(self.keys, self.keys + len(deadlines)))
        self.keys += len(deadlines)
        plain = self.plain.insert_many(deadlines, keys)
        compiled = self.compiled.insert_many(deadlines, keys)
        self.handles += zip(plain, compiled, strict=True)

    def cancel(self) -> None:
        if self.handles:
            plain, compiled = self.handles[self._place()]
            assert self.plain.cancel(plain) == self.compiled.cancel(compiled)

    def cancel_many(self) -> None:
        chosen = [self.handles[self._place()] for _ in self.handles[:60]]
        plain = array("q", [each for each, _ in chosen])
        compiled = array("q", [each for _, each in chosen])
        assert self.plain.cancel_many(plain) == self.compiled.cancel_many(compiled)

    def _place(self) -> int:
        back = min(int(self.rng.expovariate(1 / 200)), len(self.handles) - 1)
        return len(self.handles) - 1 - back

    def advance(self) -> None:
        self.same("advance", self.tick(), self.rng.choice((None, 0, 1, 3, 50)))

    def advance_to_next_due(self) -> None:
        tick = self.same("next_due")
        if tick is not None:
            self.same("advance", tick)

    def advance_into(self) -> None:
        now, size = self.tick(), self.rng.randrange(60)
        plain, compiled = array("q", [-1]) * size, array("q", [-1]) * size
        count = self.plain.advance_into(now, plain)
        assert self.compiled.advance_into(now, compiled) == count
        assert compiled == plain

    def pass_something_odd(self) -> None:
        odd, other = self.rng.choice(ODD_ARGUMENTS), self.rng.choice(ODD_ARGUMENTS)
        # What is no timer and no present: whatever it does, both do it.
        if not isinstance(odd, int) or not INT64_MIN <= odd <= DEADLINE_MAX:
            self.same("insert", odd, 7)
            self.same("insert", 7, odd)
            self.same("advance", odd, other)
            self.same("advance_into", odd, array("q", [0]))
        self.same("cancel", odd)
        self.same("insert_many", odd, other)
        self.same("cancel_many", odd)
        self.same("advance_into", other, odd)

    def clear(self) -> None:
        if self.rng.random() < 0.02:
            self.same("clear")

    def check(self) -> None:
        self.plain.check()
        self.compiled.check()


CHOICES = (
    *(["insert"] * 8 + ["insert_many"] * 2 + ["cancel"] * 5 + ["cancel_many"]),
    *(["advance"] * 2 + ["advance_to_next_due"] * 2 + ["advance_into", "next_due"]),
    *("pass_something_odd", "clear"),
)


def run(rng: random.Random, *, programs: int, steps: int) -> None:
    for _ in range(programs):
        both = BothBodies(rng)
        for step in range(steps):
            name = rng.choice(CHOICES)
            if name == "next_due":
                both.same(name)
            else:
                getattr(both, name)()
            assert len(both.compiled) == len(both.plain)
            assert both.compiled.now_tick == both.plain.now_tick
            if step % (steps // 8) == 0:
                both.check()
        both.same("advance", DEADLINE_MAX)
        both.check()


@needs_the_compiled_wheel
def test_both_bodies_give_the_same_answers(rng: random.Random) -> None:
    run(rng, programs=12, steps=1_000)


@pytest.mark.long
@needs_the_compiled_wheel
def test_both_bodies_give_the_same_answers_a_million_times(rng: random.Random) -> None:
    run(rng, programs=200, steps=6_000)
