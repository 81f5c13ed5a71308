"""A store on a stage: time that the test sets, and the verbs of people and workers.

The conformance tests use a store through this and the JobStore protocol alone, so they
run on every store: whoever brings another one derives from `Stage` and adds it to
conftest.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

from timingwheel.jobs.model import (
    Cap,
    Delivery,
    Draft,
    Job,
    JobId,
    Misfire,
    MisfirePolicy,
    Outcome,
    Overlap,
    OverlapPolicy,
    Pause,
    Payload,
    Policy,
    RetryPolicy,
    Run,
    RunId,
    RunReason,
    RunState,
)
from timingwheel.jobs.store import (
    CatchUp,
    Claim,
    Finish,
    JobQuery,
    JobStore,
    NewRun,
    RunQuery,
    Verdict,
)
from timingwheel.jobs.triggers import (
    AfterJobs,
    AfterOn,
    At,
    CronRule,
    Delay,
    EveryPeriod,
    Moment,
    Trigger,
)

SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 3600 * SECOND
DAY: Final = 24 * HOUR
WORKER: Final = "w"
TASK: Final = "t"
FIRES_MAX: Final = 20_000
"""A store that finds more due at one moment goes round in circles."""


class Stage(ABC):
    """A store, its clocks and its worker.

    Attributes:
        store: the one of this life.
        grain_ns: how much later than due the store may serve.
        forgets_late_s: how much longer than it must a purge may keep what has ended.
        started: every attempt that began, as (run id, attempt, token), over all lives.
    """

    grain_ns: int
    forgets_late_s: float = 0
    store: JobStore

    def __init__(self) -> None:
        self.started: list[tuple[RunId, int, int]] = []

    # -- time and lives: what each store brings -----------------------------------------

    @abstractmethod
    def advance(self, seconds: float) -> None:
        """Let time pass."""

    @abstractmethod
    def step_wall(self, seconds: float) -> None:
        """Set the wall clock on or back; no time passes."""

    @abstractmethod
    def snapshot(self) -> None:
        """Have the store tidy up what it recovers from, where it has such a thing."""

    @abstractmethod
    def stop(self, *, crash: bool = False) -> None:
        """End the store's process: as it should, or by a power loss."""

    @abstractmethod
    def open(self) -> None:
        """Begin the next life; nobody has joined yet."""

    @abstractmethod
    def purge(self) -> None:
        """Have the store forget what is old enough."""

    def start(self) -> None:
        """Begin the next life, join and serve."""
        self.open()
        self.store.join(WORKER)
        self.store.recover()
        self.advance(self.grain_ns / SECOND)  # what comes now is on time

    def restart(self, *, crash: bool = False, down: float = 0, step: float = 0) -> None:
        """End the process and start the next, after a time and a step of the clock."""
        self.stop(crash=crash)
        self.advance(down)
        if step:
            self.step_wall(step)
        self.start()

    @property
    def now_ns(self) -> int:
        """The store's wall clock."""
        return self.store.now().wall_ns

    # -- people ---------------------------------------------------------------------------

    def put(self, when: Moment | Trigger | float, **more: Any) -> JobId:
        """Put one job; a number is a delay in seconds."""
        return self.store.put([draft(when, **more)])[0].id

    def trigger(self, job: JobId) -> Run:
        """Run a job by hand, now."""
        return self.store.create_runs(job, [NewRun(self.now_ns, RunReason.MANUAL)])[0]

    def pause(self, job: JobId, **more: Any) -> bool:
        """Pause a job."""
        return self.store.hold(job, Pause(since_ns=self.now_ns, **more))

    def resume(self, job: JobId, rule: Any = "skip", **more: Any) -> Any:
        """Resume a job."""
        window_ns = more.pop("window_ns", None)
        return self.store.unhold(job, CatchUp(rule, window_ns), **more)

    # -- workers --------------------------------------------------------------------------

    def fire(self) -> None:
        """Let the store serve what is due by now."""
        self.advance(self.grain_ns / SECOND)
        for _ in range(FIRES_MAX):
            count, ticket = self.store.fire(1_000)
            self.store.commit(ticket)
            if not count:
                return
        raise AssertionError("there is always something due")

    def claim(
        self, count: int = 1_000, *, worker: str = WORKER, **more: Any
    ) -> list[Claim]:
        """Take what is ready; nothing begins."""
        tasks = more.pop("tasks", frozenset({TASK}))
        claims, ticket = self.store.claim(worker, tasks=tasks, count=count, **more)
        self.store.commit(ticket)
        ids = [claim.run.id for claim in claims]
        assert len(set(ids)) == len(ids), "a run was given twice in one claim"
        return claims

    def begin(self, claim: Claim) -> bool:
        """Let the handler of a claimed run start."""
        may = self.store.begin(claim.run.id, claim.token)
        if may:
            self.started.append((claim.run.id, claim.run.attempts, claim.token))
        return may

    def start_due(self, count: int = 1_000, **more: Any) -> list[Claim]:
        """Fire, claim and begin: what a node does in a turn."""
        self.fire()
        return [claim for claim in self.claim(count, **more) if self.begin(claim)]

    def start_one(self, **more: Any) -> Claim:
        """Start the one run that is there to start."""
        claims = self.start_due(**more)
        assert len(claims) == 1, claims
        return claims[0]

    def end(self, claim: Claim, outcome: Outcome = Outcome.OK, **more: Any) -> Verdict:
        """Report how an attempt ended."""
        verdicts, ticket = self.store.finish([end_of(claim, outcome, **more)])
        self.store.commit(ticket)
        return verdicts[0]

    def fail(self, claim: Claim, **more: Any) -> Verdict:
        """Report an error."""
        return self.end(claim, Outcome.ERROR, **more)

    def step(self, outcome: Outcome = Outcome.OK) -> list[Run]:
        """Start all that may start and end it so; return what was started."""
        claims = self.start_due()
        for claim in claims:
            assert self.end(claim, outcome) is Verdict.ACCEPTED
        return [claim.run for claim in claims]

    def work(
        self, seconds: float, *, times: int = 1, outcome: Outcome = Outcome.OK
    ) -> list[Run]:
        """Let time pass and work, so many times; return what was started."""
        done: list[Run] = []
        for _ in range(times):
            self.advance(seconds)
            done += self.step(outcome)
        return done

    # -- looking --------------------------------------------------------------------------

    def job(self, job: JobId) -> Job:
        """Return a job that must be there."""
        found = self.store.get(job)
        assert found is not None, f"job {job} is gone"
        return found

    def runs(self, job: JobId | None = None, **query: Any) -> list[Run]:
        """Return all run records, oldest nominal time first, over all pages."""
        found: list[Run] = []
        cursor: str | None = None
        while True:
            page = self.store.runs(RunQuery(job_id=job, cursor=cursor, **query))
            found += page.runs
            cursor = page.cursor
            if cursor is None:
                break
        ids = [run.id for run in found]
        assert len(set(ids)) == len(ids), f"an identity came twice: {ids}"
        return found[::-1]

    def run(self, job: JobId) -> Run:
        """Return the one run of a job."""
        runs = self.runs(job)
        assert len(runs) == 1, runs
        return runs[0]

    def states(self, job: JobId) -> list[str]:
        """Return the states of a job's runs, oldest nominal time first."""
        return [run.state.value for run in self.runs(job)]

    def skipped(self, job: JobId) -> list[tuple[str, int]]:
        """Return reason and count of each skip range of a job, oldest first."""
        return [(skip.reason.value, skip.count) for skip in self.store.skips(job)]

    def all_jobs(self, **query: Any) -> list[Job]:
        """Return all jobs, over all pages."""
        found: list[Job] = []
        cursor: str | None = None
        while True:
            page = self.store.jobs(JobQuery(cursor=cursor, **query))
            found += page.jobs
            cursor = page.cursor
            if cursor is None:
                return found


# -- short words for drafts -------------------------------------------------------------------


def draft(when: Moment | Trigger | float, **more: Any) -> Draft:
    """Return a job as a caller asks for it; policy fields may be given directly."""
    if isinstance(when, int | float):
        when = Delay(round(when * SECOND))
    trigger = when if isinstance(when, Trigger) else Trigger(when=when)
    fields: dict[str, Any] = {"task": TASK, "payload": Payload(b"x")}
    policy = {name: more.pop(name) for name in Policy.__struct_fields__ if name in more}
    if policy:
        fields["policy"] = Policy(**policy)
    return Draft(trigger=trigger, **(fields | more))


def end_of(claim: Claim, outcome: Outcome = Outcome.OK, **more: Any) -> Finish:
    """Return the report of an attempt's end."""
    fields: dict[str, Any] = {"started_ns": claim.run.started_ns or claim.run.due_ns}
    if outcome is not Outcome.OK:
        fields["error"] = f"it ended by {outcome}"
    return Finish(
        run_id=claim.run.id, token=claim.token, outcome=outcome, **(fields | more)
    )


def every(seconds: float, **more: Any) -> Trigger:
    """Return a trigger of elapsed time."""
    return Trigger(when=EveryPeriod(round(seconds * SECOND)), **more)


def cron(expression: str, tz: str = "UTC", **more: Any) -> Trigger:
    """Return a cron trigger."""
    bounds = {n: more.pop(n) for n in Trigger.__struct_fields__ if n in more}
    return Trigger(when=CronRule(expression=expression, tz=tz, **more), **bounds)


def at(wall_ns: int, **more: Any) -> Trigger:
    """Return a trigger of one instant."""
    return Trigger(when=At(wall_ns), **more)


def after(*jobs: JobId, on: str = "success", need: Any = "all") -> Trigger:
    """Return a trigger that waits for other jobs."""
    return Trigger(when=AfterJobs(jobs=jobs, on=AfterOn(on), need=need))


def overlap(rule: str, limit: int = 1_000) -> OverlapPolicy:
    """Return an overlap policy."""
    return OverlapPolicy(rule=Overlap(rule), limit=limit)


def misfire(rule: str, **more: Any) -> MisfirePolicy:
    """Return a misfire policy."""
    return MisfirePolicy(rule=Misfire(rule), **more)


def nominals(runs: Sequence[Run]) -> list[int]:
    """Return nominal times."""
    return [run.nominal_ns for run in runs]


ONCE: Final = Delivery.AT_MOST_ONCE
NO_RETRY: Final = RetryPolicy(attempts=1)
STEADY: Final = RetryPolicy(attempts=3, first_ns=SECOND, jitter=0)
FINISHED: Final = [RunState.SUCCEEDED]
ONE: Final = Cap("one", 1)
