"""`simulate`: a whole scheduler through a random life, the same for the same seed."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from timingwheel.errors import ArgumentError
from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.testing.life import Life
from wal.testing import SimulatedCrash

STEPS: Final = 60
"""Steps of a life unless told otherwise: about half a second."""
STEPS_MAX: Final = 100_000


@dataclass(frozen=True)
class Simulation:
    """A life that kept all promises.

    Attributes:
        seed: of everything.
        steps: that were taken.
        lives: starts of the scheduler, after crashes, kills and stops.
        counts: how often each kind of step was taken.
        digest: of all that happened: the same seed has the same.
    """

    seed: int
    steps: int
    lives: int
    counts: Counter[str] = field(repr=False)
    digest: str


class SimulationFailedError(AssertionError):
    """A scheduler broke a promise in a simulation.

    Attributes:
        seed, steps: what repeats it.
        story: each step until then.
    """

    def __init__(self, seed: int, steps: int, story: list[str], reason: str) -> None:
        super().__init__(seed, steps, story, reason)
        self.seed = seed
        self.steps = steps
        self.story = story
        self.reason = reason

    @property
    def command(self) -> str:
        """What repeats it, in a shell."""
        return (
            f"python -m timingwheel.testing simulate --seed {self.seed} "
            f"--steps {self.steps}"
        )

    def __str__(self) -> str:
        last = self.story[-1] if self.story else "the start"
        return (
            f"seed {self.seed}, step {len(self.story)} ({last}): {self.reason}\n"
            f"repeat it: {self.command}"
        )


def simulate(
    seed: int,
    *,
    steps: int = STEPS,
    store: type[EmbeddedStore] = EmbeddedStore,
    tell: Callable[[str], object] | None = None,
) -> Simulation:
    """Lead a scheduler through a random life, and hold it to its promises.

    People put, cancel, pause, resume, change, trigger and retry jobs of every kind; time
    passes; the clock is set on and back; workers join, fall silent, leave and die; the
    power fails, or the process is killed, now or at a disk call to come, even in a
    recovery; snapshots are written and log is dropped. After each step all is checked
    that docs/guarantees.md says of it, and at the end everything must have its end.

    Args:
        seed: of everything.
        steps: 1 .. STEPS_MAX.
        store: the kind of store; one with a planted fault shows that it is found.
        tell: called with a line for each step.

    Raises:
        SimulationFailedError: a promise was broken, or something raised that must not.
        ArgumentError: an argument is invalid.

    Cost: some milliseconds a step.

    Example:
        >>> simulate(7, steps=20).seed
        7
    """
    if type(seed) is not int:
        raise ArgumentError("seed", seed, "pass a whole number")
    if type(steps) is not int or not 1 <= steps <= STEPS_MAX:
        raise ArgumentError("steps", steps, f"pass 1 to {STEPS_MAX:,}")
    story: list[str] = []
    hashed = hashlib.sha256()

    def note(line: str) -> None:
        story.append(line)
        hashed.update(line.encode())
        if tell is not None:
            tell(f"{len(story):5}  {line}")

    with _quiet():
        life: Life | None = None
        try:
            life = Life(seed, store=store)
            for _ in range(steps):
                note(life.step())
            life.end_well()
            note(f"all is over: {sorted(life.ledger.ended.items())}")
        except (Exception, SimulatedCrash) as error:
            if life is not None:
                story.append(life.doing)
            reason = f"{type(error).__name__}: {error}"
            raise SimulationFailedError(seed, steps, story, reason) from error
        finally:
            if life is not None:
                life.close()
    return Simulation(
        seed, steps, life.ledger.life, life.counts, hashed.hexdigest()[:16]
    )


class _quiet:  # noqa: N801 - reads as the context manager it is
    """Keeps the warnings of thousands of crashes, lost attempts and clock steps down."""

    _NAMES: Final = ("wal", "timingwheel")

    def __enter__(self) -> None:
        self._levels = [logging.getLogger(name).level for name in self._NAMES]
        for name in self._NAMES:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)

    def __exit__(self, *_: object) -> None:
        for name, level in zip(self._NAMES, self._levels, strict=True):
            logging.getLogger(name).setLevel(level)
