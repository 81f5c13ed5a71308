"""How many starts are planned, step by step: what `load_ahead` shows."""

from __future__ import annotations

from typing import Final

from timingwheel.engine.core import EngineCore
from timingwheel.jobs.model import (
    JobState,
    RunState,
)
from timingwheel.jobs.offsets import splay_ns
from timingwheel.jobs.scheduling import schedule_of
from timingwheel.jobs.store import Load
from timingwheel.stores.reading import Reading
from timingwheel.stores.state import StoreState

STEPS_MAX: Final = 100_000


def load_ahead(
    core: EngineCore,
    state: StoreState,
    read: Reading,
    *,
    until_ns: int,
    step_ns: int,
) -> list[Load]:
    """Return how many starts are planned in each step from now until then.

    Args:
        core: whose clock and lock.
        state: whose jobs and runs.
        read: sees plain jobs.
        until_ns: on the wall clock; at most STEPS_MAX steps from now.
        step_ns: how long a step is.

    Cost: O(plain jobs + occurrences until then).
    """
    with core.lock:
        now = core.now()
        entries, calendars = list(state.jobs.values()), dict(state.calendars)
        planned = [
            run.live.run
            for run in state.runs.values()
            if run.live.run.state is RunState.PLANNED
        ]
    start_ns = now.wall_ns
    steps = min(max(-(-(until_ns - start_ns) // step_ns), 0), STEPS_MAX)
    nominal, due = [0] * steps, [0] * steps

    def count(into: list[int], at_ns: int) -> None:
        place = (at_ns - start_ns) // step_ns
        if 0 <= place < steps:
            into[place] += 1

    for rows in read.walk_plain():
        for row in rows:
            count(nominal, row.plain.n)
            count(due, row.plain.n)
    for run in planned:
        count(nominal, run.nominal_ns)
        count(due, run.due_ns)
    end_ns = start_ns + steps * step_ns
    for entry in entries:
        job = entry.job
        if job.next_ns is None or job.state is not JobState.ACTIVE:
            continue
        ahead_ns = state.steps_ns if job.trigger.is_elapsed else 0
        # Not the entry's own: without the lock it may be that of a former definition.
        schedule = schedule_of(
            job.trigger,
            created_ns=job.since_ns,
            job_key=job.name or job.id,
            calendars=calendars,
        )
        offset_ns = splay_ns(job.id, job.trigger.splay_ns)
        for firing in schedule.between_ns(
            job.next_ns, end_ns - ahead_ns, limit=STEPS_MAX
        ):
            count(nominal, firing.utc_ns + ahead_ns)
            count(due, firing.utc_ns + ahead_ns + offset_ns)
    return [
        Load(start_ns + place * step_ns, nominal[place], due[place])
        for place in range(steps)
    ]
