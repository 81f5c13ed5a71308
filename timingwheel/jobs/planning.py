"""Which runs a recurring job gets, and what is written down about the others.

A tick finds a job whose next time has come. Usually that is one occurrence and it becomes
a run. But the program may have been down, the job paused, or the wall clock set ahead:
then many occurrences have passed *unserved*, and the misfire policy says which of them
still run. The rest become one skip range, so ten missed years cost as much as ten missed
seconds.

What counts as missed is not a matter of a threshold. The caller says until when nobody
could dispatch (`unserved_until_ns`); occurrences after that are merely late, and the
scheduler's own backlog is never dropped: each of them becomes a run.

Pure functions of schedules and instants; nothing here asks the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from timingwheel.jobs.model import Misfire, MisfirePolicy, RunReason, SkipReason
from timingwheel.jobs.schedule import Firing, Schedule

RUNS_A_PLAN: Final = 256
"""Runs that one plan makes at most; the next plan goes on where it ended."""


class PlannedRun(NamedTuple):
    """An occurrence that becomes a run."""

    firing: Firing
    reason: RunReason


@dataclass(frozen=True, slots=True)
class PlannedSkip:
    """Occurrences in a row that do not run, first and last included."""

    reason: SkipReason
    first_ns: int
    last_ns: int
    count: int


class Plan(NamedTuple):
    """What becomes of the occurrences that have come due.

    Attributes:
        runs: at most RUNS_A_PLAN, in order.
        skips: what does not run, in order.
        next: the first occurrence not dealt with, None if there will be none. It may be
            due already: then plan again.
    """

    runs: list[PlannedRun]
    skips: list[PlannedSkip]
    next: Firing | None


def plan_due(
    schedule: Schedule,
    policy: MisfirePolicy,
    *,
    first: Firing,
    now_ns: int,
    unserved_until_ns: int,
    skip_reason: SkipReason = SkipReason.MISFIRE,
) -> Plan:
    """Plan the occurrences from `first` up to now.

    Args:
        schedule: the job's.
        policy: for occurrences that passed unserved.
        first: the job's next occurrence, which is due: first.utc_ns <= now_ns.
        now_ns: the present.
        unserved_until_ns: up to this instant nobody could dispatch.
        skip_reason: what to write down for those that do not run.

    Returns:
        A plan; the runs and the skips together are all occurrences before `next`.

    Cost: O(runs planned), however many are skipped.
    """
    assert first.utc_ns <= now_ns, "the occurrence is not due yet"
    runs: list[PlannedRun] = []
    skips: list[PlannedSkip] = []
    follow: Firing | None = first
    missed_end_ns = min(unserved_until_ns, now_ns) + 1
    if first.utc_ns < missed_end_ns:
        chosen = _chosen(schedule, policy, first=first, end_ns=missed_end_ns)
        follow = _split(
            schedule,
            chosen,
            first=first,
            end_ns=missed_end_ns,
            skip_reason=skip_reason,
            runs=runs,
            skips=skips,
        )
    # A catch-up that did not fit has filled the plan, so what follows was not missed.
    while follow is not None and follow.utc_ns <= now_ns and len(runs) < RUNS_A_PLAN:
        runs.append(PlannedRun(follow, RunReason.SCHEDULE))
        follow = schedule.next_ns(follow.utc_ns)
    return Plan(runs, skips, follow)


def _chosen(
    schedule: Schedule, policy: MisfirePolicy, *, first: Firing, end_ns: int
) -> list[Firing]:
    """Return the missed occurrences in [first, end) that still run, in order."""
    if policy.rule is Misfire.SKIP:
        return []
    if policy.rule is Misfire.FIRST:
        return [first]
    limit = policy.limit if policy.rule is Misfire.ALL else 1
    start_ns = first.utc_ns
    if policy.rule is Misfire.ALL and policy.window_ns is not None:
        start_ns = max(start_ns, end_ns - 1 - policy.window_ns)
    chosen: list[Firing] = []
    firing = schedule.prev_ns(end_ns)
    while firing is not None and firing.utc_ns >= start_ns and len(chosen) < limit:
        chosen.append(firing)
        firing = schedule.prev_ns(firing.utc_ns)
    chosen.reverse()
    return chosen


def _split(
    schedule: Schedule,
    chosen: list[Firing],
    *,
    first: Firing,
    end_ns: int,
    skip_reason: SkipReason,
    runs: list[PlannedRun],
    skips: list[PlannedSkip],
) -> Firing | None:
    """Divide [first, end) into the chosen runs and skip ranges between them.

    Returns:
        The first occurrence not dealt with.
    """
    at_ns = first.utc_ns
    for place, firing in enumerate(chosen):
        if place == RUNS_A_PLAN:
            return firing
        _skip(schedule, at_ns, firing.utc_ns, reason=skip_reason, skips=skips)
        runs.append(PlannedRun(firing, RunReason.CATCH_UP))
        at_ns = firing.utc_ns + 1
    _skip(schedule, at_ns, end_ns, reason=skip_reason, skips=skips)
    return schedule.next_ns(end_ns - 1)


def _skip(
    schedule: Schedule,
    start_ns: int,
    end_ns: int,
    *,
    reason: SkipReason,
    skips: list[PlannedSkip],
) -> None:
    """Note the occurrences in [start, end), if there are any, as one range."""
    first = schedule.next_ns(start_ns - 1)
    if first is None or first.utc_ns >= end_ns:
        return
    last = schedule.prev_ns(end_ns)
    assert last is not None
    count = schedule.count_ns(first.utc_ns, end_ns)
    skips.append(PlannedSkip(reason, first.utc_ns, last.utc_ns, count))
