"""What is read of payloads, of other processes' messages, and of what people type."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import cache, partial

from tests.fuzz.log_targets import outcome
from tests.fuzz.source import Source
from tests.jobs.test_cron_fields import check_any
from tests.scheduler import task_functions as functions
from timingwheel.cli.documents import decoded
from timingwheel.errors import ArgumentError, TimingWheelError
from timingwheel.jobs.durations import backoff_range, duration_ns
from timingwheel.jobs.errors import PayloadError
from timingwheel.jobs.model import Payload, Run
from timingwheel.jobs.rrule import RecurrenceRule
from timingwheel.scheduler.executors.messages import Frames, ToChild, ToExecutor
from timingwheel.scheduler.secrets import masked
from timingwheel.scheduler.tasks import Task
from timingwheel.stores.door_frames import (
    FrameError,
    FrameReader,
    decode_hello,
    decode_visitor,
    decode_welcome,
)
from timingwheel.stores.line import Line
from timingwheel.wire.answers import plain_arguments

PIECE_MAX = 1_024


# -- payloads ----------------------------------------------------------------------------


@cache
def _tasks() -> tuple[Task, ...]:
    old = {1: lambda old: {**old, "subject": "s"}}
    return (
        Task(functions.anything),
        Task(functions.everything),
        Task(functions.shaped, form="json"),
        Task(functions.at),
        Task(functions.sets),
        Task(functions.send_v2, version=2, upgrade=old),
    )


def fuzz_payloads(data: bytes) -> None:
    """Any bytes are arguments, or no payload; and whoever shows them can."""
    source = Source(data)
    task, version = source.choice(_tasks()), source.number(1) % 3 + 1
    body = source.take(PIECE_MAX)
    payload = Payload(body, version, secret=("to", "x"))
    outcome(lambda: task.codec.decode(payload), PayloadError)
    outcome(lambda: task.codec.decode_result(body), PayloadError)
    decoded(body)
    masked(payload)
    plain_arguments(payload)
    plain_arguments(payload, secrets=True)


# -- messages of other processes -----------------------------------------------------------


class _Listener:
    """Hears what a line says unasked."""

    def __init__(self) -> None:
        self.is_cut = False

    def news(self) -> None:
        pass

    def ended(self, runs: list[Run]) -> None:
        pass

    def cut(self, line: Line) -> None:
        self.is_cut = True


def fuzz_messages(data: bytes) -> None:
    """Any stream is messages, or refused as none; and nobody waits on for an answer."""
    source = Source(data)
    cuts = [source.number(1) for _ in range(3)]
    stream = source.take(PIECE_MAX)
    pieces = [
        stream[at : at + 1 + cuts[0]] for at in range(0, len(stream), 1 + cuts[0])
    ]
    for read in (decode_hello, decode_welcome, decode_visitor):
        outcome(partial(_read_frames, pieces, read), FrameError)
    for kinds in (ToChild, ToExecutor):
        outcome(partial(_feed, Frames(kinds), pieces), ValueError)
    _hear(stream)


def _read_frames(pieces: list[bytes], read: Callable[[bytes], object]) -> None:
    reader = FrameReader()
    for piece in pieces:
        for body in reader.feed(piece):
            read(body)


def _feed(frames: Frames, pieces: list[bytes]) -> None:
    for piece in pieces:
        frames.feed(piece)


def _hear(stream: bytes) -> None:
    """Have a line hear a stream while two calls wait for their answers."""
    holder, visitor = socket.socketpair()
    listener = _Listener()
    line = Line(visitor, FrameReader(), pid=1, listener=listener)
    with holder:
        # As `Line.ask` notes them; it would wait in a thread a call.
        answers: list[Future[object]] = [Future(), Future()]
        line._asked.update({1: ("get", answers[0]), 2: ("run", answers[1])})
        holder.sendall(stream)
        holder.shutdown(socket.SHUT_WR)
        line.start()
        for answer in answers:
            outcome(partial(answer.result, 30), Exception)
        line.close()
    assert listener.is_cut
    assert all(answer.done() for answer in answers)


# -- what people type ------------------------------------------------------------------------

NOW = datetime(2026, 11, 29, 21, 0, 7, tzinfo=UTC)


def fuzz_texts(data: bytes) -> None:
    """Any text is a schedule or a length of time, or is refused with a fix."""
    source = Source(data)
    kind = source.number(1) % 4
    text = source.take(PIECE_MAX).decode("utf-8", "replace")
    match kind:
        case 0:
            check_any(text, None)
        case 1:
            check_any(text, "job")
        case 2:
            for read in (duration_ns, backoff_range):
                outcome(partial(read, text, "text"), ArgumentError)
        case _:
            _check_rule(text)


def _check_rule(text: str) -> None:
    rule = outcome(
        lambda: RecurrenceRule(text, start="2026-02-28T09:30:00"), TimingWheelError
    )
    if isinstance(rule, RecurrenceRule):
        following = rule.next(NOW)
        assert following is None or following > NOW
        assert rule.explain()
