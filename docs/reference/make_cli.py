"""Writes the reference of the command line: `python docs/reference/make_cli.py`.

From the commands themselves, so it needs the extra `cli`. A test compares the page with
what this would write.
"""

# ruff: noqa: D103, INP001 - a script, not an API

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from timingwheel.cli.everywhere import EVERYWHERE
from timingwheel.cli.grammar import Examples, Noun, Option, Verb
from timingwheel.cli.root import root
from timingwheel.cli.serve import serve
from timingwheel.cli.settings import DEFAULTS, PREFIX

PAGE = Path(__file__).resolve().parent / "cli.md"
MADE = "<!-- made by docs/reference/make_cli.py -->"
INTRO = """\
`pip install 'timingwheel-engine[cli]'` brings the command `timingwheel`; `python -m
timingwheel` is the same. It works on a directory (`--data`; if a process holds it, by asking that
process), on a server (`--url`), or on a database (`--store`). A job is meant by its name or its id, a run by its id.

**Answers.** A table for people, times by their clock with its offset. With `--json` one JSON
document on standard output; with `--all`, `run logs` and `top` JSON lines. Times are
RFC 3339 in UTC then, and fields that end in `_ns` nanoseconds. Errors and remarks go to
standard error, with `--json` as `{"error": {"kind": ..., "message": ...}}`.

**Exit codes.** 0 done; 1 it failed, or what was named is not there; 2 a usage error;
130 after Ctrl-C; 141, as a shell counts it, if nobody reads what it prints. `log verify`
adds 3 for a torn tail and 4 for damage, `log repair` 4 for lost records, `backup` and
`upgrade` 4 for damage.

**Times** on the command line are ISO 8601 (`2026-03-29T09:00`, without an offset by your
clock), `now`, `today`, `tomorrow`, `yesterday`, `+2h`, `-30m` or `'2h ago'`. **Lengths** are
`90s`, `10m`, `1h30m`, `7d`.

**Shell completion.** `eval "$(timingwheel completion bash)"`; also for zsh and fish."""
SETTINGS = """\
From the command line, else the environment, else a file, else the default. The file is
`$TIMINGWHEEL_CONFIG`, else `./timingwheel.toml`, else `timingwheel/config.toml` in
`$XDG_CONFIG_HOME` or `~/.config`; an unknown key in it is an error. Of `data` and `url` the one
from the nearer place counts. `timingwheel config show` names the origin of each.
"""


def page() -> str:
    lines = [MADE, "", "# The command line", "", INTRO, "", "## Settings", "", SETTINGS]
    lines += ["| key | option | environment | default | |", "|---|---|---|---|---|"]
    lines += settings()
    ctx = click.Context(root, info_name="timingwheel")
    lines += commands(root, ctx)
    return "\n".join(lines) + "\n"


def settings() -> Iterator[str]:
    told = {option.name: option.help for option in root.params if is_everywhere(option)}
    of_serve = [it for it in serve.params if isinstance(it, Option)]
    told |= {option.name: option.help for option in of_serve}
    for name, value in DEFAULTS.items():
        default = "" if value is None else f"`{str(value).lower()}`"
        variable = f"`{PREFIX}{name.upper()}`"
        command = "" if is_everywhere_named(name) else "serve "
        option = f"`{command}--{name}`"
        yield f"| `{name}` | {option} | {variable} | {default} | {told[name]} |"


def is_everywhere_named(name: str) -> bool:
    return any(it.name == name and is_everywhere(it) for it in root.params)


def commands(group: Noun, ctx: click.Context) -> Iterator[str]:
    for name, command in group.commands.items():
        inner = click.Context(command, info_name=name, parent=ctx)
        if isinstance(command, Noun):
            yield from ("", f"## {inner.command_path}", "")
            if command.invoke_without_command:
                yield from usage(command, inner)
            yield (command.help or "").strip()
            if command.invoke_without_command:
                yield from options(command)
                yield from examples(command.examples)
            yield from commands(command, inner)
        elif isinstance(command, Verb):
            yield from one(command, inner)


def one(command: Verb, ctx: click.Context) -> Iterator[str]:
    level = "###" if ctx.parent is not None and ctx.parent.parent else "##"
    yield from ("", f"{level} {ctx.command_path}", "")
    yield from usage(command, ctx)
    yield (command.help or "").strip()
    yield from options(command)
    yield from examples(command.examples)


def usage(command: click.Command, ctx: click.Context) -> Iterator[str]:
    line = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    yield from ("```", line, "```", "")


def options(command: click.Command) -> Iterator[str]:
    section = ""
    for option in command.params:
        if not isinstance(option, Option):
            continue
        if option.section != section:
            section = option.section
            yield from ("", f"| {section} | |", "|---|---|")
        yield f"| {words(option)} | {text(option)} |"


def words(option: Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    if option.is_flag:
        return names
    value = option.metavar
    if value is None and isinstance(option.type, click.Choice):
        value = " ".join(str(choice) for choice in option.type.choices)
    return f"{names} `{(value or option.type.name).replace('|', ' or ')}`"


def text(option: Option) -> str:
    default = f" Default: `{option.default}`." if option.show_default else ""
    return f"{option.help}{default}".replace("|", "\\|")


def examples(all_: Examples) -> Iterator[str]:
    yield from ("", "```console")
    for line, tells in all_:
        yield f"$ {line}" + (f"    # {tells}" if tells else "")
    yield "```"


def is_everywhere(option: click.Parameter) -> bool:
    return getattr(option, "section", EVERYWHERE) == EVERYWHERE and bool(
        getattr(option, "help", "")
    )


def main() -> None:
    PAGE.write_text(page())
    sys.stdout.write(f"{PAGE.name}\n")


if __name__ == "__main__":
    main()
