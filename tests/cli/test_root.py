"""The front page, settings and where they come from, exit codes, errors."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.cli import program
from tests.cli.stage import Stage
from timingwheel.cli.connection import ServerConnection
from timingwheel.cli.grammar import Noun, Verb
from timingwheel.cli.program import main
from timingwheel.cli.root import root
from timingwheel.cli.session import World
from timingwheel.cli.top import view_of
from timingwheel.client.client import Client
from timingwheel.clock import SystemClock
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.serving import HttpServer


def verbs(group: Noun = root, path: str = "timingwheel") -> list[tuple[str, Verb]]:
    found = []
    for name, command in group.commands.items():
        if isinstance(command, Noun):
            found += verbs(command, f"{path} {name}")
        elif isinstance(command, Verb):
            found.append((f"{path} {name}", command))
    return found


@pytest.mark.parametrize(("path", "command"), verbs(), ids=lambda it: str(it)[12:])
def test_every_command_has_a_help_with_examples_that_parse(
    path: str, command: Verb, stage: Stage
) -> None:
    done = stage.bare(*path.split()[1:], "--help")
    assert done.code == 0
    assert (command.help or "").strip()
    assert command.examples
    for line, _ in command.examples:
        assert f" {path.split(' ', 1)[1]}" in line, line
        assert parsed(line) is command, line


def parsed(line: str) -> click.Command:
    """Parse a command line, and return the command that it means."""
    words = shlex.split(
        re.split(r" [<>|&]|\)\"$", line.partition("timingwheel ")[2])[0]
    )
    command: click.Command = root
    ctx = root.make_context("timingwheel", words)
    while isinstance(command, Noun):
        name, found, words = command.resolve_command(
            ctx, [*ctx._protected_args, *ctx.args]
        )
        assert found is not None
        command, ctx = found, found.make_context(name, words, parent=ctx)
    return command


def test_commands_and_options_stand_under_headings(stage: Stage) -> None:
    front = stage.bare("--help").out
    assert "Jobs and runs\n  job " in front
    assert "When (one of the first six)" in stage.bare("job", "add", "--help").out
    assert "\x1b" not in front  # no colours where it is no terminal


def test_no_command_shows_the_help_and_ends_with_2(stage: Stage) -> None:
    done = stage.bare()
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Usage:")
    assert stage.bare("job").code == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("jbo", "list"), "jbo"),
        (("job", "list", "--stat", "x"), "--state"),
        (("job", "list", "--state", "x"), "active"),
        (("job", "list", "--limit", "0"), "--limit is '0'"),
    ],
)
def test_usage_ends_with_2_and_says_what_is_near(
    stage: Stage, words: tuple[str, ...], told: str
) -> None:
    stage.add("greet", "--delay", "1h")
    done = stage.run(*words)
    assert (done.code, done.out) == (2, "")
    assert told in done.err


def test_a_directory_that_is_no_store_is_not_made(stage: Stage) -> None:
    done = stage.run("job", "list")
    assert done.code == 1
    assert "--create" in done.err
    assert not stage.data.exists()


def test_of_a_directory_that_a_scheduler_serves_that_one_is_asked(stage: Stage) -> None:
    stage.add("greet", "to=ann", "--delay", "1h", "--name", "later")
    stage.served(lambda _: assert_asked(stage))


def assert_asked(stage: Stage) -> None:
    listed = stage.ok("job", "list", "--json").json["jobs"]
    assert [job["name"] for job in listed] == ["later"]
    stage.ok("job", "pause", "later", "--note", "not yet")
    assert "not yet" in stage.ok("job", "show", "later").out
    ended = stage.ok("job", "run", "later", "--wait", "30s")
    assert "succeeded" in ended.err
    assert stage.ok("doctor").code == 0


def test_what_another_process_holds_and_does_not_serve_is_said_to_wait(
    stage: Stage,
) -> None:
    stage.add("greet", "to=ann", "--delay", "1h", "--name", "later")
    app = Scheduler(str(stage.data), clock=stage.clock)
    try:
        assert len(app.jobs()) == 1
        run = stage.ok("job", "run", "later")
    finally:
        app.stop(0)
    assert "it starts when a scheduler serves" in run.err


def test_shared_options_may_stand_before_or_after(stage: Stage) -> None:
    stage.add("greet", "--delay", "1h")
    data = str(stage.data)
    before = stage.bare("--data", data, "--json", "job", "list")
    after = stage.bare("job", "list", "--data", data, "--json")
    nearer = stage.bare("--data", "nowhere", "job", "list", "--data", data, "--json")
    assert before.out == after.out == nearer.out
    assert before.code == 0


def test_the_environment_and_the_file_are_heard_in_that_order(
    stage: Stage, tmp_path: Path
) -> None:
    stage.add("greet", "--delay", "1h")
    file = tmp_path / "config.toml"
    file.write_text(f'data = "{stage.data}"\njson = true\n')
    stage.environment["TIMINGWHEEL_CONFIG"] = str(file)
    assert len(stage.bare("job", "list").json["jobs"]) == 1
    stage.environment["TIMINGWHEEL_DATA"] = str(tmp_path / "other")
    assert stage.bare("job", "list").code == 1
    assert stage.bare("job", "list", "--data", str(stage.data)).code == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("dta = 1", "'dta', which is no setting"),
        ("data = 1", "a text in quotes"),
        ('json = "yes"', "true or false"),
        ("data =", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(
    stage: Stage, tmp_path: Path, text: str, told: str
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    stage.environment["TIMINGWHEEL_CONFIG"] = str(file)
    done = stage.bare("job", "list")
    assert done.code == 2
    assert told in done.err


def test_a_directory_and_a_server_from_one_place_are_refused(stage: Stage) -> None:
    done = stage.run("job", "list", "--url", "http://127.0.0.1:1")
    assert done.code == 2
    assert "keep one" in done.err


def test_times_are_shown_by_the_users_clock(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        stage.bare(
            "job",
            "add",
            "x",
            "--data",
            str(stage.data),
            "--create",
            "--at",
            "2026-01-02",
        )
        shown = stage.bare("job", "list", "--data", str(stage.data))
        assert "2026-01-02 00:00:00+09:00" in shown.out
        assert "2026-01-01 15:00:00+00:00" in stage.ok("job", "list").out
    finally:
        monkeypatch.undo()
        time.tzset()


def test_without_its_libraries_it_names_the_extra(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["job", "list"], is_there=lambda name: name != "click") == 1
    assert "timingwheel-engine[cli]" in capsys.readouterr().err


def test_ctrl_c_ends_with_130(stage: Stage) -> None:
    @click.command("interrupted")
    def interrupted() -> None:
        raise KeyboardInterrupt

    group = type(root)("timingwheel")
    group.add_command(interrupted)
    assert group.run(["interrupted"]) == 130


def test_a_server_that_does_not_answer_ends_with_1(stage: Stage) -> None:
    done = stage.bare("job", "list", "--url", "http://127.0.0.1:1")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: ")


def test_the_commands_ask_a_server_by_its_url() -> None:
    served = Scheduler(":memory:", tasks=program.app.tasks)
    world = World(SystemClock(), {})
    with HttpServer(served, port=0) as server:

        def run(*words: str) -> Any:
            done = CliRunner().invoke(
                root, [*words, "--url", server.url, "--json"], obj=world
            )
            assert done.exit_code == 0, (done.output, done.stderr)
            return json.loads(done.stdout)

        made = run("job", "add", "greet", "to=x", "--delay", "1h", "--name", "n")
        assert made["created"]
        assert run("job", "show", "n")["arguments"] == {"to": "x"}
        run("job", "pause", "n", "--note", "disk")
        assert run("job", "show", "n")["pause"]["note"] == "disk"
        run("job", "resume", "n")
        ran = run("job", "run", "n", "--wait", "30s")
        assert ran["state"] == "succeeded"
        run("queue", "pause", "bulk")
        assert run("queue", "show", "bulk")["pause"] is not None
        assert "greet" in json.dumps(run("task", "list"))
        assert run("worker", "list")["workers"] == []
        with Client(server.url) as client:
            view = view_of(ServerConnection(client, server.url, tasks=None))
        assert (view.is_served, view.ahead) == (True, 1)
        refused = CliRunner().invoke(
            root, ["job", "show", "nobody", "--url", server.url], obj=world
        )
        assert refused.exit_code == 1
        assert "timingwheel job list" in refused.stderr
