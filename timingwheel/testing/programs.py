"""The program that a simulation runs: two tasks, and jobs with random options.

A handler does what its `plan` says, and nothing else, so the same seed does the same:

    ok        succeeds
    fail 2    raises in its first two attempts
    bad       raises always
    snooze    runs again later, once
    add       adds a job with its success

`near` is served by the scheduler itself, `far` by workers that join, take their time,
fall silent and die.
"""

from __future__ import annotations

import random
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol

from timingwheel.jobs.after import After, On
from timingwheel.jobs.model import Cap
from timingwheel.jobs.schedule import instant_datetime
from timingwheel.scheduler.context import Context
from timingwheel.scheduler.retrying import Retry
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.tasks import Call
from timingwheel.testing.promises import Kind, Wish

PROGRAM: Final = Scheduler(":memory:")
"""Never opened: a Sim takes its tasks."""
ELSEWHERE: Final = Scheduler(":memory:")
"""The program of remote workers; never opened either."""
NARROW: Final = "narrow"
"""A queue that lets NARROW_LIMIT runs go at once."""
NARROW_LIMIT: Final = 2
CAPS: Final = {"one": 1, "two": 2}
SECOND_NS: Final = 1_000_000_000
_PLANS: Final = ("ok", "ok", "ok", "ok", "fail 1", "fail 2", "bad", "snooze", "add")
_ENDS: Final[tuple[On, ...]] = ("success", "success", "failure", "any")
_OVERLAPS: Final = (
    *("skip", "buffer_one", "buffer_all(3)"),
    *("cancel_other", "kill_other", "allow(2)"),
)
_MISFIRES: Final = ("latest", "skip", "first", "all(5, 1h)")


class HandlerListener(Protocol):
    """Hears what handlers of `near` do."""

    def began(self, ctx: Context) -> None:
        """Note that a handler starts."""

    def ended(self, ctx: Context, how: str) -> None:
        """Note how it ends: "ok", "error" or "snoozed"."""


LISTENER: Final[ContextVar[HandlerListener]] = ContextVar("LISTENER")
"""Of the simulation that this thread runs."""


@PROGRAM.task(retry=Retry(3, backoff="1s..30s"))
def near(ctx: Context, label: str, plan: str) -> str:
    """Do as the plan says."""
    listener = LISTENER.get()
    listener.began(ctx)
    fault = fault_of(plan, ctx.attempt)
    if fault:
        listener.ended(ctx, "error")
        raise RuntimeError(fault)
    if plan == "snooze" and ctx.attempt == 1 and not ctx.token % 2:
        listener.ended(ctx, "snoozed")
        ctx.snooze("7s")
    if plan == "add":
        ctx.add(near.call(f"{label}f", "ok"), delay=3)
    listener.ended(ctx, "ok")
    return label


@ELSEWHERE.task(retry=Retry(3, backoff="1s..30s"))
def far(label: str, plan: str) -> str:
    """Stand for what remote workers do; never called here."""
    raise AssertionError((label, plan))


FAR: Final = far.name


def fault_of(plan: str, attempt: int) -> str:
    """Return the error of an attempt, or "" if it succeeds."""
    if plan == "bad":
        return "as planned, always"
    if plan.startswith("fail") and attempt <= int(plan.split()[1]):
        return f"as planned, attempt {attempt}"
    return ""


@dataclass(frozen=True)
class Asking:
    """What is asked of a scheduler: a wish, and the arguments of `add`."""

    wish: Wish
    call: Call
    options: dict[str, Any]

    def __str__(self) -> str:
        said = ", ".join(f"{name}={value}" for name, value in self.options.items())
        where = "far" if self.wish.remote else "near"
        return f"{self.wish.label} {where} {self.wish.plan!r} {said}"


def random_job(
    rng: random.Random, label: str, *, wall_ns: int, before: list[Wish]
) -> Asking:
    """Return a job to ask for.

    Args:
        rng: draws.
        label: of the job.
        wall_ns: the present.
        before: one-time jobs that it may wait for.
    """
    kinds: list[Kind] = ["delay", "moment", "every", "cron"]
    weights = [6, 2, 4, 1]
    if before:
        kinds.append("after")
        weights.append(4)
    [kind] = rng.choices(kinds, weights)
    remote = rng.random() < 0.45
    wish = Wish(label, kind, remote=remote)
    plans = _PLANS if kind not in ("every", "cron") else _PLANS[:-1]
    wish.plan = rng.choice(
        [p for p in plans if not (remote and p in ("snooze", "add"))]
    )
    call = (far if remote else near).call(label, wish.plan)
    options = _when(rng, wish, wall_ns=wall_ns, before=before)
    if kind != "delay" or rng.random() < 0.5:  # else a plain job, which is kept apart
        options |= _how(rng, wish)
    return Asking(wish, call, options)


def _when(
    rng: random.Random, wish: Wish, *, wall_ns: int, before: list[Wish]
) -> dict[str, Any]:
    match wish.kind:
        case "moment":
            at_ns = wall_ns + rng.choice((-5, 1, 30, 300, 4_000)) * SECOND_NS
            return {"at": instant_datetime(at_ns)}
        case "every":
            period = rng.choice((5, 17, 60, 600))
            wish.period_ns = {period * SECOND_NS}
            bound = {"max_runs": rng.randint(1, 12)} if rng.random() < 0.5 else {}
            return {"every": timedelta(seconds=period), **bound}
        case "cron":
            minutes = rng.choice((1, 5))
            wish.period_ns = {minutes * 60 * SECOND_NS}
            return {"cron": f"*/{minutes} * * * *"}
        case "after":
            chosen = rng.sample(before, min(len(before), rng.choice((1, 1, 2, 3))))
            wish.after = tuple(one.label for one in chosen)
            wish.after_on = rng.choice(_ENDS)
            wish.after_need = rng.choice(("all", "any"))
            join = After.all_of if wish.after_need == "all" else After.any_of
            return {"after": join(*(str(w.id) for w in chosen), on=wish.after_on)}
    seconds = rng.choice((0, 0, 1, 2, 10, 45, 200, 3_000))
    wish.delay_ns = seconds * SECOND_NS
    return {"delay": seconds}


def _how(rng: random.Random, wish: Wish) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if rng.random() < 0.25 and wish.plan != "snooze":
        options["delivery"] = "at_most_once"
    if rng.random() < 0.3:
        options["retry"] = rng.choice((1, 2, 4))
    if rng.random() < 0.3:
        options["priority"] = priority = rng.randint(-2, 2)
        wish.priority = {priority}
    if rng.random() < 0.25:
        options["queue"] = NARROW
    if rng.random() < 0.25:
        key = rng.choice(sorted(CAPS))
        options["concurrency"] = Cap(key, CAPS[key])
    if rng.random() < 0.1:
        options["start_deadline"] = "30s"
    if rng.random() < 0.2:
        options["max_lost"] = rng.choice((1, 2))
    if rng.random() < 0.3:
        options["name"] = f"name of {wish.label}"
    if wish.recurs:
        options["overlap"] = rng.choice(_OVERLAPS)
        options["misfire"] = rng.choice(_MISFIRES)
    return options
