"""Backfill: runs for occurrences of the past, each with the identity it would have had.

An occurrence that has a run keeps it: "missing" makes runs for the others alone, "all"
makes a further one for each, with the next number. What has been dealt with so long ago
that its run is no longer kept cannot be told from what never ran; so that nothing runs
twice by mistake, such a stretch is refused unless the caller says `again=True`.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from timingwheel.errors import ArgumentError
from timingwheel.jobs.model import Job, RunReason
from timingwheel.jobs.schedule import Schedule, instant_datetime
from timingwheel.jobs.store import NewRun

BACKFILL_MAX: Final = 10_000
"""Runs that one call makes at most."""

BackfillMode = Literal["missing", "all"]


class BackfillPlan(NamedTuple):
    """What a backfill makes.

    Attributes:
        runs: to be created, oldest first.
        present: occurrences left alone, since they have a run.
    """

    runs: list[NewRun]
    present: int


def plan_backfill(
    job: Job,
    schedule: Schedule,
    kept: list[tuple[int, int]],
    *,
    start_ns: int,
    end_ns: int,
    mode: BackfillMode,
    again: bool,
) -> BackfillPlan:
    """Return the runs that a backfill makes.

    Args:
        job: whose.
        schedule: the job's.
        kept: (nominal_ns, n) of the runs that are kept.
        start_ns: first instant that counts.
        end_ns: first that does not count any more.
        mode: make the missing ones, or one more for each.
        again: even where it is no longer known what has run.

    Raises:
        ArgumentError: there are too many, or it reaches where nobody knows.
    """
    count = schedule.count_ns(start_ns, end_ns)
    if count > BACKFILL_MAX:
        raise ArgumentError(
            "end",
            instant_datetime(end_ns).isoformat(),
            f"there are {count:,} occurrences from start, and a call makes at most "
            f"{BACKFILL_MAX:,}; go on in parts",
        )
    nominals = [
        firing.utc_ns
        for firing in schedule.between_ns(start_ns, end_ns, limit=BACKFILL_MAX)
    ]
    present = {nominal_ns for nominal_ns, _ in kept}
    if not again:
        _require_known(job, kept, [at_ns for at_ns in nominals if at_ns not in present])
    chosen = [at_ns for at_ns in nominals if mode == "all" or at_ns not in present]
    runs = [NewRun(at_ns, RunReason.BACKFILL) for at_ns in chosen]
    return BackfillPlan(runs, len(nominals) - len(chosen))


def _require_known(job: Job, kept: list[tuple[int, int]], missing: list[int]) -> None:
    """Check that the missing ones have no run that was purged."""
    scheduled = [nominal_ns for nominal_ns, n in kept if n == 0]
    if job.reached_ns is None or len(scheduled) >= job.runs_made:
        return  # every run that was ever made is still kept
    # Runs are purged oldest first, so whatever is younger than a kept one is certain.
    known_from_ns = min(scheduled, default=job.reached_ns + 1)
    unknown = [at_ns for at_ns in missing if job.created_ns <= at_ns < known_from_ns]
    if unknown:
        raise ArgumentError(
            "start",
            instant_datetime(unknown[0]).isoformat(),
            f"{len(unknown):,} occurrences before "
            f"{instant_datetime(known_from_ns).isoformat()} may have run: their history "
            "is no longer kept. Begin later, or pass again=True to run them again",
        )
