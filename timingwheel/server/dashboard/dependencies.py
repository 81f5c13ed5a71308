"""The page Dependencies: live jobs that run after others, drawn as a graph in layers.

A job stands one layer to the right of the last of those it waits for. Within a layer the
order is that of the middle of a job's neighbours to the left, which leaves few crossings.
What is drawn is bounded: JOBS_MAX jobs that wait, and whatever those wait for.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from timingwheel.jobs.errors import UnknownJobError
from timingwheel.jobs.model import Job
from timingwheel.jobs.triggers import AfterJobs
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.dashboard.rendering import job_url
from timingwheel.server.dashboard.visits import Page, View, Visit

NAV: Final = "Dependencies"
JOBS_MAX: Final = 150
GONE: Final = "gone"
BOX_WIDTH: Final = 190
BOX_HEIGHT: Final = 46
_GAP_X: Final = 70
_GAP_Y: Final = 16
_MARGIN: Final = 12
_NAME_CHARS: Final = 24
_TONES: Final = {"success": "good", "failure": "bad", "any": "idle"}


class Node(NamedTuple):
    """A job in the graph.

    Attributes:
        id: of the job.
        name: what it is called, cut to fit.
        title: the whole of it.
        state: of the job; "gone" if it is kept no longer.
        note: what it waits for, in words; "" if for none.
        url: of its page.
        x, y: of its box.
    """

    id: str
    name: str
    title: str
    state: str
    note: str
    url: str
    x: int
    y: int


class Edge(NamedTuple):
    """That one job runs after another.

    Attributes:
        before, after: their names.
        on: which end counts.
        tone: by which it is drawn.
        path: the drawing's.
    """

    before: str
    after: str
    on: str
    tone: str
    path: str


class Graph(NamedTuple):
    """All of it, and how large it is."""

    nodes: list[Node]
    edges: list[Edge]
    width: int
    height: int


def show_dependencies(visit: Visit) -> View:
    """Show which jobs run after which."""
    followers = visit.scheduler.followers(JOBS_MAX + 1)
    is_cut = len(followers) > JOBS_MAX
    values = {
        "graph": make_graph(visit.scheduler, followers[:JOBS_MAX]),
        "is_cut": is_cut,
        "jobs_max": JOBS_MAX,
        "box": (BOX_WIDTH, BOX_HEIGHT),
        "live": True,
    }
    return View("dependencies.html", values)


def make_graph(scheduler: Scheduler, followers: list[Job]) -> Graph:
    """Return the graph of jobs and of those that they wait for."""
    jobs: dict[str, Job | None] = {job.id: job for job in followers}
    rules: dict[str, AfterJobs] = {job.id: rule_of(job) for job in followers}
    for rule in rules.values():
        for before in rule.jobs:
            if before not in jobs:
                jobs[before] = _job(scheduler, before)
    befores = {job_id: rules[job_id].jobs if job_id in rules else () for job_id in jobs}
    columns = _columns(befores)
    places = {
        job_id: (
            _MARGIN + layer * (BOX_WIDTH + _GAP_X),
            _MARGIN + row * (BOX_HEIGHT + _GAP_Y),
        )
        for layer, column in enumerate(columns)
        for row, job_id in enumerate(column)
    }
    nodes = [
        _node(job_id, jobs[job_id], rules.get(job_id), place)
        for job_id, place in places.items()
    ]
    names = {node.id: node.title for node in nodes}
    edges = [
        Edge(
            before=names[before],
            after=names[job_id],
            on=rule.on.value,
            tone=_TONES[rule.on.value],
            path=_path(places[before], places[job_id]),
        )
        for job_id, rule in rules.items()
        for before in rule.jobs
    ]
    return Graph(
        nodes,
        edges,
        width=2 * _MARGIN + len(columns) * (BOX_WIDTH + _GAP_X) - _GAP_X,
        height=2 * _MARGIN
        + max(map(len, columns), default=0) * (BOX_HEIGHT + _GAP_Y)
        - _GAP_Y,
    )


def rule_of(job: Job) -> AfterJobs:
    """Return what a job waits for."""
    assert isinstance(job.trigger.when, AfterJobs), job
    return job.trigger.when


def _columns(befores: dict[str, tuple[str, ...]]) -> list[list[str]]:
    """Return the jobs layer by layer, each in its order."""
    layers: dict[str, int] = {}
    # A store takes no cycle, so what waits for nobody new can always be placed.
    todo = list(befores)
    while todo:
        rest = []
        for job_id in todo:
            if all(before in layers for before in befores[job_id]):
                above = (layers[before] for before in befores[job_id])
                layers[job_id] = max(above, default=-1) + 1
            else:
                rest.append(job_id)
        assert len(rest) < len(todo), "a cycle"
        todo = rest
    columns: list[list[str]] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
    for job_id in befores:
        columns[layers[job_id]].append(job_id)
    rows: dict[str, float] = {}
    for column in columns:
        column.sort(
            key=lambda job_id: (
                _middle([rows[before] for before in befores[job_id]]),
                job_id,
            )
        )
        rows.update((job_id, row) for row, job_id in enumerate(column))
    return columns


def _middle(rows: list[float]) -> float:
    return sum(rows) / len(rows) if rows else 0.0


def _node(
    job_id: str, job: Job | None, rule: AfterJobs | None, place: tuple[int, int]
) -> Node:
    title = job_id
    if job is not None:
        title = job.name or job.task.rpartition(":")[2]
    name = title if len(title) <= _NAME_CHARS else title[: _NAME_CHARS - 1] + "…"
    note = ""
    if rule is not None and len(rule.jobs) > 1:
        note = f"after {rule.need} of {len(rule.jobs)}"
    elif rule is not None and rule.each:
        note = "after each run"
    return Node(
        job_id,
        name,
        title,
        GONE if job is None else job.state.value,
        note,
        job_url(job_id),
        *place,
    )


def _path(before: tuple[int, int], after: tuple[int, int]) -> str:
    x1, y1 = before[0] + BOX_WIDTH, before[1] + BOX_HEIGHT // 2
    x2, y2 = after[0], after[1] + BOX_HEIGHT // 2
    bend = max((x2 - x1) // 2, _GAP_X // 2)
    return f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"


def _job(scheduler: Scheduler, job_id: str) -> Job | None:
    try:
        return scheduler.job(job_id)
    except UnknownJobError:
        return None


DEPENDENCY_PAGES: Final = (Page("GET", "/dependencies", show_dependencies, nav=NAV),)
