"""simulate: random lives keep all promises, the same seed does the same, faults are found."""

from __future__ import annotations

from typing import Any

import pytest

from tests.crash.planted_stores import (
    DoublingStore,
    ForgetfulStore,
    HastyCancel,
    HastyEnd,
    HastyPut,
    HastyStart,
)
from tests.fresh_python import run_python
from timingwheel.errors import ArgumentError
from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.testing import SimulationFailedError, simulate

SAMPLE = 3
LONG_SHARDS = 8
LONG_SEEDS = 60  # a shard


@pytest.mark.parametrize("seed", range(SAMPLE))
def test_a_random_life_keeps_all_promises(seed: int) -> None:
    found = simulate(seed)
    print(found)
    assert (found.seed, found.steps) == (seed, 60)
    assert found.lives > 1


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("shard", range(LONG_SHARDS))
def test_many_random_lives_keep_all_promises(shard: int) -> None:
    lives = 0
    for seed in range(1_000 + shard, 1_000 + LONG_SHARDS * LONG_SEEDS, LONG_SHARDS):
        lives += simulate(seed).lives
    print(f"{LONG_SEEDS} seeds, {lives} lives")
    assert lives > 5 * LONG_SEEDS


def test_the_same_seed_does_the_same_in_every_process() -> None:
    """Not by the order of a set either: each process hashes texts in its own way."""
    program = (
        "from timingwheel.testing import simulate\n"
        "print([simulate(seed, steps=20).digest for seed in (3, 4)])"
    )
    elsewhere = run_python(program, PYTHONHASHSEED="1")
    here = [simulate(seed, steps=20).digest for seed in (3, 4)]
    assert elsewhere.stdout.strip() == str(here), elsewhere.stderr
    assert len(set(here)) == 2


@pytest.mark.parametrize(
    ("store", "seed", "says"),
    [
        (HastyPut, 0, "is lost"),
        (HastyStart, 0, "is not on record"),
        (HastyCancel, 0, "is not found|cancelled"),
        (DoublingStore, 0, "starts again, and it has succeeded"),
    ],
)
def test_a_planted_fault_is_found_and_says_how_to_repeat_it(
    store: type[EmbeddedStore], seed: int, says: str
) -> None:
    with pytest.raises(SimulationFailedError, match=says) as failed:
        simulate(seed, store=store)
    print(failed.value)
    assert failed.value.command.endswith(f"simulate --seed {seed} --steps 60")
    assert failed.value.command in str(failed.value)


def simulate_some(store: type[EmbeddedStore]) -> None:
    """Lead 200 lives, or fewer."""
    for seed in range(200):
        simulate(seed, store=store)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("store", "says"),
    [(ForgetfulStore, "never over"), (HastyEnd, "it had succeeded|starts again")],
)
def test_a_planted_fault_that_is_rarely_met_is_found_by_some_seed(
    store: type[EmbeddedStore], says: str
) -> None:
    with pytest.raises(SimulationFailedError, match=says) as failed:
        simulate_some(store)
    print(failed.value)


@pytest.mark.parametrize(
    ("argument", "values"),
    [("seed", {"seed": "7"}), ("steps", {"seed": 7, "steps": 0})],
)
def test_an_argument_that_cannot_be_meant_is_refused(
    argument: str, values: dict[str, Any]
) -> None:
    with pytest.raises(ArgumentError, match=argument):
        simulate(**values)
