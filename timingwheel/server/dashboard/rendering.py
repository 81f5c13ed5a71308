"""Templates: their environment, and the filters that they have.

    {{ run.due_ns | when }}         a time in the visitor's zone, UTC in its title
    {{ load.start_ns | minute }}    the same without seconds, of a whole minute
    {{ run.due_ns | ago }}          "in 5 m", with the same title
    {{ 1500000000 | duration }}     "1.5 s"
    {{ run.state | badge }}         a state as a coloured word
    {{ run.id | run_url }}          where its page is; so also job_url
    {{ 1 | count("run") }}          "1 run"

All text is escaped; what is markup says so by being Markup.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import quote

import jinja2
import msgspec
from jinja2.runtime import Context
from markupsafe import Markup

from timingwheel.jobs.error_line import error_line
from timingwheel.jobs.schedule import instant_datetime
from timingwheel.server.dashboard.visits import Visit
from timingwheel.server.dashboard.words import (
    count_words,
    exact_words,
    full_time_words,
    length_words,
    relative_words,
    time_words,
    utc_words,
)

NOTHING: Final = Markup('<span class="none">&ndash;</span>')
"""What stands where a value is missing."""


@functools.cache
def environment() -> jinja2.Environment:
    """Return the templates of this package, made once."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("timingwheel.server.dashboard"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        when=_when,
        minute=_minute,
        ago=_ago,
        duration=_duration,
        exact=exact_words,
        badge=_badge,
        run_url=run_url,
        error_line=error_line,
        job_url=job_url,
        count=count_words,
        json=_json,
    )
    return made


def render(template: str, values: Mapping[str, Any]) -> str:
    """Return a page."""
    return environment().get_template(template).render(values)


def run_url(run_id: str) -> str:
    """Return the path of a run's page."""
    return f"/runs/{quote(run_id, safe='@')}"


def job_url(job_id: str) -> str:
    """Return the path of a job's page."""
    return f"/jobs/{quote(job_id, safe='')}"


@jinja2.pass_context
def _when(context: Context, ns: int | None) -> Markup:
    if ns is None:
        return NOTHING
    visit = _visit(context)
    return _time(ns, visit, time_words(ns, visit.zone, now_ns=visit.now_ns))


@jinja2.pass_context
def _minute(context: Context, ns: int) -> Markup:
    visit = _visit(context)
    words = time_words(ns, visit.zone, now_ns=visit.now_ns)
    return _time(ns, visit, words.removesuffix(":00"))


@jinja2.pass_context
def _ago(context: Context, ns: int | None) -> Markup:
    if ns is None:
        return NOTHING
    visit = _visit(context)
    return _time(ns, visit, relative_words(ns, now_ns=visit.now_ns))


def _visit(context: Context) -> Visit:
    return cast("Visit", context["visit"])


def _time(ns: int, visit: Visit, text: str) -> Markup:
    title = utc_words(ns)
    if visit.zone.key != "UTC":
        title = f"{full_time_words(ns, visit.zone)} {visit.zone.key} = {title}"
    stamp = instant_datetime(ns).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(stamp, title, text)


def _duration(length_ns: int | None) -> str | Markup:
    return NOTHING if length_ns is None else length_words(length_ns)


def _badge(state: str) -> Markup:
    """Return a state as a word whose colour the style sheet knows by its class."""
    word = str(state)
    shown = word.replace("_", " ")
    return Markup('<span class="badge is-{}">{}</span>').format(word, shown)


def _json(value: object) -> str:
    """Return a value as JSON that a person can read and edit."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
