"""The ledger of the kill tests sees each fault, and leaves the innocent alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest

from tests.crash.scheduler_ledger import Diary, Found, Ledger, ended_in_log
from timingwheel.jobs.model import (
    Attempt,
    Job,
    JobId,
    JobState,
    Outcome,
    Payload,
    Run,
    RunState,
    SkipRange,
    SkipReason,
)
from timingwheel.jobs.triggers import Delay, EveryPeriod, Trigger

JOB = JobId("j1")
PERIOD_NS = 1_000


@dataclass(frozen=True)
class Story:
    """A diary, line after line, and what a store has in the end."""

    lines: str
    jobs: Sequence[Job]
    runs: Sequence[Run]
    attempts: Sequence[Attempt]
    skips: Sequence[SkipRange] = ()

    def told(self, more: str) -> Story:
        """Return the same with more lines."""
        return replace(self, lines=f"{self.lines}|{more}")


def job(token: str = "near-0", *, every: bool = False, **fields: Any) -> Job:
    given = {"id": JOB, "state": JobState.DONE, **fields}
    return Job(
        task="note",
        payload=Payload(msgspec.msgpack.encode({"token": token})),
        trigger=Trigger(when=EveryPeriod(PERIOD_NS) if every else Delay(0)),
        created_ns=0,
        **given,
    )


def run(**fields: Any) -> Run:
    given = {
        "job_id": JOB,
        "nominal_ns": 0,
        "attempts": 1,
        "state": RunState.SUCCEEDED,
        **fields,
    }
    return Run(due_ns=0, task="note", **given)


def attempt(number: int = 1, token: int = 7, **fields: Any) -> Attempt:
    given = {"run_id": run().id, "outcome": Outcome.OK, **fields}
    return Attempt(number=number, worker="w", token=token, started_ns=0, **given)


def of_kind(kind: str) -> Story:
    """A job of a kind that ran once and well."""
    return Story(
        f"life 0|opened|ask {kind}-0|added {kind}-0 j1 1|"
        f"start {kind}-0 j1@0 1 7|end {kind}-0 j1@0 1",
        [job(f"{kind}-0")],
        [run()],
        [attempt()],
    )


def recurring(*nominals_ns: int, skips: Sequence[SkipRange] = ()) -> Story:
    """A recurring job whose runs were never claimed, so the diary has no starts."""
    return Story(
        "life 0|ask every-0|added every-0 j1 1",
        [job("every-0", every=True)],
        [
            run(nominal_ns=at_ns, state=RunState.SKIPPED, attempts=0)
            for at_ns in nominals_ns
        ],
        [],
        skips,
    )


def skip(first_ns: int, last_ns: int, count: int) -> SkipRange:
    return SkipRange(JOB, SkipReason.MISFIRE, first_ns, last_ns, count)


NEAR = of_kind("near")
ONCE = of_kind("once")
PARENT = of_kind("parent")
CANCELLED_JOB = job(state=JobState.CANCELLED)
LOST = attempt(outcome=Outcome.LOST)
AGAIN = replace(
    NEAR.told("life 1|start near-0 j1@0 2 9|end near-0 j1@0 2"),
    runs=[run(attempts=2)],
    attempts=[LOST, attempt(2, 9)],
)
WITH_CHILD = replace(
    PARENT,
    jobs=[*PARENT.jobs, job("child-of-parent-0", id=JobId("j2"))],
    runs=[run(), run(job_id="j2", state=RunState.SUCCEEDED)],
    attempts=[attempt(), attempt(run_id="j2@0", token=9)],
).told("start child-of-parent-0 j2@0 1 9|end child-of-parent-0 j2@0 1")


def judge(story: Story) -> Ledger:
    diary = Diary()
    diary.read(story.lines.split("|"))
    found = Found(
        jobs={job.id: job for job in story.jobs},
        runs={run.id: run for run in story.runs},
        attempts={
            run.id: [each for each in story.attempts if each.run_id == run.id]
            for run in story.runs
        },
        skips={job.id: list(story.skips) for job in story.jobs},
        runs_seen=Counter(run.id for run in story.runs),
    )
    ledger = Ledger(diary, found)
    ledger.judge()
    return ledger


FAULTS = {
    "an error": NEAR.told("error EngineFailedError"),
    "an acknowledged job lost": NEAR.told("ask near-1|added near-1 j2 1"),
    "a job made twice": NEAR.told("ask near-0|added near-0 j1 1"),
    "a job made twice ": replace(NEAR, jobs=[job(), job(id=JobId("j2"))]),
    "a job from nowhere": replace(NEAR, jobs=[job(), job("near-9", id=JobId("j2"))]),
    "a run with two records": replace(NEAR, runs=[run(), run()]),
    "not one run of a one-time job": replace(NEAR, runs=[run(), run(n=1)]),
    "an occurrence with two records": recurring(1_000, skips=[skip(1_000, 1_000, 1)]),
    "an occurrence without a record": recurring(1_000, 3_000),
    "a range that counts wrong": recurring(skips=[skip(1_000, 3_000, 2)]),
    "a run that never ended": replace(NEAR, runs=[run(state=RunState.RUNNING)]),
    "a run that ended otherwise": replace(NEAR, runs=[run(state=RunState.FAILED)]),
    "a success that no handler had": replace(
        NEAR, lines=NEAR.lines.replace("end", "raised")
    ),
    "attempts that do not count up": replace(NEAR, runs=[run(attempts=2)]),
    "a lease that does not grow": replace(
        AGAIN, attempts=[attempt(1, 9, outcome=Outcome.LOST), attempt(2, 9)]
    ),
    "a lease that does not grow ": replace(
        AGAIN, lines=AGAIN.lines.replace("2 9", "2 7")
    ),
    "a start under another lease": replace(NEAR, attempts=[attempt(token=8)]),
    "a start without an attempt": NEAR.told("start near-0 j1@0 2 9"),
    "an outcome that was not": replace(
        NEAR, attempts=[attempt(outcome=Outcome.TIMEOUT)]
    ),
    "an outcome of no start": replace(
        NEAR, lines=NEAR.lines.replace("|start near-0 j1@0 1 7", "")
    ),
    "a lost attempt without another": replace(NEAR, attempts=[LOST]),
    "a run that ended otherwise ": replace(
        NEAR, runs=[run(state=RunState.FAILED, lost=2)]
    ),
    "an attempt that started twice": NEAR.told("start near-0 j1@0 1 7"),
    "a start without a run": NEAR.told("start near-0 j9@0 1 8"),
    "a start of another job": NEAR.told("start near-7 j1@0 1 8"),
    "an at_most_once run that started twice": ONCE.told("life 1|start once-0 j1@0 2 9"),
    "a cancelled job that started": replace(
        AGAIN,
        jobs=[CANCELLED_JOB],
        lines=AGAIN.lines.replace("life 1", "cancel j1|cancelled j1 cancelled|life 1"),
    ),
    "a cancelled job that is not": NEAR.told("cancel j1|cancelled j1 cancelled"),
    "a follow-up lost or doubled": PARENT,
    "a run without a job": replace(NEAR, jobs=[]),
}


@pytest.mark.parametrize(("kind", "story"), FAULTS.items(), ids=FAULTS.keys())
def test_the_ledger_sees(kind: str, story: Story) -> None:
    ledger = judge(story)
    assert ledger.faults[kind.strip()], ledger.summary()


INNOCENT = {
    "a run that ends well": NEAR,
    "a job whose answer the kill cut off": replace(
        NEAR, lines=NEAR.lines.replace("|added near-0 j1 1", "")
    ),
    "a run that is tried again after a kill": replace(
        AGAIN, lines=AGAIN.lines.replace("|end near-0 j1@0 1", "")
    ),
    "an end that was not durable at the kill": AGAIN,
    "an at_most_once run that was lost": replace(
        ONCE, runs=[run(state=RunState.LOST)], attempts=[LOST]
    ),
    "a run given up after three kills": replace(
        NEAR,
        lines="life 0|ask near-0|added near-0 j1 1|start near-0 j1@0 1 7|"
        "life 1|start near-0 j1@0 2 8|life 2|start near-0 j1@0 3 9",
        runs=[run(state=RunState.FAILED, lost=3, attempts=3)],
        attempts=[
            attempt(number, 6 + number, outcome=Outcome.LOST) for number in (1, 2, 3)
        ],
    ),
    "a cancel that came too late": NEAR.told("cancel j1|cancelled j1 finished"),
    "a cancel whose answer the kill cut off": replace(
        NEAR,
        lines="life 0|ask near-0|added near-0 j1 1|cancel j1",
        jobs=[CANCELLED_JOB],
        runs=[run(state=RunState.CANCELLED, attempts=0)],
        attempts=[],
    ),
    "occurrences that ran or say why not": recurring(
        1_000, 5_000, skips=[skip(2_000, 4_000, 3)]
    ),
    "a follow-up of a success": WITH_CHILD,
}


@pytest.mark.parametrize("story", INNOCENT.values(), ids=INNOCENT.keys())
def test_the_ledger_leaves_the_innocent_alone(story: Story) -> None:
    ledger = judge(story)
    assert not ledger.faults, ledger.summary()


def test_the_log_and_the_store_are_compared_both_ways() -> None:
    found = Found(
        jobs={}, runs={run().id: run()}, attempts={}, skips={}, runs_seen=Counter()
    )
    assert ended_in_log({run().id: run()}, found) == []
    assert ended_in_log({}, found) == [run().id]
    assert ended_in_log({run().id: run(attempts=2)}, found) == [run().id]
    assert ended_in_log({run().id: run(), "j2@0": run(job_id="j2")}, found) == ["j2@0"]
