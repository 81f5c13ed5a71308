"""Opening a store and firing all of it, under pytest-benchmark, small and quick."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.recovery import Fire, Open, fill, take_snapshot

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
