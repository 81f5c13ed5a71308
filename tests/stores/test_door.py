"""The door of a store: its messages, its errors, its socket, and whom it lets in."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from timingwheel.errors import ArgumentError, CronError, EngineFailedError
from timingwheel.jobs.errors import (
    KeyConflictError,
    RevisionConflictError,
    RunStateError,
    UnknownJobError,
)
from timingwheel.jobs.model import JobId, Run
from timingwheel.jobs.store import JobStore
from timingwheel.stores.door import Door
from timingwheel.stores.door_calls import CALLS, shape
from timingwheel.stores.door_errors import HolderFaultError, error_of, fault_of
from timingwheel.stores.door_frames import (
    FRAME_MAX,
    MAGIC,
    Answer,
    Ask,
    Failure,
    FrameError,
    FrameReader,
    Hello,
    News,
    Welcome,
    decode_holder,
    decode_welcome,
    frame,
    raw,
)
from timingwheel.stores.door_socket import DOOR_NAME, NoDoorError, connect, listen
from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.stores.history_errors import HistoryError
from timingwheel.stores.line import Line
from wal.errors import CommitUnknownError, DiskFullError, StoreError

HELLO = Hello(magic=MAGIC, shape=shape(), pid=1, life="x")


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Path]:
    """The directory of a store with a door."""
    store = EmbeddedStore.open(":memory:")
    store.before_close.append(Door(store, str(tmp_path)).close)
    yield tmp_path
    store.close()
    assert not (tmp_path / DOOR_NAME).exists()


class Deaf:
    """Hears of nothing that a holder says unasked."""

    def news(self) -> None:
        raise AssertionError

    def ended(self, runs: list[Run]) -> None:
        raise AssertionError(runs)

    def cut(self, line: Line) -> None:
        raise AssertionError(line)


def heard(connection: socket.socket, reader: FrameReader) -> Iterator[bytes]:
    """Yield messages until the other side hangs up."""
    while data := connection.recv(1 << 16):
        yield from reader.feed(data)


def greeted(place: Path, hello: msgspec.Struct = HELLO) -> tuple[Any, Any]:
    """Return a connection that has said hello, and what was answered."""
    connection = connect(str(place))
    connection.settimeout(60)
    connection.sendall(frame(hello))
    messages = heard(connection, FrameReader())
    return connection, (decode_welcome(next(messages)), messages)


# -- messages -----------------------------------------------------------------------------------


def test_messages_come_out_as_they_went_in_however_they_are_cut() -> None:
    data = b"".join(frame(News()) + frame(Answer(7, raw([1, "two"]))) for _ in range(3))
    for size in (1, 2, 3, 5, 7, len(data)):
        reader = FrameReader()
        got = [
            decode_holder(body)
            for at in range(0, len(data), size)
            for body in reader.feed(data[at : at + size])
        ]
        assert got == [News(), Answer(7, raw([1, "two"]))] * 3


@pytest.mark.parametrize("size", [0, FRAME_MAX + 1, 0xFFFFFFFF])
def test_a_frame_of_no_size_is_refused_before_it_is_read(size: int) -> None:
    with pytest.raises(FrameError, match="bytes"):
        list(FrameReader().feed(size.to_bytes(4, "little")))


@pytest.mark.parametrize(
    "error",
    [
        ArgumentError("limit", -1, "pass more"),
        UnknownJobError("job", "x", "pass another"),
        KeyConflictError("k", "t", "id"),
        RevisionConflictError("id", 3, 4),
        RunStateError("id", "ready", "wait"),
        CronError("* *", "whole", piece="", code="bad-fields", found="two", fix="five"),
        DiskFullError("/data", OSError(28, "No space left on device")),
        CommitUnknownError("/data", 7, OSError(5, "Input/output error")),
        HistoryError("/data/history.db", "is older", "bring it back"),
        OSError(5, "Input/output error", "/data/wal"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_itself_on_the_other_side(error: Exception) -> None:
    body = frame(Failure(1, fault_of(error)))[4:]
    message = decode_holder(body)
    assert isinstance(message, Failure)
    again = error_of(message.fault)
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_an_error_comes_with_its_cause_and_a_stranger_by_its_words() -> None:
    error = EngineFailedError("stopped")
    error.__cause__ = OSError(28, "No space left on device")
    again = error_of(fault_of(error))
    assert isinstance(again.__cause__, OSError)
    assert again.__cause__.errno == 28
    stranger = error_of(fault_of(ZeroDivisionError("division by zero")))
    assert isinstance(stranger, HolderFaultError)
    assert str(stranger) == "ZeroDivisionError: division by zero"
    huge = error_of(fault_of(ArgumentError("delay", 1 << 49_999, "pass less")))
    assert "an int of 50,000 bits" in str(huge)
    odd = error_of(fault_of(ArgumentError("call", object, "pass a task")))
    assert isinstance(odd, ArgumentError)
    assert odd.fix == "pass a task"


def test_every_call_of_a_store_can_be_asked() -> None:
    of_process = {"close", "changed", "wait", "add_listener"}

    names = {name for name in vars(JobStore) if not name.startswith("_")}
    assert names - CALLS.keys() == of_process


# -- the socket ---------------------------------------------------------------------------------


def test_the_door_is_for_this_user_alone(door: Path) -> None:
    mode = (door / DOOR_NAME).stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_a_door_of_a_killed_holder_is_replaced(tmp_path: Path) -> None:
    left = listen(str(tmp_path))
    left.close()
    assert (tmp_path / DOOR_NAME).exists()
    with pytest.raises(NoDoorError):
        connect(str(tmp_path))
    again = listen(str(tmp_path))
    connect(str(tmp_path)).close()
    again.close()


def test_a_door_may_lie_deeper_than_the_name_of_a_socket_reaches(
    tmp_path: Path,
) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60) / ("f" * 60)
    deep.mkdir(parents=True)
    assert len(os.fsencode(deep)) > 108
    listener = listen(str(deep))
    connect(str(deep)).close()
    listener.close()


def test_a_directory_that_can_have_no_socket_has_no_door(tmp_path: Path) -> None:
    with pytest.raises(NoDoorError):
        listen(str(tmp_path / "missing"))


# -- who is let in ------------------------------------------------------------------------------


def test_another_version_is_refused_by_name(door: Path) -> None:
    hello = Hello(magic=MAGIC, shape="0.00000000", pid=4711, life="x")
    connection, (welcome, messages) = greeted(door, hello)
    assert "another version" in welcome.refused
    assert list(messages) == []  # it hangs up
    connection.close()


def test_a_holder_of_another_version_is_named(tmp_path: Path) -> None:
    listener = listen(str(tmp_path))
    welcome = Welcome(magic=MAGIC, shape="9.abcdef00", pid=4711, refused="it is newer")

    def answer() -> None:
        connection, _ = listener.accept()
        connection.recv(1 << 16)
        connection.sendall(frame(welcome))
        connection.close()

    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(StoreError, match=r"process 4711 .*9\.abcdef00") as refused:
        Line.to(str(tmp_path), Deaf(), life="x")
    thread.join()
    listener.close()
    assert "one version" in refused.value.remedy


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"\1\0\0\0\xc1", b"\0\0\0\0", frame(News())],
    ids=["http", "no message", "no size", "no hello"],
)
def test_whoever_does_not_speak_the_language_is_hung_up_on(
    door: Path, garbage: bytes
) -> None:
    stranger = connect(str(door))
    stranger.settimeout(60)
    stranger.sendall(garbage)
    assert stranger.recv(1 << 16) == b""
    stranger.close()
    connection, (welcome, _) = greeted(door)  # and others come in as before
    assert welcome.refused == ""
    connection.close()


def test_garbage_after_the_greeting_ends_the_connection_alone(door: Path) -> None:
    connection, (_, messages) = greeted(door)
    connection.sendall(b"\2\0\0\0\xc1\xc1")
    assert list(messages) == []
    connection.close()
    other, (welcome, _) = greeted(door)
    assert welcome.refused == ""
    other.close()


def test_arguments_of_another_type_are_refused_and_nothing_is_done(door: Path) -> None:
    connection, (_, messages) = greeted(door)
    connection.sendall(frame(Ask(1, "get", raw([7]))))
    failure = decode_holder(next(messages))
    assert isinstance(failure, Failure)
    assert "ValidationError" in str(error_of(failure.fault))
    connection.sendall(frame(Ask(2, "get", raw([JobId("none")]))))
    answer = decode_holder(next(messages))
    assert isinstance(answer, Answer)
    assert CALLS["get"].answer(answer.value) is None
    connection.close()
