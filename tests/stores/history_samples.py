"""Runs, jobs and entries for the tests of the history, and a program that writes them.

Run as a module it writes, batch by batch and without end, the entries of ENTRIES_OF for
LSN 1, 2, 3, ...; after each commit it prints the LSN reached.
"""

from __future__ import annotations

import sys
from typing import Any, Final

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
from timingwheel.jobs.triggers import CronRule, Delay, Trigger
from timingwheel.stores.history import Entry, History, HistoryRun, encode

T0: Final = 1_700_000_000_000_000_000
SECOND: Final = 1_000_000_000
DAY: Final = 86_400 * SECOND
ONCE: Final = Trigger(when=Delay(SECOND))
DAILY: Final = Trigger(when=CronRule(expression="@daily"))


def run_of(job: str, nominal_ns: int = T0, n: int = 0, **more: Any) -> Run:
    """A run that has succeeded a second after its nominal time."""
    fields: dict[str, Any] = {
        "due_ns": nominal_ns,
        "state": RunState.SUCCEEDED,
        "task": "send",
        "attempts": 1,
        "created_ns": nominal_ns,
        "started_ns": nominal_ns,
        "ended_ns": nominal_ns + SECOND,
    }
    return Run(job_id=JobId(job), nominal_ns=nominal_ns, n=n, **(fields | more))


def job_of(job_id: str, trigger: Trigger = ONCE, **more: Any) -> Job:
    """A job that is done."""
    fields: dict[str, Any] = {
        "task": "send",
        "payload": Payload(b"{}"),
        "state": JobState.DONE,
        "created_ns": T0,
    }
    return Job(id=JobId(job_id), trigger=trigger, **(fields | more))


def attempt_of(run: Run, number: int = 1, **more: Any) -> Attempt:
    """An attempt that went well."""
    return Attempt(
        run_id=run.id,
        number=number,
        worker="w1",
        token=number,
        started_ns=run.nominal_ns,
        ended_ns=run.nominal_ns + SECOND,
        outcome=Outcome.OK,
        **more,
    )


def run_entry(lsn: int, run: Run, tags: dict[str, str] | None = None) -> Entry:
    value = HistoryRun(run=run, tags=tags or {}, payload=Payload(b"[1]"))
    return Entry(lsn, "run", encode(value))


def plain_entry(lsn: int, run: Run) -> Entry:
    return Entry(lsn, "plain", encode(HistoryRun(run=run, payload=Payload(b"[1]"))))


def attempt_entry(lsn: int, attempt: Attempt) -> Entry:
    return Entry(lsn, "attempt", encode(attempt))


def job_entry(lsn: int, job: Job) -> Entry:
    return Entry(lsn, "job", encode(job))


def skips_entry(lsn: int, skips: SkipRange) -> Entry:
    return Entry(lsn, "skips", encode(skips))


def entries_of(lsn: int) -> list[Entry]:
    """What the record of an LSN has for the history: one run in all its parts."""
    run = run_of(f"job-{lsn:09}", T0 + lsn)
    skips = SkipRange(run.job_id, SkipReason.MISFIRE, T0 - lsn, T0 - 1, lsn)
    return [
        attempt_entry(lsn, attempt_of(run)),
        run_entry(lsn, run, {"parity": "odd" if lsn % 2 else "even"}),
        job_entry(lsn, job_of(run.job_id)),
        skips_entry(lsn, skips),
    ]


def write_for_ever(path: str, batch_lsns: int = 20) -> None:
    history = History(path)
    while True:
        # A few that are there already come again, as after a crash of the store.
        first = max(1, history.reached_lsn - 5)
        last = history.reached_lsn + batch_lsns
        history.write([e for lsn in range(first, last + 1) for e in entries_of(lsn)])
        print(history.reached_lsn, flush=True)


if __name__ == "__main__":
    write_for_ever(sys.argv[1])
