"""Many clients at once: nothing fails that was not asked to, and nothing is lost.

How long they wait is a figure, and stands in docs/benchmarks.md; no test asserts it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections import Counter
from pathlib import Path

import httpx
import pytest

from bench.server_load import PAGE, TASK, Load, run_load
from tests.conftest import SEED_VARIABLE
from tests.server.process import served
from timingwheel.client.client import Client
from timingwheel.scheduler.tasks import NamedTask

CLIENTS = 200
MADE_BEFORE_KILL = 400


def load_of(url: str, *, seconds: float, every_s: float = 0.2, **more: object) -> Load:
    seed = int(os.environ[SEED_VARIABLE])
    print(f"{SEED_VARIABLE}={seed}")
    return asyncio.run(
        run_load(
            url,
            clients=CLIENTS,
            seconds=seconds,
            every_s=every_s,
            seed=seed,
            **more,  # type: ignore[arg-type]
        )
    )


def ids_by_key(url: str) -> dict[str, str]:
    """Return all jobs that the load made, each under its key; a key has one alone."""
    found: list[tuple[str, str]] = []
    with Client(url) as app:
        cursor = None
        while True:
            page = app.jobs(limit=PAGE, cursor=cursor)
            found += [(job.key or "", job.id) for job in page]
            cursor = page.cursor
            if cursor is None:
                break
    doubles = [
        key for key, count in Counter(key for key, _ in found).items() if count > 1
    ]
    assert doubles == []
    return dict(found)


def require_nothing_wrong(url: str) -> None:
    wrong = httpx.get(f"{url}/api/v1/check", timeout=60).json()["items"]
    # Nobody has their task, so what was triggered waits.
    assert {one["kind"] for one in wrong} <= {"unknown_task"}, wrong


def require_a_clean_load(data: Path, *, seconds: float) -> None:
    with served(data, log=data.with_suffix(".log")) as (_, url):
        load = load_of(url, seconds=seconds)
        assert load.errors == []
        assert len(load.kinds) == 15
        kept = ids_by_key(url)
        require_nothing_wrong(url)
    assert kept == load.made


def test_200_clients_of_mixed_calls_meet_no_error_and_lose_no_job(
    tmp_path: Path,
) -> None:
    require_a_clean_load(tmp_path / "data", seconds=5)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_200_clients_of_mixed_calls_for_a_minute(tmp_path: Path) -> None:
    require_a_clean_load(tmp_path / "data", seconds=60)


def require_all_after_a_kill(data: Path, *, made_before: int) -> None:
    def kill(load: Load) -> None:
        if len(load.made) >= made_before:
            process.kill()

    with served(data, log=data.with_suffix(".log")) as (process, url):
        # The kill ends it: the time is only a bound, at 50 jobs a second.
        seconds = max(60, made_before // 50)
        load = load_of(url, seconds=seconds, every_s=0, on_made=kill)
        assert process.wait(60) < 0
    assert all(error.startswith("gone: ") for error in load.errors), load.errors
    with served(data, log=data.with_suffix(".log")) as (_, url):
        kept = ids_by_key(url)
        require_nothing_wrong(url)
        assert load.made.items() - kept.items() == set()
        assert kept.keys() <= load.asked
        # Who asks again under a key, not knowing, gets the job that is there.
        with Client(url) as app:
            for key in sorted(load.asked)[:PAGE]:
                call = NamedTask(TASK).call(n=int(key.rpartition("-")[2]))
                ref = app.add(call, key=key, cron="0 3 * * *")
                assert ref.created == (key not in kept)
                assert kept.setdefault(key, ref.id) == ref.id
        assert ids_by_key(url) == kept


def test_a_kill_under_the_load_of_200_clients_loses_and_doubles_no_job(
    tmp_path: Path,
) -> None:
    require_all_after_a_kill(tmp_path / "data", made_before=MADE_BEFORE_KILL)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("made_before", [1, 50, 1_000, 5_000, 20_000])
def test_a_kill_at_any_time_loses_and_doubles_no_job(
    tmp_path: Path, made_before: int
) -> None:
    require_all_after_a_kill(tmp_path / "data", made_before=made_before)


def test_the_load_would_see_an_error_and_a_loss(tmp_path: Path) -> None:
    """The load itself can fail: a server that is no API answers all with errors."""
    script = (
        "import http.server as h\n"
        "class A(h.BaseHTTPRequestHandler):\n"
        "  protocol_version = 'HTTP/1.1'\n"
        "  def do_POST(self):\n"
        "    self.rfile.read(int(self.headers['content-length']))\n"
        "    self.send_response(500); self.send_header('Content-Length', '2')\n"
        "    self.end_headers(); self.wfile.write(b'{}')\n"
        "  def log_message(self, *_): pass\n"
        "s = h.ThreadingHTTPServer(('127.0.0.1', 0), A)\n"
        "print(s.server_port, flush=True); s.serve_forever()\n"
    )
    with subprocess.Popen(
        ["python3", "-c", script], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            url = f"http://127.0.0.1:{port}"
            load = asyncio.run(
                run_load(url, clients=2, seconds=0.2, every_s=0.05, seed=1)
            )
        finally:
            process.kill()
    assert load.made == {}
    assert load.errors
    assert all("500" in error for error in load.errors)
