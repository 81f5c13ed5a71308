"""A server in a process of its own, as people start it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


@contextmanager
def served(
    place: Path | str, *more: str, log: Path | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server process on a free port, and its URL; killed at the end if it lives.

    Args:
        place: its directory, or the URL of its database.
        more: arguments.
        log: where what it says goes; needed where that is more than a pipe holds.
    """
    with ExitStack() as stack:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "timingwheel.server",
                *([str(place)] if isinstance(place, Path) else ["--store", place]),
                "--port",
                "0",
                *more,
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE
            if log is None
            else stack.enter_context(log.open("ab")),
            text=True,
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("serving "), (
                line,
                process.stderr and process.stderr.read(),
            )
            url = line.partition(" on ")[2].partition(";")[0]
            yield process, url
        finally:
            process.kill()
            process.communicate()
