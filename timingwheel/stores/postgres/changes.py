"""The rows that a decision leaves behind: each once, with its last value."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from timingwheel.engine.records import Base
from timingwheel.jobs.model import (
    Attempt,
    Job,
    JobId,
    JobState,
    Outcome,
    Run,
    RunState,
    SkipRange,
)
from timingwheel.jobs.store import Request
from timingwheel.jobs.triggers import AfterJobs
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.deciding.live import LiveRun, RunKey, is_held
from timingwheel.stores.deciding.view import Changed
from timingwheel.stores.history_entries import HistoryRun, encode, searched
from timingwheel.stores.identity import require_run_id
from timingwheel.stores.postgres.rows import (
    LiveRow,
    job_values,
    key_of,
    live_values,
    past_values,
    plain_end,
    plain_values,
    shard_of,
)
from timingwheel.stores.postgres.view import DeadRow, LoadedView
from timingwheel.stores.records import PlainJob

PLAIN = 1
"""The kind of a change that puts a plain job; its value is a NewPlain."""

Values = tuple[Any, ...]


class NewPlain(msgspec.Struct, frozen=True):
    """A plain job that is put."""

    job_id: JobId
    plain: PlainJob
    seq: int
    wait_ns: int
    base: Base


class RowChanges:
    """Rows to insert, to update and to delete, and what follows from it in memory.

    Attributes:
        new_jobs, jobs, new_runs, runs: whole rows.
        old_runs: keys of live runs that have ended, with all that `past` and `folded` say.
        past: whole rows of runs that have ended.
        folded: likewise; but earlier attempts of theirs are rows, to be taken in.
        old_past: keys of runs that were retried by hand: live again.
        past_changes: what a discard changes.
        touched: jobs of which only the version grows: others come after them now, or
            they have another run.
        ended: runs that have come to rest.
        lost: how many attempts have ended because their worker is gone.
        released: tokens whose attempts are over.
        asks: requests that other processes must hear of.

    Args:
        view: what the decision was made on.
        decision: that one.
        shards: of the store.
        asks: see above.
    """

    def __init__(
        self,
        view: LoadedView,
        decision: Decision,
        *,
        shards: int,
        asks: list[Request],
    ) -> None:
        self._view = view
        self._shards = shards
        self._now_ns = decision.now.wall_ns
        self.new_jobs: list[Values] = []
        self.jobs: list[Values] = []
        self.new_runs: list[Values] = []
        self.runs: list[Values] = []
        self.old_runs: list[Values] = []
        self.past: list[Values] = []
        self.folded: list[Values] = []
        self.old_past: list[Values] = []
        self.past_changes: list[Values] = []
        self.attempts: list[Values] = []
        self.skips: list[Values] = []
        self.dependencies: list[Values] = []
        self.old_dependencies: list[Values] = []
        self.names: list[Values] = []
        self.old_names: list[Values] = []
        self.touched: list[Values] = []
        self.ended: list[Run] = []
        self.lost = 0
        self.released: set[int] = set()
        self.asks = asks
        self._asked = {ask.token: 2 if ask.kill else 1 for ask in asks}
        self._job_values: dict[JobId, tuple[Job, bool]] = {}
        self._run_values: dict[tuple[JobId, RunKey], LiveRun | HistoryRun] = {}
        self._attempts: dict[tuple[JobId, RunKey], list[Attempt]] = {}
        for kind, value in decision.changes:
            self._note(kind, value)
        self._note_what_follows()
        self._plain_successes = set(filter(self._is_plain_success, self._job_values))
        for (job_id, key), run in self._run_values.items():
            self._write_run(job_id, key, run)
        for job_id, (job, is_live) in self._job_values.items():
            self._write_job(job_id, job, is_live=is_live)

    def __bool__(self) -> bool:
        return bool(
            self.new_jobs
            or self.jobs
            or self.new_runs
            or self.runs
            or self.past
            or self.folded
            or self.past_changes
            or self.attempts
            or self.skips
        )

    def _note(self, kind: int, value: object) -> None:
        match kind:
            case Changed.JOB:
                job = cast("Job", value)
                self._job_values[job.id] = job, True
            case Changed.JOB_ENDED:
                job = cast("Job", value)
                self._job_values[job.id] = job, False
            case Changed.RUN:
                live = cast("LiveRun", value)
                self._run_values[live.run.job_id, key_of(live.run)] = live
            case Changed.RUN_ENDED:
                ended = cast("HistoryRun", value)
                self._run_values[ended.run.job_id, key_of(ended.run)] = ended
                self.ended.append(ended.run)
            case Changed.ATTEMPT_ENDED:
                attempt = cast("Attempt", value)
                self.lost += attempt.outcome is Outcome.LOST
                job_id, nominal_ns, n = require_run_id(attempt.run_id)
                self._attempts.setdefault((job_id, (nominal_ns, n)), []).append(attempt)
            case Changed.SKIPS:
                skips = cast("SkipRange", value)
                shard = shard_of(skips.job_id, self._shards)
                first = (shard, skips.job_id, skips.first_ns, skips.reason.value)
                self.skips.append((*first, skips.last_ns, skips.count))
            case _ if kind == PLAIN:
                new = cast("NewPlain", value)
                self.new_runs.append(
                    plain_values(
                        new.plain,
                        new.job_id,
                        self._shards,
                        seq=new.seq,
                        wake_ns=new.wait_ns,
                        base=new.base,
                    )
                )

    def _note_what_follows(self) -> None:
        """Note rows that change because their job does, or because somebody asks."""
        for job_id, (job, is_live) in list(self._job_values.items()):
            row = self._view.jobs.get(job_id)
            plain = self._plain(job_id)
            if is_live and row is not None and row.live:
                self._note_columns(row.job, job)
            if is_live and (row is None or not row.live):
                self._note_dependencies(job)
            if is_live and plain is not None:
                key = job_id, key_of(plain.live.run)
                self._run_values.setdefault(key, plain.live)
        for rows in self._view.live_runs.values():
            for one in rows.values():
                if one.live.token and one.live.token in self._asked:
                    run = one.live.run
                    self._run_values.setdefault((run.job_id, key_of(run)), one.live)
        for job_id, _ in list(self._run_values):
            if job_id not in self._job_values and self._plain(job_id) is not None:
                self._promote(job_id)

    def _note_columns(self, former: Job, job: Job) -> None:
        """Runs have columns that say something of their job."""
        for key, row in self._view.live_runs.get(job.id, {}).items():
            run = row.live.run
            if (
                former.cap != job.cap
                or former.tags != job.tags
                or is_held(former, run) != is_held(job, run)
            ):
                self._run_values.setdefault((job.id, key), row.live)

    def _note_dependencies(self, job: Job) -> None:
        when = job.trigger.when
        if not isinstance(when, AfterJobs):
            return
        for before in map(JobId, dict.fromkeys(when.jobs)):
            shard = shard_of(before, self._shards)
            self.dependencies.append((shard, before, job.id))
            # Whoever ends that job meanwhile must see that another comes after it.
            if before in self._job_values:
                continue
            if self._view.plain(before) is not None:
                self._promote(before)
            elif (row := self._view.row(before)) is not None and row.live:
                self.touched.append((shard, before, row.version))

    def _plain(self, job_id: JobId) -> LiveRow | None:
        """Return the run of a plain job; what is new has not been read, and is none."""
        return self._view.plain(job_id) if job_id in self._view.jobs else None

    def _promote(self, job_id: JobId) -> None:
        """Make a plain job one like others: with a row."""
        row = self._plain(job_id)
        assert row is not None
        assert row.job is not None
        self._job_values[job_id] = row.job, True
        key = job_id, key_of(row.live.run)
        self._run_values.setdefault(key, row.live)

    def _is_plain_success(self, job_id: JobId) -> bool:
        """Return whether a plain job has ended so that it needs no row of its own."""
        plain = self._plain(job_id)
        if plain is None:
            return False
        job, is_live = self._job_values.get(job_id, (None, True))
        key = job_id, key_of(plain.live.run)
        value = self._run_values.get(key)
        return (
            job is not None
            and not is_live
            and job.state is JobState.DONE
            and isinstance(value, HistoryRun)
            and value.run.state is RunState.SUCCEEDED
            and value.run.attempts == 1
            and len(self._attempts.get(key, ())) == 1
        )

    def _write_run(
        self, job_id: JobId, key: RunKey, value: LiveRun | HistoryRun
    ) -> None:
        former = self._view.live_runs.get(job_id, {}).get(key)
        dead = None if former is not None else self._view.dead.get((job_id, key))
        token = 0 if former is None else former.live.token
        if token and not (isinstance(value, LiveRun) and value.token == token):
            self.released.add(token)
        if isinstance(value, LiveRun):
            self._write_live(job_id, value, former, dead)
        elif dead is None:
            self._write_ended(job_id, key, value, former)
        else:  # it was dead and still is: discarded
            where = (shard_of(job_id, self._shards), job_id, *key)
            self.past_changes.append((*where, value.run.discarded, encode(value)))

    def _write_live(
        self,
        job_id: JobId,
        value: LiveRun,
        former: LiveRow | None,
        dead: DeadRow | None,
    ) -> None:
        job, _ = self._job_values.get(job_id, (None, True))
        job = job or self._view.job(job_id)
        assert job is not None, "a live run belongs to a live job"
        key = key_of(value.run)
        row = live_values(
            value,
            job,
            self._shards,
            # Goes on, so that nobody takes a run that was retried for the one before.
            version=1 if dead is None else dead.version + 1,
            former=former,
            asked=self._asked.get(value.token, _asked_before(former, value)),
        )
        shard = shard_of(job_id, self._shards)
        attempts = self._attempts.get((job_id, key), [])
        if former is not None:
            self.runs.append(row)
        else:
            self.new_runs.append(row)
            self._touch(job_id)
        if dead is not None:
            self.old_past.append((shard, job_id, *key))
            attempts = [*dead.attempts, *attempts]
        self.attempts += [
            (shard, job_id, *key, attempt.number, encode(attempt))
            for attempt in attempts
        ]

    def _touch(self, job_id: JobId) -> None:
        """Have whoever has read the live runs of a job see that there is another."""
        row = self._view.jobs.get(job_id)
        if row is not None and job_id not in self._job_values:
            touched = (shard_of(job_id, self._shards), job_id, row.version)
            if touched not in self.touched:
                self.touched.append(touched)

    def _write_ended(
        self,
        job_id: JobId,
        key: RunKey,
        value: HistoryRun,
        former: LiveRow | None,
    ) -> None:
        attempts = self._attempts.get((job_id, key), [])
        if job_id in self._plain_successes:
            job, _ = self._job_values[job_id]
            value = plain_end(value, job.payload, attempts.pop())
        version = 1 if former is None else former.version + 1
        row = past_values(value, self._shards, version=version, attempts=attempts)
        if former is None:
            self.past.append(row)
            return
        self.old_runs.append((shard_of(job_id, self._shards), job_id, *key))
        run = former.live.run
        had_others = run.attempts > (run.state is RunState.RUNNING)
        (self.folded if had_others else self.past).append(row)

    def _write_job(self, job_id: JobId, job: Job, *, is_live: bool) -> None:
        row = self._view.jobs.get(job_id)
        if job_id in self._plain_successes:
            return
        values = job_values(job, self._shards, now_ns=self._now_ns, live=is_live)
        (self.jobs if row is not None else self.new_jobs).append(values)
        was_live = row is not None and row.live
        if job.name is not None:
            text = searched(job.name)
            name = (shard_of(text, self._shards), text, job_id)
            is_over = not is_live or job.state is JobState.CANCELLED
            if was_live and is_over:
                self.old_names.append(name)
            elif not was_live and not is_over:
                self.names.append(name)
        when = job.trigger.when
        if isinstance(when, AfterJobs) and not is_live:
            for before in dict.fromkeys(when.jobs):
                shard = shard_of(before, self._shards)
                self.old_dependencies.append((shard, before, job_id))


def _asked_before(former: LiveRow | None, value: LiveRun) -> int:
    if former is None or former.live.token != value.token:
        return 0
    return former.asked
