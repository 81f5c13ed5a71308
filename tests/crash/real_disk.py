"""A process that works on a real directory and tells what it was promised.

    python -m tests.crash.real_disk DIRECTORY FAULT

It makes timers and cancels some, notes each answer on standard output, and meets the fault
in the midst: a limit of the kernel's, a storm of signals, or a write that stops halfway.
The parent holds what it finds afterwards to the lines.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import signal
import sys
from collections.abc import Iterator
from typing import Final

from timingwheel.engine.engine import TimerEngine
from timingwheel.errors import TimingWheelError
from wal.errors import WalError
from wal.filesystem import FileSystem, Handle

SEGMENT_BYTES: Final = 64 << 10
FAR_S: Final = 10**6


def main(directory: str, fault: str) -> None:
    """Work until the fault has been met and survived, or until it ends the process."""
    kind, _, number = fault.partition("=")
    work = {
        "signals": _under_signals,
        "descriptors": _without_descriptors,
        "file-size": _with_small_files,
        "memory": _without_memory,
        "torn": _torn,
    }[kind]
    work(directory, int(number or 0))
    print("end", flush=True)


def open_engine(place: str | FileSystem) -> TimerEngine:
    """Return an engine that fires nothing soon."""
    return TimerEngine(
        place,
        lambda timer_id, payload: None,
        segment_size_bytes=SEGMENT_BYTES,
        reserve_bytes=2 * SEGMENT_BYTES,
    )


def _tell(word: str, number: int) -> None:
    os.write(1, f"{word} {number}\n".encode())


def _make(engine: TimerEngine, size_bytes: int = 500) -> int:
    timer_id = engine.schedule(FAR_S, bytes(size_bytes))
    _tell("made", timer_id)
    return timer_id


def _cancel(engine: TimerEngine, timer_id: int) -> None:
    assert engine.cancel(timer_id)
    _tell("cancelled", timer_id)


@contextlib.contextmanager
def _limit(kind: int, soft: int) -> Iterator[None]:
    before, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (soft, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (before, hard))


def _until_refused(engine: TimerEngine, most: int) -> str:
    """Make timers until that is refused; return the error's name, "" if it is not."""
    for _ in range(most):
        try:
            _make(engine)
        except (OSError, WalError, TimingWheelError, MemoryError) as error:
            print("refused", type(error).__name__, flush=True)
            return type(error).__name__
    return ""


def _under_signals(directory: str, count: int) -> None:
    """Every system call may be interrupted: a timer rings each 200 microseconds."""
    rung = itertools.count()
    signal.signal(signal.SIGALRM, lambda *_: next(rung))
    signal.siginterrupt(signal.SIGALRM, True)
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    with open_engine(directory) as engine:
        for _ in range(count):
            timer_id = _make(engine)
            if timer_id % 3 == 0:
                _cancel(engine, timer_id)
    signal.setitimer(signal.ITIMER_REAL, 0)
    _tell("rung", next(rung))


def _without_descriptors(directory: str, spare: int) -> None:
    """No descriptor is left, or only so many, while the log needs new segments."""
    with open_engine(directory) as engine:
        first = _make(engine)
        used = max(map(int, os.listdir("/proc/self/fd"))) + 1
        with _limit(resource.RLIMIT_NOFILE, used + spare):
            held = _hold_all_but(spare)
            refused = _until_refused(engine, 2_000)
            if refused == "OSError":
                _cancel(engine, first)  # in the reserve
            for each in held:
                os.close(each)
        _make(engine)  # it heals by itself


def _hold_all_but(spare: int) -> list[int]:
    held = []
    with contextlib.suppress(OSError):
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    for each in held[:spare]:
        os.close(each)
    return held[spare:]


def _with_small_files(directory: str, size_bytes: int) -> None:
    """No file may grow beyond a size; Python ignores SIGXFSZ, so writes say EFBIG."""
    with open_engine(directory) as engine:
        first = _make(engine)
        with _limit(resource.RLIMIT_FSIZE, size_bytes):
            refused = _until_refused(engine, 2_000)
            if refused == "DiskFullError":
                _cancel(engine, first)
        if refused == "DiskFullError":
            _make(engine)


def _without_memory(directory: str, spare_mib: int) -> None:
    """The address space is used up: large payloads find no memory, small ones go on."""
    with open_engine(directory) as engine:
        first = _make(engine)
        with open("/proc/self/statm") as statm:
            used = int(statm.read().split()[0]) * resource.getpagesize()
        held: list[bytes] = []
        with _limit(resource.RLIMIT_AS, used + (spare_mib << 20)):
            refused = ""
            while not refused and len(held) < 10_000:
                try:
                    held.append(bytes(1 << 20))
                    timers = engine.schedule_many([FAR_S] * 4, [bytes(15_000)] * 4)
                    for timer_id in timers:
                        _tell("made", timer_id)
                except (MemoryError, OSError, WalError, TimingWheelError) as error:
                    refused = type(error).__name__
                    print("refused", refused, flush=True)
            held.clear()
        if refused != "EngineFailedError":
            with contextlib.suppress(TimingWheelError):
                _cancel(engine, first)
                _make(engine)


class _HalfWrites(FileSystem):
    """Stops in the midst of a write to a segment, and with it the process."""

    armed = False

    def pwrite(self, handle: Handle, data: bytes, offset: int) -> int:
        if self.armed and len(data) > 2_000 and offset >= 4096:
            os.pwrite(handle, data[: len(data) // 2], offset)
            os._exit(9)
        return super().pwrite(handle, data, offset)


def _torn(directory: str, count: int) -> None:
    files = _HalfWrites(directory)
    engine = open_engine(files)
    for _ in range(count):
        _make(engine)
    engine._core.make_room(urgent=False)  # the ready segments are there
    files.armed = True
    engine.schedule(FAR_S, os.urandom(4_000))


if __name__ == "__main__":
    main(*sys.argv[1:])
