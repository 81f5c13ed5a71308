"""Stores with one fault each: what a hasty version of the embedded store might have been.

They are given to a sweep or a simulation in the place of the right one. They subclass;
nothing in the packages is patched.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from timingwheel.jobs.model import Draft, JobId, Run, RunId
from timingwheel.jobs.store import (
    CancelResult,
    Claim,
    Finish,
    IfExists,
    JobRef,
    Running,
    Ticket,
    Verdict,
)
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.deciding.putting import put_all
from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.stores.plain import put_plain


class HastyPut(EmbeddedStore):
    """The reply to a put does not wait for its records."""

    def put(
        self, drafts: Sequence[Draft], *, if_exists: IfExists = "update"
    ) -> list[JobRef]:
        refs: list[JobRef] = []
        past = self._owner.past(drafts)

        def decide(decision: Decision) -> None:
            refs[:] = put_all(
                decision,
                drafts,
                tag=self._owner.tag,
                if_exists=if_exists,
                past=past,
                put_plain=partial(put_plain, self._owner.tag),
            )

        self._owner.decide(decide)
        return refs


class DoublingStore(EmbeddedStore):
    """A report that is taken in is not written down: the run goes once more."""

    def finish(self, ends: Sequence[Finish]) -> tuple[list[Verdict], Ticket]:
        given = [(end.run_id, end.token) for end in ends]
        return [Verdict.ACCEPTED] * len(ends), self.give_back(given)


class HastyStart(EmbeddedStore):
    """The ticket of a claim does not stand for its starts."""

    def claim(self, worker: str, **more: Any) -> tuple[list[Claim], Ticket]:
        claims, _ = super().claim(worker, **more)
        return claims, Ticket(0)


class HastyEnd(EmbeddedStore):
    """The ticket of a finish does not stand for its ends."""

    def finish(self, ends: Sequence[Finish]) -> tuple[list[Verdict], Ticket]:
        verdicts, _ = super().finish(ends)
        return verdicts, Ticket(0)

    def run(self, run_id: RunId) -> Run | None:
        with self._core.lock:  # as it is now, durable or not
            live = self._read.live_run(run_id)
        ended = {run.id: run for _, run in self._state.ended}
        return live or ended.get(run_id) or super().run(run_id)


class HastyCancel(EmbeddedStore):
    """The reply to a cancel does not wait for its record."""

    def cancel(self, job_id: JobId, *, running: Running = "leave") -> CancelResult:
        found: list[CancelResult] = []

        def decide(decision: Decision) -> None:
            found[:] = [self._cancel(decision, job_id, running)]

        self._owner.decide(decide, urgent=True)
        return found[0]


class ForgetfulStore(EmbeddedStore):
    """What ran when the process died is not started again."""

    def recover(self) -> int:
        return 0
