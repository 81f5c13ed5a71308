"""The primary dies under load and its synchronous standby takes over; the old one returns.

What was acknowledged is there; what was in doubt is found by its key; and nobody serves by
the old one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.bed import Bed
from tests.cluster.conftest import Keep
from tests.cluster.putter import Putter
from tests.cluster.servers import Pair, directory_for_servers
from tests.postgres import Postgres

_THERE = """
SELECT count(*) FROM pg_stat_activity WHERE application_name IN ('a', 'b', 'c')
"""
_EPOCHS = "SELECT sum(epoch) FROM timingwheel_shard"
_ALIVE = """
SELECT count(*) FROM timingwheel_member WHERE until_ns > timingwheel_elapsed()
"""
_HANG_UP = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE application_name IN ('a', 'b', 'c')
"""


@pytest.fixture
def pair() -> Iterator[Pair]:
    with directory_for_servers() as directory:
        made = Pair(directory)
        try:
            made.start()
            yield made
        finally:
            made.close()


@pytest.fixture
def bed(pair: Pair, postgres: Postgres, tmp_path: Path) -> Iterator[Bed]:
    """A store on the pair, the sink on a server that does not fail."""
    made = Bed(pair.url, postgres.new_schema(), tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    "after_starts",
    [40, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 80, 150))],
)
def test_a_primary_that_dies_loses_nothing_that_was_acknowledged(
    bed: Bed, keep: Keep, pair: Pair, after_starts: int
) -> None:
    bed.put(times=25, period_s=0.1)
    busy = {"work_s": 0.02}
    nodes = bed.start(("a", busy), ("b", busy))
    putter = Putter(pair.url)
    bed.wait_until(lambda: bed.started() >= after_starts, *nodes)
    in_flight = sum(bed.in_flight(node.name) for node in nodes)
    pair.fail_over()
    pair.bring_back_stale()
    epochs = pair.primary.ask(_EPOCHS)
    started = bed.started()
    bed.wait_until(lambda: bed.started() > started + 20, *nodes)
    pair.standby.ask(
        _HANG_UP
    )  # so all look for a server anew, and find the old one first
    started = bed.started()
    bed.wait_until(lambda: bed.started() > started + 20, *nodes)
    putter.stop()
    bed.jobs.update(dict.fromkeys(putter.promised.values(), 1))
    bed.finish(*nodes)
    found = bed.account()
    keep("primary killed, standby promoted", found, in_flight)
    assert not found.faults
    assert pair.primary.ask(_THERE) == 0
    assert pair.primary.ask(_EPOCHS) == epochs
    pair.primary.wait_until(f"SELECT ({_ALIVE}) = 0")


@pytest.mark.long
def test_an_old_primary_that_takes_itself_for_one_can_promise_nothing(
    bed: Bed, keep: Keep, pair: Pair
) -> None:
    """Nobody should start it so; if somebody does, its commits wait for a standby.

    Whoever comes to it waits with them, starts nothing, and goes on when it is gone.
    """
    bed.put(times=40, period_s=0.1)
    nodes = bed.start(("a", {"work_s": 0.02}), ("b", {"work_s": 0.02}))
    putter = Putter(pair.url)
    bed.wait_until(lambda: bed.started() >= 40, *nodes)
    in_flight = sum(bed.in_flight(node.name) for node in nodes)
    pair.fail_over()
    pair.primary.start()
    epochs = pair.primary.ask(_EPOCHS)
    pair.standby.ask(_HANG_UP)
    pair.primary.wait_until(f"SELECT ({_THERE}) >= 2")
    pair.primary.wait_until(f"SELECT ({_ALIVE}) = 0")
    assert pair.primary.ask(_EPOCHS) == epochs
    pair.primary.crash()
    started = bed.started()
    bed.wait_until(lambda: bed.started() > started + 20, *nodes)
    putter.stop()
    bed.jobs.update(dict.fromkeys(putter.promised.values(), 1))
    bed.finish(*nodes)
    found = bed.account()
    keep("an old primary comes back as one", found, in_flight)
    assert not found.faults
