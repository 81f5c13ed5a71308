"""Memory runs out at any step between the hand-out of an attempt and the word of its end.

Nobody but its executor knows an attempt that has begun, so it may not lose one: whatever
finds no memory, the attempt ends once, with its own result or with an error. If the
hand-out itself fails, its caller is told, and ends the node with a word to everybody.

The memory is taken away where the executors turn to others: the clock, the host, the
codec. Where the interpreter itself wants some, even a `with lock:` of CPython 3.11 does
not bear it: it holds the lock for ever.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator
from typing import Final

import pytest

from tests.scheduler.executors import handlers
from tests.scheduler.executors.conftest import KINDS
from tests.scheduler.executors.stage import work_of
from timingwheel.clock import SystemClock
from timingwheel.jobs.model import Outcome
from timingwheel.jobs.store import Finish
from timingwheel.scheduler.executors.executor import Work
from timingwheel.scheduler.in_hand import InHand
from timingwheel.scheduler.metrics import Metrics

TASKS: Final = {
    "inline": (handlers.add, handlers.fail),
    "thread": (handlers.add, handlers.fail),
    "asyncio": (handlers.add_async, handlers.fail_async),
    "process": (handlers.add, handlers.fail),
}
FAILED: Final = {Outcome.ERROR, Outcome.LOST}
"""How an attempt ends whose end could not be told as it was."""
ENDS_S: Final = 30.0
"""How long an attempt may take; it is never waited for in full."""


class Scarce(SystemClock):
    """A clock that finds no memory for one of its answers.

    Args:
        index: of the answer that fails, from 1.
    """

    def __init__(self, index: int) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self.left = index

    def answer(self) -> None:
        """Count an answer."""
        with self._lock:
            self.left -= 1
            if self.left == 0:
                raise MemoryError

    def wall_ns(self) -> int:
        self.answer()
        return super().wall_ns()

    def monotonic_ns(self) -> int:
        self.answer()
        return super().monotonic_ns()


class Desk:
    """An executor with what a node has in hand.

    Attributes:
        ends: how attempts ended, by token.
        begun: tokens that may begin, as often as that was asked.
    """

    def __init__(self, kind: str, clock: Scarce) -> None:
        self._woken = threading.Event()
        self._clock = clock
        self.begun: list[int] = []
        self._in_hand = InHand(
            self._may_begin, clock, metrics=Metrics(), wake=self._wake
        )
        self.executor = KINDS[kind](2)
        self.executor.start(self._in_hand)
        self.ends: dict[int, Finish] = {}

    def run(self, *works: Work) -> None:
        """Hand out, and wait for the ends."""
        self._in_hand.hand_out(self.executor, list(works))
        while len(self.ends) < len(works):
            self._woken.clear()
            for finish in self._in_hand.take_ends(9):
                assert finish.token not in self.ends, "it has ended twice"
                self.ends[finish.token] = finish
            if len(self.ends) < len(works):
                assert self._woken.wait(ENDS_S), "an attempt is lost"
        assert self._in_hand.free(self.executor) == self.executor.slots

    def _may_begin(self, run_id: str, token: int) -> bool:
        self._clock.answer()
        self.begun.append(token)
        return True

    def _wake(self) -> None:
        self._woken.set()
        self._clock.answer()


@pytest.fixture(params=TASKS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def desks(kind: str, index: int, stride: int) -> Iterator[Desk]:
    """Yield desks without memory for one answer, `stride` later each, until all have it."""
    while True:
        clock = Scarce(index)
        desk = Desk(kind, clock)
        try:
            yield desk
        finally:
            desk.executor.stop(0)
        if clock.left > 0:
            assert index > 8
            return
        index += stride


def test_no_attempt_is_lost_if_an_answer_finds_no_memory(
    kind: str, rng: random.Random
) -> None:
    stride = 9 if kind == "process" else 1
    sweep(kind, rng.randint(1, stride), stride)


@pytest.mark.long
def test_no_attempt_is_lost_whichever_answer_finds_no_memory(kind: str) -> None:
    sweep(kind, 1, 1)


def sweep(kind: str, start: int, stride: int) -> None:
    """Run two attempts on each of many desks; each has to end, and once."""
    good, bad = TASKS[kind]
    for desk in desks(kind, start, stride):
        works = [work_of(good.call(3)), work_of(bad.call())]
        try:
            desk.run(*works)
        except MemoryError:
            assert not desk.begun, "the hand-out failed, and yet it began"
            continue
        first, second = (desk.ends[work.claim.token] for work in works)
        assert second.outcome in FAILED
        assert second.error
        if first.outcome is Outcome.OK:
            assert good.codec.decode_result(first.result) == 5
        else:
            assert first.outcome in FAILED
            assert re.search("MemoryError|SIGKILL", first.error or ""), first.error
