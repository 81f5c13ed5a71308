"""Who works on runs, and which tasks are known: drawn from what the store has.

A store knows its workers by the attempts that they have in hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from timingwheel.jobs.cluster import Overseen
from timingwheel.jobs.figures import Measured
from timingwheel.jobs.model import JobState, RunState
from timingwheel.jobs.store import JobQuery, JobStore, RunQuery
from timingwheel.scheduler.signatures import Signature
from timingwheel.scheduler.tasks import TaskRegistry

UNKNOWN: Final = "unknown"
"""Who had the run of a plain job, once that process is gone: its claim is not logged."""
_PAGE: Final = 1_000
_LIVE: Final = (JobState.ACTIVE, JobState.PAUSED, JobState.QUARANTINED)


class Worker(msgspec.Struct, frozen=True):
    """Who works on runs.

    Attributes:
        name: of the worker.
        running: attempts that it has in hand.
        since_ns: when the oldest of them began.
    """

    name: str
    running: int
    since_ns: int


class TaskFacts(msgspec.Struct, frozen=True):
    """A task, as far as it is known here.

    Attributes:
        name: by which jobs know it.
        signature: of its function; "" where the function is not known.
        jobs: live jobs of it.
    """

    name: str
    signature: str
    jobs: int


def workers_of(store: JobStore) -> list[Worker]:
    """Return whom the running attempts name, in the order of their names.

    Cost: reads every running attempt.
    """
    found: dict[str, list[int]] = {}
    query = RunQuery(states=frozenset({RunState.RUNNING}), limit=_PAGE)
    while True:
        page = store.runs(query)
        for run in page.runs:
            attempts = store.attempts(run.id)
            name = (attempts[-1].worker if attempts else "") or UNKNOWN
            found.setdefault(name, []).append(run.started_ns or run.due_ns)
        if page.cursor is None:
            break
        query = RunQuery(states=query.states, limit=_PAGE, cursor=page.cursor)
    return [
        Worker(name, len(starts_ns), min(starts_ns))
        for name, starts_ns in sorted(found.items())
    ]


def tasks_of(store: JobStore, tasks: TaskRegistry) -> list[TaskFacts]:
    """Return the tasks of a program and those that live jobs name.

    Cost: reads every live job.
    """
    counts: dict[str, int] = {}
    for state in _LIVE:
        for name in _tasks_of_jobs(store, state):
            counts[name] = counts.get(name, 0) + 1
    names = sorted(counts.keys() | tasks.names)
    return [
        TaskFacts(name, _signature(tasks, name), counts.get(name, 0)) for name in names
    ]


def _tasks_of_jobs(store: JobStore, state: JobState) -> Iterable[str]:
    query = JobQuery(state=state, limit=_PAGE)
    while True:
        page = store.jobs(query)
        yield from (job.task for job in page.jobs)
        if page.cursor is None:
            return
        query = JobQuery(state=state, limit=_PAGE, cursor=page.cursor)


def _signature(tasks: TaskRegistry, name: str) -> str:
    task = tasks.get(name)
    return "" if task is None else Signature(task.function, name).text


def is_served(store: JobStore) -> bool:
    """Return whether anybody starts runs of a store now: this process or another.

    Cost: what `cluster` or `figures` of the store costs.
    """
    if isinstance(store, Overseen):
        return bool(store.cluster().nodes)
    return isinstance(store, Measured) and store.figures().workers > 0
