"""Reading an engine back: what was read, and whose word it is if it is not as ours."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.wal.stores import open_log
from timingwheel.engine.records import clock_stepped
from timingwheel.engine.replay import replay
from timingwheel.engine.state import EngineState
from timingwheel.errors import TimingWheelError
from wal.errors import WalError
from wal.frame import RECORD_OVERHEAD_BYTES
from wal.testing import MemoryFileSystem

Load = Callable[[bytes], None]


def store(*records: bytes, blobs: tuple[bytes, ...] = ()) -> MemoryFileSystem:
    """Return a disk with a snapshot of these blobs, and these records behind it."""
    disk = MemoryFileSystem()
    with open_log(disk) as log:
        log.start()
        if blobs:
            writer = log.begin_snapshot()
            for blob in blobs:
                writer.add(bytes([64]) + blob)
            log.finish_snapshot(writer, reach_lsn=log.appended_lsn)
        for record in records:
            log.commit(log.append(record))
    return disk


def read(
    disk: MemoryFileSystem, *, load: Load, applied: list[tuple[int, bytes]]
) -> int:
    state = EngineState(applied.extend, reach_lsn=0, gaps_allowed=False)
    with open_log(disk) as log:
        return replay(log, state, load)


def test_each_blob_goes_to_the_owner_and_each_record_to_the_state() -> None:
    blobs: list[bytes] = []
    applied: list[tuple[int, bytes]] = []
    disk = store(b"\x40a", b"\x41bc", blobs=(b"one", b"", b"three"))
    read_bytes = read(disk, load=blobs.append, applied=applied)
    assert blobs == [b"one", b"", b"three"]
    assert applied == [(1, b"\x40a"), (2, b"\x41bc")]
    assert read_bytes == 2 * RECORD_OVERHEAD_BYTES + 5


def test_a_record_that_is_whole_and_no_engines_is_refused_with_its_number() -> None:
    """Groups come joined, so it is one of those from the number on."""
    disk = store(b"\x40", clock_stepped(5) + b"!", blobs=(b"a",))
    with pytest.raises(
        TimingWheelError,
        match=r"^a record from LSN 1 on is not as an engine writes it \(.*\), though "
        "its checksum holds: open this directory with the program that wrote it",
    ) as found:
        read(disk, load=lambda _: None, applied=[])
    assert found.value.__cause__ is not None


def test_a_blob_that_its_owner_cannot_read_is_refused_as_one_of_a_snapshot() -> None:
    def load(_: bytes) -> None:
        raise LookupError("no job of that name")

    with pytest.raises(
        TimingWheelError,
        match=r"^a block of its snapshot is not as an engine writes it \(.*no job",
    ) as found:
        read(store(blobs=(b"a",)), load=load, applied=[])
    assert isinstance(found.value.__cause__, LookupError)


@pytest.mark.parametrize(
    "error",
    [
        TimingWheelError("a"),
        WalError("b"),
        OSError("c"),
        MemoryError(),
        AssertionError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_no_doubt_about_bytes_passes_as_it_is(error: Exception) -> None:
    def load(_: bytes) -> None:
        raise error

    with pytest.raises(type(error)) as found:
        read(store(blobs=(b"a",)), load=load, applied=[])
    assert found.value is error
