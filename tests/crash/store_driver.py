"""One user of a job store, who notes what was promised, and whose process may die.

The driver is the callers, the node and the handlers in one, without threads of its own.
It survives closing, killing and power losses, and carries a crash that is to come over to
the next life of the disk. What it was told it holds the store to: `check_promises` after
each opening, `live_on` until everything has come to its end.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from tests.stores.stage import SECOND, TASK, WORKER, draft, end_of
from timingwheel.clock import Clock
from timingwheel.engine.timeline import TICK_NS
from timingwheel.jobs.model import (
    Delivery,
    Draft,
    Job,
    JobId,
    JobState,
    Outcome,
    Pause,
    Run,
    RunId,
    RunReason,
    RunState,
)
from timingwheel.jobs.states import FINAL
from timingwheel.jobs.store import (
    CatchUp,
    Change,
    Claim,
    JobQuery,
    NewRun,
    RunQuery,
    Verdict,
)
from timingwheel.jobs.triggers import EveryPeriod
from timingwheel.scheduler.simulated import KeptHistory
from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.testing import ManualClock
from wal.log import Log
from wal.testing import MemoryFileSystem

TURNS_MAX: Final = 400
"""A store that has not come to rest by then never does."""

MakeStore = Callable[[Log, KeptHistory, Clock], EmbeddedStore]


class Broken(AssertionError):  # noqa: N818 - it is the finding, not an error of ours
    """The store broke a promise."""


def make_store(log: Log, history: KeptHistory, clock: Clock) -> EmbeddedStore:
    """Return the store of a log and a history."""
    return EmbeddedStore(log, history, clock=clock, rng=random.Random(0))


@dataclass
class Promises:
    """What callers and handlers were told.

    Attributes:
        jobs: acknowledged, each with the states in which its first run may end.
        first_ns: of each recurring job, its first nominal time.
        cancelled: acknowledged as such: nothing of them starts any more.
        ended: runs whose end was acknowledged.
        begun: how often the handler of each run has started.
        once: jobs that run at most once.
        token: the highest that was handed out.
        paused: jobs that must be held.
    """

    jobs: dict[JobId, set[str]] = field(default_factory=dict)
    first_ns: dict[JobId, int] = field(default_factory=dict)
    cancelled: set[JobId] = field(default_factory=set)
    ended: dict[RunId, RunState] = field(default_factory=dict)
    begun: Counter[RunId] = field(default_factory=Counter)
    once: set[JobId] = field(default_factory=set)
    token: int = 0
    paused: set[JobId] = field(default_factory=set)


class StoreDriver:
    """A process and its successors on one disk.

    Attributes:
        disk: of the present life.
        history: likewise; a power loss leaves what SQLite has committed.
        promises: what was promised so far.
        store: the store.
        running: claims that have begun.
    """

    def __init__(
        self,
        disk: MemoryFileSystem,
        history: KeptHistory,
        *,
        make: MakeStore = make_store,
        clock: ManualClock | None = None,
        promises: Promises | None = None,
    ) -> None:
        self.disk = disk
        self.history = history
        self.clock = clock if clock is not None else ManualClock()
        self.promises = promises if promises is not None else Promises()
        self.running: list[Claim] = []
        self.waiting: list[Claim] = []
        self.store: EmbeddedStore | None = None
        self.labels: dict[str, JobId] = {}
        self._make = make
        self._calls_before = 0
        self._crash: tuple[int, bool] | None = None

    # -- lives ----------------------------------------------------------------------------

    def open(self) -> None:
        """Open the directory, check what came back, and serve."""
        log = Log.open(
            self.disk,
            wall_ns=self.clock.wall_ns,
            segment_size_bytes=8192,
            reserve_bytes=0,
            background=False,
        )
        self.running, self.waiting = [], []
        self.store = self._make(log, self.history, self.clock)
        self.check_promises()
        self.store.join(WORKER)
        self.store.recover()

    def close(self) -> None:
        """End as a program should."""
        self.on.close()
        self.store = None

    def kill(self, *, down_ns: int = 0) -> None:
        """End as by SIGKILL; what was written is there, synced or not."""
        history = self.history.fork()
        self.abandon()
        self._calls_before += self.disk.calls
        self.disk, self.history = self.disk.killed(), history
        self.clock = ManualClock(wall_ns=self.clock.wall_ns() + down_ns, monotonic_ns=7)
        self._arm()

    def reopen(self) -> None:
        """Open again after `close`, in the same process."""
        self.open()

    def snapshot(self) -> None:
        """Write a snapshot, and drop log that it covers."""
        self.on.snapshot()

    def abandon(self) -> None:
        """Let the threads of a store end whose machine is gone."""
        store, self.store = self.store, None
        if store is not None:
            store.abandon()
        self.history.end()

    def heir(self, disk: MemoryFileSystem, history: KeptHistory) -> StoreDriver:
        """Return the next process on what a crash left."""
        heir = StoreDriver(
            disk,
            history,
            make=self._make,
            clock=ManualClock(wall_ns=self.clock.wall_ns(), monotonic_ns=7),
            promises=deepcopy(self.promises),
        )
        heir.labels = dict(self.labels)
        return heir

    @property
    def on(self) -> EmbeddedStore:
        """The open store."""
        assert self.store is not None, "it is closed"
        return self.store

    @property
    def calls(self) -> int:
        """Disk calls over all lives."""
        return self._calls_before + self.disk.calls

    def crash_at(self, index: int, *, after: bool) -> None:
        """Let the power fail at the `index`-th disk call over all lives."""
        self._crash = (index, after)
        self._arm()

    def _arm(self) -> None:
        if self._crash is not None and self._crash[0] > self._calls_before:
            index, after = self._crash
            self.disk.crash_at(index - self._calls_before, after=after)

    # -- people -----------------------------------------------------------------------------

    def put(self, label: str, when: Any, *, fates: str = "", **more: Any) -> None:
        """Put one job; `fates` are states beside success in which it may end."""
        self.put_many([(label, draft(when, **more), fates)])

    def put_many(self, wanted: list[tuple[str, Draft, str]]) -> None:
        """Put several that hold together."""
        refs = self.on.put([made for _, made, _ in wanted])
        for ref, (label, made, fates) in zip(refs, wanted, strict=True):
            self.labels[label] = ref.id
            self.promises.jobs.setdefault(ref.id, {"succeeded", *fates.split()})
            if made.policy.delivery is Delivery.AT_MOST_ONCE:
                self.promises.once.add(ref.id)
            job = self.on.get(ref.id)
            if job is not None and job.next_ns is not None:
                self.promises.first_ns.setdefault(ref.id, job.next_ns)

    def cancel(self, label: str) -> None:
        """Cancel a job."""
        job = self.labels[label]
        self.promises.jobs[job].add("cancelled")
        if self.on.cancel(job):
            self.promises.cancelled.add(job)

    def pause(self, label: str) -> None:
        """Pause a job."""
        job = self.labels[label]
        self.on.hold(job, Pause(since_ns=self.clock.wall_ns()))
        self.promises.paused.add(job)

    def resume(self, label: str, rule: Any = "skip") -> None:
        """Resume a job."""
        job = self.labels[label]
        self.promises.paused.discard(job)
        self.on.unhold(job, CatchUp(rule))

    def trigger(self, label: str) -> None:
        """Run a job by hand."""
        new = NewRun(self.clock.wall_ns(), RunReason.MANUAL)
        self.on.create_runs(self.labels[label], [new])

    def update(self, label: str, **change: Any) -> None:
        """Change a job."""
        self.on.update(self.labels[label], Change(**change), if_revision=None)

    def retry(self, label: str) -> None:
        """Retry the failed run of a job."""
        [run] = self.on.runs(RunQuery(job_id=self.labels[label])).runs
        del self.promises.ended[run.id]
        self.on.retry(run.id)

    # -- the node ---------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(ns=round(seconds * SECOND))

    def turn(self, count: int = 100) -> None:
        """Fire and claim; begin what was claimed, once that is durable."""
        self.clock.advance(ns=TICK_NS)
        _, ticket = self.on.fire(100)
        claims, ticket = self.on.claim(WORKER, tasks=frozenset({TASK}), count=count)
        self.on.commit(ticket)
        self.waiting += claims
        self.begin()

    def begin(self) -> None:
        """Start the handlers of what was claimed."""
        waiting, self.waiting = self.waiting, []
        for claim in waiting:
            if self.on.begin(claim.run.id, claim.token):
                self._note_start(claim)
                self.running.append(claim)

    def finish(
        self, outcome: Outcome = Outcome.OK, *, count: int = 100, **more: Any
    ) -> None:
        """End the first so many of what runs, in one commit."""
        claims, self.running = self.running[:count], self.running[count:]
        ends = [end_of(claim, outcome, **more) for claim in claims]
        verdicts, ticket = self.on.finish(ends)
        self.on.commit(ticket)
        claims, left = claims[: len(verdicts)], claims[len(verdicts) :]
        self._note_left(left)
        for claim, verdict in zip(claims, verdicts, strict=True):
            if verdict is not Verdict.ACCEPTED:
                raise Broken(f"the end of {claim.run.id} was refused: {verdict}")
            run = self.on.run(claim.run.id)
            if run is None:
                raise Broken(f"run {claim.run.id} is gone")
            if run.state in FINAL:
                self.promises.ended[run.id] = run.state

    def _note_left(self, claims: list[Claim]) -> None:
        """Ends that were not taken in: the disk is full, and it should not be."""
        if claims:
            raise Broken(f"no verdict on the ends of {claims}")

    def _note_start(self, claim: Claim) -> None:
        promises, run = self.promises, claim.run
        if run.job_id in promises.cancelled:
            raise Broken(f"{run.id} starts, and its job was cancelled")
        if run.id in promises.ended:
            raise Broken(f"{run.id} starts again after {promises.ended[run.id]}")
        if run.job_id in promises.once and promises.begun[run.id]:
            raise Broken(f"{run.id} starts again, and it may run only once")
        if run.job_id in promises.paused and run.reason is not RunReason.MANUAL:
            raise Broken(f"{run.id} starts, and its job is paused")
        if claim.token <= promises.token:
            raise Broken(f"token {claim.token} comes after {promises.token}")
        promises.token = claim.token
        promises.begun[run.id] += 1

    # -- what must hold ---------------------------------------------------------------------

    def check_promises(self) -> None:
        """Hold the store to what was promised.

        Raises:
            Broken: it is not so.
        """
        self.on.check()
        self._check_jobs()
        runs = {run.id: run for run in self.all_runs()}
        for run_id, state in self.promises.ended.items():
            if run_id not in runs:
                raise Broken(f"run {run_id} is lost: it had {state}")
            if runs[run_id].state is not state:
                raise Broken(f"run {run_id} is {runs[run_id].state}: it had {state}")
        for run_id, count in self.promises.begun.items():
            if run_id not in runs:
                raise Broken(f"run {run_id} is lost: it had begun")
            if runs[run_id].attempts < count:
                raise Broken(
                    f"run {run_id} has {runs[run_id].attempts} attempts on record, and "
                    f"{count} have begun"
                )
        for job_id, first_ns in self.promises.first_ns.items():
            self._check_occurrences(job_id, first_ns, list(runs.values()))

    def _check_jobs(self) -> None:
        jobs = {job.id: job for job in self.all_jobs()}
        for job_id in self.promises.jobs:
            if job_id not in jobs:
                raise Broken(f"job {job_id} is lost")
        for job_id in self.promises.cancelled:
            if jobs[job_id].state is not JobState.CANCELLED:
                raise Broken(f"job {job_id} is {jobs[job_id].state}, not cancelled")
        for job_id in self.promises.paused:
            if jobs[job_id].state is not JobState.PAUSED:
                raise Broken(f"job {job_id} is {jobs[job_id].state}, not paused")

    def _check_occurrences(self, job_id: JobId, first_ns: int, runs: list[Run]) -> None:
        """Each occurrence dealt with is a run, or in exactly one skip range."""
        job = self.on.get(job_id)
        assert job is not None
        when = job.trigger.when
        assert isinstance(when, EveryPeriod)
        of_schedule = [run for run in runs if run.job_id == job.id and run.n == 0]
        seen = Counter(run.nominal_ns for run in of_schedule)
        for skip in self.on.skips(job.id):
            step_ns = when.period_ns
            times = range(skip.first_ns, skip.last_ns + 1, step_ns)
            if len(times) != skip.count:
                raise Broken(f"{skip} does not count right")
            seen.update(times)
        end_ns = job.next_ns if job.next_ns is not None else max(seen, default=0) + 1
        for nominal_ns in range(first_ns, end_ns, when.period_ns):
            if seen.pop(nominal_ns, 0) != 1:
                raise Broken(f"{job.id}@{nominal_ns} has not exactly one record")
        if seen:
            raise Broken(f"{job.id} has records of times that never were: {seen}")

    def live_on(self) -> None:
        """Go on until all is over, and see that everything ended as it may.

        Raises:
            Broken: something did not.
        """
        for job in self.all_jobs():
            if job.state is JobState.PAUSED:
                self.promises.paused.discard(job.id)
                self.on.unhold(job.id, CatchUp())
        self.advance(100)
        for job in self.all_jobs():
            if job.next_ns is not None:
                if job.id in self.promises.jobs:  # else nobody was told of it
                    self.promises.jobs[job.id].add("cancelled")
                self.on.cancel(job.id)
        for _ in range(TURNS_MAX):
            self.turn(3)
            if self.running:
                self.finish()
            elif all(run.state in FINAL for run in self.all_runs()):
                break
            else:
                self.advance(3)
        else:
            raise Broken(f"never over: {[r for r in self.all_runs() if r.ended_ns]}")
        self._check_fates()
        self.check_promises()

    def open_and_live_on(self) -> None:
        """Open what a crash left, and go on until all is over."""
        self.open()
        self.live_on()

    def _check_fates(self) -> None:
        runs = Counter(run.job_id for run in self.all_runs() if run.n == 0)
        for run in self.all_runs():
            fates = self.promises.jobs.get(run.job_id)
            if run.n == 0 and fates is not None and run.state.value not in fates:
                raise Broken(f"{run.id} ended {run.state}, not one of {sorted(fates)}")
        for job_id in self.promises.jobs.keys() - self.promises.first_ns.keys():
            if runs[job_id] != 1:
                raise Broken(f"job {job_id} has {runs[job_id]} records, not one")

    def all_runs(self) -> list[Run]:
        """Return all runs; no identity comes twice."""
        runs: list[Run] = []
        cursor: str | None = None
        while True:
            page = self.on.runs(RunQuery(cursor=cursor))
            runs += page.runs
            cursor = page.cursor
            if cursor is None:
                break
        twice = [run_id for run_id, n in Counter(r.id for r in runs).items() if n > 1]
        if twice:
            raise Broken(f"more than one record of {twice}")
        return runs

    def all_jobs(self) -> list[Job]:
        """Return all jobs; no id comes twice."""
        jobs: list[Job] = []
        cursor: str | None = None
        while True:
            page = self.on.jobs(JobQuery(cursor=cursor))
            jobs += page.jobs
            cursor = page.cursor
            if cursor is None:
                break
        twice = [job_id for job_id, n in Counter(j.id for j in jobs).items() if n > 1]
        if twice:
            raise Broken(f"more than one record of {twice}")
        return jobs

    def end(self) -> None:
        """Close whatever is open."""
        with contextlib.suppress(Exception):
            if self.store is not None:
                self.store.close()
        self.history.end()
