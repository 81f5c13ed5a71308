"""That the cluster's peers and nodes do what is measured, each at its smallest."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bench import cluster_kill, cluster_peers, cluster_runs, cluster_waits
from bench.cluster_fires import Fires
from bench.cluster_place import KIND, Place, Program
from bench.cluster_puts import BATCH, Ours, Raw
from bench.cluster_tally import Tally
from bench.peers import LEFT_OUT, PeerError

JOBS = 30


@pytest.fixture
def at() -> Iterator[Place]:
    if not KIND.is_here():
        pytest.skip(LEFT_OUT[KIND.name])
    # Not pytest's own directory, which it closes to the server's user now and then.
    with tempfile.TemporaryDirectory(prefix="bench-") as made:
        directory = Path(made)
        directory.chmod(0o755)
        statements = "shared_preload_libraries=pg_stat_statements"
        with closing(Place(directory, [statements])) as one:
            yield one


def test_every_queue_that_is_here_runs_all_it_is_given(at: Place) -> None:
    for queue in cluster_peers.queues():
        case = cluster_runs.QueueRuns(queue, at, jobs=JOBS, processes=2)
        with closing(case):
            case.prepare()
            assert case.run() > 0, queue.peer


def test_our_nodes_run_what_comes_due_round_after_round(at: Place) -> None:
    ours = cluster_runs.OurRuns(at, jobs=JOBS, processes=1, workers=1)
    with closing(ours):
        for _ in range(2):
            ours.prepare()
            assert ours.run() > 0


@pytest.mark.parametrize("make", [Ours, Raw])
def test_puts_are_rows(at: Place, make: Callable[..., Ours | Raw]) -> None:
    database = at.new_database()
    with closing(make(database)) as one:
        one.schedule()
        one.schedule_many()
    table = "raw" if make is Raw else "timingwheel_run"
    assert database.ask(f"SELECT count(*) FROM {table}") == 1 + BATCH


def test_owners_fire_all_that_is_due(at: Place) -> None:
    with closing(Fires(at, owners=2, jobs=JOBS)) as fires:
        fires.prepare()
        assert fires.run() > 0


def test_a_kill_costs_no_run(at: Place) -> None:
    toll = cluster_kill.kill(at, ttl_ms=2_000, rate=20)
    assert toll.runs > 0
    assert (toll.lost, toll.doubled) == (0, 0)
    assert toll.worst_s > 0


def test_an_idle_node_asks_something(at: Place) -> None:
    rows = cluster_waits.idle("cluster", at, cluster_waits.SMOKE)
    assert all(row.ns_per_op > 0 for row in rows)


def test_a_tally_adds_up_what_several_have_done(tmp_path: Path) -> None:
    with (
        closing(Tally(tmp_path / "tally")) as one,
        closing(Tally(tmp_path / "tally")) as two,
    ):
        one.add(0, 3)
        two.add(1)
        assert one.total() == two.total() == 4


def test_a_process_that_fails_is_told_by_its_last_words() -> None:
    program = Program(["-c", "raise SystemExit('no such thing')"])
    with pytest.raises(PeerError, match="no such thing"):
        program.hear()
    program.kill()
