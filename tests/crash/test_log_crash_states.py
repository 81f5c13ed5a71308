"""The log under crashes: at every disk call of a program, in every way.

What must hold is told in `log_ledger`, what is crashed in `log_program`, and how in
`crash_sweep`. That these sweeps can fail is shown in `test_planted_faults`.
"""

from __future__ import annotations

import random

import pytest

from tests.crash.crash_sweep import Sweep
from tests.crash.log_driver import Options
from tests.crash.log_program import random_program, scripted, short

pytestmark = [pytest.mark.usefixtures("quiet_log"), pytest.mark.timeout(300)]

SHARDS = 4
RANDOM_STATES = 2_500  # a shard, together 10,000
LONG_SHARDS = 16
LONG_STATES = 12_500  # a shard, together 200,000


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_crash_at_any_disk_call_of_a_long_life_loses_nothing_acknowledged(
    shard: int, rng: random.Random
) -> None:
    sweep = Sweep(Options(5120), scripted(), rng, states_max=6)
    sweep.run(start=shard, stride=SHARDS)
    print(f"{sweep.points} crash points, {sweep.states} states")
    assert sweep.states >= 2_000


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_crash_of_a_random_program_loses_nothing_acknowledged(
    shard: int, rng: random.Random
) -> None:
    seed = f"{rng.getrandbits(32)} {shard}"
    assert sweep_random_programs(seed, RANDOM_STATES) >= RANDOM_STATES


@pytest.mark.parametrize("shard", range(2))
def test_a_recovery_that_is_cut_off_at_any_call_leaves_the_same_state(
    shard: int, rng: random.Random
) -> None:
    sweep = Sweep(Options(5120), short(), rng, states_max=2, nested_odds=1)
    sweep.run(start=14 * shard, stride=28)
    print(f"{sweep.points} crash points, {sweep.states} states")
    assert sweep.states >= 2_000


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("shard", range(LONG_SHARDS))
def test_crashes_of_many_random_programs_lose_nothing_acknowledged(
    shard: int, rng: random.Random
) -> None:
    seed = f"{rng.getrandbits(32)} long {shard}"
    assert sweep_random_programs(seed, LONG_STATES) >= LONG_STATES


def sweep_random_programs(seed: str, states_min: int) -> int:
    """Crash programs until so many states were looked at; return how many were."""
    states = number = 0
    while states < states_min:
        name = f"{seed} {number}"
        source = random.Random(name)
        options, program = random_program(source, source.randint(5, 40))
        sweep = Sweep(options, program, source)
        print(f"program {name!r}: {len(program)} steps", end=", ")
        sweep.run(start=source.randrange(8), stride=8)
        print(f"{sweep.points} crash points, {sweep.states} states")
        states += sweep.states
        number += 1
    return states
