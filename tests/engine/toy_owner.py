"""A second owner of the engine core: recurring jobs in some hundred lines.

It stands for the scheduler, which is the owner that the seam was made for: records of
its own kinds beside the engine's, in one atomic group; events decided for due timers;
state that is dumped while it changes; leases that no crash survives. A run's id is the
number of its record, as a timer's is.

    kind  event        fields after the kind
    64    JobAdded     job (8), period_ns (8), runs to come (4), name
    65    RunCreated   job (8), run (8), runs to come then (4)
    66    RunFinished  job (8), run (8)
    67    RunLost      job (8), run (8): its lease ran out
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from timingwheel.clock import Clock
from timingwheel.engine.core import EngineCore
from timingwheel.engine.owner import Due
from timingwheel.engine.records import (
    Base,
    timer_acknowledged,
    timer_rescheduled,
    timer_scheduled,
)
from timingwheel.engine.volatile import VolatileLog
from wal.log import Log

LEASE_NS = 30_000_000_000
JOB_ADDED, RUN_CREATED, RUN_FINISHED, RUN_LOST = range(64, 68)

_ADDED = struct.Struct("<BqqI")
_CREATED = struct.Struct("<BqqI")
_ENDED = struct.Struct("<Bqq")
_DUMPED = struct.Struct("<qqqIIIHH")


@dataclass
class Job:
    """A recurring job: `to_come` more runs, and those that are open now."""

    name: bytes
    period_ns: int
    to_come: int
    last_lsn: int
    finished: int = 0
    lost: int = 0
    open: list[int] = field(default_factory=list)


class ToyStore:
    """Jobs on an engine core. The caller's loop is the tick thread."""

    def __init__(self, log: Log | VolatileLog, clock: Clock) -> None:
        self.jobs: dict[int, Job] = {}
        self._leases: dict[int, int] = {}
        self._recovering = True
        self.core = EngineCore(log, self, clock)
        self._recovering = False
        with self.core.lock:
            for job_id, job in self.jobs.items():
                for run in job.open:
                    self._lease(job_id, run)

    # -- requests -------------------------------------------------------------------------

    def add(self, name: bytes, period_ns: int, *, runs: int) -> int:
        """Add a job; it and its timer hold together or not at all."""
        job_id = 0

        def decide(first_lsn: int) -> list[bytes]:
            nonlocal job_id
            job_id = first_lsn
            if any(job.name == name for job in self.jobs.values()):
                raise KeyError(name)
            deadline_ns = self.core.elapsed_ns() + period_ns
            return [
                timer_scheduled(Base.ELAPSED, deadline_ns, b""),
                _ADDED.pack(JOB_ADDED, job_id, period_ns, runs) + name,
            ]

        self.core.transact(decide)
        return job_id

    def finish(self, job_id: int, run: int) -> bool:
        """End a run, unless its lease ran out before."""
        done = False

        def decide(_: int) -> list[bytes]:
            nonlocal done
            done = run in self.jobs[job_id].open if job_id in self.jobs else False
            return [_ENDED.pack(RUN_FINISHED, job_id, run)] if done else []

        self.core.transact(decide, urgent=True)
        return done

    def tick(self, limit: int = 100) -> list[tuple[int, int]]:
        """Return the runs that began, (job, run), durably and leased."""
        due = self.core.step(limit)
        begun: list[tuple[int, int]] = []
        with self.core.lock:
            for job_id in due.timers:
                job = self.jobs.get(job_id)
                for run in job.open if job is not None else []:
                    if run not in self._leases:
                        self._lease(job_id, run)
                        begun.append((job_id, run))
        return begun

    def _lease(self, job_id: int, run: int) -> None:
        token = run << 24 | job_id
        until_ns = self.core.elapsed_ns() + LEASE_NS
        self._leases[run] = self.core.arm(until_ns, token)

    # -- the owner's part of the core -----------------------------------------------------

    def decide_due(self, due: Due) -> list[bytes]:
        events: list[bytes] = []
        for job_id in due.timers:
            job = self.jobs[job_id]
            run, to_come = due.first_lsn + len(events), job.to_come - 1
            events.append(_CREATED.pack(RUN_CREATED, job_id, run, to_come))
            if to_come:
                slot = self.core.state.slot_of(job_id)
                deadline_ns = self.core.state.table.deadline_ns(slot) + job.period_ns
                events.append(
                    timer_rescheduled(
                        job_id, base=Base.ELAPSED, deadline_ns=deadline_ns, attempt=0
                    )
                )
            else:
                events.append(timer_acknowledged(job_id))
        for token in due.armed:
            leased, run = token & 0xFFFFFF, token >> 24
            if leased in self.jobs and run in self.jobs[leased].open:
                events.append(_ENDED.pack(RUN_LOST, leased, run))
        return events

    def apply(self, records: list[tuple[int, bytes]]) -> None:
        for lsn, record in records:
            kind, job_id = record[0], int.from_bytes(record[1:9], "little")
            if kind == JOB_ADDED:
                self._apply_added(lsn, job_id, record)
                continue
            job = self.jobs.get(job_id)
            if job is None:
                assert self._recovering, f"LSN {lsn} changes a job that is not there"
                continue  # it went while the snapshot was written
            if lsn <= job.last_lsn:
                continue  # the snapshot has it
            job.last_lsn = lsn
            if kind == RUN_CREATED:
                _, _, run, job.to_come = _CREATED.unpack(record)
                assert run == lsn, "an event got another number than it was told"
                job.open.append(run)
            else:
                self._apply_ended(job, _ENDED.unpack(record)[2])
                job.finished += kind == RUN_FINISHED
                job.lost += kind == RUN_LOST
            if not job.to_come and not job.open:
                del self.jobs[job_id]

    def _apply_added(self, lsn: int, job_id: int, record: bytes) -> None:
        if job_id not in self.jobs:
            _, _, period_ns, runs = _ADDED.unpack_from(record)
            self.jobs[job_id] = Job(record[_ADDED.size :], period_ns, runs, lsn)

    def _apply_ended(self, job: Job, run: int) -> None:
        job.open.remove(run)
        handle = self._leases.pop(run, None)
        if handle is not None:
            self.core.disarm(handle)  # False if it ran out, which is why we are here

    def dump(self) -> Iterator[bytes]:
        for job_id in [*self.jobs]:
            job = self.jobs.get(job_id)
            if job is not None:  # else it went since
                head = _DUMPED.pack(
                    job_id,
                    job.last_lsn,
                    job.period_ns,
                    job.to_come,
                    job.finished,
                    job.lost,
                    len(job.open),
                    len(job.name),
                )
                yield head + struct.pack(f"<{len(job.open)}q", *job.open) + job.name

    def load(self, blob: bytes) -> None:
        job_id, last_lsn, period_ns, to_come, finished, lost, count, size = (
            _DUMPED.unpack_from(blob)
        )
        runs = struct.unpack_from(f"<{count}q", blob, _DUMPED.size)
        name = blob[len(blob) - size :]
        self.jobs[job_id] = Job(
            name, period_ns, to_come, last_lsn, finished, lost, [*runs]
        )
