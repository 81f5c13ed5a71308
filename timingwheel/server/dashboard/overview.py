"""The page Overview: how the scheduler does, at a glance and live.

Cost: the counts of vitals.py, read once a second for all pages together, and a page of
ends from the history. Nothing grows with the number of jobs.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from timingwheel.jobs.figures import StoreFigures
from timingwheel.jobs.model import RunState
from timingwheel.jobs.states import FINAL
from timingwheel.server.dashboard.drawing import Chart, Column, Series, bars, lines
from timingwheel.server.dashboard.visits import Page, View, Visit
from timingwheel.server.dashboard.vitals import Vital
from timingwheel.server.dashboard.words import count_words, length_words, time_words

ENDED_SHOWN: Final = 8
OUTCOMES: Final = (
    (RunState.SUCCEEDED, "good"),
    (RunState.FAILED, "bad"),
    (RunState.LOST, "warn"),
    (RunState.CANCELLED, "busy"),
    (RunState.SKIPPED, "idle"),
)
_LINES: Final = (Series("p50", "idle"), Series("p95", "busy"), Series("p99", "accent"))
_MS: Final = 1_000_000


class Alert(NamedTuple):
    """Something that somebody should know.

    Attributes:
        tone: "bad", "warn" or "plain".
        text: what it is.
        href: where one sees more.
    """

    tone: str
    text: str
    href: str = ""


def show_overview(visit: Visit) -> View:
    """Show how the scheduler does."""
    vital = visit.vitals.look()
    ended = visit.scheduler.runs(state=FINAL, limit=ENDED_SHOWN)
    values = {
        "live": True,
        "vital": vital,
        "alerts": alerts(visit, vital),
        "outcomes": _outcomes(visit, vital),
        "lags": _lags(visit, vital),
        "axis": _axis(visit, vital),
        "ended": ended,
    }
    return View("overview_live.html" if visit.is_partial else "overview.html", values)


def alerts(visit: Visit, vital: Vital) -> list[Alert]:
    """Return what somebody should know, the worst first."""
    found = []
    if not visit.scheduler.is_serving:
        found.append(Alert("bad", "Nothing starts: the scheduler has stopped."))
    if vital.metrics.alerts:
        stuck = count_words(vital.metrics.alerts, "handler")
        found.append(
            Alert("bad", f"{stuck} did not end when asked to; the log tells which.")
        )
    if vital.figures is not None:
        found += _store_alerts(vital.figures)
    paused = [queue.name for queue in visit.scheduler.queues() if queue.pause]
    if paused:
        names = ", ".join(paused[:3]) + (" and others" if len(paused) > 3 else "")
        found.append(Alert("warn", f"Paused queues: {names}.", "/queues"))
    if vital.metrics.clock_steps:
        times = count_words(vital.metrics.clock_steps, "time")
        found.append(Alert("plain", f"The wall clock was set {times} since the start."))
    return found


def _store_alerts(figures: StoreFigures) -> list[Alert]:
    found = []
    if figures.log is not None and figures.log.disk_full:
        found.append(
            Alert("bad", "The disk is full: nothing new is taken until it is not.")
        )
    if figures.dead:
        dead = count_words(figures.dead, "run")
        are = "are" if figures.dead > 1 else "is"
        found.append(Alert("bad", f"{dead} {are} in the dead letter.", "/dead-letter"))
    if count := figures.jobs.get("quarantined", 0):
        jobs = count_words(count, "job")
        found.append(Alert("bad", f"{jobs} in quarantine.", "/jobs?state=quarantined"))
    if figures.leases_expired:
        count = figures.leases_expired
        attempts = count_words(count, "attempt")
        found.append(Alert("warn", f"{attempts} lost, as their workers fell silent."))
    if count := figures.jobs.get("paused", 0):
        jobs = count_words(count, "job")
        found.append(
            Alert(
                "plain",
                f"{jobs} {'are' if count > 1 else 'is'} paused.",
                "/jobs?state=paused",
            )
        )
    return found


def _outcomes(visit: Visit, vital: Vital) -> Chart:
    series = [Series(state.value, tone) for state, tone in OUTCOMES]
    columns = []
    for minute in vital.minutes:
        told = ", ".join(
            f"{count:,} {state}" for state, count in minute.ended.items() if count
        )
        clock = time_words(minute.start_ns, visit.zone, now_ns=visit.now_ns)
        counts = tuple(minute.ended[one.name] for one in series)
        columns.append(Column(f"{clock[:-3]}: {told or 'nothing ended'}", counts))
    return bars(columns, series, label="Runs that ended, a minute, by how they ended")


def _lags(visit: Visit, vital: Vital) -> Chart:
    rows = [
        tuple(None if ns is None else ns / _MS for ns in row) for row in vital.lags_ns
    ]
    titles = []
    for minute, row in zip(vital.minutes, vital.lags_ns, strict=True):
        told = ", ".join(
            f"{one.name} {length_words(ns)}"
            for one, ns in zip(_LINES, row, strict=True)
            if ns is not None
        )
        clock = time_words(minute.start_ns, visit.zone, now_ns=visit.now_ns)
        titles.append(f"{clock[:-3]}: {told or 'nothing started'}")
    label = "How late runs started, a minute: p50, p95 and p99"
    return lines(rows, _LINES, label=label, titles=titles)


def _axis(visit: Visit, vital: Vital) -> list[str]:
    """Return what stands below the charts: five clocks from left to right."""
    minutes = vital.minutes
    places = [round(n * (len(minutes) - 1) / 4) for n in range(5)]
    return [
        time_words(minutes[place].start_ns, visit.zone, now_ns=visit.now_ns)[:-3]
        for place in places
    ]


OVERVIEW_PAGES: Final = (Page("GET", "/", show_overview, nav="Overview"),)
