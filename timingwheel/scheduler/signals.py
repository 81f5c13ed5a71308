"""SIGINT and SIGTERM as items of a queue, for a main thread that waits for its end."""

from __future__ import annotations

import queue as queues
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from timingwheel.errors import ArgumentError

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def require_main_thread() -> None:
    """Check that this is the main thread, where signals arrive.

    Raises:
        ArgumentError: it is another.
    """
    thread = threading.current_thread()
    if thread is not threading.main_thread():
        raise ArgumentError(
            "thread",
            thread.name,
            "call run_forever in the main thread; start() works in any",
        )


@contextmanager
def signals_put(
    ends: queues.SimpleQueue[int | BaseException],
) -> Iterator[None]:
    """Put SIGINT and SIGTERM into a queue for as long as the block lasts."""

    def put(number: int, _: FrameType | None) -> None:
        ends.put(number)

    former = {number: signal.signal(number, put) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
