"""Writes the API reference from the docstrings: `python docs/reference/make.py`.

The pages beside this file, and the tables in docs/states.md. All of it is read from the
source, which is parsed and not run, so that every Python gives the same bytes. A test
compares the pages with what this would write.
"""

# ruff: noqa: D103, INP001 - a script, not an API

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeGuard

DOCS = Path(__file__).resolve().parent.parent
ROOT = DOCS.parent
REFERENCE = DOCS / "reference"
MADE = "<!-- made by docs/reference/make.py -->"
SECTIONS = ("Args", "Returns", "Raises", "Attributes", "Yields", "Example", "Cost")
WIDTH = 88

FRONTS = (
    *("timingwheel", "timingwheel.testing", "timingwheel.jobs"),
    *("timingwheel.client", "timingwheel.worker", "timingwheel.server"),
)
# Their constructors are the scheduler's business.
HANDED_OUT = {"RunHandle", "QueueHandle", "CalendarHandle", "Context", "TaskRegistry"}
# Where the words of the scheduler are written down; readers see them as its own.
PARTS = {
    *("Requests", "Questions", "ClientRequests", "ClientQuestions"),
    *("Awaited", "AwaitedRequests"),
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class PageOf(NamedTuple):
    """One page: names of modules, and what is told of each.

    Attributes:
        title: its heading.
        intro: what the reader should know first.
        names: module -> classes and functions, in the order of the page.
    """

    title: str
    intro: str
    names: dict[str, tuple[str, ...]]


PAGES = {
    "scheduler.md": PageOf(
        "Scheduler",
        "Begin with the [tutorial](../tutorial.md); for an event loop: "
        "[AsyncScheduler](asyncio.md).\n\n"
        "Words in signatures: a `Duration` is seconds, a `timedelta`, or text such as "
        '`"1h30m"`; `AnyJob` a job id, a name, a `JobRef` or a `Job`; `AnyRun` a run id, a '
        "`Run`, a `RunHandle`, or a job that runs once, for its only run.",
        {
            "timingwheel.scheduler.scheduler": ("Scheduler",),
            "timingwheel.scheduler.options": (
                *("TriggerOptions", "PolicyOptions", "PlaceOptions"),
                *("AddOptions", "ChangeOptions"),
            ),
            "timingwheel.scheduler.handles": (
                *("RunHandle", "QueueHandle", "CalendarHandle", "Page"),
                "RunFailedError",
            ),
            "timingwheel.jobs.store": (
                *("JobRef", "CancelResult", "CatchUp", "Resumption", "Load"),
            ),
            "timingwheel.scheduler.changing": ("JobUpdate",),
            "timingwheel.scheduler.requests": ("Backfill",),
            "timingwheel.jobs.explaining": ("NextTime",),
            "timingwheel.scheduler.checking": ("Finding",),
            "timingwheel.stores.history_retention": ("Retention",),
            "timingwheel.scheduler.metrics": ("MetricsSnapshot",),
            "timingwheel.jobs.figures": ("HistogramSnapshot",),
            "timingwheel.stores.backup": ("backup", "restore"),
            "timingwheel.stores.backup_reading": ("Backup",),
            "timingwheel.jobs.storage": (
                *("Storage", "LogFacts", "SegmentFacts", "SnapshotFacts"),
                *("RecoveryFacts", "WheelFacts", "LevelFacts"),
            ),
        },
    ),
    "tasks.md": PageOf(
        "Tasks, and what a handler can do",
        "A task is a function that a stored job can name. Its first parameter gets the "
        "Context if it is called `ctx`.",
        {
            "timingwheel.scheduler.tasks": ("Task", "Call", "TaskRegistry"),
            "timingwheel.scheduler.retrying": ("Retry",),
            "timingwheel.scheduler.context": (
                *("Context", "Cancelled", "LeaseLost", "Snooze", "current"),
            ),
        },
    ),
    "asyncio.md": PageOf(
        "AsyncScheduler",
        "The same names as [Scheduler](scheduler.md), awaited.",
        {
            "timingwheel.scheduler.asyncio_scheduler": ("AsyncScheduler",),
            "timingwheel.scheduler.asyncio_handles": (
                *("AsyncRunHandle", "AsyncQueueHandle", "AsyncCalendarHandle"),
            ),
        },
    ),
    "client.md": PageOf(
        "Client, AsyncClient and Worker",
        "A [server](server.md)'s jobs from elsewhere; extra `[client]`. A client has the "
        "words of [Scheduler](scheduler.md), and its handles those of Scheduler's. What a "
        "worker and the server say to each other: [workers.md](../workers.md).",
        {
            "timingwheel.client.client": ("Client",),
            "timingwheel.client.asyncio_client": ("AsyncClient",),
            "timingwheel.worker.worker": ("Worker",),
            "timingwheel.client.transport": ("ServerAwayError", "UnansweredError"),
            "timingwheel.wire.problems": ("AccessError", "RefusedByServerError"),
        },
    ),
    "server.md": PageOf(
        "The server",
        "A scheduler over HTTP; extra `[server]`. As a command: "
        "[timingwheel serve](cli.md#timingwheel-serve); its [settings]"
        "(cli.md#settings); at work: [operations](../howto/operations.md). What can be "
        "asked is in the document that it serves, `/openapi.json`.",
        {
            "timingwheel.server.serving": ("HttpServer",),
            "timingwheel.server.app": ("create_app",),
            "timingwheel.server.tokens": ("TokenBook", "Token"),
        },
    ),
    "triggers.md": PageOf(
        "Triggers, schedules and calendars",
        "What `cron=`, `every=`, `after=` and `calendar=` take. What the expressions "
        "mean, and what a change of the clocks does: [cron.md](../cron.md).",
        {
            "timingwheel.jobs.intervals": ("every",),
            "timingwheel.jobs.after": ("After",),
            "timingwheel.jobs.cron": ("Cron",),
            "timingwheel.jobs.every": ("Every", "CalendarEvery"),
            "timingwheel.jobs.rrule": ("RecurrenceRule",),
            "timingwheel.jobs.schedule": ("Schedule", "Firing", "DstMark"),
            "timingwheel.jobs.calendars": ("NamedCalendar",),
            "timingwheel.jobs.triggers": ("Trigger",),
        },
    ),
    "model.md": PageOf(
        "Jobs, runs and attempts",
        "The values that questions return. Times are integer nanoseconds since 1970 "
        "(UTC), lengths of time nanoseconds. How states follow each other: "
        "[states.md](../states.md).",
        {
            "timingwheel.jobs.model": (
                *("Job", "JobState", "Run", "RunState", "RunReason", "Attempt"),
                *("Outcome", "SkipRange", "SkipReason", "Queue", "Pause", "Cap"),
                *("Policy", "Delivery", "RetryPolicy", "OverlapPolicy", "Overlap"),
                *("MisfirePolicy", "Misfire", "Payload", "run_id", "parse_run_id"),
            ),
        },
    ),
    "errors.md": PageOf(
        "Errors",
        "One class for each thing a caller can do about it. All derive from "
        "`TimingWheelError`, but for those of the log, which derive from `WalError`.",
        {
            "timingwheel.errors": (
                *("TimingWheelError", "ArgumentError", "DeadlineError", "CronError"),
                *("PayloadTooLargeError", "BatchTooLargeError", "MissingExtraError"),
                *("EngineClosedError", "EngineFailedError"),
            ),
            "timingwheel.jobs.errors": (
                *("TaskError", "PayloadError", "KeyConflictError", "NameTakenError"),
                *("RevisionConflictError", "RunStateError", "UnknownJobError"),
                *("UnknownRunError", "UnknownTaskError", "UnknownCalendarError"),
                "UnknownWorkerError",
            ),
            "timingwheel.stores.backup_reading": ("BackupError",),
            "timingwheel.stores.history_errors": ("HistoryError",),
            "timingwheel.stores.door_errors": ("HolderLostError",),
            "wal.errors": (
                *("WalError", "StoreError", "StoreInUseError", "LogCorruptError"),
                *("DiskFullError", "CommitUnknownError"),
            ),
        },
    ),
    "engine.md": PageOf(
        "The engine, the wheel and the clock",
        "Durable timers without jobs. Begin with the "
        "[tutorial of the engine](../tutorial-engine.md).",
        {
            "timingwheel.engine.engine": ("TimerEngine",),
            "timingwheel.engine.asyncio_engine": ("AsyncTimerEngine",),
            "timingwheel.engine.timers": ("Timer",),
            "timingwheel.wheel": ("TimerWheel",),
            "timingwheel.clock": ("Clock", "Reading", "SystemClock"),
        },
    ),
    "testing.md": PageOf(
        "For tests",
        "A world that a test controls. Begin with "
        "[testing with Sim](../howto/testing-with-sim.md).",
        {
            "timingwheel.scheduler.simulation": ("Sim",),
            "timingwheel.manual_clock": ("ManualClock",),
            "timingwheel.testing.simulating": (
                "simulate",
                "Simulation",
                "SimulationFailedError",
            ),
        },
    ),
}

# ------------------------------------------------------------------------ the source


@cache
def tree_of(module: str) -> ast.Module:
    path = ROOT.joinpath(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(source.read_text(), filename=str(source))


def found(module: str, name: str) -> ast.ClassDef | Function:
    for node in tree_of(module).body:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                if node.name == name and not is_overload(node):
                    return node
    raise LookupError(f"{module} has no {name}: mend PAGES in {__file__}")


def is_overload(node: ast.ClassDef | Function) -> bool:
    return any(ast.unparse(it).endswith("overload") for it in node.decorator_list)


def home_of(module: str, name: str) -> str | None:
    """Return the module that a name of this one is imported from, if it is ours."""
    for node in tree_of(module).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            if any((alias.asname or alias.name) == name for alias in node.names):
                ours = node.module.partition(".")[0] in {"timingwheel", "wal"}
                return node.module if ours else None
        elif isinstance(node, ast.ClassDef) and node.name == name:
            return module
    return None


def lineage(module: str, node: ast.ClassDef) -> Iterator[ast.ClassDef]:
    """The class and those of ours that it derives from."""
    yield node
    for base in node.bases:
        text = ast.unparse(base).partition("[")[0]
        home = home_of(module, text)
        if home is not None:
            parent = found(home, text)
            if isinstance(parent, ast.ClassDef):
                yield from lineage(home, parent)


# ------------------------------------------------------------------------- one entry


def entry(module: str, name: str) -> Iterator[str]:
    node = found(module, name)
    if not isinstance(node, ast.ClassDef):
        yield from ("", f"## {name}", "", import_of(module, name), "")
        yield from (*signature(node), "", *prose(node))
        return
    bases = [text for it in node.bases if (text := ast.unparse(it)) not in PARTS]
    yield from ("", f"## {name}", "", import_of(module, name), "")
    if bases:
        yield f"A kind of {', '.join(f'`{base}`' for base in bases)}."
    made = [it for it in node.body if is_function(it, "__init__")]
    is_made_by_hand = name not in HANDED_OUT and "\nArgs:" in docstring(node)
    if made and is_made_by_hand:
        yield from ("", *signature(made[0], name=name))
    yield from ("", *prose(node, leave_out=() if is_made_by_hand else ("Args",)))
    fields = list(fields_of(node))
    if fields:
        yield from ("", "```python", *fields, "```")
    told: set[str] = set()
    for cls in lineage(module, node):
        yield from members(cls, told, owner=name)


def import_of(module: str, name: str) -> str:
    homes = [front for front in FRONTS if name in exported(front)]
    return f"`from {(homes or [module])[0]} import {name}`"


@cache
def exported(front: str) -> frozenset[str]:
    """What a front lists in __all__."""
    for node in tree_of(front).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return frozenset(ast.literal_eval(value))
    raise LookupError(f"{front} has no __all__")


def is_function(node: ast.stmt, name: str) -> TypeGuard[Function]:
    return (
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
    )


def fields_of(node: ast.ClassDef) -> Iterator[str]:
    """Fields of a struct, members of an enumeration, options of a typed dictionary."""
    body = node.body
    for place, it in enumerate(body):
        told = ""
        if place + 1 < len(body) and isinstance(it, ast.Assign):
            match body[place + 1]:
                case ast.Expr(ast.Constant(str() as text)):
                    told = "  # " + " ".join(text.split())
        match it:
            case ast.AnnAssign(target=ast.Name(id=field)) if field[0] != "_":
                if "ClassVar" not in ast.unparse(it.annotation):
                    yield ast.unparse(it)
            case ast.Assign(targets=[ast.Name(id=field)], value=ast.Constant()):
                if field[0] != "_":
                    yield ast.unparse(it) + told


def members(cls: ast.ClassDef, told: set[str], *, owner: str) -> Iterator[str]:
    for node in cls.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                is_told = node.name in told or is_overload(node)
                if node.name.startswith("_") or is_told:
                    continue
                told.add(node.name)
                if any("setter" in ast.unparse(it) for it in node.decorator_list):
                    continue
                yield from ("", f"### {owner}.{node.name}", "")
                yield from (*signature(node), "", *prose(node))
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Name(id="awaited"), args=[twin]),
            ):
                told.add(name)
                yield from ("", f"### {owner}.{name}", "")
                yield f"As `{ast.unparse(twin)}`, awaited."


def signature(node: Function, *, name: str | None = None) -> Iterator[str]:
    """The call as it is defined; with a name, that of a class which is made so."""
    words = "async def " if isinstance(node, ast.AsyncFunctionDef) else "def "
    called = f"{words}{node.name}" if name is None else name
    marks = [
        f"@{name}"
        for it in node.decorator_list
        if (name := ast.unparse(it)) in {"property", "classmethod", "staticmethod"}
    ]
    result = ""
    if node.returns is not None and name is None:
        result = f" -> {ast.unparse(node.returns)}"
    passed = [text for text in parameters(node.args) if text not in {"self", "cls"}]
    line = f"{called}({', '.join(passed)}){result}"
    if len(line) > WIDTH:
        inside = "".join(f"    {text},\n" for text in passed)
        line = f"{called}(\n{inside}){result}"
    yield from ("```python", *marks, line, "```")


def parameters(args: ast.arguments) -> Iterator[str]:
    positional = [*args.posonlyargs, *args.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(args.defaults))
    for place, (arg, value) in enumerate(
        zip(positional, [*defaults, *args.defaults], strict=True), 1
    ):
        yield parameter(arg, value)
        if args.posonlyargs and place == len(args.posonlyargs):
            yield "/"
    if args.vararg:
        yield f"*{parameter(args.vararg, None)}"
    elif args.kwonlyargs:
        yield "*"
    for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield parameter(arg, value)
    if args.kwarg:
        yield f"**{parameter(args.kwarg, None)}"


def parameter(arg: ast.arg, default: ast.expr | None) -> str:
    text = arg.arg
    if arg.annotation is not None:
        text += f": {ast.unparse(arg.annotation)}"
    if default is None:
        return text
    equals = " = " if arg.annotation is not None else "="
    return f"{text}{equals}{ast.unparse(default)}"


# ------------------------------------------------------------------------ docstrings


def docstring(node: ast.ClassDef | Function) -> str:
    return ast.get_docstring(node) or ""


def prose(
    node: ast.ClassDef | Function, *, leave_out: tuple[str, ...] = ()
) -> Iterator[str]:
    """The docstring as Markdown: its sections become lists, its examples blocks."""
    section = ""
    for line in docstring(node).splitlines():
        head = line.rstrip(":")
        if line.endswith(":") and head in SECTIONS:
            section = head
            if section not in leave_out:
                yield from (f"**{head}**", "")
        elif section in leave_out and (line.startswith("    ") or not line):
            continue
        elif line.startswith("Cost: "):
            yield f"**Cost** {line.removeprefix('Cost: ')}"
        elif not line.startswith("    ") or section == "Example" or not section:
            section = section if line.startswith("    ") or not line else ""
            yield line
        elif re.match(r"    \S", line) and section in {"Args", "Attributes", "Raises"}:
            name, colon, rest = line.strip().partition(": ")
            yield f"- `{name}`: {rest}" if colon else f"- {line.strip()}"
        elif section == "Returns":
            yield line.strip()
        else:
            yield "  " + line.strip()


# ----------------------------------------------------------------------------- pages


def page(name: str) -> str:
    what = PAGES[name]
    lines = [MADE, "", f"# {what.title}", "", what.intro]
    for module, names in what.names.items():
        for each in names:
            lines += entry(module, each)
    return tidy(lines)


def index() -> str:
    lines = [MADE, "", "# Reference", ""]
    lines += ["Every public name, from its docstring.", ""]
    for name, what in PAGES.items():
        told = [each for names in what.names.values() for each in names]
        links = ", ".join(f"[{each}]({name}#{each.lower()})" for each in told)
        lines.append(f"- [{what.title}]({name}): {links}")
    lines.append("- [The command line](cli.md), made by make_cli.py beside this")
    lines.append("- [Metrics](metrics.md), made by make_metrics.py beside this")
    return tidy(lines)


def tidy(lines: list[str]) -> str:
    text = "\n".join(line.rstrip() for line in lines)
    return re.sub(r"\n{3,}", "\n\n", text) + "\n"


# ---------------------------------------------------------------------------- states


def transitions() -> str:
    """The table of jobs/states.py as Markdown."""
    module = tree_of("timingwheel.jobs.states")
    lines = ["| from | to | because |", "|---|---|---|"]
    for node in ast.walk(module):
        match node:
            case ast.Call(
                func=ast.Name(id="Transition"),
                args=[
                    ast.Attribute(attr=before),
                    ast.Attribute(attr=after),
                    ast.Constant(value=str() as cause),
                ],
            ):
                lines.append(f"| {before.lower()} | {after.lower()} | {cause} |")
    return "\n".join(lines)


def states_page() -> str:
    path = DOCS / "states.md"
    begin, end = f"{MADE}\n", "<!-- end -->"
    head, _, rest = path.read_text().partition(begin)
    return f"{head}{begin}\n{transitions()}\n\n{end}{rest.partition(end)[2]}"


def written() -> dict[Path, str]:
    """Return what each file is to hold."""
    pages = {REFERENCE / name: page(name) for name in PAGES}
    return {
        **pages,
        REFERENCE / "README.md": index(),
        DOCS / "states.md": states_page(),
    }


def main() -> None:
    for path, text in written().items():
        path.write_text(text)
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
