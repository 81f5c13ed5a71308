"""What the engine core asks of its owner, which gives timers a meaning.

The owner decides what events a due timer causes, keeps state of its own by records of its
own kinds, and dumps and loads that state. `Timers` is the smallest owner; a job store is a
larger one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from timingwheel.engine.records import TimerId
from timingwheel.engine.timeline import Now


class Due(NamedTuple):
    """What a tick found due.

    Attributes:
        timers: ids in the order in which they are to fire.
        armed: tokens of unlogged timers, likewise.
        first_lsn: the LSN that the first event decided will get.
        now: the present.
    """

    timers: list[TimerId]
    armed: list[int]
    first_lsn: int
    now: Now


class Owner(Protocol):
    """What the core asks of whoever gives timers a meaning.

    All methods are called under the core's lock and must not wait, call back into the
    core's requests, or keep what they are passed.
    """

    def decide_due(self, due: Due) -> list[bytes]:
        """Return the events that due timers cause.

        Each timer must get one that fires, reschedules or removes it, or must be held
        by `EngineState.hold`.
        """

    def apply(self, records: list[tuple[int, bytes]]) -> None:
        """Change the owner's state by (LSN, record) pairs of kinds >= 64.

        In recovery some may already be in what `load` brought: skip by LSN.
        """

    def dump(self) -> Iterator[bytes]:
        """Yield the owner's state as blobs; each step of the iterator must be short.

        Other changes come between the steps, so each blob says up to which LSN it goes.
        """

    def load(self, blob: bytes) -> None:
        """Take one blob of a dump back."""
