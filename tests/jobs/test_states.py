"""The life of a run, as the table has it."""

from __future__ import annotations

import pickle
from itertools import product

import pytest

from timingwheel.jobs.model import RunState
from timingwheel.jobs.states import (
    ACTIVE,
    FINAL,
    TRANSITIONS,
    TransitionError,
    require_step,
)


def test_a_run_takes_the_steps_of_the_table_and_no_others() -> None:
    allowed = {(step.before, step.after) for step in TRANSITIONS}
    for before, after in product(RunState, RunState):
        if (before, after) in allowed:
            require_step(before, after)
        else:
            with pytest.raises(TransitionError, match=f"from {before} to {after}"):
                require_step(before, after)


def test_the_error_of_a_step_survives_pickling() -> None:
    error = TransitionError(RunState.LOST, RunState.RUNNING)
    again = pickle.loads(pickle.dumps(error))
    assert again.args == (again.before, again.after)
    assert again.args == (RunState.LOST, RunState.RUNNING)
    assert str(again) == str(error) == "a run does not go from lost to running"


def test_no_step_stands_in_the_table_twice_and_each_has_a_cause() -> None:
    pairs = [(step.before, step.after) for step in TRANSITIONS]

    assert len(set(pairs)) == len(pairs)
    assert all(step.cause for step in TRANSITIONS)


def test_only_a_retry_by_hand_leaves_a_final_state() -> None:
    leaving = {step for step in TRANSITIONS if step.before in FINAL}

    assert all("by hand" in step.cause for step in leaving)
    assert {step.before for step in leaving} == {RunState.FAILED, RunState.LOST}


def test_only_ready_leads_to_running() -> None:
    into = {step.before for step in TRANSITIONS if step.after is RunState.RUNNING}

    assert into == {RunState.READY}


def test_every_state_can_be_reached_and_every_open_one_can_end() -> None:
    reached = {RunState.PLANNED}
    while True:
        more = {step.after for step in TRANSITIONS if step.before in reached}
        if more <= reached:
            break
        reached |= more
    assert reached == set(RunState)

    ending = set(FINAL)
    while True:
        more = {step.before for step in TRANSITIONS if step.after in ending}
        if more <= ending:
            break
        ending |= more
    assert ending == set(RunState)


def test_what_has_not_started_can_be_cancelled() -> None:
    unstarted = set(RunState) - FINAL - {RunState.RUNNING}
    for state in unstarted:
        require_step(state, RunState.CANCELLED)


def test_a_retry_that_waits_counts_as_active() -> None:
    assert RunState.RETRYING in ACTIVE
    assert ACTIVE.isdisjoint(FINAL)
