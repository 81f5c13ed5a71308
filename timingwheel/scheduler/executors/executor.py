"""What the node loop asks of whatever runs handlers, and what it offers in return.

An executor has slots. It is given work that is claimed and committed, asks its host
`begin` right before a handler starts, and reports each attempt's end to its host exactly
once, from any thread. It never touches a store and never waits for the disk, so the same
executor serves an embedded scheduler and a remote worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from timingwheel.clock import Clock
from timingwheel.jobs.model import Draft, Outcome
from timingwheel.jobs.store import Claim, Finish
from timingwheel.scheduler.tasks import Call, Task

HEED_S: Final = 0.2
"""What a stop gives those that are asked to end when the grace is over.

Enough for a handler that looks at `ctx.check()` ten times a second, and a stop with a
grace of 10 s is still over within 10.5 s.
"""


class Work(NamedTuple):
    """One attempt to run.

    Attributes:
        claim: the run, its payload, and the lease.
        task: what to call.
    """

    claim: Claim
    task: Task


def log_ids(work: Work) -> dict[str, object]:
    """Return the `extra` of what an attempt logs."""
    run = work.claim.run
    return {
        "task": work.task.name,
        "job_id": run.job_id,
        "run_id": run.id,
        "attempt": run.attempts,
        "token": work.claim.token,
    }


class Host(Protocol):
    """What an executor may ask of the node it works for. Thread-safe."""

    @property
    def clock(self) -> Clock:
        """Where time comes from."""

    def begin(self, work: Work) -> bool:
        """Say that the handler starts now; False: it was cancelled, drop it silently.

        Raises:
            MemoryError: ask again.
        """

    def ended(self, finish: Finish) -> None:
        """Take in how an attempt ended. Never waits.

        Raises:
            MemoryError: tell it again.
        """

    def heartbeat(self, work: Work) -> None:
        """Note a sign of life of a handler.

        Raises:
            LeaseLost: the run belongs to somebody else by now.
        """

    def draft(self, call: Call, options: Mapping[str, object]) -> Draft:
        """Turn what a handler passed to `ctx.add(call, **options)` into a draft.

        Raises:
            ArgumentError: the options are invalid.
        """

    def alert(self, message: str) -> None:
        """Tell the operator: a slot is stuck, a process was killed."""


class Executor(Protocol):
    """Runs handlers, at most `slots` at once."""

    slots: int

    def start(self, host: Host) -> None:
        """Make ready. Called once, before any work comes."""

    @property
    def free(self) -> int:
        """How many handlers could start at once; a stuck slot is replaced and free."""

    @property
    def ahead(self) -> int:
        """How many more first attempts it would get through within milliseconds.

        0 unless handlers have been that short lately. Work beyond `free` waits inside.
        """

    def submit(self, works: Sequence[Work]) -> None:
        """Take work; starts it in order. Never waits for a handler, `inline` apart."""

    def take_back(self) -> list[Work]:
        """Return work that waits although it should not, to be given back; else nothing.

        It was taken ahead since handlers were short, and in each slot is one by now that
        is not. None of it has begun.
        """

    def interrupt(self, token: int, outcome: Outcome, *, kill: bool) -> None:
        """End an attempt: ask it first, or with `kill` do not ask.

        Asking: `ctx.check()` and `ctx.heartbeat()` raise, a coroutine is cancelled, a
        process gets SIGTERM. Killing: the process is killed; a thread cannot be, so its
        slot is given up as stuck and replaced. Either way the end is reported with this
        outcome; what the handler still returns after a kill is dropped.
        """

    def stop(self, grace_s: float) -> list[Work]:
        """Start nothing more; wait up to `grace_s` for what runs, then interrupt it.

        It is asked first, and has HEED_S to heed that; what is left then is killed.

        Returns:
            Work that was never begun. What was begun and has not done its work by then
            is reported to the host with outcome SHUTDOWN.
        """
