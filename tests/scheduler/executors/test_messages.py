"""Frames: whole messages from pieces of any size, and nothing from garbage."""

from __future__ import annotations

import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scheduler import task_functions as functions
from timingwheel.errors import TimingWheelError
from timingwheel.jobs.errors import TaskError
from timingwheel.jobs.model import Outcome, RunId
from timingwheel.jobs.store import Finish
from timingwheel.scheduler.executors.messages import (
    FRAME_BYTES_MAX,
    Add,
    Answer,
    Ask,
    Beat,
    Ended,
    Frames,
    Line,
    Ready,
    ToChild,
    ToExecutor,
    framed,
    pickled_error,
    pickled_options,
)
from timingwheel.scheduler.tasks import Task

FINISH = Finish(run_id=RunId("job@1"), token=2, outcome=Outcome.OK, started_ns=3)
SAID: list[ToExecutor] = [
    Ready(),
    Line(20, "text"),
    Beat(1),
    Add(2, b"call"),
    Ended(FINISH),
]


@given(cuts=st.lists(st.integers(1, 40)))
def test_messages_come_whole_and_in_order_however_they_are_cut(cuts: list[int]) -> None:
    stream = b"".join([framed(message) for message in SAID])
    frames = Frames(ToExecutor)
    got: list[object] = []
    for cut in cuts:
        got += frames.feed(stream[:cut])
        stream = stream[cut:]
    got += frames.feed(stream)
    assert got == SAID


def test_each_side_understands_the_other() -> None:
    said: list[ToChild] = [
        Ask(1, "timeout"),
        Answer(2, lease_lost=True),
        Answer(3, draft=b"d"),
    ]
    assert Frames(ToChild).feed(b"".join([framed(message) for message in said])) == said


@pytest.mark.parametrize(
    "stream",
    [
        (FRAME_BYTES_MAX + 1).to_bytes(4, "little"),
        b"\x01\x00\x00\x00\xc1",
        b"\x02\x00\x00\x00{}",
        framed(Ask(1, "timeout")),  # what a child never says
    ],
)
def test_what_is_no_message_is_refused(stream: bytes) -> None:
    with pytest.raises(ValueError, match="a frame"):
        Frames(ToExecutor).feed(stream)


def test_a_message_longer_than_a_frame_is_not_sent() -> None:
    with pytest.raises(ValueError, match="longer than a frame"):
        framed(Add(1, bytes(FRAME_BYTES_MAX)))


def test_a_finish_goes_through_as_it_is() -> None:
    frame = framed(Ended(FINISH))
    (ended,) = Frames(ToExecutor).feed(frame)
    assert isinstance(ended, Ended)
    assert msgspec.msgpack.encode(ended.finish) == msgspec.msgpack.encode(FINISH)


class LocalError(Exception):
    def __init__(self, one: object, two: object) -> None:
        super().__init__("both")


def test_an_error_that_comes_apart_on_its_way_goes_as_its_words() -> None:
    """Pickle calls such a class with the arguments of its base."""
    error = pickle.loads(pickled_error(LocalError(1, 2)))
    assert isinstance(error, TimingWheelError)
    assert str(error) == "LocalError: both"
    kept = pickle.loads(pickled_error(TaskError("to", 1, "pass text")))
    assert (type(kept), kept.argument) == (TaskError, "to")


def test_upgrades_that_do_not_pickle_are_left_to_where_the_task_is_defined() -> None:
    task = Task(functions.send_v2, version=2, form="json", upgrade={1: lambda old: old})
    assert pickle.loads(pickled_options(task)) == {
        "form": "json",
        "version": 2,
        "pickle": False,
        "retry": task.retry,
    }
    assert "upgrade" in pickle.loads(pickled_options(functions.v1))
