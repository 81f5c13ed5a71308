"""Jobs made and run to their ends, under pytest-benchmark, few and quick."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.scheduler import Runs
from bench.scheduler_lag import percentile
from bench.schedulers import Ours, Rival, rivals

JOBS = 500
PEER_JOBS = 50
ROUNDS = 3


@pytest.fixture(params=rivals(), ids=lambda kind: kind.peer)
def kind(request: pytest.FixtureRequest) -> type[Rival]:
    found: type[Rival] = request.param
    return found


@pytest.fixture
def rival(kind: type[Rival], tmp_path: Path) -> Iterator[Rival]:
    with closing(kind(tmp_path / "store", workers=1)) as opened:
        yield opened


@pytest.mark.benchmark(group="schedule a job")
def test_schedule(benchmark: BenchmarkFixture, rival: Rival) -> None:
    made = benchmark.pedantic(rival.schedule, rounds=100)

    assert made


@pytest.mark.benchmark(group="run a job")
@pytest.mark.parametrize("workers", [1, 8])
def test_runs(
    benchmark: BenchmarkFixture, kind: type[Rival], tmp_path: Path, workers: int
) -> None:
    jobs = JOBS if kind is Ours else PEER_JOBS
    with closing(Runs(kind, tmp_path / "s", runs=jobs, workers=workers)) as runs:
        took = benchmark.pedantic(runs.run, setup=runs.prepare, rounds=ROUNDS)

    assert took > 0


def test_every_peer_runs_what_it_was_given_once(
    kind: type[Rival], tmp_path: Path
) -> None:
    with closing(kind(tmp_path / "store", workers=2)) as opened:
        opened.load_no_ops(20)
        opened.start()
        opened.ends.wait(20)

    assert opened.ends.count == 20


def test_the_percentile_is_a_value_that_the_share_does_not_exceed() -> None:
    values = [float(value) for value in range(1, 101)]

    assert percentile(values, 0.99) == 99.0
    assert percentile(values, 1.0) == 100.0
    assert percentile([7.0], 0.5) == 7.0
