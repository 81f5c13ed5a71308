"""What people ask of a client: which jobs and runs there are, when, and why.

Each as the question of the same name in scheduler/questions.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from timingwheel.client.asking import AnyJob, Asking, task_name
from timingwheel.client.sending import (
    job_text,
    length_text,
    moment_text,
    tag_texts,
)
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.cluster import ClusterFacts
from timingwheel.jobs.durations import Duration
from timingwheel.jobs.explaining import NextTime
from timingwheel.jobs.model import (
    Job,
    JobState,
    Queue,
    Run,
    RunState,
    SkipRange,
)
from timingwheel.jobs.schedule import DstMark
from timingwheel.jobs.storage import Storage
from timingwheel.jobs.store import (
    PAGE_LIMIT,
    Load,
)
from timingwheel.scheduler.checking import Finding
from timingwheel.scheduler.handles import Page
from timingwheel.scheduler.metrics import MetricsSnapshot
from timingwheel.scheduler.surveying import TaskFacts, Worker
from timingwheel.scheduler.tasks import Task
from timingwheel.wire.answers import (
    ClusterAnswer,
    ListAnswer,
    NowAnswer,
    PageAnswer,
)
from timingwheel.wire.audit import AuditEntry, AuditOutcome


class _Time(msgspec.Struct, frozen=True):
    utc: datetime
    local: datetime
    mark: DstMark


class _Load(msgspec.Struct, frozen=True):
    start_ns: int
    nominal: int
    due: int


class ClientQuestions(Asking):
    """The questions to a client."""

    def job(self, job: AnyJob) -> Job:
        """Return a job. As Scheduler.job."""
        found: Job = self._get(("jobs", job_text(job)), Job)
        return found

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
        """Return jobs, live ones first. As Scheduler.jobs."""
        query = {
            "state": state,
            "task": None if task is None else task_name(task, "task"),
            "queue": queue,
            "name": name,
            "search": search,
            "tag": tag_texts(tags),
            "limit": limit,
            "cursor": cursor,
        }
        page: PageAnswer[Job] = self._get(("jobs",), PageAnswer[Job], query)
        return Page(page.items, page.cursor)

    def followers(self, limit: int = PAGE_LIMIT) -> list[Job]:
        """Return live jobs that run after others. As Scheduler.followers."""
        return self._list(("followers",), Job, {"limit": limit})

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
        """Return runs, newest nominal time first. As Scheduler.runs."""
        if state is not None:
            state = [state] if isinstance(state, str) else list(state)
        query = {
            "job": None if job is None else job_text(job),
            "state": state,
            "task": None if task is None else task_name(task, "task"),
            "queue": queue,
            "tag": tag_texts(tags),
            "discarded": None if discarded is None else str(discarded).lower(),
            "since": moment_text(since, "since"),
            "until": moment_text(until, "until"),
            "limit": limit,
            "cursor": cursor,
            "in_order": None if in_order else "false",
        }
        page: PageAnswer[Run] = self._get(("runs",), PageAnswer[Run], query)
        return Page(page.items, page.cursor)

    def next_times(self, job: AnyJob, n: int = 10) -> list[NextTime]:
        """Return when a job runs next. As Scheduler.next_times."""
        path = ("jobs", job_text(job), "next-times")
        answer: ListAnswer[_Time] = self._get(path, ListAnswer[_Time], {"n": n})
        return [NextTime(one.utc, one.local, one.mark) for one in answer.items]

    def explain(self, job: AnyJob) -> str:
        """Return in words when a job runs, and where it stands. As Scheduler.explain."""
        return self._text(("jobs", job_text(job), "explanation"), {})

    def why(self, job: AnyJob, nominal: datetime) -> str:
        """Return why an occurrence ran, did not, or waits. As Scheduler.why."""
        query = {"nominal": moment_text(nominal, "nominal")}
        return self._text(("jobs", job_text(job), "why"), query)

    def skips(self, job: AnyJob, *, since: datetime | None = None) -> list[SkipRange]:
        """Return which occurrences of a job did not run. As Scheduler.skips."""
        path = ("jobs", job_text(job), "skips")
        return self._list(path, SkipRange, {"since": moment_text(since, "since")})

    def load_ahead(
        self, span: Duration = "24h", *, step: Duration = "1m"
    ) -> list[Load]:
        """Return how many starts are planned in each step. As Scheduler.load_ahead."""
        query = {"span": length_text(span, "span"), "step": length_text(step, "step")}
        found: list[_Load] = self._list(("load-ahead",), _Load, query)
        return [Load(one.start_ns, one.nominal, one.due) for one in found]

    def queues(self) -> list[Queue]:
        """Return all queues that were set or have runs."""
        return self._list(("queues",), Queue)

    def calendars(self) -> dict[str, NamedCalendar]:
        """Return all calendars by name."""
        found: list[dict[str, Any]] = self._list(("calendars",), dict[str, Any])
        return {
            one.pop("name"): msgspec.convert(one, type=NamedCalendar) for one in found
        }

    def workers(self) -> list[Worker]:
        """Return who works on runs now."""
        return self._list(("workers",), Worker)

    def known_tasks(self) -> list[TaskFacts]:
        """Return the tasks of the server and those that live jobs name."""
        return self._list(("tasks",), TaskFacts)

    def storage(self) -> Storage:
        """Return how the server's store stands. As Scheduler.storage."""
        found: Storage = self._get(("log",), Storage)
        return found

    def cluster(self) -> ClusterFacts | None:
        """Return who lives, who fires what. As Scheduler.cluster."""
        found: ClusterAnswer = self._get(("cluster",), ClusterAnswer)
        return found.cluster

    def check(self) -> list[Finding]:
        """Look over the whole store and return what is wrong. As Scheduler.check."""
        return self._list(("check",), Finding)

    def snapshot_metrics(self) -> MetricsSnapshot:
        """Return what the server's process has counted."""
        found: MetricsSnapshot = self._get(("metrics",), MetricsSnapshot)
        return found

    def audit(
        self,
        *,
        actor: str | None = None,
        operation: str | None = None,
        target: str | None = None,
        outcome: AuditOutcome | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = PAGE_LIMIT,
        cursor: str | None = None,
    ) -> Page[AuditEntry]:
        """Return who did what over HTTP and what was refused, newest first.

        Args:
            actor: whose token it was.
            operation: such as "pause_job".
            target: of which job, run, queue or the like, as it was named.
            outcome: "done", "refused" or "failed".
            since: none before.
            until: none at or after.
            limit: rows at most, 1 to 1,000.
            cursor: of the page before.
        """
        query = {
            "actor": actor,
            "operation": operation,
            "target": target,
            "outcome": outcome,
            "since": moment_text(since, "since"),
            "until": moment_text(until, "until"),
            "limit": limit,
            "cursor": cursor,
        }
        page: PageAnswer[AuditEntry] = self._get(
            ("audit",), PageAnswer[AuditEntry], query
        )
        return Page(page.items, page.cursor)

    def now(self) -> NowAnswer:
        """Return the present of the store, and whether the server starts runs."""
        found: NowAnswer = self._get(("now",), NowAnswer)
        return found
