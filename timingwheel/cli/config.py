"""`timingwheel config show` and `timingwheel completion`."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

from timingwheel.cli.grammar import noun, verb
from timingwheel.cli.session import Session
from timingwheel.cli.settings import DEFAULTS
from timingwheel.scheduler.opening import without_secret

COMPLETION_VARIABLE: Final = "_TIMINGWHEEL_COMPLETE"

config: Final = noun(
    "config",
    "Settings: command line, else environment, else file, else default.\n\nThe file is "
    "$TIMINGWHEEL_CONFIG, else ./timingwheel.toml, else "
    "~/.config/timingwheel/config.toml, and sets "
    f"{', '.join(DEFAULTS)}; the environment the same as TIMINGWHEEL_DATA and so on.",
    examples=[("timingwheel config show", "")],
)


@verb(
    config,
    "show",
    examples=[
        ("timingwheel config show", ""),
        ("TIMINGWHEEL_UTC=1 timingwheel config show --json", ""),
    ],
)
def show(session: Session) -> None:
    """Show each setting with what counts, and where it comes from."""
    rows = []
    for name, setting in session.settings.all.items():
        value = "(hidden)" if name == "token" and setting.value else setting.value
        if name in {"store", "hints"} and isinstance(value, str):
            value = without_secret(value)
        rows.append((name, value, setting.origin))
    if session.printer.as_json:
        session.printer.document(
            {
                "file": session.settings.config,
                "settings": {
                    name: {"value": value, "origin": origin}
                    for name, value, origin in rows
                },
            }
        )
        return
    session.printer.table(
        ("setting", "value", "from"),
        [(name, _words(value), origin) for name, value, origin in rows],
    )


@verb(
    None,
    "completion",
    examples=[
        ('eval "$(timingwheel completion bash)"', "in ~/.bashrc"),
        ("timingwheel completion zsh > ~/.zfunc/_timingwheel", ""),
    ],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(session: Session, *, shell: str) -> None:  # noqa: ARG001 - as all commands
    """Print what makes a shell complete commands and options."""
    made = get_completion_class(shell)
    assert made is not None
    root = click.get_current_context().find_root().command
    click.echo(made(root, {}, "timingwheel", COMPLETION_VARIABLE).source())


def _words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
