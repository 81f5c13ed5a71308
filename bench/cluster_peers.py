"""The queues on PostgreSQL that we are measured against, as far as they are here."""

from __future__ import annotations

import importlib
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from bench.peers import LEFT_OUT, Kind

_OBAN_PYTHON = "OBAN_PYTHON"


@dataclass(frozen=True, slots=True)
class Queue:
    """A peer that runs jobs which are in PostgreSQL.

    Attributes:
        peer: its name in the table.
        module: its program.
        unfinished: a query for jobs that have not ended.
        note: what one must know.
        words: what its program is told beside, to be tuned.
        python: the interpreter.
    """

    peer: str
    module: str
    unfinished: str
    note: str
    words: tuple[str, ...] = ()
    python: str = sys.executable


def queues() -> Iterator[Queue]:
    """Yield the peers that are here, each tuned, and once more as it comes."""
    if _PGQUEUER.is_here():
        left = "SELECT FROM pgqueuer"
        module = "bench.cluster_pgqueuer"
        note = "batches of 100, asyncpg and uvloop"
        yield Queue(_PGQUEUER.name, module, left, note, ("100",))
        note = f"its own batches, of {_own_batch()}; asyncpg and uvloop"
        yield Queue(f"{_PGQUEUER.name}{UNTUNED}", module, left, note)
    python = oban_python()
    if python is not None:
        left = "SELECT FROM oban_jobs WHERE state <> 'completed'"
        for peer, limit, note in (
            ("oban", "50", "50 jobs at once a process, uvloop"),
            (f"oban{UNTUNED}", "10", "10 jobs at once as in its examples, uvloop"),
        ):
            yield Queue(peer, "bench.cluster_oban", left, note, (limit,), python)
    if _PROCRASTINATE.is_here():
        left = "SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
        module = "bench.cluster_procrastinate"
        note = "10 jobs at once a process"
        yield Queue(_PROCRASTINATE.name, module, left, note, ("10",))
        note = "one job after the other in each process"
        yield Queue(f"{_PROCRASTINATE.name}{UNTUNED}", module, left, note)


def _own_batch() -> int:
    """Return of how many jobs a batch of pgqueuer is if nobody says so."""
    pgqueuer: Any = importlib.import_module("pgqueuer")
    size = inspect.signature(pgqueuer.PgQueuer.run).parameters["batch_size"].default
    return int(size)


UNTUNED = ", as it comes"
"""Behind the name of a peer whose program sets nothing that its manual leaves open."""
_PGQUEUER = Kind(
    "pgqueuer",
    modules=("pgqueuer", "asyncpg"),
    install="pip install 'pgqueuer[asyncpg]'",
)
_PROCRASTINATE = Kind(
    "procrastinate", modules=("procrastinate",), install="pip install procrastinate"
)


def oban_python() -> str | None:
    """Return the interpreter that has oban; None, and told, if there is none.

    It needs a newer Python than we do; the variable OBAN_PYTHON may name one.
    """
    named = os.environ.get(_OBAN_PYTHON)
    if named is None and find_spec("oban") is not None:
        return sys.executable
    if named is not None and _imports_oban(named):
        return named
    LEFT_OUT["oban"] = (
        "needs Python 3.12 or newer: pip install oban there, and name that interpreter "
        f"by {_OBAN_PYTHON}"
    )
    return None


def _imports_oban(python: str) -> bool:
    try:
        done = subprocess.run(
            [python, "-c", "import oban"], capture_output=True, check=False
        )
    except OSError:
        return False
    return done.returncode == 0
