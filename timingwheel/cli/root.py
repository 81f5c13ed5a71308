"""The command `timingwheel` itself: its front page, and how every command ends."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import click
from click.shell_completion import shell_complete

from timingwheel.cli.backups import backup_store, restore_store, upgrade
from timingwheel.cli.bench import bench
from timingwheel.cli.calendars import calendar
from timingwheel.cli.config import COMPLETION_VARIABLE, completion, config
from timingwheel.cli.crontab import imports
from timingwheel.cli.dead import dead
from timingwheel.cli.demo import demo
from timingwheel.cli.doctor import doctor
from timingwheel.cli.everywhere import flags_of
from timingwheel.cli.grammar import Noun
from timingwheel.cli.job_making import add_job, edit_job
from timingwheel.cli.job_steering import (
    backfill_job,
    cancel_job,
    pause_job,
    resume_job,
    run_job,
)
from timingwheel.cli.jobs import job
from timingwheel.cli.logs import log
from timingwheel.cli.migrating import migrate
from timingwheel.cli.moving import migrate_store
from timingwheel.cli.nodes import node, shard
from timingwheel.cli.output import printable
from timingwheel.cli.queues import queue
from timingwheel.cli.refusal import (
    DONE,
    EXPECTED,
    INTERRUPTED,
    PIPE_CLOSED,
    USAGE,
    exit_code,
    told,
)
from timingwheel.cli.runs import run
from timingwheel.cli.serve import serve
from timingwheel.cli.tasks import task
from timingwheel.cli.tokens import token
from timingwheel.cli.top import top
from timingwheel.cli.workers import worker
from timingwheel.engine.bodies import COMPILED
from timingwheel.installed import installed_version

PROGRAM: Final = "timingwheel"

_TEXT: Final = """Durable jobs in a directory: add them, look at them, mend them.

Commands work on a directory (--data, ./data by default; of one that a process holds they ask
that process), on a server (--url), or on a database (--store). A name or an id means a job; <job id>@<time> means a run."""

_EXAMPLES: Final = [
    (
        "timingwheel job add mail:send to=a@x --cron '30 2 * * *' --name nightly --create",
        "",
    ),
    ("timingwheel job list", ""),
    ("timingwheel job next nightly", "when it runs, also over a change of the clocks"),
    ("timingwheel job why nightly 2026-03-29T02:30", "why it ran then, or did not"),
    ("timingwheel run list --state failed --json", ""),
    ("timingwheel --data /var/lib/jobs doctor", ""),
]


class Root(Noun):
    """The outermost group: it turns errors into exit codes."""

    def run(self, argv: Sequence[str], **extra: Any) -> int:
        """Run one command and return its exit code; see refusal.py."""
        asked = os.environ.get(COMPLETION_VARIABLE)
        if asked:
            return shell_complete(self, {}, PROGRAM, COMPLETION_VARIABLE, asked)
        return self._run(argv, **extra)

    def _run(self, argv: Sequence[str], **extra: Any) -> int:
        ctx: click.Context | None = None
        try:
            ctx = self.make_context(PROGRAM, list(argv), **extra)
            with ctx:
                self.invoke(ctx)
            sys.stdout.flush()
        except click.exceptions.Exit as ended:
            return _flushed(ended.exit_code)
        except BrokenPipeError:
            return PIPE_CLOSED
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            return USAGE
        except click.UsageError as error:
            _tell(_usage(error), kind="usage", ctx=error.ctx or ctx)
            return USAGE
        except click.ClickException as error:
            _tell(error.format_message(), kind="usage", ctx=ctx)
            return USAGE
        except (KeyboardInterrupt, click.Abort):
            click.echo("interrupted", err=True)
            return INTERRUPTED
        except EXPECTED as error:
            _tell(told(error), kind=type(error).__name__, ctx=ctx)
            return exit_code(error)
        return DONE

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]  # it always ends
        """Run one command and end the process; for click's own test runner."""
        extra.pop("prog_name", None)
        sys.exit(self.run(sys.argv[1:] if args is None else args, **extra))


def _usage(error: click.UsageError) -> str:
    """Return what is wrong, and where the help is."""
    text = error.format_message()
    if error.ctx is not None:
        text += f"\ntry: {error.ctx.command_path} --help"
    return text


def _tell(text: str, *, kind: str, ctx: click.Context | None) -> None:
    """Say on standard error why the command failed; as JSON if answers are JSON."""
    if ctx is not None and flags_of(ctx).get("json"):
        click.echo(json.dumps({"error": {"kind": kind, "message": text}}), err=True)
        return
    click.echo(
        f"{click.style('error:', fg='red', bold=True)} {printable(text)}", err=True
    )


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return PIPE_CLOSED
    return code


def _version() -> str:
    found = installed_version() or "(not installed)"
    body = "compiled" if COMPILED else "plain Python"
    return f"timingwheel {found}, {body} bodies, Python {sys.version.split()[0]}"


def _made() -> Root:
    made = Root(PROGRAM, help=_TEXT, examples=_EXAMPLES, no_args_is_help=True)
    click.version_option(_version(), message="%(version)s")(made)
    job.file("Make and change", add_job, edit_job)
    job.file("Steer", pause_job, resume_job, cancel_job, run_job, backfill_job)
    made.file("Jobs and runs", job, run, dead)
    made.file("What they use", queue, task, calendar)
    made.file("Serve and work", serve, worker, token)
    made.file("Is all well", doctor, top, node, shard, log, config)
    made.file("Keep it safe", backup_store, restore_store, upgrade)
    made.file("Move in and up", imports, migrate, migrate_store)
    made.file("Get to know it", demo, bench, completion)
    return made


root: Final = _made()
