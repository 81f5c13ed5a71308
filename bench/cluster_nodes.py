"""Nodes of ours that serve one database: started, settled to equal shares, and killed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

from bench.cluster_place import Database, Program, programs
from bench.peers import PeerError
from timingwheel.jobs.model import RunState
from timingwheel.jobs.store import RunQuery
from timingwheel.stores.postgres.store import PostgresStore

PATIENCE_SECONDS = 120.0
_LOOK_SECONDS = 0.05
_UNFINISHED = frozenset({RunState.PLANNED, RunState.READY, RunState.RUNNING})
_OWNERS = """
SELECT count(*) FROM timingwheel_shard WHERE owner_inc IS NOT NULL
GROUP BY owner_inc
"""


@contextlib.contextmanager
def serving(
    database: Database, commands: Sequence[Sequence[str]]
) -> Iterator[list[Program]]:
    """Run nodes in a block; each owns much of its share of the shards when it begins.

    That takes some beats: a node that was first lets go of a few at each.
    """
    with programs(commands) as nodes:
        for node in nodes:
            node.say("go")
        wait(lambda: are_shared(database, len(nodes), least=0.7), nodes)
        yield nodes


def are_shared(database: Database, owners: int, *, least: float = 0.95) -> bool:
    """Return whether so many nodes own all shards.

    Args:
        database: whose.
        owners: how many.
        least: part of an equal share that each of them must own.
    """
    shares = database.column(_OWNERS)
    return len(shares) == owners and min(shares) >= least * sum(shares) / owners


def is_done(database: Database) -> bool:
    """Return whether no run waits or goes on."""
    with closing(PostgresStore.open(database.url)) as store:
        return not store.runs(RunQuery(states=_UNFINISHED, limit=1)).runs


def wait(
    is_true: Callable[[], bool],
    running: Sequence[Program],
    look_seconds: float = _LOOK_SECONDS,
) -> None:
    """Return when something has become true.

    Raises:
        PeerError: a process has ended, or it takes too long.
    """
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_true():
        for program in running:
            program.require_alive()
        if time.monotonic() > end:
            raise PeerError(f"has not ended after {PATIENCE_SECONDS:.0f} s")
        time.sleep(look_seconds)
