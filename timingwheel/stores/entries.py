"""Live jobs, live runs and running attempts as the store holds them in memory."""

from __future__ import annotations

from typing import Final, NamedTuple

from timingwheel.jobs.model import (
    Job,
    Payload,
    Policy,
    Run,
    RunState,
)
from timingwheel.jobs.schedule import Schedule
from timingwheel.jobs.states import ACTIVE
from timingwheel.stores.deciding.live import LiveRun, RunKey
from timingwheel.stores.waits import Wait

ALONE_CAP: Final = "\0alone"
"""The cap of runs that may be lost only once more: one at a time, so that whatever kills
the process is not blamed on its neighbours."""


class JobEntry:
    """A live job in memory.

    Attributes:
        job: its value.
        lsn: of its last record.
        runs: its live runs.
        wait: for its next occurrence.
        resume: for the end of a pause.
        schedule: made from the trigger when it is first asked for.
    """

    __slots__ = ("job", "lsn", "resume", "runs", "schedule", "wait")

    def __init__(self, job: Job, lsn: int) -> None:
        self.job = job
        self.lsn = lsn
        self.runs: dict[RunKey, RunEntry] = {}
        self.wait: Wait | None = None
        self.resume: Wait | None = None
        self.schedule: Schedule | None = None

    @property
    def active(self) -> list[RunEntry]:
        """The runs that count as "still running" when the next occurrence comes."""
        return [
            entry
            for entry in self.runs.values()
            if entry.live.run.state in ACTIVE
            or (entry.live.run.state is RunState.PLANNED and not entry.live.behind)
        ]

    @property
    def behind(self) -> list[RunEntry]:
        """The runs that wait for a previous one to end, in order."""
        waiting = [entry for entry in self.runs.values() if entry.live.behind]
        return sorted(waiting, key=lambda entry: entry.live.seq)


class RunEntry:
    """A live run in memory.

    Attributes:
        job: whose.
        live: its value.
        lsn: of its last record.
        wait: until it is to be made ready.
    """

    __slots__ = ("job", "live", "lsn", "wait")

    def __init__(self, job: JobEntry, live: LiveRun, lsn: int) -> None:
        self.job = job
        self.live = live
        self.lsn = lsn
        self.wait: Wait | None = None

    @property
    def payload(self) -> Payload:
        """What the run was created with."""
        return self.live.payload or self.job.job.payload

    @property
    def policy(self) -> Policy:
        """What the run was created with."""
        return self.live.policy or self.job.job.policy


class Running:
    """An attempt that holds a lease.

    Attributes:
        run: with state running.
        payload, policy: the run's.
        seq: order among equals.
        token: the lease's.
        worker: who holds it.
        caps: names of the caps it counts for.
        plain: whether its job is a timer of the engine.
        begun: whether its handler has started.
    """

    __slots__ = (
        "begun",
        "caps",
        "payload",
        "plain",
        "policy",
        "run",
        "seq",
        "token",
        "worker",
    )

    def __init__(
        self,
        run: Run,
        *,
        payload: Payload,
        policy: Policy,
        seq: int,
        token: int,
        worker: str,
        caps: tuple[str, ...],
        plain: bool,
    ) -> None:
        self.run = run
        self.payload = payload
        self.policy = policy
        self.seq = seq
        self.token = token
        self.worker = worker
        self.caps = caps
        self.plain = plain
        self.begun = False


class LostPlain(NamedTuple):
    """A plain job whose timer had fired when the process died."""

    timer_id: int


class LeaseEnd(NamedTuple):
    """The leases of a worker run out unless it has beaten meanwhile."""

    worker: str


class QueueWake(NamedTuple):
    """A queue may let something go again."""

    name: str


class ResumeDue(NamedTuple):
    """The pause of a job ends."""

    job: JobEntry


class RecentEnd(NamedTuple):
    """How a job ended a moment ago.

    Attributes:
        lsn: of its last record.
        state: of its last run.
        payload: of the job.
    """

    lsn: int
    state: RunState | None
    payload: Payload | None


Due = JobEntry | RunEntry | LostPlain | LeaseEnd | QueueWake | ResumeDue
"""What a wait leads to."""
