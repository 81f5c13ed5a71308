"""What people ask a scheduler: which jobs and runs there are, when, and why.

Answers may show what is not durable yet; the ends that `wait` and `result` return are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, TypeVar

from timingwheel.errors import ArgumentError
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.cluster import ClusterFacts, Overseen
from timingwheel.jobs.durations import Duration, duration_ns
from timingwheel.jobs.explaining import TIMES_MAX, NextTime
from timingwheel.jobs.model import Job, JobState, Queue, Run, RunState, SkipRange
from timingwheel.jobs.storage import Storage
from timingwheel.jobs.store import PAGE_LIMIT, JobQuery, Load, RunQuery
from timingwheel.scheduler.checking import Doctor, Finding
from timingwheel.scheduler.describing import explained, upcoming
from timingwheel.scheduler.desk import AnyJob, AnyRun, Desk
from timingwheel.scheduler.handles import Page, RunHandle
from timingwheel.scheduler.moments import bound_ns
from timingwheel.scheduler.options import checked_tags, checked_text
from timingwheel.scheduler.surveying import (
    TaskFacts,
    Worker,
    is_served,
    tasks_of,
    workers_of,
)
from timingwheel.scheduler.tasks import Task
from timingwheel.scheduler.why import Explainer

PAGE_LIMIT_MAX: Final = 1_000
LOAD_STEPS_MAX: Final = 100_000
_State = TypeVar("_State", JobState, RunState)


class Questions:
    """The questions to a scheduler; see Scheduler for where they go."""

    @property
    @abstractmethod
    def desk(self) -> Desk:
        """The open store; opened by the first who asks."""

    @property
    @abstractmethod
    def is_serving(self) -> bool:
        """Whether this program starts runs now."""

    @abstractmethod
    def holds(self, token: int) -> bool:
        """Whether this program works on the attempt of that lease."""

    # -- jobs and runs ----------------------------------------------------------------------

    def job(self, job: AnyJob) -> Job:
        """Return a job.

        Raises:
            UnknownJobError: there is no such job.
        """
        return self.desk.require(job)

    def jobs(
        self,
        *,
        state: str | JobState | None = None,
        task: str | Task | None = None,
        queue: str | None = None,
        name: str | None = None,
        search: str | None = None,
        tags: Mapping[str, str] | None = None,
        limit: int = PAGE_LIMIT,
        cursor: str | None = None,
    ) -> Page[Job]:
        """Return jobs, live ones first; what is left out does not matter.

        Args:
            state: "active", "paused", "done", "cancelled" or "quarantined".
            task: the task or its name.
            queue: where they wait.
            name: of the job.
            search: a part of its name; of the letters A to Z the case does not matter.
            tags: words that it has, and maybe others.
            limit: rows at most, 1 to 1,000.
            cursor: of the page before.

        Raises:
            ArgumentError: one of them is invalid; it is named.
        """
        states = None if state is None else _states(state, JobState)
        page = self.desk.store.jobs(
            JobQuery(
                state=None if states is None else next(iter(states)),
                task=_task_name(task),
                queue=_text(queue, "queue"),
                name=_text(name, "name"),
                search=_text(search, "search"),
                tags=None if tags is None else checked_tags(tags),
                cursor=cursor,
                limit=_checked_limit(limit),
            )
        )
        return Page(page.jobs, page.cursor)

    def followers(self, limit: int = PAGE_LIMIT) -> list[Job]:
        """Return live jobs that run after others: the edges of the graph, from below.

        `job.trigger.when` is an AfterJobs, which names the jobs before. One that runs
        once is live until its run has ended.

        Args:
            limit: jobs at most, 1 to 1,000; there may be more if so many come.

        Raises:
            ArgumentError: the limit is outside that range.

        Cost: O(limit), whatever the store holds.
        """
        return self.desk.store.followers(_checked_limit(limit))

    def runs(
        self,
        *,
        job: AnyJob | None = None,
        state: str | RunState | Iterable[str | RunState] | None = None,
        task: str | Task | None = None,
        queue: str | None = None,
        tags: Mapping[str, str] | None = None,
        discarded: bool | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = PAGE_LIMIT,
        cursor: str | None = None,
        in_order: bool = True,
    ) -> Page[Run]:
        """Return runs, newest nominal time first; what is left out does not matter.

        Args:
            job: whose.
            state: such as "failed", or several of them.
            task: the task or its name.
            queue: where they wait.
            tags: words that the job has.
            discarded: whether it was taken off the dead-letter list; False with the
                states "failed" and "lost" is that list.
            since: no nominal time before.
            until: none at or after.
            limit: rows at most, 1 to 1,000.
            cursor: of the page before.
            in_order: False: in any order, to read all pages of a store where very many
                jobs wait. The newest are looked for among all of them, for each page
                anew; this way all pages together cost one look. What moves on meanwhile
                may come twice.

        Raises:
            UnknownJobError: there is no such job.
            ArgumentError: another of them is invalid; it is named.
        """
        desk = self.desk
        page = desk.store.runs(
            RunQuery(
                job_id=None if job is None else desk.require(job).id,
                states=None if state is None else _states(state, RunState),
                task=_task_name(task),
                queue=_text(queue, "queue"),
                tags=None if tags is None else checked_tags(tags),
                discarded=discarded,
                since_ns=None if since is None else bound_ns(since, "since"),
                until_ns=None if until is None else bound_ns(until, "until"),
                cursor=cursor,
                limit=_checked_limit(limit),
                in_order=in_order,
            )
        )
        return Page(page.runs, page.cursor)

    def run(self, run: AnyRun) -> RunHandle:
        """Return a handle of a run, to look at it and to wait for its end.

        Args:
            run: a run or its id; or a one-time job, for its only run.

        Raises:
            ArgumentError: it is nothing that could mean one run.
            UnknownJobError: there is no such job.
        """
        return self.desk.run(run)

    # -- when and why -----------------------------------------------------------------------

    def next_times(self, job: AnyJob, n: int = 10) -> list[NextTime]:
        """Return the next times of a job, each with what a clock change does to it.

        Args:
            job: which.
            n: how many at most, 1 to 1,000.

        Raises:
            UnknownJobError: there is no such job.
        """
        if type(n) is not int or not 1 <= n <= TIMES_MAX:
            raise ArgumentError("n", n, f"pass how many, 1 to {TIMES_MAX:,}")
        desk = self.desk
        return upcoming(desk, desk.require(job), n)

    def explain(self, job: AnyJob) -> str:
        """Return in words when a job runs, how it is treated, and where it stands.

        Raises:
            UnknownJobError: there is no such job.
        """
        desk = self.desk
        return explained(desk, desk.require(job))

    def why(self, job: AnyJob, nominal: datetime) -> str:
        """Return why an occurrence ran, did not run, or waits: from stored facts.

        Args:
            job: whose.
            nominal: the instant that its trigger names.

        Raises:
            UnknownJobError: there is no such job.
            ArgumentError: `nominal` is no aware datetime.
        """
        desk = self.desk
        found = desk.require(job)
        explainer = Explainer(
            desk.store,
            tasks=desk.tasks.names if self.is_serving else None,
            is_served=self.is_serving or is_served(desk.store),
        )
        nominal_ns = desk.nominal_ns(found, nominal)
        schedule = desk.schedule(found)
        once_ns = desk.once_ns(found) if schedule is None else None
        return explainer.why(found, nominal_ns, schedule=schedule, once_ns=once_ns)

    def skips(self, job: AnyJob, *, since: datetime | None = None) -> list[SkipRange]:
        """Return which occurrences of a job did not run, and why; oldest first.

        Args:
            job: whose.
            since: ranges that reach past this instant; None: all that are kept.

        Raises:
            UnknownJobError: there is no such job.
            ArgumentError: `since` is no aware datetime.
        """
        desk = self.desk
        since_ns = 0 if since is None else bound_ns(since, "since")
        return desk.store.skips(desk.require(job).id, since_ns=since_ns)

    def queues(self) -> list[Queue]:
        """Return all queues that were set or have runs."""
        return self.desk.store.queues()

    def calendars(self) -> dict[str, NamedCalendar]:
        """Return all calendars by name."""
        return self.desk.store.calendars()

    def workers(self) -> list[Worker]:
        """Return who works on runs now.

        Cost: reads every running attempt.
        """
        return workers_of(self.desk.store)

    def known_tasks(self) -> list[TaskFacts]:
        """Return the tasks of this program and those that live jobs name.

        Cost: reads every live job.
        """
        desk = self.desk
        return tasks_of(desk.store, desk.tasks)

    def load_ahead(
        self, span: Duration = "24h", *, step: Duration = "1m"
    ) -> list[Load]:
        """Return how many starts are planned in each step of the time to come.

        Args:
            span: how far ahead.
            step: the length of a step.

        Raises:
            ArgumentError: that is more than 100,000 steps, or none.
        """
        span_ns = duration_ns(span, "span", zero=False)
        step_ns = duration_ns(step, "step", zero=False)
        if step_ns > span_ns or span_ns // step_ns > LOAD_STEPS_MAX:
            raise ArgumentError(
                "step",
                step,
                f"pass a step of which 1 to {LOAD_STEPS_MAX:,} fit into span",
            )
        store = self.desk.store
        return store.load_ahead(store.now().wall_ns + span_ns, step_ns)

    def storage(self) -> Storage:
        """Return how the store stands: log, snapshots, last recovery, wheels.

        Raises:
            OSError: the directory cannot be read.

        Cost: the names and sizes of the log's files; no content is read.
        """
        return self.desk.store.storage()

    def cluster(self) -> ClusterFacts | None:
        """Return who lives, who fires what, and how the database does; None: in none.

        Cost: some index scans; nothing grows with the history.
        """
        store = self.desk.store
        return store.cluster() if isinstance(store, Overseen) else None

    def check(self) -> list[Finding]:
        """Look over the whole store and return what is wrong, with the fix for each.

        Cost: reads every job and every live run; for people and for deployments.
        """
        desk = self.desk
        doctor = Doctor(
            desk.store,
            tasks=desk.tasks.names,
            holds=self.holds if self.is_serving else None,
        )
        return doctor.findings()


def _states(
    state: str | _State | Iterable[str | _State], kind: type[_State]
) -> frozenset[_State]:
    words = [state] if isinstance(state, str) else list(state)
    try:
        return frozenset(kind(word) for word in words)
    except ValueError:
        known = ", ".join(f'"{member.value}"' for member in kind)
        raise ArgumentError("state", state, f"pass one of {known}") from None


def _task_name(task: str | Task | None) -> str | None:
    return task.name if isinstance(task, Task) else _text(task, "task")


def _text(value: str | None, argument: str) -> str | None:
    return None if value is None else checked_text(value, argument)


def _checked_limit(limit: int) -> int:
    if type(limit) is not int or not 1 <= limit <= PAGE_LIMIT_MAX:
        raise ArgumentError(
            "limit", limit, f"pass rows at most, 1 to {PAGE_LIMIT_MAX:,}; then page on"
        )
    return limit
