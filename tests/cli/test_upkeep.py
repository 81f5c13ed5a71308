"""`log`, `doctor`, `config`, `completion`, `demo`, `bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli import program
from tests.cli.stage import Stage, left_behind
from timingwheel.cli.connection import DirectoryConnection
from timingwheel.cli.directory_checks import LOOKS
from timingwheel.cli.doctor import of_runs
from timingwheel.jobs.model import Run
from timingwheel.scheduler.handles import Page
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.serving import HttpServer


def segments(stage: Stage) -> list[Path]:
    return sorted(stage.data.glob("wal-*.seg"))


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(bytes(data))


def test_the_log_commands_are_those_of_wal(stage: Stage) -> None:
    stage.add("greet", "--delay", "1h")
    assert "verdict: good" in stage.ok("log", "verify").out
    assert stage.ok("log", "verify", "--json").lines[-1]["verdict"] == "good"
    assert stage.ok("log", "stat", "--json").lines[0]["records"] >= 2
    assert stage.ok("log", "inspect", "--records", "--limit", "1").out
    out = stage.data.parent / "rescued"
    assert "nothing is lost" in stage.ok("log", "repair", "--out", str(out)).out
    flip(segments(stage)[0], 4096 + 70)
    assert stage.run("log", "verify").code == 4
    away = stage.bare("log", "verify", "--url", "http://127.0.0.1:1")
    assert away.code == 2


def test_a_server_tells_of_the_log_that_it_has(stage: Stage) -> None:
    app = Scheduler(str(stage.data), tasks=program.app.tasks)
    with HttpServer(app, port=0) as server:
        app.add(program.greet.call(to="x"), delay="1h")
        told = stage.bare("log", "stat", "--url", server.url)
        assert told.code == 0, told
        figures = dict(line.split("  ", 1) for line in told.out.splitlines())
        assert figures["store"].strip() == str(stage.data)
        assert figures["timers"].strip() == "1"
        assert figures["last opening"].strip().startswith("after a clean end, ")
        found = stage.bare("log", "stat", "--url", server.url, "--json").json
        assert (found["timers"], found["log"]["durability"]) == (1, "durable")
        assert stage.bare("log", "verify", "--url", server.url).code == 2


def test_a_store_that_is_well_passes(stage: Stage) -> None:
    job_id = stage.add("greet", "to=x", "--delay", "0s")
    stage.clock.advance(ns=10**9)
    stage.served(lambda app: app.run(job_id).wait(timeout=30))
    answer = stage.ok("doctor", "--json").json
    assert answer["checks"] == [*LOOKS, "opening", "state", "runs", "jobs"]
    assert list(answer["notes"]) == list(LOOKS)
    # A directory for tests may well lie in memory, and that is told.
    assert [one for one in answer["findings"] if one["kind"] != "in_memory"] == []
    lines = stage.ok("doctor").out.splitlines()
    assert [line.split()[1] for line in lines if line[0] != " "][1:] == ["ok"] * 8


def test_damage_of_the_log_is_found_and_the_store_is_not_opened(stage: Stage) -> None:
    stage.add("greet", "--delay", "1h")
    flip(segments(stage)[0], 4096 + 70)
    done = stage.run("doctor", "--json")
    assert done.code == 1
    (finding,) = done.json["findings"]
    assert (finding["kind"], finding["mild"]) == ("damage", False)
    assert "log repair" in finding["fix"]
    assert done.json["checks"] == [*LOOKS]


def test_what_is_to_be_seen_to_is_mild_unless_strict(stage: Stage) -> None:
    job_id = stage.add("fail", "--delay", "0s", "--retry", "1")
    stage.add("gone", "--delay", "1h")
    stage.clock.advance(ns=10**9)
    stage.served(lambda app: app.run(job_id).wait(timeout=30))
    mild = stage.ok("doctor", "--json").json["findings"]
    assert [one["kind"] for one in mild] == ["dead_letter"]
    app = ("--app", "tests.cli.program:app")
    known = stage.ok(*app, "doctor", "--json").json["findings"]
    assert {one["kind"] for one in known} == {"dead_letter", "unknown_task"}
    assert stage.run("doctor", "--strict").code == 1


def test_records_that_contradict_each_other_are_found(stage: Stage) -> None:
    job_id = stage.add("greet", "to=x", "--delay", "0s")
    stage.clock.advance(ns=10**9)
    stage.served(lambda app: app.run(job_id).wait(timeout=30))
    app = Scheduler(str(stage.data), clock=stage.clock)
    place = DirectoryConnection(app, "here", knows_tasks=False)

    def told(*runs: Run) -> list[str]:
        return [one.message for one in of_runs(runs, place, is_served=False)]

    try:
        run = app.run(job_id).get()
        assert told(run) == []
        assert told(run, run) == []  # it moved on while all were read
        without = msgspec.structs.replace(run, ended_ns=None)
        assert told(without) == ["it is succeeded, with an end: None"]
    finally:
        app.stop(0)


class TwoRecords(Scheduler):
    """A scheduler whose store has each run twice."""

    def runs(self, **query: Any) -> Page[Run]:
        page = super().runs(**query)
        return Page([*page, *page], page.cursor)


def test_a_run_with_two_records_is_found(stage: Stage) -> None:
    stage.add("greet", "to=x", "--delay", "0s", "--name", "n")
    app = TwoRecords(str(stage.data), clock=stage.clock)
    place = DirectoryConnection(app, "here", knows_tasks=False)
    try:
        found = list(of_runs(app.runs(), place, is_served=False))
        assert [one.message for one in found] == ["there are two records of it"]
    finally:
        app.stop(0)


def test_a_run_that_nobody_works_on_is_found_where_somebody_should(
    stage: Stage,
) -> None:
    job_id = stage.add("greet", "to=x", "--delay", "0s")
    stage.clock.advance(ns=10**9)
    left_behind(stage)
    app = Scheduler(str(stage.data), clock=stage.clock)
    place = DirectoryConnection(app, "here", knows_tasks=False)
    try:
        run = app.run(job_id).get()
        (mild,) = of_runs([run], place, is_served=False)
        assert mild.kind == "left_running"
        (wrong,) = of_runs([run], place, is_served=True)
        assert wrong.message == "it is running, and no attempt of it goes on"
    finally:
        app.stop(0)


def test_each_setting_names_its_origin_and_the_token_is_hidden(
    stage: Stage, tmp_path: Path
) -> None:
    file = tmp_path / "config.toml"
    file.write_text('token = "secret"\nutc = true\n')
    stage.environment["TIMINGWHEEL_CONFIG"] = str(file)
    stage.environment["TIMINGWHEEL_APP"] = "shop:app"
    done = stage.bare("config", "show", "--data", "here", "--json")
    settings = done.json["settings"]
    assert settings["data"] == {"value": "here", "origin": "--data"}
    assert settings["app"]["origin"] == "TIMINGWHEEL_APP in the environment"
    assert settings["utc"] == {"value": True, "origin": str(file)}
    assert settings["url"] == {"value": None, "origin": "default"}
    assert "secret" not in done.out + stage.bare("config", "show").out


def test_a_config_file_that_is_named_must_be_there(stage: Stage) -> None:
    stage.environment["TIMINGWHEEL_CONFIG"] = "/nowhere/config.toml"
    done = stage.bare("config", "show")
    assert done.code == 2
    assert "TIMINGWHEEL_CONFIG" in done.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_each_shell(stage: Stage, shell: str) -> None:
    done = stage.bare("completion", shell)
    assert done.code == 0
    assert "_TIMINGWHEEL_COMPLETE" in done.out


def test_the_demonstration_shows_a_crash_and_a_clock_change(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    done = stage.bare("demo")
    assert caplog.record_tuples == []  # no warnings between the lines of the story
    assert done.code == 0
    assert "catch_up" in done.out
    assert "2026-03-29 03:00:00+02:00" in done.out
    assert len(stage.bare("demo", "--json").json["runs"]) == 5


def test_benchmarks_are_not_part_of_an_installation(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    done = stage.bare("bench")
    assert done.code == 1
    assert "source tree" in done.err
