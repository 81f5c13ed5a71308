"""Requests to the server and to the bare framework, under pytest-benchmark, few and quick."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.server import Asked, FarRuns, servers

RUNS = 64
ROUNDS = 3


@pytest.mark.benchmark(group="ask 8 connections")
@pytest.mark.parametrize("at", [0, 1], ids=["bare", "ours"])
def test_ask(benchmark: BenchmarkFixture, tmp_path: Path, at: int) -> None:
    with (
        servers(tmp_path) as found,
        closing(Asked(*found[at], connections=8)) as asked,
    ):
        asked.seconds = 0.1
        took = benchmark.pedantic(asked.run, rounds=ROUNDS)

    assert took > 0


@pytest.mark.benchmark(group="run by a far worker")
@pytest.mark.parametrize("count", [1, 32])
def test_runs(benchmark: BenchmarkFixture, tmp_path: Path, count: int) -> None:
    with (
        servers(tmp_path) as (_, ours),
        closing(FarRuns(ours[1], runs=RUNS, count=count)) as runs,
    ):
        took = benchmark.pedantic(runs.run, setup=runs.prepare, rounds=ROUNDS)

    assert took > 0
