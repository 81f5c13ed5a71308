"""How many starts are planned, step by step: what `load_ahead` shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from timingwheel.engine.core import EngineCore
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.model import (
    Job,
    JobState,
    RunState,
)
from timingwheel.jobs.offsets import splay_ns
from timingwheel.jobs.store import Load
from timingwheel.stores.deciding.firing import schedule_now
from timingwheel.stores.plain import decode_lane
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
        steps_ns = state.steps_ns
        planned = [
            run.live.run
            for run in state.runs.values()
            if run.live.run.state is RunState.PLANNED
        ]
    loads = Loads(now.wall_ns, until_ns=until_ns, step_ns=step_ns)
    for rows in read.walk_rows():
        for row, _ in rows:
            nominal_ns = decode_lane(row.payload).n
            loads.add(nominal_ns, nominal_ns)
    for run in planned:
        loads.add(run.nominal_ns, run.due_ns)
    for entry in entries:
        # Not the entry's own schedule: without the lock it may be a former one.
        loads.add_job(entry.job, calendars, steps_ns)
    return loads.all()


class Loads:
    """Counts starts, step by step.

    Args:
        start_ns: the present, wall.
        until_ns: at most STEPS_MAX steps from then.
        step_ns: how long a step is.
    """

    def __init__(self, start_ns: int, *, until_ns: int, step_ns: int) -> None:
        steps = min(max(-(-(until_ns - start_ns) // step_ns), 0), STEPS_MAX)
        self._start_ns = start_ns
        self._step_ns = step_ns
        self._nominal, self._due = [0] * steps, [0] * steps

    def add(self, nominal_ns: int, due_ns: int, count: int = 1) -> None:
        """Count starts of one moment, or of one step; what lies outside does not count."""
        for counts, at_ns in ((self._nominal, nominal_ns), (self._due, due_ns)):
            place = (at_ns - self._start_ns) // self._step_ns
            if 0 <= place < len(counts):
                counts[place] += count

    def add_job(
        self, job: Job, calendars: Mapping[str, NamedCalendar], steps_ns: int
    ) -> None:
        """Count the starts of a recurring job that are to come.

        Args:
            job: any; one that has none to come does not count.
            calendars: all of them.
            steps_ns: how far the wall clock is ahead of elapsed time.
        """
        if job.next_ns is None or job.state is not JobState.ACTIVE:
            return
        ahead_ns = steps_ns if job.trigger.is_elapsed else 0
        end_ns = self._start_ns + len(self._due) * self._step_ns
        offset_ns = splay_ns(job.id, job.trigger.splay_ns)
        schedule = schedule_now(job, calendars)
        for firing in schedule.between_ns(
            job.next_ns, end_ns - ahead_ns, limit=STEPS_MAX
        ):
            at_ns = firing.utc_ns + ahead_ns
            self.add(at_ns, at_ns + offset_ns)

    def all(self) -> list[Load]:
        """Return the counts of each step."""
        return [
            Load(self._start_ns + place * self._step_ns, nominal, due)
            for place, (nominal, due) in enumerate(
                zip(self._nominal, self._due, strict=True)
            )
        ]
