"""What goes through a store's door: frames on a unix socket, both ways.

    offset  size  field
    0       4     size     bytes that follow, little-endian, 1 .. FRAME_MAX
    4       size  message  MessagePack

First the visitor says Hello and the holder Welcome. These two are maps, and never change,
so that two versions can tell each other apart. Then each sends what it has to, as arrays
whose first item is the kind:

    visitor   Ask ─────────────▶ Answer or Failure       of the same number, in any order
              Rest ────────────▶ News                    once there is more than was seen
              Expect, Forget ──▶ Ended                   runs that reached a final state
              ◀───────────────── Bye                     the holder closes its door

A holder that closes answers what it has taken in, and says with Bye how far that is: what
came later was not done.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from timingwheel.jobs.errors import UNREADABLE
from timingwheel.jobs.model import Run, RunId
from timingwheel.stores.door_errors import Fault

FRAME_MAX: Final = 64 << 20
"""Bytes of one message: more than any request may have, or a page of usual rows."""
MAGIC: Final = "timingwheel-door"
READ_BYTES: Final = 256 << 10

_SIZE: Final = struct.Struct("<I")


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The first message of a visitor.

    Attributes:
        magic: MAGIC.
        shape: of door_calls.shape: who has another one means other things.
        pid: of the visitor's process.
        life: a text that only this visitor has; it comes with it again.
    """

    magic: str
    shape: str
    pid: int
    life: str


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """The first message of a holder.

    Attributes:
        magic: MAGIC.
        shape: as of Hello.
        pid: of the holder's process.
        refused: why the visitor may not come in; "": it may.
    """

    magic: str
    shape: str
    pid: int
    refused: str = ""


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A call.

    Attributes:
        number: 1 for the first of a connection, and so on.
        call: its name.
        arguments: in their order, encoded.
    """

    number: int
    call: str
    arguments: msgspec.Raw


class Rest(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The visitor's node has nothing to do; `seen` as Node.rest takes it."""

    seen: int


class Expect(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Somebody waits for the end of a run."""

    run_id: RunId


class Forget(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Nobody does any more."""

    run_id: RunId


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """What a call has returned; durable, where a store promises that."""

    number: int
    value: msgspec.Raw


class Failure(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """What a call has raised."""

    number: int
    fault: Fault


class News(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The rest is over."""


class Ended(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Runs that somebody waits for have ended."""

    runs: list[Run]


class Bye(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The holder closes.

    Attributes:
        taken: number of the last call that was taken in.
    """

    taken: int


FromVisitor = Ask | Rest | Expect | Forget
FromHolder = Answer | Failure | News | Ended | Bye

encode: Final = msgspec.msgpack.Encoder().encode


class FrameError(Exception):
    """What came is no frame of this protocol; the connection is of no use any more."""


def _decoder(kind: Any) -> Callable[[bytes], Any]:
    """Return what makes a message of a frame's body."""
    decode = msgspec.msgpack.Decoder(kind).decode

    def decoded(body: bytes) -> Any:
        """Return the message of a frame's body.

        Raises:
            FrameError: it is none that this side may be sent.
        """
        try:
            return decode(body)
        except UNREADABLE as error:
            raise FrameError(f"no message of this protocol: {error}") from error

    return decoded


decode_hello: Final[Callable[[bytes], Hello]] = _decoder(Hello)
decode_welcome: Final[Callable[[bytes], Welcome]] = _decoder(Welcome)
decode_visitor: Final[Callable[[bytes], FromVisitor]] = _decoder(FromVisitor)
decode_holder: Final[Callable[[bytes], FromHolder]] = _decoder(FromHolder)


def frame(message: msgspec.Struct) -> bytes:
    """Return a message as a frame.

    Raises:
        FrameError: it is larger than a frame may be.
    """
    body = encode(message)
    if len(body) > FRAME_MAX:
        raise FrameError(f"a message of {len(body):,} bytes; at most {FRAME_MAX:,}")
    return _SIZE.pack(len(body)) + body


def raw(value: Any) -> msgspec.Raw:
    """Return a value, encoded, as a part of a message."""
    return msgspec.Raw(encode(value))


class FrameReader:
    """Puts frames together from bytes as they come."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the messages that are whole now.

        Raises:
            FrameError: the next is empty, or larger than one may be.
        """
        self._buffer += data
        while len(self._buffer) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._buffer)
            if not 0 < size <= FRAME_MAX:
                raise FrameError(f"a frame of {size:,} bytes; 1 to {FRAME_MAX:,}")
            end = _SIZE.size + size
            if len(self._buffer) < end:
                return
            body = bytes(memoryview(self._buffer)[_SIZE.size : end])
            del self._buffer[:end]
            yield body
