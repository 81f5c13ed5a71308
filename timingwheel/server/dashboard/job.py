"""The page of a job: its schedule, what comes, what was, and how it is treated.

Cost: a page of its runs and its next ten times, whatever else the store holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from markupsafe import Markup

from timingwheel.jobs.explaining import NextTime
from timingwheel.jobs.model import Job, JobState, Run
from timingwheel.jobs.schedule import instant_ns
from timingwheel.jobs.states import FINAL
from timingwheel.server.dashboard.drawing import Cell, strip
from timingwheel.server.dashboard.job_texts import json_text, misfire_text, overlap_text
from timingwheel.server.dashboard.job_words import label, when_words
from timingwheel.server.dashboard.rendering import run_url
from timingwheel.server.dashboard.visits import Page, View, Visit
from timingwheel.server.dashboard.words import exact_words, length_words, time_words
from timingwheel.wire.answers import plain_arguments

STRIP_RUNS: Final = 50
ROWS: Final = 10
TIMES: Final = 10
SKIPS: Final = 5
ENDED: Final = frozenset({JobState.DONE, JobState.CANCELLED})
TONES: Final = {
    "succeeded": "good",
    "failed": "bad",
    "lost": "bad",
    "retrying": "warn",
    "running": "busy",
    "ready": "busy",
}


class Upcoming(NamedTuple):
    """One of a job's next times.

    Attributes:
        ns: the instant.
        local: by the clock of the job's zone.
        mark: what a change of that clock does to it; "" for nothing.
    """

    ns: int
    local: str
    mark: str


def show_job(visit: Visit) -> View:
    """Show a job."""
    app = visit.scheduler
    job = app.job(visit.path["job"])
    runs = app.runs(job=job, limit=STRIP_RUNS)
    arguments = plain_arguments(job.payload)
    values = {
        "live": True,
        **job_head(visit, job),
        "words": app.explain(job),
        "times": upcoming(app.next_times(job, TIMES)),
        "runs": runs[:ROWS],
        "runs_shown": len(runs),
        "strip": run_strip(visit, runs),
        "skips": app.skips(job)[: -SKIPS - 1 : -1],
        "args": None if arguments is None else json_text(arguments),
        "facts": policy_facts(job),
    }
    return View("job_live.html" if visit.is_partial else "job.html", values)


def job_head(visit: Visit, job: Job) -> dict[str, Any]:
    """Return what all pages of a job show at their top."""
    return {
        "job": job,
        "label": label(job),
        "when_words": when_words(job.trigger, visit.zone),
        "has_ended": job.state in ENDED,
    }


def upcoming(times: Sequence[NextTime]) -> list[Upcoming]:
    """Return next times as they are shown."""
    return [
        Upcoming(
            instant_ns(one.utc, "time"),
            one.local.strftime("%a %Y-%m-%d %H:%M:%S %z"),
            one.mark.value,
        )
        for one in times
    ]


def run_strip(visit: Visit, runs: Sequence[Run]) -> Markup:
    """Draw runs as cells, the newest at the right; a higher one has taken longer."""
    lengths = [_length_ns(run, visit.now_ns) for run in runs]
    longest = max(lengths, default=0)
    cells = []
    for run, length_ns in zip(reversed(runs), reversed(lengths), strict=True):
        clock = time_words(run.nominal_ns, visit.zone, now_ns=visit.now_ns)
        took = f", {length_words(length_ns)}" if length_ns else ""
        title = f"{clock}: {run.state.value}{took}"
        tone = TONES.get(run.state.value, "idle")
        cells.append(Cell(title, tone, _share(length_ns, longest), run_url(run.id)))
    return strip(
        cells, places=STRIP_RUNS, label="The last runs, the newest at the right"
    )


def policy_facts(job: Job) -> list[tuple[str, str]]:
    """Return how the runs of a job are treated, as pairs of a word and its value."""
    policy, trigger = job.policy, job.trigger
    retry = policy.retry
    waits = f"{exact_words(retry.first_ns)} to {exact_words(retry.max_ns)} apart"
    facts = [
        ("Overlap", overlap_text(policy.overlap)),
        ("Misfire", misfire_text(policy.misfire)),
        ("Attempts", f"{retry.attempts}, {waits}" if retry.attempts > 1 else "1"),
        ("Delivery", policy.delivery.value.replace("_", " ")),
        (
            "Timeout",
            "none" if policy.timeout_ns is None else exact_words(policy.timeout_ns),
        ),
    ]
    if policy.start_deadline_ns is not None:
        facts.append(("Start deadline", exact_words(policy.start_deadline_ns)))
    if trigger.splay_ns:
        facts.append(("Splay", exact_words(trigger.splay_ns)))
    if trigger.jitter_ns:
        facts.append(("Jitter", exact_words(trigger.jitter_ns)))
    if trigger.calendar is not None:
        facts.append(("Calendar", f"{trigger.calendar} ({trigger.roll})"))
    if trigger.runs_max is not None:
        facts.append(("Runs", f"{job.runs_made:,} of {trigger.runs_max:,}"))
    if job.cap is not None:
        facts.append(("Concurrency", f"{job.cap.limit:,} over {job.cap.key}"))
    return facts


def _length_ns(run: Run, now_ns: int) -> int:
    if run.started_ns is None:
        return 0
    if run.state in FINAL:
        return max((run.ended_ns or run.started_ns) - run.started_ns, 0)
    return max(now_ns - run.started_ns, 0)


def _share(length_ns: int, longest_ns: int) -> float:
    """Return how high a cell is: by the logarithm, else one slow run flattens all."""
    if not longest_ns:
        return 0.3
    # From a thousandth of the longest on, which is the lowest that is drawn.
    share = length_ns / longest_ns
    return 1 + math.log10(max(share, 1e-3)) / 3


JOB_PAGES: Final = (Page("GET", "/jobs/{job}", show_job, nav="Jobs"),)
