"""What the records add up to: live jobs, live runs, queues, calendars.

`StoreState.apply` is the one place where this changes, for a record just appended and for
one that recovery reads alike. Each value carries the LSN of its last change, so a record
that a fuzzy snapshot has already is told and skipped. What is final leaves for the
history; what can be derived (who waits, what is ready, what runs, names) is rebuilt.

Plain jobs are not here: they are timers of the engine (see stores/records.py).
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from timingwheel.engine.core import EngineCore
from timingwheel.engine.records import Base
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.model import (
    Job,
    JobId,
    JobState,
    Payload,
    Policy,
    Queue,
    Run,
    RunState,
    SkipRange,
    SkipReason,
)
from timingwheel.jobs.triggers import AfterJobs
from timingwheel.stores.deciding.live import LiveRun, is_held
from timingwheel.stores.entries import (
    ALONE_CAP,
    Due,
    JobEntry,
    QueueWake,
    RecentEnd,
    ResumeDue,
    RunEntry,
    Running,
)
from timingwheel.stores.history_entries import Entry, HistoryRun
from timingwheel.stores.ready import Lane, ReadyOrder
from timingwheel.stores.records import CalendarSet, Kind, record
from timingwheel.stores.waits import Wait, Waits

DUMP_JOBS_A_STEP: Final = 32
RECENT_ENDS: Final = 4_096
"""Ends that are remembered beside the history, and those it has not yet."""


class StoreState:
    """Jobs and runs as the records say. The core's lock guards it.

    Invariants: a live run belongs to a live job; a run has a lease if, and only if, it is
    running; a name belongs to one live job; what waits is armed once.

    Args:
        reach_lsn: up to here a snapshot may have missed or foreseen a change.
        note_history: called with what is final, in LSN order, after each batch.
    """

    def __init__(
        self, *, reach_lsn: int, note_history: Callable[[Sequence[Entry]], None]
    ) -> None:
        self.jobs: dict[JobId, JobEntry] = {}
        self.runs: dict[int, RunEntry] = {}
        self.queues: dict[str, Queue] = {}
        self.calendars: dict[str, NamedCalendar] = {}
        self.names: dict[str, JobId] = {}
        self.dependents: dict[str, set[JobId]] = {}
        self.ready = ReadyOrder(self._is_ready)
        self.running: dict[int, Running] = {}
        self.running_by_queue: Counter[str] = Counter()
        self.running_by_cap: Counter[str] = Counter()
        self.due: deque[Due] = deque()
        self.ended: deque[tuple[int, Run]] = deque()
        self.recent: OrderedDict[JobId, RecentEnd] = OrderedDict()
        self.forgotten_lsn = 0
        """What ended up to here may not be in `recent` any more."""
        self.is_written: Callable[[int], bool] = lambda _: True
        """Whether the history has what ended at an LSN: before, it is remembered here."""
        self.jobs_by_state: Counter[JobState] = Counter()
        self.runs_ended: Counter[RunState] = Counter()
        """Runs that reached a final state since the store was opened, but for those of
        plain jobs that succeeded: they are many, and an integer is quicker."""
        self.plain_ended = 0
        """Runs of plain jobs that succeeded since then."""
        self.skipped: Counter[SkipReason] = Counter()
        """Occurrences that did not run, since the store was opened."""
        self.leases_expired = 0
        """Attempts lost since then because their worker gave no sign of life."""
        self.is_born = False
        """Whether the log says that it is a job store's."""
        self.news_count = 0
        """Grows whenever something becomes ready, or is to be ended: each of several nodes
        knows how far it has seen."""
        self._has_news = False
        self._reach_lsn = reach_lsn
        self.note_history = note_history
        self._final: list[Entry] = []
        self._foreseen: deque[Run] = deque()
        self._queue_lsn: dict[str, int] = {}
        self._calendar_lsn: dict[str, int] = {}
        self._queue_wakes: dict[tuple[str, Base], Wait] = {}
        self._inherited_lsn = 0
        self._waits: Waits[Due] | None = None
        self._core: EngineCore | None = None
        self._apply: dict[int, Callable[[int, bytes], None]] = {
            Kind.JOB_SAVED: self._job_saved,
            Kind.JOB_ENDED: self._job_ended,
            Kind.RUN_SAVED: self._run_saved,
            Kind.RUN_ENDED: self._run_ended,
            Kind.ATTEMPT_ENDED: self._attempt_ended,
            Kind.SKIPS_NOTED: self._skips_noted,
            Kind.QUEUE_SET: self._queue_set,
            Kind.CALENDAR_SET: self._calendar_set,
            Kind.PLAIN_ENDED: self._plain_ended,
            Kind.RUN_REVIVED: self._run_revived,
            Kind.STORE_BORN: self._store_born,
        }

    @property
    def news(self) -> bool:
        """Something became ready, or is to be ended, since the node here last looked."""
        return self._has_news

    @news.setter
    def news(self, value: bool) -> None:
        self._has_news = value
        self.news_count += value

    @property
    def waits(self) -> Waits[Due]:
        """Who waits for what."""
        assert self._waits is not None, "recovery has not ended"
        return self._waits

    @property
    def steps_ns(self) -> int:
        """How far the wall clock is ahead of elapsed time: the sum of its steps."""
        assert self._core is not None, "recovery has not ended"
        return self._core.state.steps_ns

    def begin(self, core: EngineCore) -> None:
        """Recovery has ended: arm what waits and line up what is ready."""
        self._waits = Waits(core)
        self._core = core
        self._inherited_lsn = core.applied_lsn
        for job in self.jobs.values():
            self.place_job(job)
            for run in job.runs.values():
                self._place_run(run)
        for queue in self.queues.values():
            self._place_queue(queue)

    # -- records ------------------------------------------------------------------------

    def apply(self, records: list[tuple[int, bytes]]) -> None:
        """Change the state by (LSN, record) pairs."""
        for lsn, data in records:
            self._apply[data[0]](lsn, data)
        if self._final:
            final, self._final = self._final, []
            self.note_history(final)

    def foresee_ends(self, ended: Sequence[HistoryRun]) -> None:
        """Take the values whose PLAIN_ENDED records are applied next, in their order.

        It spares their decoding; an earlier call whose records never came is forgotten.
        """
        self._foreseen = deque(end.run for end in ended)

    def _job_saved(self, lsn: int, data: bytes) -> None:
        job = _decode_job(data[1:])
        entry = self.jobs.get(job.id)
        if entry is None:
            entry = self.jobs[job.id] = JobEntry(job, lsn)
            self._index(job)
        elif lsn <= entry.lsn:
            return
        else:
            former = entry.job
            self._unindex(former)
            if (former.trigger, former.since_ns) != (job.trigger, job.since_ns):
                entry.schedule = None
            entry.job, entry.lsn = job, lsn
            self._index(job)
            if former.cap != job.cap:
                for cap in (former.cap, job.cap):
                    if cap is not None:
                        self.ready.release_all(cap.key)
            if former.state in _HELD and job.state is not former.state:
                self._place_runs_again(entry)
        self.place_job(entry)

    def _job_ended(self, lsn: int, data: bytes) -> None:
        job = _decode_job(data[1:])
        self._final.append(Entry(lsn, "job", data[1:]))
        entry = self.jobs.get(job.id)
        if entry is None or lsn <= entry.lsn:
            return
        self._unindex(entry.job)
        for run in list(entry.runs.values()):
            self._remove_run(run)
        self._disarm_job(entry)
        del self.jobs[job.id]
        self._note_recent(job.id, lsn, payload=job.payload)

    def _run_saved(self, lsn: int, data: bytes) -> None:
        live = _decode_live(data[1:])
        job = self.jobs.get(live.run.job_id)
        if job is None:
            # The snapshot was written after the job had ended, its end is to come.
            assert lsn <= self._reach_lsn, f"LSN {lsn}: a run without its job"
            return
        key = live.run.nominal_ns, live.run.n
        entry = job.runs.get(key)
        if entry is None:
            entry = job.runs[key] = RunEntry(job, live, lsn)
            self.runs[live.seq] = entry
        elif lsn <= entry.lsn:
            return
        else:
            former = self.running.get(live.token)
            self._unplace_run(entry, starts=live.run.state is RunState.RUNNING)
            entry.live, entry.lsn = live, lsn
            self._place_run(entry)
            if former is not None:  # the same attempt goes on
                self.running[live.token].begun = former.begun
            return
        self._place_run(entry)

    def _run_ended(self, lsn: int, data: bytes) -> None:
        self._final.append(Entry(lsn, "run", data[1:]))
        run = _decode_history_run(data[1:]).run
        if self._waits is not None:
            self.ended.append((lsn, run))
            self.runs_ended[run.state] += 1
            if run.skip_reason is not None:
                self.skipped[run.skip_reason] += 1
            self._note_recent(run.job_id, lsn, state=run.state)
        job = self.jobs.get(run.job_id)
        entry = job.runs.get((run.nominal_ns, run.n)) if job is not None else None
        if entry is not None and lsn > entry.lsn:
            self._remove_run(entry)

    def _plain_ended(self, lsn: int, data: bytes) -> None:
        self._final.append(Entry(lsn, "plain", data[1:]))
        if self._waits is not None:
            foreseen = self._foreseen
            run = foreseen.popleft() if foreseen else _decode_history_run(data[1:]).run
            self.ended.append((lsn, run))
            self.plain_ended += 1
            self._note_recent(run.job_id, lsn, state=run.state)

    def _note_recent(
        self,
        job_id: JobId,
        lsn: int,
        *,
        state: RunState | None = None,
        payload: Payload | None = None,
    ) -> None:
        """Remember an end until whoever looked into the history before it has acted."""
        former = self.recent.pop(job_id, None)
        if former is not None:
            state, payload = state or former.state, payload or former.payload
        self.recent[job_id] = RecentEnd(lsn, state, payload)
        while len(self.recent) > RECENT_ENDS:
            oldest = next(iter(self.recent.values()))
            if not self.is_written(oldest.lsn):
                return
            self.recent.popitem(last=False)
            self.forgotten_lsn = oldest.lsn

    def _attempt_ended(self, lsn: int, data: bytes) -> None:
        self._final.append(Entry(lsn, "attempt", data[1:]))

    def _skips_noted(self, lsn: int, data: bytes) -> None:
        self._final.append(Entry(lsn, "skips", data[1:]))
        if self._waits is not None:
            skips = _decode_skips(data[1:])
            self.skipped[skips.reason] += skips.count

    def _run_revived(self, lsn: int, data: bytes) -> None:
        self._final.append(Entry(lsn, "revive", data[1:]))

    def _store_born(self, lsn: int, data: bytes) -> None:  # noqa: ARG002 - says all by being
        self.is_born = True

    def _queue_set(self, lsn: int, data: bytes) -> None:
        queue = _decode_queue(data[1:])
        if lsn > self._queue_lsn.get(queue.name, 0):
            self.queues[queue.name] = queue
            self._queue_lsn[queue.name] = lsn
            self.news = True
            self._place_queue(queue)

    def _place_queue(self, queue: Queue) -> None:
        if self._waits is not None and queue.pause is not None:
            until_ns = queue.pause.until_ns
            if until_ns is not None:
                self.wake_queue(queue.name, until_ns, Base.WALL)

    def _calendar_set(self, lsn: int, data: bytes) -> None:
        value = _decode_calendar(data[1:])
        if lsn > self._calendar_lsn.get(value.name, 0):
            self.calendars[value.name] = value.calendar
            self._calendar_lsn[value.name] = lsn
            for entry in self.jobs.values():
                if entry.job.trigger.calendar == value.name:
                    entry.schedule = None

    # -- snapshots ------------------------------------------------------------------------

    def dump(self) -> Iterator[bytes]:
        """Yield blobs: jobs with their runs a few at a time, then what is named."""
        ids = list(self.jobs)
        for start in range(0, len(ids), DUMP_JOBS_A_STEP):
            part = ids[start : start + DUMP_JOBS_A_STEP]
            found = [self.jobs[job_id] for job_id in part if job_id in self.jobs]
            yield b"\1" + _encode(
                [
                    (
                        entry.lsn,
                        entry.job,
                        [(run.lsn, run.live) for run in entry.runs.values()],
                    )
                    for entry in found
                ]
            )
        queues = [(self._queue_lsn[name], queue) for name, queue in self.queues.items()]
        calendars = [
            (self._calendar_lsn[name], CalendarSet(name, calendar))
            for name, calendar in self.calendars.items()
        ]
        yield b"\2" + _encode((queues, calendars))

    def load(self, blob: bytes) -> None:
        """Take one blob of a dump back."""
        if blob[0] == 1:
            for lsn, job, runs in _decode_jobs_blob(blob[1:]):
                entry = self.jobs[job.id] = JobEntry(job, lsn)
                self._index(job)
                for run_lsn, live in runs:
                    run = RunEntry(entry, live, run_lsn)
                    entry.runs[live.run.nominal_ns, live.run.n] = run
                    self.runs[live.seq] = run
            return
        queues, calendars = _decode_named_blob(blob[1:])
        for lsn, queue in queues:
            self._queue_set(lsn, record(Kind.QUEUE_SET, queue))
        for lsn, value in calendars:
            self._calendar_set(lsn, record(Kind.CALENDAR_SET, value))

    # -- what is derived ------------------------------------------------------------------

    def start_running(self, running: Running) -> None:
        """Count an attempt that holds a lease now."""
        former = self.running.get(running.token)
        self.running[running.token] = running
        if former is not None:  # a plain job was promoted while it ran
            running.begun = former.begun
            return
        # Of what a former process has claimed nobody knows that it had not begun.
        running.begun = running.token <= self._inherited_lsn
        self.running_by_queue[running.run.queue] += 1
        for cap in running.caps:
            self.running_by_cap[cap] += 1

    def stop_running(self, token: int) -> None:
        """Count it no more; who waited for its caps may go."""
        running = self.running.pop(token, None)
        if running is None:
            return
        queue = running.run.queue
        if self.running_by_queue[queue] > 1:
            self.running_by_queue[queue] -= 1
        else:
            del self.running_by_queue[queue]
        for cap in running.caps:
            if self.running_by_cap[cap] > 1:
                self.running_by_cap[cap] -= 1
            else:
                del self.running_by_cap[cap]
            self.ready.release(cap)
        self.news = True

    def caps_of(self, run: Run, policy: Policy, cap: str | None) -> tuple[str, ...]:
        """Return the names of the caps that a run counts for."""
        names: tuple[str, ...] = () if cap is None else (cap,)
        if 0 < run.lost == policy.lost_max - 1:
            names += (ALONE_CAP,)
        return names

    def wait_again(self, target: Due) -> None:
        """Arm again what came due and, as it turns out, is not."""
        if isinstance(target, JobEntry):
            if self.jobs.get(target.job.id) is target:
                self.place_job(target)
        elif isinstance(target, RunEntry) and target.wait is None:
            run = target.live.run
            # A run that a pause holds is placed at the pause's end.
            is_live = self.runs.get(target.live.seq) is target
            if is_live and not is_held(target.job.job, run):
                if run.state in _WAITING:
                    self._place_run(target)
                elif run.state is RunState.READY:
                    self._arm_expiry(target)
        elif isinstance(target, ResumeDue):
            entry = target.job
            if self.jobs.get(entry.job.id) is entry and entry.resume is None:
                self.place_job(entry)
        elif isinstance(target, QueueWake) and target.name in self.queues:
            self._place_queue(self.queues[target.name])

    def wake_queue(self, name: str, at_ns: int, base: Base) -> None:
        """Have the node look at a queue again then, and on that scale only then."""
        former = self._queue_wakes.get((name, base))
        if former is not None and former in self.waits:
            if former.deadline_ns == at_ns:
                return
            self.waits.disarm(former)
        self._queue_wakes[name, base] = self.waits.arm(QueueWake(name), at_ns, base)

    def _index(self, job: Job) -> None:
        self.jobs_by_state[job.state] += 1
        if job.name is not None and job.state not in _OVER:
            self.names[job.name] = job.id
        if isinstance(job.trigger.when, AfterJobs):
            for before in job.trigger.when.jobs:
                self.dependents.setdefault(before, set()).add(job.id)

    def _unindex(self, job: Job) -> None:
        self.jobs_by_state[job.state] -= 1
        if job.name is not None and self.names.get(job.name) == job.id:
            del self.names[job.name]
        if isinstance(job.trigger.when, AfterJobs):
            for before in job.trigger.when.jobs:
                jobs = self.dependents.get(before, set())
                jobs.discard(job.id)
                if not jobs:
                    self.dependents.pop(before, None)

    def place_job(self, entry: JobEntry) -> None:
        """Arm what a job waits for, and nothing else."""
        if self._waits is None:
            return
        self._disarm_job(entry)
        job = entry.job
        if job.state is JobState.ACTIVE and job.next_ns is not None:
            base = Base.ELAPSED if job.trigger.is_elapsed else Base.WALL
            entry.wait = self._waits.arm(entry, job.next_ns, base)
        if job.state is JobState.PAUSED and job.pause is not None:
            until_ns = job.pause.until_ns
            if until_ns is not None:
                entry.resume = self._waits.arm(ResumeDue(entry), until_ns, Base.WALL)

    def _disarm_job(self, entry: JobEntry) -> None:
        for wait in (entry.wait, entry.resume):
            if wait is not None and self._waits is not None:
                self._waits.disarm(wait)
        entry.wait = entry.resume = None

    def _place_runs_again(self, entry: JobEntry) -> None:
        for run in entry.runs.values():
            if run.live.run.state is not RunState.RUNNING:
                self._unplace_run(run)
                self._place_run(run)

    def _place_run(self, entry: RunEntry) -> None:
        """Arm, line up or count a run as its state asks for."""
        if self._waits is None:
            return
        live, run = entry.live, entry.live.run
        if run.state is RunState.READY:
            if not is_held(entry.job.job, run):
                lane = Lane(run.queue, run.task)
                self.ready.push(
                    live.seq, lane, due_ns=run.due_ns, priority=run.priority
                )
                self.news = True
                self._arm_expiry(entry)
        elif run.state is RunState.RUNNING:
            cap = entry.job.job.cap
            self.start_running(
                Running(
                    run,
                    payload=entry.payload,
                    policy=entry.policy,
                    seq=live.seq,
                    token=live.token,
                    worker=live.worker,
                    caps=self.caps_of(run, entry.policy, cap.key if cap else None),
                    plain=False,
                )
            )
        elif live.wait_ns is not None and not live.behind:
            entry.wait = self._waits.arm(entry, live.wait_ns, Base(live.base))

    def _arm_expiry(self, entry: RunEntry) -> None:
        run, deadline_ns = entry.live.run, entry.policy.start_deadline_ns
        if deadline_ns is not None and run.attempts == 0:
            expiry_ns = run.due_ns + deadline_ns + 1
            entry.wait = self.waits.arm(entry, expiry_ns, Base.WALL)

    def _unplace_run(self, entry: RunEntry, *, starts: bool = False) -> None:
        if entry.wait is not None:
            self.waits.disarm(entry.wait)
            entry.wait = None
        run = entry.live.run
        if run.state is RunState.RUNNING:
            self.stop_running(entry.live.token)
        elif run.state is RunState.READY and not starts and self._waits is not None:
            self.ready.note_stale(Lane(run.queue, run.task))

    def _is_ready(self, seq: int, lane: Lane) -> bool:
        """Return whether a run still waits in a lane."""
        entry = self.runs.get(seq)
        if entry is None:
            assert self._core is not None, "recovery has not ended"
            return self._core.state.is_held(seq)
        run = entry.live.run
        return (
            run.state is RunState.READY
            and lane == (run.queue, run.task)
            and not is_held(entry.job.job, run)
        )

    def _remove_run(self, entry: RunEntry) -> None:
        self._unplace_run(entry)
        run = entry.live.run
        del entry.job.runs[run.nominal_ns, run.n]
        self.runs.pop(entry.live.seq, None)

    def check(self) -> None:
        """Assert the invariants. For tests."""
        for job_id, entry in self.jobs.items():
            assert entry.job.id == job_id
            for (nominal_ns, n), run in entry.runs.items():
                value = run.live.run
                assert (value.job_id, value.nominal_ns, value.n) == (
                    job_id,
                    nominal_ns,
                    n,
                )
                assert self.runs[run.live.seq] is run
                is_running = value.state is RunState.RUNNING
                assert is_running == (run.live.token in self.running)
                assert is_running or not run.live.worker, "only running has a lease"
            assert entry.runs or entry.job.state not in _OVER
        for name, job_id in self.names.items():
            assert self.jobs[job_id].job.name == name
        running = Counter(entry.run.queue for entry in self.running.values())
        assert running == self.running_by_queue
        states = Counter(entry.job.state for entry in self.jobs.values())
        assert states == +self.jobs_by_state


_OVER: Final = frozenset({JobState.DONE, JobState.CANCELLED})
_WAITING: Final = frozenset({RunState.PLANNED, RunState.RETRYING})
_HELD: Final = frozenset({JobState.PAUSED, JobState.QUARANTINED})
_encode: Final = msgspec.msgpack.Encoder().encode
_decode_job: Final = msgspec.msgpack.Decoder(Job).decode
_decode_live: Final = msgspec.msgpack.Decoder(LiveRun).decode
_decode_history_run: Final = msgspec.msgpack.Decoder(HistoryRun).decode
_decode_skips: Final = msgspec.msgpack.Decoder(SkipRange).decode
_decode_queue: Final = msgspec.msgpack.Decoder(Queue).decode
_decode_calendar: Final = msgspec.msgpack.Decoder(CalendarSet).decode
_decode_jobs_blob: Final = msgspec.msgpack.Decoder(
    list[tuple[int, Job, list[tuple[int, LiveRun]]]]
).decode
_decode_named_blob: Final = msgspec.msgpack.Decoder(
    tuple[list[tuple[int, Queue]], list[tuple[int, CalendarSet]]]
).decode
