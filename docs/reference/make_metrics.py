"""Writes the reference of the metrics: `python docs/reference/make_metrics.py`.

From the table that the server answers by, so it needs the extra `server`. A test compares
the page with what this would write.
"""

# ruff: noqa: D103, INP001 - a script, not an API

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from timingwheel.engine.core import LAG_BOUNDS_NS
from timingwheel.jobs.figures import BACKLOG_QUEUES_MAX, DEAD_COUNTED_MAX
from timingwheel.jobs.model import JobState, Outcome, SkipReason
from timingwheel.jobs.states import FINAL
from timingwheel.scheduler.metrics import BOUNDS_NS
from timingwheel.server.exposition import METRICS
from timingwheel.server.metric import Metric
from timingwheel.server.traffic import BOUNDS_NS as REQUEST_BOUNDS_NS
from timingwheel.server.traffic import NO_ROUTE, PAGE_ROUTE
from wal.log import SYNC_BOUNDS_NS

PAGE = Path(__file__).resolve().parent / "metrics.md"
MADE = "<!-- made by docs/reference/make_metrics.py -->"
INTRO = f"""\
A server answers `GET /metrics` with these, as text for Prometheus, or as OpenMetrics where it
is asked for. Where there are tokens it takes one of role `read`:

```yaml
scrape_configs:
  - job_name: timingwheel
    authorization: {{ credentials_file: /etc/prometheus/timingwheel.token }}
    static_configs: [{{ targets: ["scheduler.internal:8765"] }}]
```

Units are seconds and bytes. Counters begin with 0 when the server starts and only rise; the
words of a label are all told from the start, so a rate sees the first event too. Nothing is
counted twice: each number is kept where it happens, and read when somebody asks.

**Bounds.** A label holds one of a fixed set of words. Only `queue` is yours: the
{BACKLOG_QUEUES_MAX} queues with the longest backlog are told, and the rest as one, `(others)`. No
label names a job, a task, a run or a person. `{{route}}` is the path of an operation of the API
with its names in braces, `{PAGE_ROUTE}` for pages, `{NO_ROUTE}` for what was refused before or is no
path. The dead letter is counted up to {DEAD_COUNTED_MAX:,}.

**What a number is of.** Lags, durations and attempts are of this server with its remote
workers; runs, jobs, timers and the log are of its store. Where several servers share a database
all tell the same gauges of it, and each counts the runs, skips and leases that it has written down
itself; there are no wheels there, and no log. Without a store that can tell (it
failed, or the scheduler was stopped) only the former and `timingwheel_serving 0` are there.

Beside these: `process_*`, what the process uses. [A dashboard for
Grafana](../deploy/grafana-dashboard.json) and [alert rules](../deploy/alerts.yml) are made of them.
"""
WORDS = {
    ("runs_total", "outcome"): sorted(map(str, FINAL)),
    ("attempts_ended_total", "outcome"): [*map(str, Outcome), "snoozed"],
    ("runs_skipped_total", "reason"): [*map(str, SkipReason)],
    ("jobs", "state"): [*map(str, JobState)],
}
BOUNDS = (
    (("dispatch_lag", "schedule_lag", "run_duration"), BOUNDS_NS),
    (("wheel_tick_lag",), LAG_BOUNDS_NS),
    (("wal_fsync",), SYNC_BOUNDS_NS),
    (("http_request_duration",), REQUEST_BOUNDS_NS),
)


def page() -> str:
    lines = [MADE, "", "# Metrics", "", INTRO]
    lines += ["| name | kind | labels | |", "|---|---|---|---|"]
    lines += [row(metric) for metric in METRICS]
    lines += ["", "## Words", "", *words(), "", "## Buckets, in seconds", "", *bounds()]
    return "\n".join(lines) + "\n"


def row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.full_name}` | {metric.kind} | {labels} | {metric.help} |"


def words() -> Iterator[str]:
    for (name, label), told in WORDS.items():
        (metric,) = [one for one in METRICS if one.name == name]
        assert label in metric.labels
        yield f"- `{metric.full_name}{{{label}}}`: {', '.join(told)}"


def bounds() -> Iterator[str]:
    told = {name for names, _ in BOUNDS for name in names}
    histograms = {one.name for one in METRICS if one.kind == "histogram"}
    assert {f"{name}_seconds" for name in told} == histograms
    for names, bounds_ns in BOUNDS:
        shown = ", ".join(f"{bound / 1e9:g}" for bound in bounds_ns)
        yield f"- {', '.join(f'`{name}`' for name in names)}: {shown}"


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.stdout.write(f"{PAGE}\n")
