"""What the users of a job store know: the naive oracle of its random programs.

Jobs are a dictionary; there is no log, no wheel and no snapshot. Of a recurring job only
rules are known that any store must keep (each occurrence is a run or in one skip range);
of one-time jobs everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from timingwheel.jobs.model import Job, JobId, JobState, Run, RunId, RunState, SkipRange
from timingwheel.jobs.states import FINAL
from timingwheel.jobs.store import CancelResult, Claim


@dataclass(slots=True)
class Expected:
    """One job as its user knows it.

    Attributes:
        job_id: its id.
        due_ns: of a one-time job, on its scale.
        elapsed: that scale.
        once: it runs at most once.
        first_ns: of a recurring job, its first nominal time.
        period_ns: of a recurring job.
        paused: it is held.
        cancelled: none of its runs starts any more.
        wall_seen_ns: the latest that the wall clock has shown since it was put.
    """

    job_id: JobId
    due_ns: int = 0
    elapsed: bool = True
    once: bool = False
    first_ns: int | None = None
    period_ns: int = 0
    paused: bool = False
    cancelled: bool = False
    wall_seen_ns: int = 0

    @property
    def recurs(self) -> bool:
        """Whether it has more than one occurrence."""
        return self.first_ns is not None


@dataclass(slots=True)
class StoreOracle:
    """Jobs, what runs and what has ended.

    Attributes:
        jobs: all that were put.
        running: claims whose handler has started.
        ended: runs that rest, and how.
        begun: how often each run has started.
        token: the highest so far.
        by_hand: runs that were made by hand.
    """

    jobs: dict[JobId, Expected] = field(default_factory=dict)
    running: dict[RunId, Claim] = field(default_factory=dict)
    ended: dict[RunId, RunState] = field(default_factory=dict)
    begun: Counter[RunId] = field(default_factory=Counter)
    token: int = 0
    by_hand: set[RunId] = field(default_factory=set)

    # -- what happens -----------------------------------------------------------------------

    def sees_time(self, wall_ns: int) -> None:
        """The wall clock shows this; what is due by it may start, also after a step."""
        for job in self.jobs.values():
            job.wall_seen_ns = max(job.wall_seen_ns, wall_ns)

    def starts(self, claim: Claim, *, elapsed_ns: int) -> None:
        """A handler starts: it may."""
        run = claim.run
        job = self.jobs[run.job_id]
        assert claim.token > self.token, "a token that does not grow"
        assert not job.cancelled, f"{run.id} was cancelled"
        assert not job.paused or run.id in self.by_hand, f"{run.id} is paused"
        assert run.id not in self.ended, f"{run.id} has ended"
        assert run.id not in self.running, f"{run.id} runs already"
        assert not (job.once and self.begun[run.id]), f"{run.id} runs only once"
        if run.id not in self.by_hand:
            due_ns = run.nominal_ns if job.recurs else job.due_ns
            now_ns = elapsed_ns if job.elapsed else job.wall_seen_ns
            assert now_ns >= due_ns, f"{run.id} starts {due_ns - now_ns} ns early"
        self.token = claim.token
        self.begun[run.id] += 1
        self.running[run.id] = claim

    def ends(self, run: Run) -> None:
        """An attempt is over, and the run is as the store says."""
        del self.running[run.id]
        if run.state in FINAL:
            self.ended[run.id] = run.state

    def process_dies(self) -> None:
        """Nothing runs any more."""
        self.running.clear()

    def cancels(self, job_id: JobId, runs: Iterable[Run]) -> CancelResult:
        """Somebody cancels; return what is the right answer.

        Args:
            job_id: which.
            runs: of the job, before.
        """
        job = self.jobs.get(job_id)
        if job is None:
            return CancelResult.NOT_FOUND
        live = [run for run in runs if run.state not in FINAL]
        if job.cancelled:
            return CancelResult.ALREADY
        if not live and not job.recurs:
            return CancelResult.FINISHED
        job.cancelled = True
        job.paused = False
        goes_on = [run for run in live if run.id in self.running]
        if job.recurs or len(goes_on) < len(live):
            return CancelResult.CANCELLED
        return CancelResult.RUNNING

    def cancels_run(self, run_id: RunId, live: Iterable[Run]) -> CancelResult:
        """Somebody cancels one run; return what is the right answer.

        Args:
            run_id: which; it has not ended.
            live: all that have not, before.
        """
        job = self.jobs[JobId(run_id.partition("@")[0])]
        is_last = [run.id for run in live if run.job_id == job.job_id] == [run_id]
        if is_last and not job.recurs and not job.cancelled:
            job.cancelled = True
            job.paused = False
        if run_id in self.running:
            return CancelResult.RUNNING
        return CancelResult.CANCELLED

    # -- what always holds ------------------------------------------------------------------

    def compare(
        self,
        jobs: list[Job],
        runs: list[Run],
        skips: dict[JobId, list[SkipRange]],
        *,
        claimed: set[RunId],
    ) -> None:
        """Check all that a store shows; `claimed` runs have a lease and not begun."""
        found = {job.id: job for job in jobs}
        assert len(found) == len(jobs), "a job comes twice"
        assert found.keys() == self.jobs.keys(), "a job is lost, or nobody put it"
        by_id = {run.id: run for run in runs}
        assert len(by_id) == len(runs), "a run comes twice"
        for run_id, state in self.ended.items():
            assert by_id[run_id].state is state, f"{run_id} had {state}"
        for run_id, count in self.begun.items():
            assert by_id[run_id].attempts >= count, f"{run_id}: {count} attempts began"
        running = {run.id for run in runs if run.state is RunState.RUNNING}
        assert self.running.keys() <= running, "it runs, and the store does not know"
        assert running - self.running.keys() <= claimed, "running without a lease"
        by_job: dict[JobId, list[Run]] = {}
        for run in runs:
            by_job.setdefault(run.job_id, []).append(run)
        for job_id, job in self.jobs.items():
            self._compare_job(job, found[job_id], by_job.get(job_id, []))
            if job.recurs:
                self._cover(job, found[job_id], by_job.get(job_id, []), skips[job_id])

    def _compare_job(self, job: Expected, found: Job, runs: list[Run]) -> None:
        over = all(run.state in FINAL for run in runs)
        if over and found.state is JobState.DONE:
            job.paused = False  # what ran when it was paused was its last
        if job.cancelled:
            assert found.state is JobState.CANCELLED
            live = {run.id for run in runs if run.state not in FINAL}
            assert live <= self.running.keys(), "a run of a cancelled job waits"
        elif job.paused:
            assert found.state is JobState.PAUSED
        else:
            assert found.state in (JobState.ACTIVE, JobState.DONE)
        if not job.recurs:
            assert len([run for run in runs if run.n == 0]) == 1
            assert job.cancelled or over == (found.state is JobState.DONE)

    def _cover(
        self, job: Expected, found: Job, runs: list[Run], skips: list[SkipRange]
    ) -> None:
        """Each occurrence that was dealt with is a run, or in one skip range."""
        assert job.first_ns is not None
        seen = Counter(run.nominal_ns for run in runs if run.n == 0)
        for skip in skips:
            times = range(skip.first_ns, skip.last_ns + 1, job.period_ns)
            assert len(times) == skip.count, f"{skip} counts wrong"
            seen.update(times)
        assert set(seen.values()) <= {1}, "an occurrence was dealt with twice"
        end_ns = found.next_ns
        if end_ns is None:
            end_ns = max(seen, default=job.first_ns - job.period_ns) + job.period_ns
        assert sorted(seen) == list(range(job.first_ns, end_ns, job.period_ns))
