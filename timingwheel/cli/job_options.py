"""The options of `job add` and `job edit`, and what they mean to the scheduler."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, ParamSpec, TypeVar

import click

from timingwheel.cli.grammar import option
from timingwheel.cli.refusal import MisuseError
from timingwheel.cli.values import CAP, MOMENT, RETRY, TAG, interval_of
from timingwheel.jobs.after import After
from timingwheel.jobs.cron import Cron
from timingwheel.jobs.triggers import AfterOn

WHEN: Final = "When (one of the first six)"
BOUNDS: Final = "Within which bounds"
POLICIES: Final = "How its runs are treated"
PLACE: Final = "Where they wait, and how it is found"

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Option = Callable[[Callable[..., Any]], Callable[..., Any]]

_OPTIONS: Final[tuple[_Option, ...]] = (
    option(
        "--delay", metavar="LENGTH", section=WHEN, help="Once, this long from now: 10m."
    ),
    option("--at", type=MOMENT, metavar="TIME", section=WHEN, help="Once, at a time."),
    option(
        "--every",
        metavar="LENGTH|DAYS",
        section=WHEN,
        help="Again and again: 10m, or 'day at 06:00', '2 weeks at 09:30'.",
    ),
    option(
        "--cron", metavar="EXPR", section=WHEN, help="By cron fields: '30 2 * * *'."
    ),
    option("--rrule", metavar="RULE", section=WHEN, help="By an iCalendar rule."),
    option(
        "--after",
        multiple=True,
        metavar="JOB",
        section=WHEN,
        help="When another job has ended; several: all of them.",
    ),
    option(
        "--on",
        type=click.Choice(["success", "failure", "any"]),
        section=WHEN,
        help="Which end of --after counts: success.",
    ),
    option("--any-of", is_flag=True, section=WHEN, help="Any one of --after will do."),
    option(
        "--tz", metavar="ZONE", section=WHEN, help="The IANA zone of its times: UTC."
    ),
    option(
        "--dst-gap",
        type=click.Choice(["after", "skip", "shift"]),
        section=WHEN,
        help="What a cron time does that the clock skips: after.",
    ),
    option(
        "--dst-overlap",
        type=click.Choice(["first", "second", "both"]),
        section=WHEN,
        help="Which copy of a cron time counts that comes twice: first.",
    ),
    option("--start", type=MOMENT, metavar="TIME", section=BOUNDS, help="Not before."),
    option(
        "--end", type=MOMENT, metavar="TIME", section=BOUNDS, help="Not from then on."
    ),
    option("--max-runs", type=int, metavar="N", section=BOUNDS, help="Runs in all."),
    option(
        "--calendar", metavar="NAME", section=BOUNDS, help="Whose days are left out."
    ),
    option(
        "--roll",
        type=click.Choice(["skip", "next", "previous"]),
        section=BOUNDS,
        help="Where a run goes whose day is left out.",
    ),
    option(
        "--splay",
        metavar="LENGTH",
        section=BOUNDS,
        help="Due up to this much later, always by the same.",
    ),
    option(
        "--jitter", metavar="LENGTH", section=BOUNDS, help="The same, drawn each time."
    ),
    option(
        "--overlap",
        metavar="RULE",
        section=POLICIES,
        help="While a previous run is active: skip, buffer_one, buffer_all(50), "
        "cancel_other, kill_other, allow(3).",
    ),
    option(
        "--misfire",
        metavar="RULE",
        section=POLICIES,
        help="Of times missed: latest, skip, first, all(100, 1h).",
    ),
    option(
        "--retry",
        type=RETRY,
        metavar="N[,WAITS]",
        section=POLICIES,
        help="Attempts in all, and how far apart: 5,1s..10m; 1 never retries.",
    ),
    option("--timeout", metavar="LENGTH", section=POLICIES, help="Of an attempt."),
    option(
        "--delivery",
        type=click.Choice(["at_least_once", "at_most_once"]),
        section=POLICIES,
        help="What a lost attempt means.",
    ),
    option(
        "--start-deadline",
        metavar="LENGTH",
        section=POLICIES,
        help="Skip a run that has not started this long after it was due.",
    ),
    option(
        "--max-lost",
        type=int,
        metavar="N",
        section=POLICIES,
        help="Attempts that may be lost before a run counts as failed.",
    ),
    option("--queue", metavar="NAME", section=PLACE, help="Where its runs wait."),
    option(
        "--priority",
        type=int,
        metavar="N",
        section=PLACE,
        help="Higher is sooner; a step is worth a minute of waiting.",
    ),
    option(
        "--concurrency",
        type=CAP,
        metavar="KEY=N",
        section=PLACE,
        help="At most N at once of all jobs that share the key.",
    ),
    option(
        "--tag",
        "tags",
        multiple=True,
        type=TAG,
        metavar="NAME=WORD",
        section=PLACE,
        help="A word to find it by; may be repeated.",
    ),
)
_PLAIN: Final = (
    *("delay", "at", "rrule", "tz", "start", "end", "max_runs", "calendar", "roll"),
    *("splay", "jitter", "overlap", "misfire", "retry", "timeout", "delivery"),
    *("start_deadline", "max_lost", "queue", "priority", "concurrency"),
)
_MADE: Final = (
    *("every", "cron", "dst_gap", "dst_overlap", "after", "on", "any_of", "tags"),
)


def job_options(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Add the options that say when a job runs, how, and where it waits.

    The function takes them together, as `options`.
    """

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        options = {name: kwargs.pop(name) for name in (*_PLAIN, *_MADE)}
        whole: Any = function
        return whole(*args, options=options, **kwargs)

    made: Callable[..., Any] = called
    for add in reversed(_OPTIONS):
        made = add(made)
    return made


def scheduler_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was passed as the keyword arguments of `add` and `update`.

    Args:
        options: of the command line, by their Python names.

    Raises:
        MisuseError: one of them needs another.
        ArgumentError, CronError: one of them is invalid.
    """
    found = {name: options[name] for name in _PLAIN if options[name] is not None}
    if options["every"] is not None:
        found["every"] = interval_of(options["every"], options["tz"])
    if options["cron"] is not None:
        found["cron"] = _cron(options)
    elif options["dst_gap"] or options["dst_overlap"]:
        raise MisuseError("--dst-gap and --dst-overlap need --cron with them")
    if options["after"]:
        found["after"] = _after(options)
    elif options["on"] or options["any_of"]:
        raise MisuseError("--on and --any-of are about --after: name a job with it")
    if options["tags"]:
        found["tags"] = dict(options["tags"])
    return found


def _cron(options: Mapping[str, Any]) -> str | Cron:
    rules = {"gap": options["dst_gap"], "overlap": options["dst_overlap"]}
    given = {name: rule for name, rule in rules.items() if rule is not None}
    expression: str = options["cron"]
    if not given:
        return expression
    return Cron(expression, tz=options["tz"] or "UTC", **given)


def _after(options: Mapping[str, Any]) -> After:
    jobs, on = options["after"], AfterOn(options["on"] or "success")
    if options["any_of"]:
        return After.any_of(*jobs, on=on)
    return After.all_of(*jobs, on=on)
