"""Plain jobs: one-time jobs that are a timer and its payload, and nothing else."""

from __future__ import annotations

from typing import Final

import msgspec

from timingwheel.engine.records import (
    Base,
    TimerId,
    timer_acknowledged,
    timer_cancelled,
    timer_scheduled,
)
from timingwheel.jobs.model import Draft, JobId, Run, RunState
from timingwheel.jobs.store import JobRef
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.deciding.live import LiveRun
from timingwheel.stores.deciding.putting import once_at, require_representable
from timingwheel.stores.identity import StoreTag
from timingwheel.stores.records import ENGINE, PlainJob, PlainLane, encode

decode_plain: Final = msgspec.msgpack.Decoder(PlainJob).decode
decode_lane: Final = msgspec.msgpack.Decoder(PlainLane).decode


def put_plain(tag: StoreTag, decision: Decision, draft: Draft) -> JobRef:
    """Make a plain job: a timer of the engine, and nothing else."""
    now = decision.now
    base, deadline_ns, nominal_ns = once_at(draft.trigger.when, now)
    require_representable(nominal_ns, deadline_ns)
    payload = plain_payload(draft, created_ns=now.wall_ns, nominal_ns=nominal_ns)
    job_id = tag.unkeyed(decision.next_number())
    decision.changes.append((ENGINE, timer_scheduled(base, deadline_ns, payload)))
    return JobRef(job_id, created=True)


def plain_payload(draft: Draft, *, created_ns: int, nominal_ns: int) -> bytes:
    """Return the payload of a plain job's timer."""
    return encode(
        PlainJob(
            draft.task,
            draft.payload.body,
            created_ns,
            nominal_ns,
            v=draft.payload.version,
            q=draft.queue,
            r=draft.priority,
            o=draft.policy,
            k=draft.cap,
        )
    )


class PlainRow:
    """A plain job as the engine's table has it.

    Attributes:
        timer_id: the timer's.
        job_id: the job's.
        base: the scale of its deadline.
        deadline_ns: on it.
        fired: whether it runs.
        token: of its lease, if it does.
        plain: the job.
    """

    __slots__ = (
        "base",
        "deadline_ns",
        "fired",
        "job_id",
        "plain",
        "timer_id",
        "token",
    )

    def __init__(
        self,
        timer_id: TimerId,
        job_id: JobId,
        *,
        base: Base,
        deadline_ns: int,
        fired: bool,
        token: int,
        plain: PlainJob,
    ) -> None:
        self.timer_id = timer_id
        self.job_id = job_id
        self.base = base
        self.deadline_ns = deadline_ns
        self.fired = fired
        self.token = token
        self.plain = plain

    def run(self, *, is_due: bool) -> Run:
        """Return its run as others see it."""
        if self.fired:
            return self.plain.run(self.job_id, RunState.RUNNING, attempts=1)
        state = RunState.READY if is_due else RunState.PLANNED
        return self.plain.run(self.job_id, state)

    def promote(self, decision: Decision, *, worker: str, is_due: bool) -> LiveRun:
        """Make it a job like others, in this group and under the same id."""
        remove = timer_acknowledged if self.fired else timer_cancelled
        decision.add(ENGINE, remove(self.timer_id))
        decision.save_job(self.plain.job(self.job_id, self.base))
        run = self.run(is_due=is_due)
        waits = run.state is RunState.PLANNED
        live = LiveRun(
            run=run,
            seq=self.timer_id,
            token=self.token if self.fired else 0,
            worker=worker if self.fired else "",
            wait_ns=self.deadline_ns if waits else None,
            base=self.base,
        )
        decision.save_run(live)
        return live
