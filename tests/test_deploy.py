"""The files that start it at boot and in a container fit the commands that there are."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path

import click
import pytest

from timingwheel.cli.root import root
from timingwheel.cli.settings import DEFAULTS, PREFIX, Settings
from timingwheel.jobs.durations import duration_ns

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "docs" / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
BINARY = "/opt/timingwheel/bin/timingwheel"
VARIABLES = {f"{PREFIX}{name.upper()}" for name in DEFAULTS}


def unit(path: Path) -> ConfigParser:
    made = ConfigParser(strict=False, interpolation=None)
    made.optionxform = str  # type: ignore[assignment,method-assign]
    made.read_string(path.read_text())
    return made


def command(words: list[str]) -> click.Context:
    """The context of a command line; it is not run. Raises if it does not fit."""
    found = root.commands[words[0]]
    return found.make_context(words[0], words[1:])


def name_of(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("path", UNITS, ids=name_of)
def test_a_unit_starts_a_command_that_there_is(path: Path) -> None:
    service = unit(path)["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert program == BINARY
    ctx = command(words)
    # A stop that systemd cuts short is a kill.
    grace_s = duration_ns(ctx.params["grace"], "grace") / 1e9
    assert grace_s + 15 < int(service["TimeoutStopSec"])
    assert set(re.findall(r"TIMINGWHEEL_\w+", path.read_text())) <= VARIABLES


@pytest.mark.parametrize("path", UNITS, ids=name_of)
@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)
def test_systemd_finds_no_fault_in_a_unit(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    # The program is not installed there; everything else is as it stands.
    copy.write_text(path.read_text().replace(BINARY, sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_container_starts_a_command_that_there_is() -> None:
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    told = {line.partition(" ")[0]: line.partition(" ")[2].strip() for line in lines}
    assert json.loads(told["ENTRYPOINT"]) == ["timingwheel"]
    ctx = command(json.loads(told["CMD"]))
    assert (
        duration_ns(ctx.params["grace"], "grace") < 10 * 10**9
    )  # engines kill after 10 s
    environment = dict(pair.split("=") for pair in shlex.split(told["ENV"]))
    assert set(environment) <= VARIABLES
    settings = Settings({}, environment)
    assert (settings.data, settings.number("port")) == (told["VOLUME"], 8765)
    assert told["EXPOSE"] == "8765"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extras in re.findall(r"\[([\w,]+)\]\"", text):
        assert set(extras.split(",")) <= set(project["optional-dependencies"])


def test_a_command_line_that_does_not_fit_is_seen() -> None:
    with pytest.raises(click.UsageError):
        command(["serve", "--greace", "30s"])
