"""The first act of demonstration.py: jobs, and a kill while two of them run.

A program with jobs (demonstration_jobs_child.py) is started, killed with SIGKILL, started
again, and stopped with SIGTERM. This process notes what the program was promised and what
its handlers did, then opens the store itself and compares.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from demonstration_jobs_child import CANCELLED, OVERDUE, REMINDERS
from demonstration_page import Verdict, head, say

from timingwheel import Scheduler
from timingwheel.jobs.model import Run, RunState

CHILD = Path(__file__).with_name("demonstration_jobs_child.py")
DEAD_S = 1.6
TICKS_AFTER = 2
SECOND_NS = 1_000_000_000


@dataclass
class Seen:
    """What the program told.

    Attributes:
        added: jobs that were acknowledged and not cancelled.
        cancelled: jobs whose cancel was acknowledged.
        charged: the job that may run at most once.
        begun: (task, attempt) -> how many handlers have begun so.
        begun_runs: run id -> how many of its handlers have begun.
        early: handlers that began before their time.
        late_ns: of first attempts, task by task.
    """

    added: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    charged: str = ""
    begun: Counter[tuple[str, int]] = field(default_factory=Counter)
    begun_runs: Counter[str] = field(default_factory=Counter)
    early: int = 0
    late_ns: list[int] = field(default_factory=list)

    def note(self, words: list[str]) -> None:
        match words:
            case ["ADDED", job_id]:
                self.added.add(job_id)
            case ["CANCELLED", job_id]:
                self.added.discard(job_id)
                self.cancelled.add(job_id)
            case ["CHARGED", job_id]:
                self.charged = job_id
            case ["begin", task, run_id, attempt, now_ns]:
                self.begun[task, int(attempt)] += 1
                self.begun_runs[run_id] += 1
                if attempt == "1":
                    nominal_ns = int(run_id.rpartition("@")[2])
                    self.late_ns.append(int(now_ns) - nominal_ns)
                    self.early += int(now_ns) < nominal_ns


class JobsAct:
    """Starts, kills and stops the program, and holds its store to what it promised."""

    def __init__(self, directory: Path, verdict: Verdict) -> None:
        self._directory = directory
        self._verdict = verdict
        self._seen = Seen()

    def run(self) -> None:
        head(
            1,
            f"{REMINDERS} delayed jobs, a cron each second, and one that fails twice",
        )
        self._live("first", until=self._both_are_at_work, then=signal.SIGKILL)
        head(3, f"Nobody is there for {DEAD_S:g} seconds, then start the program again")
        time.sleep(DEAD_S)
        began = Counter(self._seen.begun)
        self._live(
            "second",
            until=lambda: self._has_come_back(began),
            then=signal.SIGTERM,
        )
        head(4, "What the store says of every run")
        store = Scheduler(self._directory)  # not started: it only looks
        try:
            self._look_up(store)
        finally:
            store.stop()

    # -- the two lives -----------------------------------------------------------------

    def _live(
        self, life: str, *, until: Callable[[], bool], then: signal.Signals
    ) -> None:
        out, into = os.pipe()
        arguments = [CHILD, self._directory, into, life]
        child = subprocess.Popen(
            [sys.executable, *map(str, arguments)], pass_fds=[into]
        )
        os.close(into)
        try:
            with open(out, encoding="ascii") as lines:
                for line in lines:
                    words = line.split()
                    self._seen.note(words)
                    self._tell(words)
                    if until():
                        break
                child.send_signal(then)
                for line in lines:  # what it told before it was gone
                    self._seen.note(line.split())
            ended = child.wait()
        finally:
            child.kill()
            child.wait()
        expected = -signal.SIGKILL if then is signal.SIGKILL else 0
        if ended != expected:
            sys.exit(f"the program was to end with {expected}, and ended with {ended}")

    def _tell(self, words: list[str]) -> None:
        match words:
            case ["CANCELLED", _] if len(self._seen.cancelled) == CANCELLED:
                say(f"{CANCELLED} of them are cancelled again, before their time.")
            case ["begin", "fetch", _, "3", _]:
                say("The one that fails succeeds at its third attempt.")
            case ["PAUSED"]:
                say("The cron job is paused, with a note of who and why ...")
            case ["RESUMED"]:
                say("... and resumed; what the pause has passed over is on record.")
            case ["begin", "convert", _, "1", _]:
                head(2, "Kill the program while two handlers are at work")
                say(
                    f"One may run again, the other at most once; {OVERDUE} jobs fall due "
                    "while nobody is there."
                )
            case ["begin", "convert", _, "2", _]:
                say("The job that the kill cut off is at its second attempt.")

    def _both_are_at_work(self) -> bool:
        begun = self._seen.begun
        return bool(begun["convert", 1] and begun["charge", 1] and self._seen.charged)

    def _has_come_back(self, began: Counter[tuple[str, int]]) -> bool:
        seen = self._seen
        begun = {run_id.partition("@")[0] for run_id in seen.begun_runs}
        return (
            seen.begun["convert", 2] > 0
            and seen.added <= begun
            and seen.begun["tick", 1] - began["tick", 1] >= TICKS_AFTER
        )

    # -- the store ---------------------------------------------------------------------

    def _look_up(self, app: Scheduler) -> None:
        runs = sorted(app.runs(limit=1_000), key=lambda run: run.nominal_ns)
        ticks = [run for run in runs if run.task.endswith(":tick")]
        passed = self._passed(app, ticks)
        print_table(app, runs, passed)
        self._judge_jobs(runs)
        self._judge_ticks(ticks, passed)
        self._judge_attempts(app, runs)

    def _passed(self, app: Scheduler, ticks: list[Run]) -> dict[int, str]:
        """Return the seconds without a run, and what the store says of each."""
        there = {run.nominal_ns for run in ticks}
        seconds = range(ticks[0].nominal_ns, ticks[-1].nominal_ns, SECOND_NS)
        return {
            at_ns: app.why("tick", datetime.fromtimestamp(at_ns // SECOND_NS, UTC))
            for at_ns in seconds
            if at_ns not in there
        }

    def _judge_jobs(self, runs: list[Run]) -> None:
        add, seen = self._verdict.add, self._seen
        records = Counter(str(run.job_id) for run in runs)
        done = Counter(
            str(run.job_id) for run in runs if run.state is RunState.SUCCEEDED
        )
        wrong = sum(done[job] != 1 or records[job] != 1 for job in seen.added)
        add(
            "every job has one run, which succeeded",
            checked=len(seen.added),
            broken=wrong,
        )
        add("no job came early", checked=len(seen.late_ns), broken=seen.early)
        ran = sum(run.job_id in seen.cancelled and run.attempts > 0 for run in runs)
        ran += sum(
            run_id.partition("@")[0] in seen.cancelled for run_id in seen.begun_runs
        )
        add("no cancelled job ran", checked=len(seen.cancelled), broken=ran)

    def _judge_ticks(self, ticks: list[Run], passed: dict[int, str]) -> None:
        add, seen = self._verdict.add, self._seen
        doubled = len(ticks) - len({run.nominal_ns for run in ticks})
        doubled += sum(run.state is not RunState.SUCCEEDED for run in ticks)
        # Only one that the kill has cut off may begin again.
        doubled += sum(seen.begun_runs[run.id] > 1 + run.lost for run in ticks)
        add("each second has one run at most", checked=len(ticks), broken=doubled)
        silent = sum("skipped" not in why for why in passed.values())
        add("each second without one says why", checked=len(passed), broken=silent)

    def _judge_attempts(self, app: Scheduler, runs: list[Run]) -> None:
        for task, outcomes, promise in (
            ("fetch", "error, error, ok", "the job that failed twice succeeded then"),
            ("convert", "lost, ok", "the job that was killed has run again"),
            ("charge", "lost", "the one that may run at most once has not"),
        ):
            found = [run for run in runs if run.task.endswith(f":{task}")]
            wrong = [run for run in found if tried(app, run) != outcomes]
            begun = sum(
                count for (name, _), count in self._seen.begun.items() if name == task
            )
            if begun != len(outcomes.split()):
                wrong = found
            self._verdict.add(promise, checked=len(found), broken=len(wrong))


def tried(app: Scheduler, run: Run) -> str:
    """Return how each attempt at a run ended."""
    return ", ".join(str(attempt.outcome) for attempt in app.run(run).attempts())


def print_table(app: Scheduler, runs: list[Run], passed: dict[int, str]) -> None:
    rows = [
        (
            run.nominal_ns,
            run.task.rpartition(":")[2],
            run.state.value,
            tried(app, run),
        )
        for run in runs
    ]
    rows += [(at_ns, "tick", "skipped", reason(why)) for at_ns, why in passed.items()]
    print(
        f"\n   {'nominal (UTC)':<16}{'task':<10}{'state':<12}attempts, or the reason\n   {'-' * 60}"
    )
    for at_ns, task, state, note in sorted(rows):
        at = datetime.fromtimestamp(at_ns / SECOND_NS, UTC).strftime("%H:%M:%S.%f")[:-5]
        print(f"   {at:<16}{task:<10}{state:<12}{note}")


def reason(why: str) -> str:
    """Return the reason out of "It was skipped: the reason, and more of it."."""
    return why.removeprefix("It was skipped: ").partition(",")[0].rstrip(".")
