"""How commands are put together: groups in sections, options in sections, examples.

    @verb(job, "pause", examples=[("timingwheel job pause nightly", "until resumed")])
    @click.argument("jobs", nargs=-1, required=True)
    @option("--note", help="Why, for whoever finds it paused.")
    def pause_job(session: Session, *, jobs: tuple[str, ...], note: str) -> None:
        '''Start no more runs of a job.'''

A docstring is the help text. Every command also takes the options of `everywhere.py`, so
`timingwheel --json job list` and `timingwheel job list --json` mean the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import click

from timingwheel.cli.everywhere import EVERYWHERE, shared_options
from timingwheel.cli.session import Session, session_of

Examples = Sequence[tuple[str, str]]
"""Command lines, and what each of them does."""

OPTIONS: Final = "Options"
HELP_WIDTH: Final = 88
_P = ParamSpec("_P")
_R = TypeVar("_R")


class Formatter(click.HelpFormatter):
    """Writes headings in bold; whoever prints takes that out where it is no terminal."""

    def write_heading(self, heading: str) -> None:
        """Write a heading."""
        self.write(f"{'':>{self.current_indent}}{click.style(heading, bold=True)}\n")


class Context(click.Context):
    """A context whose help is written by our Formatter."""

    formatter_class = Formatter


class Option(click.Option):
    """An option that stands under a heading of the help.

    Attributes:
        section: that heading.
    """

    def __init__(self, *args: Any, section: str = OPTIONS, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


class Verb(click.Command):
    """A command: its options in sections, and examples at the end of its help.

    Attributes:
        examples: command lines, and what each does.
    """

    context_class = Context

    def __init__(self, *args: Any, examples: Examples = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples: Final = tuple(examples)
        self.params.extend(shared_options())

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the options under their headings."""
        _write_options(self, ctx, formatter)

    def format_epilog(
        self,
        ctx: click.Context,  # noqa: ARG002 - as click calls it
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the examples."""
        _write_examples(self.examples, formatter)


class Noun(click.Group):
    """A group of commands about one thing, listed under headings.

    Attributes:
        examples: as of Verb.
        heading: of the commands that are filed nowhere.
        sections: heading of each command that is filed.
    """

    context_class = Context

    def __init__(
        self,
        *args: Any,
        examples: Examples = (),
        heading: str = "Commands",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.examples: Final = tuple(examples)
        self.heading: Final = heading
        self.sections: Final[dict[str, str]] = {}
        self.params.extend(shared_options())

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click calls it
        """Return the names in the order in which the commands were added."""
        return list(self.commands)

    def file(self, heading: str, *commands: click.Command) -> None:
        """Add commands under a heading of the help."""
        for command in commands:
            self.add_command(command)
            assert command.name is not None
            self.sections[command.name] = heading

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the commands under their headings, then the options."""
        headings: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            heading = self.sections.get(name, self.heading)
            headings.setdefault(heading, []).append((name, _summary(command)))
        for heading, rows in headings.items():
            with formatter.section(heading):
                formatter.write_dl(rows)
        _write_options(self, ctx, formatter)

    def format_epilog(
        self,
        ctx: click.Context,  # noqa: ARG002 - as click calls it
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the examples."""
        _write_examples(self.examples, formatter)


def option(
    *declarations: str, section: str = OPTIONS, **attributes: Any
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Return a decorator that adds an option under a heading."""
    return click.option(*declarations, cls=Option, section=section, **attributes)


def noun(
    name: str, text: str, *, examples: Examples, heading: str = "Commands"
) -> Noun:
    """Return a new group of commands about one thing."""
    return Noun(
        name, help=text, examples=examples, heading=heading, no_args_is_help=True
    )


def verb(
    parent: Noun | None, name: str, *, examples: Examples
) -> Callable[[Callable[Concatenate[Session, _P], None]], Verb]:
    """Return a decorator that makes a function a command.

    Args:
        parent: of which group; None for one that stands by itself.
        name: its name there.
        examples: what the help ends with.
    """

    def made(function: Callable[Concatenate[Session, _P], None]) -> Verb:
        command = click.command(name, cls=Verb, examples=examples)(
            _with_session(function)
        )
        if parent is not None:
            parent.add_command(command)
        return command

    return made


def _with_session(
    function: Callable[Concatenate[Session, _P], None],
) -> Callable[_P, None]:
    @functools.wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> None:
        return function(session_of(click.get_current_context()), *args, **kwargs)

    return called


def _summary(command: click.Command) -> str:
    return command.get_short_help_str(limit=HELP_WIDTH)


def _write_options(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    sections: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(ctx):
        if not isinstance(parameter, click.Option):
            continue  # arguments stand in the usage line, and are told in the text
        row = parameter.get_help_record(ctx)
        if row is not None:
            heading = getattr(parameter, "section", EVERYWHERE)
            sections.setdefault(heading, []).append(row)
    everywhere = sections.pop(EVERYWHERE, [])
    for heading, rows in [*sections.items(), (EVERYWHERE, everywhere)]:
        with formatter.section(heading):
            formatter.write_dl(rows, col_max=28)


def _write_examples(examples: Examples, formatter: click.HelpFormatter) -> None:
    if not examples:
        return
    with formatter.section("Examples"):
        for line, tells in examples:
            if tells:
                formatter.write(f"  # {tells}\n")
            formatter.write(f"  {click.style(line, fg='cyan')}\n")
