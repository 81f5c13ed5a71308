"""`make serve`: sample jobs and their dashboard, in one command."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.server.dashboard.visitor import Visitor

ROOT = Path(__file__).resolve().parent.parent.parent.parent


def test_it_prints_its_address_and_ends_in_order_by_ctrl_c(tmp_path: Path) -> None:
    script = ROOT / "docs/examples/dashboard_jobs.py"
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "demo"), "--port", "0"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("the dashboard: http://127.0.0.1:"), line
        with Visitor(line.split()[2]) as visitor:
            jobs = visitor.get("/jobs?search=nightly").by_id("jobs")
            assert len(jobs.all("tr")) == 3
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
    finally:
        process.kill()
        process.communicate()
