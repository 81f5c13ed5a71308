"""`timingwheel bench`: the benchmarks, where the source tree is."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import PathFinder
from typing import Final

import click

from timingwheel.cli.grammar import verb
from timingwheel.cli.refusal import RefusedError
from timingwheel.cli.session import Session

_TOP: Final = ("bench", "timingwheel", "wal")


@verb(
    None,
    "bench",
    examples=[
        ("timingwheel bench -- --smoke", "does it all run: about a minute"),
        ("timingwheel bench -- --only durable --dir /mnt/ssd", ""),
    ],
)
@click.argument("words", nargs=-1, metavar="[-- WORDS]...")
def bench(session: Session, *, words: tuple[str, ...]) -> None:  # noqa: ARG001 - as all commands
    """Measure against baselines and peers: `python -m bench`, with its own words.

    The benchmarks are not part of an installation: run it at the top of the source tree.
    """
    here = [os.getcwd()]
    if not all(PathFinder.find_spec(name, here) for name in _TOP):
        raise RefusedError(
            "the benchmarks come with the source tree, and this is not its top: get the "
            "tree, then `make bench` there"
        )
    done = subprocess.run([sys.executable, "-m", "bench", *words], check=False)  # noqa: S603 - our own module
    click.get_current_context().exit(done.returncode)
