"""The options that every command takes: where the jobs are, and how answers look.

They may stand before the command or after it; the nearer one counts.
"""

from __future__ import annotations

from typing import Any, Final

import click

EVERYWHERE: Final = "Everywhere"
_FLAGS: Final = "timingwheel.flags"


def shared_options() -> list[click.Option]:
    """Return the options, made anew: each command owns its parameters."""
    return [
        _made("--data", metavar="DIR", help="The directory with the jobs: ./data."),
        _made(
            "--url",
            metavar="URL",
            help="Or the server that has them.",
        ),
        _made(
            "--store",
            metavar="URL",
            help="Or the database that has them: postgresql://...",
        ),
        _made("--token", metavar="TEXT", help="What the server knows you by."),
        _made(
            "--app",
            metavar="MODULE:NAME",
            help="Your program's Scheduler, for its tasks: their types and defaults.",
        ),
        _made("--json", is_flag=True, default=None, help="Answer in JSON."),
        _made("--utc", is_flag=True, default=None, help="Show times in UTC."),
    ]


def flags_of(ctx: click.Context) -> dict[str, Any]:
    """Return which of them were passed, by name."""
    found: dict[str, Any] = ctx.meta.setdefault(_FLAGS, {})
    return found


def _made(name: str, **attributes: Any) -> click.Option:
    return click.Option([name], expose_value=False, callback=_keep, **attributes)


def _keep(ctx: click.Context, parameter: click.Parameter, value: object) -> None:
    if value is not None:
        assert parameter.name is not None
        flags_of(ctx)[parameter.name] = value
