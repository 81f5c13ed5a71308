"""A job as the texts of a form, and those texts as the options of `add` and `update`.

An edit says only what was typed anew: a text that is still the one that the form was
opened with stays what it stood for, even where the text says less than the job does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, cast
from zoneinfo import ZoneInfo

import msgspec

from timingwheel.errors import ArgumentError
from timingwheel.jobs.errors import UNREADABLE
from timingwheel.jobs.model import (
    DEFAULT_QUEUE,
    Job,
    MisfirePolicy,
    OverlapPolicy,
    RetryPolicy,
)
from timingwheel.jobs.schedule import instant_datetime
from timingwheel.jobs.triggers import (
    AfterJobs,
    At,
    CronRule,
    Delay,
    EveryCalendar,
    EveryPeriod,
    RRule,
    Trigger,
)
from timingwheel.scheduler.calling import call_by_name
from timingwheel.scheduler.policies import misfire_policy, overlap_policy
from timingwheel.scheduler.secrets import arguments_with_kept_secrets
from timingwheel.scheduler.tasks import Call, TaskRegistry
from timingwheel.server.dashboard.visits import Fields, FormErrors
from timingwheel.server.dashboard.words import exact_words
from timingwheel.wire.answers import plain_arguments

KINDS: Final = (
    ("cron", "Cron expression"),
    ("every", "Every so often"),
    ("at", "Once, at a time"),
    ("delay", "Once, after a delay"),
    ("rrule", "iCalendar rule"),
)
KEPT_KIND: Final = "keep"
"""The kind of a trigger that the form has no text for; it stays as it is."""
FIELDS: Final = (
    *("kind", "when", "tz", "args", "name", "queue", "priority", "tags"),
    *("splay", "jitter", "start", "end", "max_runs", "calendar"),
    *("overlap", "misfire", "attempts", "timeout", "start_deadline", "delivery"),
)
PLACES: Final = {
    **dict.fromkeys(("cron", "every", "at", "delay", "rrule", "trigger"), "when"),
    **dict.fromkeys(("retry", "retry.attempts"), "attempts"),
    "call": "args",
}
"""At which field the form shows what is wrong with an option."""
_MINUTE_FORM: Final = "%Y-%m-%d %H:%M:%S"

Texts = dict[str, str]


def blank_texts(zone: ZoneInfo) -> Texts:
    """Return the form for a new job; its zone is the visitor's."""
    texts = dict.fromkeys(FIELDS, "")
    return texts | {
        "task": "",
        "kind": "cron",
        "tz": zone.key,
        "args": "{}",
        "queue": "",
        "priority": "",
        "overlap": "skip",
        "misfire": "latest",
        "delivery": "at_least_once",
    }


def sent_texts(form: Fields) -> Texts:
    """Return what was typed into the form."""
    return {name: form.get(name) for name in ("task", *FIELDS)}


def job_texts(job: Job, zone: ZoneInfo) -> Texts:
    """Return a job as the texts of a form.

    Args:
        job: any.
        zone: in which moments are shown, and typed.
    """
    trigger, policy = job.trigger, job.policy
    kind, when, tz = _when_texts(trigger, zone)
    arguments = plain_arguments(job.payload)
    return {
        "task": job.task,
        "kind": kind,
        "when": when,
        "tz": tz or zone.key,
        "args": "" if arguments is None else json_text(arguments),
        "name": job.name or "",
        "queue": "" if job.queue == DEFAULT_QUEUE else job.queue,
        "priority": str(job.priority or ""),
        "tags": tags_text(job.tags),
        "splay": _length_text(trigger.splay_ns),
        "jitter": _length_text(trigger.jitter_ns),
        "start": moment_text(trigger.start_ns, zone),
        "end": moment_text(trigger.end_ns, zone),
        "max_runs": str(trigger.runs_max or ""),
        "calendar": trigger.calendar or "",
        "overlap": overlap_text(policy.overlap),
        "misfire": misfire_text(policy.misfire),
        "attempts": str(policy.retry.attempts),
        "timeout": _length_text(policy.timeout_ns),
        "start_deadline": _length_text(policy.start_deadline_ns),
        "delivery": policy.delivery.value,
    }


def said_options(
    texts: Texts, former: Texts | None, errors: FormErrors, *, zone: ZoneInfo
) -> dict[str, Any]:
    """Return the options that a form says, but `call` and `name`.

    Args:
        texts: as they were sent.
        former: those that the form was opened with; None: of a new job.
        errors: takes in what is wrong, each at its field.
        zone: in which moments are typed.
    """
    options: dict[str, Any] = {}
    known = dict.fromkeys(FIELDS, "") if former is None else former
    for name, (option, read) in _READ.items():
        if texts[name] == known[name]:
            continue
        with errors.caught(name, places={option: name}):
            options[option] = read(texts[name], option, zone) if texts[name] else None
    kind, when, tz = texts["kind"], texts["when"], texts["tz"]
    if kind == KEPT_KIND:
        return options
    is_same = former is not None and (kind, when) == (former["kind"], former["when"])
    if not is_same:
        with errors.caught("when", places=PLACES):
            options[kind] = _moment(kind, when, tz, zone)
    changes_zone = not is_same or (former is not None and tz != former["tz"])
    if kind in {"cron", "rrule"} and changes_zone:
        options["tz"] = tz or "UTC"
    return options


def said_call(
    texts: Texts, tasks: TaskRegistry, errors: FormErrors, *, job: Job | None = None
) -> Call | None:
    """Return the call that a form says; None if it is invalid.

    Args:
        texts: of the form.
        tasks: against which it is checked.
        errors: takes in what is wrong.
        job: that is edited; its secrets stay where the form has their mask.
    """
    call = None
    found = FormErrors()
    with found.caught("args", "task", places=PLACES):
        if not texts["task"]:
            raise ArgumentError("task", "", "say which task runs")
        arguments = _arguments(texts["args"])
        if job is not None:
            # Before the call is checked: a secret may be of a type that *** is not.
            arguments = arguments_with_kept_secrets(arguments, job.payload)
        call = call_by_name(tasks, texts["task"], arguments)
    if "" in found:  # an argument of the task is named
        found["args"] = found.pop("")
    errors.update(found)
    return call


def moment_of(text: str, argument: str, zone: ZoneInfo) -> datetime:
    """Return the moment that was typed, in a zone unless the text has an offset.

    Raises:
        ArgumentError: it is none.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        form = "pass a time such as 2027-01-31 09:30, or with an offset +01:00"
        raise ArgumentError(argument, text, form) from None
    return moment.replace(tzinfo=zone) if moment.tzinfo is None else moment


def moment_text(ns: int | None, zone: ZoneInfo) -> str:
    """Return a moment as it is typed; "" for none. It may lose parts of a second."""
    if ns is None:
        return ""
    return instant_datetime(ns).astimezone(zone).strftime(_MINUTE_FORM)


def json_text(value: object) -> str:
    """Return a value as JSON that a person can read and edit."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def tags_text(tags: Mapping[str, str]) -> str:
    """Return tags as they are typed: "team:bi, region:north"."""
    return ", ".join(f"{word}:{value}" for word, value in tags.items())


def tags_of(text: str, argument: str) -> dict[str, str]:
    """Return the tags that were typed.

    Raises:
        ArgumentError: one is no `word:value`.
    """
    tags = {}
    for part in filter(None, map(str.strip, text.split(","))):
        word, colon, value = part.partition(":")
        if not colon or not word.strip():
            raise ArgumentError(argument, part, "pass word:value, such as team:bi")
        tags[word.strip()] = value.strip()
    return tags


def overlap_text(policy: OverlapPolicy) -> str:
    """Return an overlap policy as it is typed."""
    if policy == overlap_policy(policy.rule.value):
        return policy.rule.value
    return f"{policy.rule.value}({policy.limit})"


def misfire_text(policy: MisfirePolicy) -> str:
    """Return a misfire policy as it is typed."""
    if policy == misfire_policy(policy.rule.value):
        return policy.rule.value
    window = "" if policy.window_ns is None else f", {exact_words(policy.window_ns)}"
    return f"{policy.rule.value}({policy.limit}{window})"


def _when_texts(trigger: Trigger, zone: ZoneInfo) -> tuple[str, str, str]:
    match trigger.when:
        case CronRule(expression=expression, tz=tz):
            return "cron", expression, tz
        case EveryPeriod(period_ns=period_ns):
            return "every", exact_words(period_ns), ""
        case At(at_ns=at_ns):
            return "at", moment_text(at_ns, zone), ""
        case Delay(delay_ns=delay_ns):
            return "delay", exact_words(delay_ns), ""
        case RRule(rule=rule, tz=tz):
            return "rrule", rule, tz
        case EveryCalendar() | AfterJobs():
            return KEPT_KIND, "", ""


def _moment(kind: str, when: str, tz: str, zone: ZoneInfo) -> object:
    if kind not in dict(KINDS):
        known = ", ".join(name for name, _ in KINDS)
        raise ArgumentError("when", kind, f"choose one of {known}")
    if not when:
        raise ArgumentError("when", "", "say when it runs")
    if kind == "at":
        return moment_of(when, "at", zone_or(tz, zone))
    return when


def zone_or(tz: str, zone: ZoneInfo) -> ZoneInfo:
    """Return the zone of a text, or the other where it is none.

    Whether it is one is checked where the text is used as an option.
    """
    try:
        return ZoneInfo(tz) if tz else zone
    except (KeyError, ValueError, OSError):
        return zone


def _arguments(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except UNREADABLE as error:
        form = 'pass a JSON object, such as {"to": "ann@example.com"}'
        raise ArgumentError("args", text, f"{form} ({error})") from None


def _length_text(length_ns: int | None) -> str:
    return exact_words(length_ns) if length_ns else ""


def _as_text(text: str, _argument: str, _zone: ZoneInfo) -> object:
    return text


def _as_number(text: str, argument: str, _zone: ZoneInfo) -> object:
    try:
        return int(text)
    except ValueError:
        raise ArgumentError(argument, text, "pass a whole number") from None


def _as_tags(text: str, argument: str, _zone: ZoneInfo) -> object:
    return tags_of(text, argument)


_Read = Callable[[str, str, ZoneInfo], object]
_READ: Final[Mapping[str, tuple[str, _Read]]] = {
    "queue": ("queue", _as_text),
    "priority": ("priority", _as_number),
    "tags": ("tags", _as_tags),
    "splay": ("splay", _as_text),
    "jitter": ("jitter", _as_text),
    "start": ("start", cast("_Read", moment_of)),
    "end": ("end", cast("_Read", moment_of)),
    "max_runs": ("max_runs", _as_number),
    "calendar": ("calendar", _as_text),
    "overlap": ("overlap", _as_text),
    "misfire": ("misfire", _as_text),
    "attempts": ("retry", _as_number),
    "timeout": ("timeout", _as_text),
    "start_deadline": ("start_deadline", _as_text),
    "delivery": ("delivery", _as_text),
}


def retry_option(options: dict[str, Any], former: RetryPolicy) -> None:
    """Have an edit of the attempts keep the waits between them."""
    attempts = options.get("retry")
    if type(attempts) is int and attempts >= 1:
        options["retry"] = msgspec.structs.replace(former, attempts=attempts)
