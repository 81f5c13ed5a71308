"""SIGINT and SIGTERM as items of a queue, for a main thread that waits for its end."""

from __future__ import annotations

import queue as queues
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


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
