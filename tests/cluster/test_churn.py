"""Processes of one name, and processes that come and go all the time.

Each shard has one owner that lives, each ownership another epoch, and all jobs run.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.bed import Bed, Node
from tests.cluster.conftest import Keep
from timingwheel.stores.postgres.store import PostgresStore

EVERY_SECONDS = 0.5


def test_processes_of_one_name_are_several_nodes(bed: Bed, keep: Keep) -> None:
    bed.put(times=20, period_s=0.1)
    alike = {"worker": "same", "work_s": 0.005}
    nodes = bed.start(("a", alike), ("b", alike), ("c", alike))
    bed.wait_until(lambda: all(bed.shards_of(node.name) for node in nodes), *nodes)
    bed.finish(*nodes)
    found = bed.account()
    keep("three processes of one worker name", found)
    assert not found.faults
    assert found.started_twice <= found.refused
    incs = [inc for node in nodes for inc in node.report.incs]
    assert len(set(incs)) == len(incs) >= len(nodes)


@pytest.mark.parametrize("seconds", [5, pytest.param(60, marks=pytest.mark.long)])
def test_nodes_that_come_and_go_leave_each_shard_one_owner(
    bed: Bed, keep: Keep, rng: random.Random, seconds: int
) -> None:
    bed.put(times=seconds * 2, recurring=8, period_s=0.5)
    names = (f"n{number}" for number in itertools.count())
    stays, *others = bed.start("stays", next(names))
    pause = threading.Event()  # nobody sets it: half a second is what the test is about
    in_flight = 0
    for _ in range(round(seconds / EVERY_SECONDS)):
        pause.wait(EVERY_SECONDS)
        if len(others) < 2 or (len(others) < 5 and rng.random() < 0.5):
            others += bed.start(next(names))
        else:
            leaves = others.pop(rng.randrange(len(others)))
            in_flight += _let_go(bed, leaves, rng.choice(["stop", "kill"]))
    bed.wait_until(
        lambda: bed.are_owned_by("stays", *(node.name for node in others)), *others
    )
    bed.finish(stays, *others)
    found = bed.account()
    keep(f"joins and leaves for {seconds} s", found, in_flight)
    assert not found.faults
    assert found.started_twice <= in_flight + found.refused


def _let_go(bed: Bed, node: Node, how: str) -> int:
    """Have a node leave; return what it had in hand if it could not say farewell."""
    if how == "stop":
        node.stop()
        return 0
    node.end()
    return bed.in_flight(node.name)


def test_nodes_that_start_at_one_moment_take_nothing_from_each_other(bed: Bed) -> None:
    """A take may have begun before another's node was there to be seen."""
    nodes = 6
    with contextlib.ExitStack() as ends:
        stores = [
            ends.enter_context(contextlib.closing(PostgresStore.open(bed.url)))
            for _ in range(nodes)
        ]
        barrier = threading.Barrier(nodes)

        def come_and_go(store: PostgresStore) -> None:
            for _ in range(15):
                barrier.wait()
                store.recover()
                barrier.wait()
                store.hand_over()

        with ThreadPoolExecutor(nodes) as threads:
            list(threads.map(come_and_go, stores))
    assert bed.account().faults == {}
