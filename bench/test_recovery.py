"""Opening a store and firing all of it, under pytest-benchmark, small and quick."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench import beanstalk, lmdb_store, postgres, redis
from bench.peers import LEFT_OUT, Kind
from bench.recovery import Fire, Open, fill, take_snapshot
from bench.recovery_peers import (
    BatchFire,
    BeanstalkFire,
    BeanstalkOpen,
    LmdbFirstDue,
    LmdbOpen,
    PostgresFire,
    PostgresFirstDue,
    RedisOpen,
    Takes,
)
from bench.rounds import Case
from bench.stores import PAYLOAD

TIMERS = 2_000
ROUNDS = 3


@pytest.mark.benchmark(group="open")
@pytest.mark.parametrize("source", ["log", "snapshot"])
def test_open(benchmark: BenchmarkFixture, tmp_path: Path, source: str) -> None:
    fill(tmp_path / "store", TIMERS)
    if source == "snapshot":
        take_snapshot(tmp_path / "store")
    opening = Open(tmp_path / "store", TIMERS)

    took = benchmark.pedantic(opening.run, setup=opening.prepare, rounds=ROUNDS)

    assert took > 0


@pytest.mark.benchmark(group="fire")
def test_fire(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    with closing(Fire(tmp_path / "store", TIMERS)) as firing:
        took = benchmark.pedantic(firing.run, setup=firing.prepare, rounds=ROUNDS)

    assert took > 0


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        (redis.KIND, lambda at: redis.RedisStore(at, 3)),
        (lmdb_store.KIND, lambda at: lmdb_store.LmdbStore(at, 3)),
        (beanstalk.KIND, lambda at: beanstalk.BeanstalkStore(at, 3, delays=[0])),
    ],
)
def test_a_store_hands_out_each_timer_until_it_is_removed(
    kind: Kind, make: Callable[[Path], Takes[Any]], place: Path
) -> None:
    if not kind.is_here():
        pytest.skip(LEFT_OUT[kind.name])
    with closing(make(place)) as store:
        taken = store.take_due(2)
        store.remove_many([key for key, _ in taken])
        taken += store.take_due(1)

    assert len({key for key, _ in taken}) == 3
    assert [payload for _, payload in taken] == [PAYLOAD] * 3


OPENS: list[tuple[Kind, Callable[[Path], Case]]] = [
    (redis.KIND, lambda at: RedisOpen(at, TIMERS, snapshot=False)),
    (redis.KIND, lambda at: RedisOpen(at, TIMERS, snapshot=True)),
    (beanstalk.KIND, lambda at: BeanstalkOpen(at, TIMERS)),
    (lmdb_store.KIND, lambda at: LmdbOpen(at, TIMERS)),
    (lmdb_store.KIND, lambda at: LmdbFirstDue(at, TIMERS)),
    (postgres.KIND, lambda at: PostgresFirstDue(at, TIMERS)),
]
FIRES: list[tuple[Kind, Callable[[Path], Case]]] = [
    (redis.KIND, lambda at: BatchFire(redis.RedisStore(at, 0), TIMERS)),
    (lmdb_store.KIND, lambda at: BatchFire(lmdb_store.LmdbStore(at, 0), TIMERS)),
    (beanstalk.KIND, lambda at: BeanstalkFire(at, TIMERS)),
    (postgres.KIND, lambda at: PostgresFire(at, TIMERS)),
]


@pytest.mark.parametrize(("kind", "make"), [*OPENS, *FIRES])
def test_a_peer_has_all_its_timers(
    kind: Kind, make: Callable[[Path], Case], place: Path
) -> None:
    if not kind.is_here():
        pytest.skip(LEFT_OUT[kind.name])
    with closing(make(place)) as case:
        for _ in range(2):  # a round leaves nothing that the next one would trip over
            case.prepare()
            assert case.run() > 0
