"""What a scheduler has promised over many lives, held against what it has in the end.

The diary (scheduler_victim.py) says what was asked, answered, started and ended, in the
order in which it happened; the store, when all is done, says what became of it. Every
check names the fault it sees, so that a test can plant it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from timingwheel.jobs.model import (
    Attempt,
    Job,
    JobState,
    Outcome,
    Run,
    RunState,
    SkipRange,
)
from timingwheel.jobs.states import FINAL
from timingwheel.jobs.store import JobQuery, JobStore, RunQuery
from timingwheel.jobs.triggers import EveryPeriod

PAGE = 1_000
CHILD = "child-of-"
ONCE = "once-"
RECURRING = "every-"


class Start(NamedTuple):
    """A handler that began, and where in the diary that stands."""

    life: int
    line: int
    token: str
    run_id: str
    attempt: int
    lease: int


class Cancel(NamedTuple):
    """What a cancel answered, and where in the diary that stands; "" for no answer."""

    line: int
    result: str


@dataclass
class Diary:
    """All lines of all lives, read."""

    asked: set[str] = field(default_factory=set)
    added: dict[str, str] = field(default_factory=dict)
    created: Counter[str] = field(default_factory=Counter)
    cancels: dict[str, list[Cancel]] = field(default_factory=lambda: defaultdict(list))
    starts: list[Start] = field(default_factory=list)
    ends: dict[tuple[str, int], str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    lives: int = 0
    opened: int = 0

    def read(self, lines: Iterable[str]) -> None:
        """Take in lines, in order."""
        for number, line in enumerate(lines):
            self._note(number, *line.split())

    def _note(self, line: int, kind: str, *words: str) -> None:
        match kind, words:
            case "life", _:
                self.lives += 1
            case "opened", _:
                self.opened += 1
            case "ask", (token,):
                self.asked.add(token)
            case "added", (token, job_id, created):
                if self.added.setdefault(token, job_id) != job_id:
                    self.errors.append(f"{token} is {job_id} and {self.added[token]}")
                self.created[token] += int(created)
            case "cancel", (job_id,):
                self.cancels[job_id].append(Cancel(line, ""))
            case "cancelled", (job_id, result):
                self.cancels[job_id].append(Cancel(line, result))
            case "start", (token, run_id, attempt, lease):
                self.starts.append(
                    Start(self.lives, line, token, run_id, int(attempt), int(lease))
                )
            case (("end" | "raised"), (_, run_id, attempt)):
                self.ends[run_id, int(attempt)] = kind
            case "closed", ():
                pass
            case _:
                self.errors.append(" ".join((kind, *words)))


@dataclass
class Found:
    """What a store has: all its jobs and runs, the attempts and what did not run."""

    jobs: dict[str, Job]
    runs: dict[str, Run]
    attempts: dict[str, list[Attempt]]
    skips: dict[str, list[SkipRange]]
    runs_seen: Counter[str]

    @classmethod
    def of(cls, store: JobStore) -> Found:
        """Read a store whole."""
        jobs: dict[str, Job] = {job.id: job for job in _all_jobs(store)}
        seen: Counter[str] = Counter()
        runs: dict[str, Run] = {}
        for run in _all_runs(store):
            seen[run.id] += 1
            runs[run.id] = run
        return cls(
            jobs=jobs,
            runs=runs,
            attempts={run_id: store.attempts(run.id) for run_id, run in runs.items()},
            skips={
                job_id: store.skips(job.id)
                for job_id, job in jobs.items()
                if job.trigger.is_recurring
            },
            runs_seen=seen,
        )

    def token(self, job: Job) -> str:
        """Return the token that a job carries."""
        (token,) = msgspec.msgpack.decode(job.payload.body).values()
        return str(token)


def _all_jobs(store: JobStore) -> Iterator[Job]:
    cursor: str | None = None
    while True:
        page = store.jobs(JobQuery(cursor=cursor, limit=PAGE))
        yield from page.jobs
        cursor = page.cursor
        if cursor is None:
            return


def _all_runs(store: JobStore) -> Iterator[Run]:
    cursor: str | None = None
    while True:
        page = store.runs(RunQuery(cursor=cursor, limit=PAGE))
        yield from page.runs
        cursor = page.cursor
        if cursor is None:
            return


class Ledger:
    """Holds a diary against a store; `faults` says what was not kept.

    Args:
        diary: of all lives.
        found: what the store has after the last of them, in which all was ended.
    """

    def __init__(self, diary: Diary, found: Found) -> None:
        self.faults: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self._diary = diary
        self._found = found
        self._runs_of: dict[str, list[Run]] = defaultdict(list)
        for run in found.runs.values():
            self._runs_of[run.job_id].append(run)
        self._starts_of: dict[str, list[Start]] = defaultdict(list)
        for start in diary.starts:
            self._starts_of[start.run_id].append(start)

    def judge(self) -> None:
        """Check every promise."""
        for error in self._diary.errors:
            self._fault("an error", error)
        self._judge_acknowledged()
        self._judge_jobs()
        for run in self._found.runs.values():
            self._judge_end(run)
            self._judge_attempts(run)
        self._judge_starts()
        self._judge_cancels()
        self._judge_children()

    def runs_of_kind(self, kind: str) -> list[Run]:
        """Return the runs whose tokens begin so."""
        return [
            run
            for run in self._found.runs.values()
            if self._token_of(run).startswith(f"{kind}-")
        ]

    def outcomes(self, run: Run) -> list[Outcome | None]:
        """Return how the attempts of a run ended, in order."""
        return [attempt.outcome for attempt in self._found.attempts[run.id]]

    def outcomes_seen(self) -> Counter[Outcome | None]:
        """Return how many attempts ended how."""
        return Counter(
            attempt.outcome
            for attempts in self._found.attempts.values()
            for attempt in attempts
        )

    def summary(self) -> str:
        """Return what there was, and what was wrong."""
        states = Counter(run.state.value for run in self._found.runs.values())
        outcomes = {str(kind): count for kind, count in self.outcomes_seen().items()}
        return (
            f"{len(self._diary.added)} jobs acknowledged, runs {dict(states)}, "
            f"attempts {outcomes}, {len(self._diary.starts)} starts; "
            f"faults {dict(self.faults)} {self.examples}"
        )

    # -- jobs and their runs -----------------------------------------------------------------

    def _judge_acknowledged(self) -> None:
        for token, job_id in self._diary.added.items():
            if job_id not in self._found.jobs:
                self._fault("an acknowledged job lost", f"{token} {job_id}")
        for token, count in self._diary.created.items():
            if count > 1:
                self._fault("a job made twice", token)

    def _judge_jobs(self) -> None:
        tokens = Counter(map(self._found.token, self._found.jobs.values()))
        for token, count in tokens.items():
            if count > 1:
                self._fault("a job made twice", token)
            if token.removeprefix(CHILD) not in self._diary.asked:
                self._fault("a job from nowhere", token)
        for run_id, count in self._found.runs_seen.items():
            if count > 1:
                self._fault("a run with two records", run_id)
        for job in self._found.jobs.values():
            if job.trigger.is_recurring:
                self._judge_occurrences(job)
            elif [run.n for run in self._runs_of[job.id]] != [0]:
                runs = [run.id for run in self._runs_of[job.id]]
                self._fault("not one run of a one-time job", f"{job.id} {runs}")

    def _judge_occurrences(self, job: Job) -> None:
        """Each occurrence has a run, or lies in one range that says why not."""
        when = job.trigger.when
        assert isinstance(when, EveryPeriod)
        stretches = [
            (run.nominal_ns, run.nominal_ns, 1) for run in self._runs_of[job.id]
        ]
        stretches += [
            (skip.first_ns, skip.last_ns, skip.count)
            for skip in self._found.skips[job.id]
        ]
        next_ns = job.since_ns + when.period_ns
        for first_ns, last_ns, count in sorted(stretches):
            if first_ns < next_ns:
                self._fault("an occurrence with two records", f"{job.name} {first_ns}")
            if first_ns > next_ns:
                self._fault("an occurrence without a record", f"{job.name} {next_ns}")
            if last_ns - first_ns != (count - 1) * when.period_ns:
                self._fault("a range that counts wrong", f"{job.name} {first_ns}")
            next_ns = last_ns + when.period_ns

    def _judge_end(self, run: Run) -> None:
        token = self._token_of(run)
        allowed = {RunState.SUCCEEDED}
        if run.job_id in self._diary.cancels:
            allowed |= {RunState.CANCELLED}
        if token.startswith(ONCE):
            allowed |= {RunState.LOST}
        if self._was_given_up(run):
            allowed |= {RunState.FAILED}
        if token.startswith(RECURRING):
            allowed |= {RunState.SKIPPED}  # of a run that waited behind another
        if run.state not in FINAL:
            self._fault("a run that never ended", f"{token} {run.state}")
        elif run.state not in allowed:
            self._fault("a run that ended otherwise", f"{token} {run.state}")
        last = self._diary.ends.get((run.id, run.attempts))
        if run.state is RunState.SUCCEEDED and last != "end":
            self._fault("a success that no handler had", f"{token} {run.id}")

    # -- attempts -----------------------------------------------------------------------------

    def _judge_attempts(self, run: Run) -> None:
        attempts = self._found.attempts[run.id]
        token = self._token_of(run)
        numbers = [attempt.number for attempt in attempts]
        if numbers != list(range(1, run.attempts + 1)):
            self._fault("attempts that do not count up", f"{token} {numbers}")
        leases = [attempt.token for attempt in attempts]
        if leases != sorted(set(leases)):
            self._fault("a lease that does not grow", f"{token} {leases}")
        started = {start.attempt: start for start in self._starts_of.get(run.id, ())}
        for attempt in attempts:
            start = started.get(attempt.number)
            if start is not None and start.lease != attempt.token:
                self._fault("a start under another lease", f"{token} {start}")
            self._judge_outcome(run, attempt, was_started=start is not None)
        for number in started.keys() - set(numbers):
            self._fault("a start without an attempt", f"{token} {run.id} {number}")

    def _judge_outcome(self, run: Run, attempt: Attempt, *, was_started: bool) -> None:
        end = self._diary.ends.get((run.id, attempt.number))
        allowed = {Outcome.LOST}
        if end == "end":
            allowed |= {Outcome.OK}
        if end == "raised":
            allowed |= {Outcome.ERROR}
        where = f"{self._token_of(run)} {run.id} attempt {attempt.number}"
        if attempt.outcome not in allowed:
            self._fault("an outcome that was not", f"{where} {attempt.outcome} {end}")
        if attempt.outcome is not Outcome.LOST and not was_started:
            self._fault("an outcome of no start", where)
        if (
            attempt.outcome is Outcome.LOST
            and attempt.number == run.attempts
            and run.state not in {RunState.LOST, RunState.CANCELLED}
            and not self._was_given_up(run)
        ):
            self._fault("a lost attempt without another", where)

    def _judge_starts(self) -> None:
        seen: set[tuple[str, int]] = set()
        lease_of_former_lives = highest = 0
        life = 0
        for start in self._diary.starts:
            if start.life != life:
                life, lease_of_former_lives = start.life, highest
            highest = max(highest, start.lease)
            if start.lease <= lease_of_former_lives:
                self._fault("a lease that does not grow", str(start))
            if (start.run_id, start.attempt) in seen:
                self._fault("an attempt that started twice", str(start))
            seen.add((start.run_id, start.attempt))
            if start.run_id not in self._found.runs:
                self._fault("a start without a run", str(start))
            elif self._token_of(self._found.runs[start.run_id]) != start.token:
                self._fault("a start of another job", str(start))
        for run_id, starts in self._starts_of.items():
            if starts[0].token.startswith(ONCE) and len(starts) > 1:
                self._fault("an at_most_once run that started twice", run_id)

    def _judge_cancels(self) -> None:
        """A cancel that says it prevented a start has prevented it, for ever."""
        prevented = {
            job_id: cancel.line
            for job_id, cancels in self._diary.cancels.items()
            for cancel in cancels
            if cancel.result == "cancelled"
        }
        for start in self._diary.starts:
            run = self._found.runs.get(start.run_id)
            if run is not None and start.line > prevented.get(run.job_id, start.line):
                self._fault("a cancelled job that started", str(start))
        for job_id in prevented:
            job = self._found.jobs.get(job_id)
            if job is not None and job.state is not JobState.CANCELLED:
                self._fault("a cancelled job that is not", f"{job_id} {job.state}")

    def _judge_children(self) -> None:
        """What a handler added is there if, and only if, it has succeeded."""
        children = Counter(
            token.removeprefix(CHILD)
            for token in map(self._found.token, self._found.jobs.values())
            if token.startswith(CHILD)
        )
        for run in self._found.runs.values():
            token = self._token_of(run)
            if token.startswith("parent-"):
                succeeded = run.state is RunState.SUCCEEDED
                if children[token] != succeeded:
                    self._fault("a follow-up lost or doubled", f"{token} {run.state}")

    def _was_given_up(self, run: Run) -> bool:
        """Whether kills have cut off as many attempts as the run was allowed to lose."""
        job = self._found.jobs.get(run.job_id)
        return job is not None and run.lost == job.policy.lost_max

    # -- inside --------------------------------------------------------------------------------

    def _token_of(self, run: Run) -> str:
        job = self._found.jobs.get(run.job_id)
        if job is None:
            self._fault("a run without a job", run.id)
            return "?"
        return self._found.token(job)

    def _fault(self, kind: str, example: str) -> None:
        self.faults[kind] += 1
        self.examples.setdefault(kind, example)


def ended_in_log(records: Mapping[str, Run], found: Found) -> list[str]:
    """Return the runs whose end reads otherwise in the log than in the store."""
    ended = {run_id: run for run_id, run in found.runs.items() if run.state in FINAL}
    return sorted(
        run_id
        for run_id in records.keys() | ended.keys()
        if records.get(run_id) != ended.get(run_id)
    )
