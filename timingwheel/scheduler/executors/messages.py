"""What a process slot and the executor say to each other: frames on a socket pair.

    offset  size  field
    0       4     size     of the body, little-endian, at most FRAME_BYTES_MAX
    4       size  body     a message as MessagePack, with its kind as a tag

    executor ─▶ child    Start, Ask, Answer
    child ─▶ executor    Ready, Line, Beat, Add, Ended

A child runs one attempt at a time. Whoever sees the other's end closed knows that the
other is gone: the child then ends at once, and the executor reports what it ran as lost.
"""

from __future__ import annotations

import pickle
import struct
from typing import Any, Final

import msgspec

from timingwheel.errors import TimingWheelError
from timingwheel.jobs.errors import UNREADABLE
from timingwheel.jobs.store import Claim, Finish
from timingwheel.scheduler.tasks import Task

FRAME_BYTES_MAX: Final = 64 << 20
"""A finish with all its follow-ups fits; more is a fault of the other side."""

_SIZE: Final = struct.Struct("<I")


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Run this attempt.

    Attributes:
        claim: the run, its payload and its lease.
        place: where the task is imported from.
        name: of the task.
        options: of the task, as a pickled dict, if it has to be made there.
        main: file of the main module, if that is where the task is.
    """

    claim: Claim
    place: str
    name: str
    options: bytes
    main: str | None


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """End this attempt, with this outcome."""

    token: int
    outcome: str


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """What became of a Beat or an Add.

    Attributes:
        number: of the question.
        lease_lost: the run belongs to somebody else.
        draft: what an Add has made, as MessagePack of jobs.model.Draft.
        error: the pickled exception that it raised instead.
    """

    number: int
    lease_lost: bool = False
    draft: bytes = b""
    error: bytes = b""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The child has started and waits for work."""


class Line(msgspec.Struct, frozen=True, tag="line"):
    """The handler has logged a line."""

    level: int
    text: str


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """The handler gives a sign of life, and waits for the answer."""

    number: int


class Add(msgspec.Struct, frozen=True, tag="add"):
    """The handler adds a job, and waits for the draft: a pickled (call, options)."""

    number: int
    call: bytes


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The attempt is over and the child waits for work."""

    finish: Finish


ToChild = Start | Ask | Answer
ToExecutor = Ready | Line | Beat | Add | Ended

_encoder: Final = msgspec.msgpack.Encoder()


def framed(message: ToChild | ToExecutor) -> bytes:
    """Return a message as the bytes to send.

    Raises:
        ValueError: it is too long for a frame.
    """
    body = _encoder.encode(message)
    if len(body) > FRAME_BYTES_MAX:
        raise ValueError(f"a message of {len(body):,} bytes is longer than a frame")
    return _SIZE.pack(len(body)) + body


class Frames:
    """Puts together the messages of a stream that comes in pieces of any size.

    Args:
        kinds: the union of what the other side may say.
    """

    def __init__(self, kinds: Any) -> None:
        self._decoder = msgspec.msgpack.Decoder(kinds)
        self._bytes = bytearray()

    def feed(self, piece: bytes) -> list[Any]:
        """Return the messages that are complete with this piece, in order.

        Raises:
            ValueError: the stream is not one of such messages.
        """
        self._bytes += piece
        messages = []
        at = 0
        while len(self._bytes) - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._bytes, at)
            if size > FRAME_BYTES_MAX:
                raise ValueError(f"a frame of {size:,} bytes")
            end = at + _SIZE.size + size
            if end > len(self._bytes):
                break
            body = self._bytes[at + _SIZE.size : end]
            try:
                messages.append(self._decoder.decode(body))
            except UNREADABLE as error:
                raise ValueError(f"a frame that is no message: {error}") from error
            at = end
        del self._bytes[:at]
        return messages


def pickled_options(task: Task) -> bytes:
    """Return what a child needs to make the task, should it find the function alone."""
    codec = task.codec
    options = {
        "form": codec.form,
        "version": codec.version,
        "pickle": codec.pickled,
        "retry": task.retry,
        "upgrade": codec.upgrade,
    }
    for name in ("upgrade", "retry"):
        try:
            return pickle.dumps(options)
        except Exception:  # noqa: BLE001 - whatever a __reduce__ raises
            # A lambda among the upgrades, most likely: the child finds the task itself.
            del options[name]
    return pickle.dumps(options)


def pickled_error(error: Exception) -> bytes:
    """Return an error for the other side to raise, or its words if it does not pickle."""
    try:
        words = pickle.dumps(error)
        pickle.loads(words)  # noqa: S301 - our own; many errors come apart only here
    except Exception:  # noqa: BLE001 - whatever its __reduce__ raises
        return pickle.dumps(TimingWheelError(f"{type(error).__qualname__}: {error}"))
    return words
