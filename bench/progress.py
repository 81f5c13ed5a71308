"""What is being measured, how long it has taken, and about how long it still will."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TextIO

from bench.rounds import Progress
from bench.row import Row

_PLAIN_LINE_SECONDS = 5.0
"""Where lines cannot be overwritten, as in a file, at most one in so long."""


@dataclass(frozen=True, slots=True)
class Step:
    """One piece of a run.

    Attributes:
        group: which of the groups it belongs to.
        name: what it measures.
        estimate_seconds: how long it takes on a machine of two cores.
        measure: does it.
    """

    group: str
    name: str
    estimate_seconds: float
    measure: Callable[[Progress], list[Row]]


class Reporter:
    """Runs steps and says where it is; the estimate learns from the steps done.

    Args:
        steps: all of a run, in order.
        stream: a terminal, where one line is overwritten, or anything else.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        stream: TextIO = sys.stderr,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._steps = steps
        self._stream = stream
        self._clock = clock
        self._start = self._step_start = clock()
        self._at = 0
        self._shown_at = -_PLAIN_LINE_SECONDS

    def run(self, rows: list[Row]) -> None:
        """Run all steps; each adds its rows to `rows` when it is done."""
        for at, step in enumerate(self._steps):
            self._at = at
            self._step_start = self._clock()
            rows += step.measure(self.show)
        self._clear()

    def show(self, text: str) -> None:
        """Say what begins now."""
        now = self._clock()
        line = (
            f"[{clock_text(now - self._start)} gone, "
            f"about {clock_text(self.left_seconds())} left] {text}"
        )
        if self._stream.isatty():
            self._stream.write(f"\r\x1b[K{line}")
        elif now - self._shown_at >= _PLAIN_LINE_SECONDS:
            self._shown_at = now
            self._stream.write(line + "\n")
        self._stream.flush()

    def left_seconds(self) -> float:
        """Return about how long the rest will take."""
        now = self._clock()
        expected = sum(step.estimate_seconds for step in self._steps[: self._at])
        # What the steps done took against their estimates; with none done, as said.
        pace = (self._step_start - self._start) / expected if expected else 1.0
        left = sum(step.estimate_seconds for step in self._steps[self._at :])
        return max(left * pace - (now - self._step_start), 0.0)

    def _clear(self) -> None:
        if self._stream.isatty():
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def clock_text(seconds: float) -> str:
    """Return seconds as minutes and seconds, such as 2:05."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"
