"""Durable requests under pytest-benchmark, few and quick.

For comparing two states of the code: `python -m pytest -n 0 bench/test_durable.py`. What
counts are ratios within one run, since the disk's mood is in every figure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.disk import FILE_BYTES, Fdatasync
from bench.stores import EngineStore, SqliteStore, Store, schedule_frame_bytes

LOADED = 1_000
ROUNDS = 200
BATCH = 256


@pytest.fixture(params=[EngineStore, SqliteStore], ids=["timingwheel", "SQLite FULL"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with closing(request.param(tmp_path / "store", LOADED)) as opened:
        yield opened


@pytest.mark.benchmark(group="durable schedule")
def test_baseline(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    with closing(Fdatasync(tmp_path, size_bytes=schedule_frame_bytes(1))) as disk:
        written = benchmark.pedantic(disk.write, rounds=ROUNDS)

    assert written == 1


def test_the_baseline_owns_its_blocks_before_it_writes(tmp_path: Path) -> None:
    with closing(Fdatasync(tmp_path, size_bytes=192)) as disk:
        before = (tmp_path / "baseline-192").stat()
        disk.write()
        after = (tmp_path / "baseline-192").stat()

    assert (before.st_size, before.st_blocks) == (after.st_size, after.st_blocks)
    assert before.st_blocks * 512 >= FILE_BYTES


@pytest.mark.benchmark(group="durable schedule")
def test_schedule(benchmark: BenchmarkFixture, store: Store) -> None:
    timer_id = benchmark.pedantic(store.schedule, rounds=ROUNDS)

    assert timer_id > LOADED


@pytest.mark.benchmark(group="durable cancel")
def test_cancel(benchmark: BenchmarkFixture, store: Store) -> None:
    ids = store.some_ids(ROUNDS)
    cancelled = benchmark.pedantic(
        store.cancel, setup=lambda: ((ids.pop(),), {}), rounds=ROUNDS
    )

    assert cancelled


@pytest.mark.benchmark(group=f"durable schedule_many({BATCH})")
def test_schedule_many(benchmark: BenchmarkFixture, store: Store) -> None:
    benchmark.pedantic(store.schedule_many, args=(BATCH,), rounds=20)

    batches, rest = divmod(store.schedule() - LOADED - 1, BATCH)
    assert batches > 0
    assert rest == 0
