"""Opening a store and firing all of it, under pytest-benchmark, small and quick."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench import beanstalk, redis
from bench.peers import LEFT_OUT, Kind
from bench.recovery import Fire, Open, fill, take_snapshot
from bench.recovery_peers import BeanstalkOpen, RedisFire, RedisOpen
from bench.rounds import Case

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
        (redis.KIND, lambda at: RedisOpen(at, TIMERS, snapshot=False)),
        (redis.KIND, lambda at: RedisOpen(at, TIMERS, snapshot=True)),
        (redis.KIND, lambda at: RedisFire(at, TIMERS, redis.ALWAYS)),
        (beanstalk.KIND, lambda at: BeanstalkOpen(at, TIMERS)),
    ],
)
def test_a_server_has_all_its_timers(
    kind: Kind, make: Callable[[Path], Case], tmp_path: Path
) -> None:
    if not kind.is_here():
        pytest.skip(LEFT_OUT[kind.name])
    with closing(make(tmp_path / "server")) as case:
        for _ in range(2):  # a round leaves nothing that the next one would trip over
            case.prepare()
            assert case.run() > 0
