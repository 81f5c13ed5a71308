"""What must hold of a whole store at every moment, whatever has happened to it.

`look` reads all jobs and runs and holds them to the ledger and to each other: nothing
acknowledged is lost and nothing came from nowhere; one record for each occurrence; no
more runs at once than caps, queues and overlap rules let go; what has ended stays so.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import Final, TypeVar

from timingwheel.jobs.model import (
    Job,
    JobId,
    JobState,
    Misfire,
    Overlap,
    Run,
    RunReason,
    RunState,
)
from timingwheel.jobs.states import FINAL
from timingwheel.jobs.store import JobPage, JobQuery, JobStore, RunPage, RunQuery
from timingwheel.jobs.triggers import EveryPeriod
from timingwheel.testing.programs import NARROW, NARROW_LIMIT, fault_of
from timingwheel.testing.promises import BrokenPromiseError, Ledger, Wish

_PAGE: Final = 1_000
_LABEL: Final = re.compile(rb"j\d+f*")
_OF_HAND: Final = frozenset({RunReason.MANUAL, RunReason.BACKFILL})
_T = TypeVar("_T")


class View:
    """All that a store shows at one moment.

    Attributes:
        jobs, runs: by id.
        runs_of: by job.
    """

    def __init__(self, store: JobStore) -> None:
        self.store = store
        self.jobs = _unique(_all_jobs(store), lambda job: job.id)
        self.runs = _unique(_all_runs(store), lambda run: run.id)
        self.runs_of: dict[JobId, list[Run]] = defaultdict(list)
        for run in self.runs.values():
            self.runs_of[run.job_id].append(run)


def look(store: JobStore, ledger: Ledger) -> View:
    """Hold a store to what was promised; return what it shows.

    What a crash has left open is known from now on.

    Raises:
        BrokenPromiseError: something does not hold.

    Cost: reads everything.
    """
    if ledger.broken:
        raise BrokenPromiseError("; ".join(ledger.broken))
    view = View(store)
    _check_jobs(view, ledger)
    _check_runs(view, ledger)
    _check_limits(view)
    for job in view.jobs.values():
        wish = ledger.wish_of(job.id)
        _check_overlap(job, wish, view.runs_of[job.id])
        _check_occurrences(job, wish, view)
        _check_misfires(job, wish, view.runs_of[job.id])
        _check_follow_ups(wish, view, ledger)
    return view


# -- jobs --------------------------------------------------------------------------------------


def meet(store: JobStore, ledger: Ledger) -> None:
    """Make jobs known that nobody was told of: a put that was cut off, a handler's.

    Raises:
        BrokenPromiseError: one was never asked for.
    """
    for job in _all_jobs(store):
        _know(job, _wish_of(job, ledger), ledger)


def _check_jobs(view: View, ledger: Ledger) -> None:
    labels: Counter[str] = Counter()
    for job in view.jobs.values():
        wish = _wish_of(job, ledger)
        labels[wish.label] += 1
        _know(job, wish, ledger)
        wish.acknowledged = True  # what was seen once is there for good
        _narrow(job, wish)
    for label, wish in ledger.wishes.items():
        if wish.kind == "follow_up":
            continue  # its number is that of successes
        if labels[label] > 1:
            raise BrokenPromiseError(f"{label} is there {labels[label]} times")
        if wish.acknowledged and not labels[label]:
            raise BrokenPromiseError(f"{label} is lost: job {wish.id}")


def _wish_of(job: Job, ledger: Ledger) -> Wish:
    match = _LABEL.search(job.payload.body)
    wish = ledger.wishes.get(match.group().decode()) if match is not None else None
    if wish is None:
        raise BrokenPromiseError(f"job {job.id} was never asked for: {job}")
    return wish


def _know(job: Job, wish: Wish, ledger: Ledger) -> None:
    if wish.kind != "follow_up":
        if wish.id not in (None, job.id):
            raise BrokenPromiseError(f"{wish.label} is {job.id}, and was {wish.id}")
        wish.id = job.id
    ledger.labels[job.id] = wish.label


def _narrow(job: Job, wish: Wish) -> None:
    if wish.kind == "follow_up":
        return
    is_cancelled = job.state is JobState.CANCELLED
    wish.cancelled = _only(wish.cancelled, is_cancelled, f"{wish.label} cancelled")
    if job.state in (JobState.ACTIVE, JobState.PAUSED):
        is_paused = job.state is JobState.PAUSED
        wish.paused = _only(wish.paused, is_paused, f"{wish.label} paused")
    wish.priority = _only(wish.priority, job.priority, f"priority of {wish.label}")
    if isinstance(job.trigger.when, EveryPeriod):
        wish.period_ns = _only(
            wish.period_ns, job.trigger.when.period_ns, f"period of {wish.label}"
        )


def _only(allowed: set[_T], found: _T, what: str) -> set[_T]:
    if found not in allowed:
        raise BrokenPromiseError(f"{what}: {found}; it was to be one of {allowed}")
    return {found}


# -- runs --------------------------------------------------------------------------------------


def _check_runs(view: View, ledger: Ledger) -> None:
    for run_id, state in ledger.ended.items():
        run = view.runs.get(run_id)
        if run is None or run.state is not state:
            found = "gone" if run is None else str(run.state)
            raise BrokenPromiseError(f"run {run_id} is {found}; it had {state}")
    for run_id, starts in ledger.starts.items():
        fresh = [start for start in starts if not start.is_on_record]
        if not fresh:
            continue
        tokens = {attempt.token for attempt in view.store.attempts(run_id)}
        for start in fresh:
            if start.token not in tokens:
                raise BrokenPromiseError(
                    f"a start of {run_id} is not on record: {start}"
                )
            start.is_on_record = True
    ledger.heard([run for run in view.runs.values() if run.state in FINAL])
    for run in view.runs.values():
        if run.job_id not in view.jobs:
            raise BrokenPromiseError(f"run {run.id} is there without its job")
        if run.state is RunState.RUNNING and run.attempts < 1:
            raise BrokenPromiseError(f"run {run.id} runs without an attempt")


def _check_limits(view: View) -> None:
    by_cap: Counter[str] = Counter()
    limits: dict[str, int] = {}
    narrow = 0
    for run in view.runs.values():
        if run.state is not RunState.RUNNING:
            continue
        narrow += run.queue == NARROW
        cap = view.jobs[run.job_id].cap
        if cap is not None:
            by_cap[cap.key] += 1
            limits[cap.key] = cap.limit
    for key, limit in limits.items():
        if by_cap[key] > limit:
            raise BrokenPromiseError(f"{by_cap[key]} runs of cap {key!r}, not {limit}")
    if narrow > NARROW_LIMIT:
        raise BrokenPromiseError(f"{narrow} runs of queue {NARROW!r}: {NARROW_LIMIT}")


def _check_overlap(job: Job, wish: Wish, runs: list[Run]) -> None:
    if not wish.recurs or wish.by_hand:
        return
    policy = job.policy.overlap
    limit = policy.limit if policy.rule is Overlap.ALLOW else 1
    running = sum(
        run.state is RunState.RUNNING and run.reason not in _OF_HAND for run in runs
    )
    if running > limit:
        raise BrokenPromiseError(f"{running} runs of {wish.label} at once: {policy}")


def _check_misfires(job: Job, wish: Wish, runs: list[Run]) -> None:
    """Each restart, step and resume may bring as many as the rule says, and no more."""
    made = sum(run.reason is RunReason.CATCH_UP for run in runs)
    policy = job.policy.misfire
    each = {Misfire.SKIP: 0, Misfire.ALL: policy.limit}.get(policy.rule, 1)
    if wish.recurs and not wish.resumed and made > each * wish.catches_up:
        raise BrokenPromiseError(
            f"{wish.label} has {made} catch-up runs after {wish.catches_up} gaps: "
            f"{policy.rule}"
        )


def _check_occurrences(job: Job, wish: Wish, view: View) -> None:
    """Each occurrence dealt with is a run, or in exactly one skip range."""
    if not wish.recurs:
        return
    if wish.since_ns != job.since_ns:
        if wish.since_ns is not None and len(wish.period_ns) < 1:
            raise BrokenPromiseError(
                f"{wish.label} counts anew, and nobody asked for it"
            )
        wish.since_ns = job.since_ns
    [period_ns] = wish.period_ns
    since_ns = job.since_ns
    first_ns = since_ns + period_ns
    if wish.kind == "cron":
        since_ns -= 1  # the very instant in which it was put may be the first
        first_ns = (since_ns // period_ns + 1) * period_ns
    seen = Counter(
        run.nominal_ns
        for run in view.runs_of[job.id]
        if run.n == 0 and run.nominal_ns > since_ns
    )
    for skip in view.store.skips(job.id):
        if skip.first_ns <= since_ns:
            continue
        times = range(skip.first_ns, skip.last_ns + 1, period_ns)
        if len(times) != skip.count:
            raise BrokenPromiseError(f"{wish.label}: {skip} does not count right")
        seen.update(times)
    end_ns = job.next_ns if job.next_ns is not None else max(seen, default=0) + 1
    for nominal_ns in range(first_ns, end_ns, period_ns):
        if seen.pop(nominal_ns, 0) != 1:
            raise BrokenPromiseError(
                f"{wish.label}: occurrence {nominal_ns} has not exactly one record"
            )
    if seen:
        raise BrokenPromiseError(f"{wish.label}: records of no occurrence: {seen}")


def _check_follow_ups(wish: Wish, view: View, ledger: Ledger) -> None:
    """As many as runs that have succeeded: they come with a success or not at all."""
    if wish.plan != "add" or wish.remote:
        return
    label = f"{wish.label}f"
    made = sum(ledger.labels[job_id] == label for job_id in view.jobs)
    done = sum(
        run.state is RunState.SUCCEEDED
        for job_id in view.jobs
        if ledger.labels[job_id] == wish.label
        for run in view.runs_of[job_id]
    )
    if made != done:
        raise BrokenPromiseError(f"{made} jobs {label}, and {done} successes")


# -- at the end --------------------------------------------------------------------------------


def check_fates(view: View, ledger: Ledger) -> None:
    """Hold everything to its end, when all is over.

    Raises:
        BrokenPromiseError: a job or a run has none, or one that it cannot have.
    """
    alive = [run.id for run in view.runs.values() if run.state not in FINAL]
    if alive:
        raise BrokenPromiseError(f"never over: {alive}")
    for job in view.jobs.values():
        wish = ledger.wish_of(job.id)
        if wish.recurs:
            continue
        runs = [run for run in view.runs_of[job.id] if run.n == 0]
        if len(runs) != 1:
            raise BrokenPromiseError(f"{wish.label} has {len(runs)} records, not one")
        [run] = runs
        if run.state not in _fates(job, wish, run):
            raise BrokenPromiseError(f"{wish.label} ended {run.state}: {run}")


def _fates(job: Job, wish: Wish, run: Run) -> set[RunState]:
    fates = {RunState.FAILED if wish.plan == "bad" else RunState.SUCCEEDED}
    if fault_of(wish.plan, run.attempts):
        fates = {RunState.FAILED}
    if wish.cancelled == {True} or run.state is RunState.CANCELLED:
        fates.add(RunState.CANCELLED)
        fates.add(RunState.FAILED)  # no retry followed
    if run.lost:
        fates |= {RunState.LOST if _is_once(job) else RunState.FAILED}
    if wish.after or job.policy.start_deadline_ns is not None:
        fates.add(RunState.SKIPPED)
    return fates


def _is_once(job: Job) -> bool:
    return job.policy.delivery.value == "at_most_once"


# -- reading -----------------------------------------------------------------------------------


def _all_jobs(store: JobStore) -> Iterable[Job]:
    cursor: str | None = None
    while True:
        page: JobPage = store.jobs(JobQuery(cursor=cursor, limit=_PAGE))
        yield from page.jobs
        cursor = page.cursor
        if cursor is None:
            return


def _all_runs(store: JobStore) -> Iterable[Run]:
    cursor: str | None = None
    while True:
        page: RunPage = store.runs(RunQuery(cursor=cursor, limit=_PAGE))
        yield from page.runs
        cursor = page.cursor
        if cursor is None:
            return


_Id = TypeVar("_Id", bound=Hashable)


def _unique(rows: Iterable[_T], id_of: Callable[[_T], _Id]) -> dict[_Id, _T]:
    found: dict[_Id, _T] = {}
    for row in rows:
        if found.setdefault(id_of(row), row) is not row:
            raise BrokenPromiseError(f"more than one record of {id_of(row)}")
    return found
