"""Attempts in hand: each is with one executor, and leaves once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scheduler import program
from tests.scheduler.node_stage import Stage
from timingwheel.errors import ArgumentError
from timingwheel.jobs.triggers import Delay
from timingwheel.scheduler.in_hand import InHand


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    made.node.begin_service()
    for number in range(2):
        made.add(program.note.call(str(number)))
    made.turns()
    yield made
    made.close()


@pytest.fixture
def in_hand(stage: Stage) -> InHand:
    return stage.node.in_hand


def test_an_attempt_is_held_until_its_end_is_written_down(
    stage: Stage, in_hand: InHand
) -> None:
    token = stage.executor.works[0].claim.token
    assert in_hand.holds(token)
    stage.executor.begin()
    stage.executor.end()
    assert in_hand.holds(token)  # its end waits
    ends = in_hand.take_ends(10)
    assert in_hand.holds(token)  # its end is being written down
    in_hand.put_back(ends)
    assert in_hand.holds(token)
    assert in_hand.take_ends(10) == ends
    in_hand.written()
    assert not in_hand.holds(token)


def test_ends_are_taken_oldest_first_and_put_back_in_their_order(
    stage: Stage, in_hand: InHand
) -> None:
    for _ in range(2):
        stage.executor.begin()
        stage.executor.end()
    first = in_hand.take_ends(1)
    in_hand.put_back(first)
    assert in_hand.take_ends(10)[:1] == first
    assert not in_hand.has_ends


def test_what_is_dropped_frees_its_slot_and_leaves_no_second_time(
    stage: Stage, in_hand: InHand
) -> None:
    assert in_hand.free(stage.executor) == 0
    works = list(stage.executor.works)
    assert len(in_hand.drop(works)) == 2
    assert in_hand.free(stage.executor) == 2
    assert in_hand.drop(works) == []
    stage.executor.end()
    assert not in_hand.has_ends


def test_an_interrupt_of_what_has_ended_goes_nowhere(
    stage: Stage, in_hand: InHand
) -> None:
    token = stage.executor.works[0].claim.token
    stage.executor.begin()
    finish = stage.executor.end()
    in_hand.interrupt(token, finish.outcome, kill=True)
    assert stage.executor.interrupts == []


def test_a_follow_up_without_a_moment_is_due_at_once(in_hand: InHand) -> None:
    call = program.note.call("x")
    assert in_hand.draft(call, {}).trigger.when == Delay(0)
    assert in_hand.draft(call, {"delay": "5s"}).trigger.when == Delay(5 * 10**9)
    assert in_hand.draft(call, {"cron": "0 3 * * *"}).trigger.is_recurring
    with pytest.raises(ArgumentError, match="delay"):
        in_hand.draft(call, {"delay": -1})
    with pytest.raises(TypeError, match="did you mean 'delay'"):
        in_hand.draft(call, {"delya": 1})
