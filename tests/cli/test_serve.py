"""`serve`, `worker` and `token`: processes as a supervisor runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.stage import Stage
from timingwheel.client.client import Client
from timingwheel.scheduler.tasks import NamedTask

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "tests.worker.program:app"
GREET = NamedTask("greet").call(to="ada")


@contextmanager
def running(*words: str) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """A command that goes on, and the document that it has printed; then killed."""
    # What a shell starts in the background ignores SIGINT, and so would its children.
    as_in_front = ["env", "--default-signal=INT"]
    process = subprocess.Popen(
        [*as_in_front, sys.executable, "-m", "timingwheel", "--json", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield process, json.loads(line)
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    """The exit code after a signal, and what was told on standard error."""
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_and_a_worker_work_and_end_in_order(
    tmp_path: Path, number: signal.Signals
) -> None:
    with running("serve", str(tmp_path / "data"), "--port", "0") as (server, told):
        assert told["tasks"] == []
        url = told["url"]
        more = ("--url", url, "--app", PROGRAM, "--slots", "2", "--name", "far")
        with running("worker", *more) as (worker, working), Client(url) as app:
            assert working["url"] == url
            assert "greet" in working["tasks"]
            run = app.run(app.add(GREET, delay=0))
            assert run.result("60s") == "hello ada"
            assert run.attempts()[0].worker.startswith("far:")
            code, errors = ended(worker, number)
            assert (code, "Traceback" in errors) == (0, False), errors
            assert app.workers() == []
        code, errors = ended(server, number)
    assert (code, "Traceback" in errors) == (0, False), errors


def test_a_server_runs_the_tasks_of_its_program(tmp_path: Path) -> None:
    command = ("--app", PROGRAM, "serve", str(tmp_path / "data"), "--port", "0")
    with running(*command) as (_, told), Client(told["url"]) as app:
        assert "greet" in told["tasks"]
        assert app.run(app.add(GREET, delay=0)).result("60s") == "hello ada"


def test_a_server_that_only_dispatches_runs_none(tmp_path: Path) -> None:
    command = ("--app", PROGRAM, "serve", str(tmp_path / "data"), "--port", "0")
    with running(*command, "--dispatch-only") as (_, told):
        assert told["tasks"] == []


def test_a_client_that_asks_more_often_than_the_rate_is_told_to_wait(
    tmp_path: Path,
) -> None:
    command = ("serve", str(tmp_path / "data"), "--port", "0", "--rate-limit", "0.001")
    with running(*command) as (_, told):
        answers = [httpx.get(f"{told['url']}/api/v1/jobs") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]


def test_a_directory_that_is_held_names_the_next_step(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with running("serve", data, "--port", "0"):
        done = subprocess.run(
            [sys.executable, "-m", "timingwheel", "serve", data, "--port", "0"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert "a directory has one owner at a time" in done.stderr
    assert "stop that one first, or name another directory" in done.stderr


def test_tokens_come_and_go_while_the_server_runs(tmp_path: Path, stage: Stage) -> None:
    secret = stage.ok("token", "add", "ci", "--role", "operate", "--create").out.strip()
    assert secret.startswith("tw_")
    listed = stage.ok("token", "list", "--json")
    assert [(one["name"], one["role"]) for one in listed.json["tokens"]] == [
        ("ci", "operate")
    ]
    assert secret not in listed.out
    with running("serve", str(stage.data), "--port", "0") as (_, told):
        url = told["url"]
        assert httpx.get(f"{url}/api/v1/jobs").status_code == 401
        with Client(url, token=secret) as app:
            assert app.jobs() == []
        made = stage.ok("token", "add", "ada", "--role", "admin", "--json").json
        assert (made["name"], made["role"]) == ("ada", "admin")
        assert "ci" in stage.ok("token", "revoke", "ci").out
        headers = {"authorization": f"Bearer {secret}"}
        while httpx.get(f"{url}/api/v1/jobs", headers=headers).status_code != 401:
            pass  # for a second at most: tests/server/test_access.py holds that


def test_what_a_token_command_cannot_do_is_said(stage: Stage) -> None:
    nowhere = stage.run("token", "list")
    assert (nowhere.code, "--create" in nowhere.err) == (1, True)
    stage.ok("token", "add", "ci", "--role", "read", "--create")
    again = stage.run("token", "add", "ci", "--role", "read")
    assert (again.code, "it is taken" in again.err) == (2, True)
    unknown = stage.run("token", "revoke", "ci", "nobody")
    assert (unknown.code, "nobody" in unknown.err) == (1, True)
    assert len(stage.ok("token", "list", "--json").json["tokens"]) == 1
    assert "the last one" in stage.ok("token", "revoke", "ci", "ci").err
    assert "there are no tokens" in stage.ok("token", "list").err
    far = stage.bare("--url", "http://127.0.0.1:1", "token", "list")
    assert (far.code, "made where the jobs are" in far.err) == (2, True)


def test_what_serve_and_worker_cannot_mean_is_said(stage: Stage) -> None:
    url = ("--url", "http://127.0.0.1:1")
    for words, said in {
        ("serve", *url): "leave out --url",
        ("serve", "postgresql://x/jobs"): "name a database with --store",
        ("serve", "--store", "./data"): 'pass "postgresql://',
        ("serve", "./data", "--store", "postgresql://x/jobs"): "both say where",
        ("serve", "--host", "0.0.0.0", "--port", "0"): "make a token first",
        ("serve", "--rate-limit", "-1", "--port", "0"): "--rate-limit",
        ("serve", "--app", "nothing:app"): "--app",
        ("worker",): "name the server: --url",
        ("worker", *url): "--app module:name",
        ("worker", *url, "--app", PROGRAM, "--slots", "0"): "--slots",
        ("worker", *url, "--app", PROGRAM, "--ttl", "soon"): "--ttl",
    }.items():
        answer = stage.bare(*words)
        assert answer.code == 2, (words, answer)
        assert said in answer.err, (words, answer)
        assert answer.out == ""


def test_host_and_port_are_settings_with_an_origin(
    stage: Stage, tmp_path: Path
) -> None:
    file = tmp_path / "timingwheel.toml"
    file.write_text('host = "127.0.0.1"\nport = 9000\n')
    stage.environment |= {"TIMINGWHEEL_CONFIG": str(file), "TIMINGWHEEL_PORT": "0"}
    found = stage.ok("config", "show", "--json").json["settings"]
    assert found["port"] == {
        "value": 0,
        "origin": "TIMINGWHEEL_PORT in the environment",
    }
    assert found["host"] == {"value": "127.0.0.1", "origin": str(file)}
    stage.environment["TIMINGWHEEL_PORT"] = "high"
    assert "a whole number" in stage.run("config", "show").err
    del stage.environment["TIMINGWHEEL_PORT"]
    file.write_text('port = "9000"\n')
    assert "a whole number" in stage.run("config", "show").err
