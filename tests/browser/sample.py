"""The example of the dashboard, in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.server.process import ROOT

PROGRAM = ROOT / "docs" / "examples" / "dashboard_jobs.py"


@contextmanager
def sample(data: Path) -> Iterator[str]:
    """Serve the sample jobs on a free port; yield the URL."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(data), "--port", "0"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://[0-9.]+:[0-9]+", line)
        assert found is not None, line
        yield found[0]
    finally:
        process.kill()
        process.communicate()
