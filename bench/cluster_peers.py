"""The queues on PostgreSQL that we are measured against, as far as they are here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

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
        python: the interpreter.
    """

    peer: str
    module: str
    unfinished: str
    note: str
    python: str = sys.executable


def queues() -> Iterator[Queue]:
    """Yield the peers that are here."""
    for kind, module, unfinished, note in _PEERS:
        if kind.is_here():
            yield Queue(kind.name, module, unfinished, note)
    python = oban_python()
    if python is not None:
        yield Queue("oban", "bench.cluster_oban", _OBAN_LEFT, _OBAN_NOTE, python)


_PEERS = (
    (
        Kind(
            "pgqueuer",
            modules=("pgqueuer", "asyncpg"),
            install="pip install 'pgqueuer[asyncpg]'",
        ),
        "bench.cluster_pgqueuer",
        "SELECT FROM pgqueuer",
        "batches of 100, asyncpg and uvloop",
    ),
    (
        Kind(
            "procrastinate",
            modules=("procrastinate",),
            install="pip install procrastinate",
        ),
        "bench.cluster_procrastinate",
        "SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
        "10 jobs at once a process",
    ),
)
_OBAN_LEFT = "SELECT FROM oban_jobs WHERE state <> 'completed'"
_OBAN_NOTE = "50 jobs at once a process, uvloop"


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
