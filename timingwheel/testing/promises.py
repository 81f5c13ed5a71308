"""What callers, handlers and workers of a simulated scheduler were told.

Every call that returned is a promise; one that a crash cut off may have been done or not,
until the store has been looked at: then it stays as it was found. The rules that can be
broken at a start or an end are held here, at that moment; `invariants` looks at the
store as a whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from timingwheel.jobs.after import On
from timingwheel.jobs.model import (
    Delivery,
    Job,
    JobId,
    Run,
    RunId,
    RunReason,
    RunState,
)
from timingwheel.jobs.store import Instant
from timingwheel.jobs.triggers import AfterJobs

Kind = Literal["delay", "moment", "every", "cron", "after", "follow_up"]
Close = Literal["ok", "error", "snoozed", "ended", "lost", "returned"]


class BrokenPromiseError(AssertionError):
    """The scheduler did not keep what it had promised."""


@dataclass
class Wish:
    """A job that was asked for, and what may be true of it.

    A set holds what may be so; an acknowledgement or a look leaves one of it.

    Attributes:
        label: how it is known before it has an id: it stands in its arguments.
        kind: of its trigger.
        plan: what its handler does; see `programs`.
        remote: whether it is of the task that remote workers have.
        id: None until it is known.
        acknowledged: whether its put has returned.
        delay_ns: of `delay`.
        due_ns: of `delay`: not before, on the elapsed scale.
        period_ns: of `every` and `cron`, what it may be.
        since_ns: of `every`: what its occurrences count from, as was seen last.
        cancelled, paused, priority: what may be so.
        after: labels that it waits for, and which end of them counts.
        by_hand: whether somebody has retried or triggered a run of it.
        resumed: whether a resume may have caught up more than its own rule says.
        catches_up: after how many gaps it may have caught up: each start of a life and
            each step of the clock is one, and also an occurrence of the very instant
            in which it was put.
    """

    label: str
    kind: Kind
    plan: str = "ok"
    remote: bool = False
    id: JobId | None = None
    acknowledged: bool = False
    delay_ns: int = 0
    due_ns: int = 0
    period_ns: set[int] = field(default_factory=set)
    since_ns: int | None = None
    cancelled: set[bool] = field(default_factory=lambda: {False})
    paused: set[bool] = field(default_factory=lambda: {False})
    priority: set[int] = field(default_factory=lambda: {0})
    after: tuple[str, ...] = ()
    after_on: On = "success"
    after_need: str = "all"
    by_hand: bool = False
    resumed: bool = False
    catches_up: int = 1

    @property
    def recurs(self) -> bool:
        """Whether it runs again and again."""
        return self.kind in ("every", "cron")


@dataclass
class Start:
    """A handler that began.

    Attributes:
        token: of its lease.
        life: of the scheduler, in which it began.
        worker: who has it; "" for the node itself.
        lease_ns: until when the lease lives without a further beat, elapsed; None: as
            long as the node.
        closed: how it ended, None while it goes on.
        is_on_record: whether the store was seen to know of it.
    """

    token: int
    life: int
    worker: str
    lease_ns: int | None = None
    closed: Close | None = None
    is_on_record: bool = False


@dataclass
class Ledger:
    """All promises of one simulation.

    Attributes:
        wishes: by label.
        labels: by job id.
        ended: runs whose end was told, and how.
        ends: of each job, how any run of it has ended, be it retried since or not.
        starts: of each run, oldest first.
        fresh: of each run that was retried by hand, how many starts it had by then.
        life: of the scheduler, 1 for the first.
        token: the highest that a start had.
        wall_max_ns: the latest that the wall clock has shown.
        broken: what was found where nothing may be raised.
    """

    wishes: dict[str, Wish] = field(default_factory=dict)
    labels: dict[JobId, str] = field(default_factory=dict)
    ended: dict[RunId, RunState] = field(default_factory=dict)
    ends: dict[JobId, set[RunState]] = field(default_factory=lambda: defaultdict(set))
    starts: dict[RunId, list[Start]] = field(default_factory=lambda: defaultdict(list))
    fresh: dict[RunId, int] = field(default_factory=dict)
    life: int = 0
    token: int = 0
    wall_max_ns: int = 0
    broken: list[str] = field(default_factory=list)

    def wish_of(self, job_id: JobId) -> Wish:
        """Return what is known of a job.

        Raises:
            BrokenPromiseError: nobody has asked for such a job.
        """
        label = self.labels.get(job_id)
        if label is None:
            raise BrokenPromiseError(f"job {job_id} runs, and nobody was told of it")
        return self.wishes[label]

    def heard(self, runs: Sequence[Run]) -> None:
        """Take in that runs have ended, for good and durably. Never raises."""
        for run in runs:
            self.ends[run.job_id].add(run.state)
            before = self.ended.setdefault(run.id, run.state)
            if before is not run.state:
                self.broken.append(f"run {run.id} ended {run.state}; it had {before}")

    def reopened(self, run_id: RunId) -> None:
        """Note that a run was, or may have been, retried by hand."""
        self.ended.pop(run_id, None)
        self.fresh[run_id] = len(self.starts[run_id])

    # -- a start -----------------------------------------------------------------------------

    def began(self, start: Start, run: Run, job: Job, now: Instant) -> None:
        """Note that a handler starts.

        Raises:
            BrokenPromiseError: it must not.
        """
        wish = self.wish_of(run.job_id)
        self.wall_max_ns = max(self.wall_max_ns, now.wall_ns)
        self._may_start_at_all(run, wish)
        self._may_start_again(run, job, now)
        self._is_not_early(run, job, wish, now)
        self._has_what_it_waits_for(run, wish)
        if start.token <= self.token:
            raise BrokenPromiseError(f"token {start.token} came after {self.token}")
        self.token = start.token
        self.starts[run.id].append(start)

    def _may_start_at_all(self, run: Run, wish: Wish) -> None:
        if wish.cancelled == {True}:
            raise BrokenPromiseError(f"{run.id} starts, and {wish.label} was cancelled")
        if wish.paused == {True} and run.reason is not RunReason.MANUAL:
            raise BrokenPromiseError(f"{run.id} starts, and {wish.label} is paused")
        if run.id in self.ended:
            raise BrokenPromiseError(
                f"{run.id} starts again after {self.ended[run.id]}"
            )

    def _may_start_again(self, run: Run, job: Job, now: Instant) -> None:
        counted = self.starts[run.id][self.fresh.get(run.id, 0) :]
        if not counted:
            return
        if job.policy.delivery is Delivery.AT_MOST_ONCE:
            raise BrokenPromiseError(f"{run.id} starts again, and may run only once")
        last = counted[-1]
        if last.life != self.life:
            return  # case 1 of the guarantees: its process died
        if last.closed == "ok":
            raise BrokenPromiseError(f"{run.id} starts again, and it has succeeded")
        if last.closed is not None:
            return
        if last.lease_ns is None or now.elapsed_ns < last.lease_ns:
            raise BrokenPromiseError(
                f"{run.id} starts again while {last.worker!r} works on it and lives"
            )

    def _is_not_early(self, run: Run, job: Job, wish: Wish, now: Instant) -> None:
        if run.n or isinstance(job.trigger.when, AfterJobs):
            return
        due_ns, now_ns = run.nominal_ns, now.elapsed_ns
        if not job.trigger.is_recurring and job.trigger.is_elapsed:
            due_ns = wish.due_ns
        elif not job.trigger.is_elapsed:
            now_ns = self.wall_max_ns  # what was due before a step back stays so
        if now_ns < due_ns:
            early_ns = due_ns - now_ns
            raise BrokenPromiseError(f"{run.id} starts {early_ns:,} ns early")

    def _has_what_it_waits_for(self, run: Run, wish: Wish) -> None:
        if not wish.after or run.reason is RunReason.MANUAL:
            return
        held = [self._has_ended_so(label, wish.after_on) for label in wish.after]
        if not (all(held) if wish.after_need == "all" else any(held)):
            raise BrokenPromiseError(
                f"{run.id} starts, and {wish.after} have not ended: {wish.after_on}"
            )

    def _has_ended_so(self, label: str, on: On) -> bool:
        job_id = self.wishes[label].id
        states = self.ends[job_id] if job_id is not None else set()
        good = RunState.SUCCEEDED in states
        bad = bool(states - {RunState.SUCCEEDED})
        return {"success": good, "failure": bad}.get(on, good or bad)

    # -- what goes on ------------------------------------------------------------------------

    def close(self, run_id: RunId, token: int, how: Close) -> None:
        """Note that a start has come to its end."""
        for start in self.starts[run_id]:
            if start.token == token:
                start.closed = how
