"""The wheel's operations under pytest-benchmark, small and quick.

For comparing two states of the code: `python -m pytest bench/test_wheel.py -n 0`. The
table against peers at up to a million timers is `python -m bench --only wheel`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.wheel import deadlines_of, in_random_order
from bench.wheel_peers import PEERS, Peer, Sched, is_here

TIMERS = 2_000
ROUNDS = 10
DEADLINES = deadlines_of(TIMERS)

Make = Callable[[], Peer]


@pytest.fixture(
    params=[peer for peer in PEERS if is_here(peer)], ids=lambda peer: peer.__name__
)
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Make a peer that is closed after the test."""
    with ExitStack() as made:
        yield lambda: made.enter_context(closing(request.param()))


def test_insert(benchmark: BenchmarkFixture, make: Make) -> None:
    benchmark.group = "insert"

    handles = benchmark.pedantic(
        lambda ours: ours.insert(DEADLINES),
        setup=lambda: ((make(),), {}),
        rounds=ROUNDS,
    )

    assert len(handles) == TIMERS


def test_cancel(benchmark: BenchmarkFixture, make: Make) -> None:
    if isinstance(make(), Sched):
        pytest.skip("its cancel is O(n)")
    benchmark.group = "cancel"
    last: list[Peer] = []

    def setup() -> tuple[tuple[Peer, object], dict[str, object]]:
        ours = make()
        last[:] = [ours]
        return (ours, in_random_order(ours.insert(DEADLINES), most=TIMERS)), {}

    benchmark.pedantic(
        lambda ours, handles: ours.cancel(handles), setup=setup, rounds=ROUNDS
    )

    assert last[0].expire() == 0


def test_expire(benchmark: BenchmarkFixture, make: Make) -> None:
    benchmark.group = "expire"

    def setup() -> tuple[tuple[Peer], dict[str, object]]:
        ours = make()
        ours.insert(DEADLINES)
        return (ours,), {}

    fired = benchmark.pedantic(lambda ours: ours.expire(), setup=setup, rounds=ROUNDS)

    assert fired == TIMERS
