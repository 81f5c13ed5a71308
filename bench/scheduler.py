"""The scheduler: making jobs and running them to their ends, against its peers.

*schedule* waits for the disk, a job at a time; its baseline writes and syncs the bytes of
such a job. *runs* is from `start`, with all jobs due, until the last run's end is durable:
nothing of it would run again after a crash. Its baseline writes and syncs the bytes that
the starts and ends of 256 runs are.

Peers that need a transaction or more for every job get fewer of them, so a figure is
always that of one job; all of them sustain theirs.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter

from bench import scheduler_lag, scheduler_size
from bench.disk import Fdatasync, work_directory
from bench.durable import OneCaller, Threads
from bench.progress import Step
from bench.rounds import JOBS, OURS, Case, Progress, Sustained, interleave
from bench.row import Row
from bench.scheduler_lag import Lags
from bench.scheduler_size import Sizes
from bench.schedulers import PAYLOAD, Rival, rivals
from timingwheel.engine.records import Base, TimerId, timer_fired, timer_scheduled
from timingwheel.jobs.model import Attempt, JobId, Outcome, Payload, RunState
from timingwheel.stores.history_entries import HistoryRun
from timingwheel.stores.records import Kind, PlainJob, encode, record
from wal.bodies import encode_records
from wal.frame import frame_bytes

GROUP = "scheduler"
RUNS_A_SYNC = 256
_PUT_NAMES = {1: "schedule, 1 caller", 16: "schedule, 16 threads"}
_RUN_NAMES = {1: "runs, one after the other", 8: "runs, 8 threads"}
_EACH_SECONDS = {OURS: 450e-6, "huey": 1.5e-3, "APScheduler": 7e-3}


@dataclass(frozen=True, slots=True)
class Size:
    """How large a run of these benchmarks is.

    Attributes:
        runs: jobs that each rival runs in a round, by its name.
        seconds: that each rival makes jobs in a round.
        rounds: that a figure is the median of.
        tries: see `interleave`.
        lags: of the measurements of lateness.
        sizes: of the measurements of memory.
    """

    runs: Mapping[str, int]
    seconds: float
    rounds: int
    tries: int
    lags: Lags
    sizes: Sizes

    def resized(self, jobs: Sequence[int]) -> Size:
        """Return the same with as many of our jobs pending, and due at once."""
        first = self.lags.herds[0]
        herds = [
            {**(first if not place else {}), OURS: size}
            for place, size in enumerate(jobs)
        ]
        return replace(
            self,
            lags=replace(self.lags, herds=herds),
            sizes=replace(self.sizes, jobs=jobs),
        )


FULL_SIZE = Size(
    runs={OURS: 20_000, "huey": 1_000, "APScheduler": 300},
    seconds=0.5,
    rounds=5,
    tries=2,
    lags=scheduler_lag.FULL,
    sizes=scheduler_size.FULL,
)
NORMAL_SIZE = replace(
    FULL_SIZE,
    runs={OURS: 5_000, "huey": 300, "APScheduler": 100},
    rounds=3,
    lags=replace(scheduler_lag.FULL, herds=scheduler_lag.FULL.herds[:1]),
    sizes=replace(scheduler_size.FULL, jobs=scheduler_size.FULL.jobs[:1]),
)
SMOKE_SIZE = Size(
    runs={OURS: 500, "huey": 50, "APScheduler": 20},
    seconds=0.05,
    rounds=1,
    tries=1,
    lags=scheduler_lag.SMOKE,
    sizes=scheduler_size.SMOKE,
)


class Runs(Case):
    """Starts a scheduler in which all is due; ends when every run has ended.

    Args:
        kind: which scheduler.
        directory: for its files, made anew each round.
        runs: how many.
        workers: handlers at once.
    """

    def __init__(
        self, kind: type[Rival], directory: Path, *, runs: int, workers: int
    ) -> None:
        self.peer, self.equal, self.note = kind.peer, kind.equal, kind.note
        self._open = partial(kind, directory, workers=workers)
        self._directory = directory
        self._runs = runs
        self._rival: Rival | None = None

    def prepare(self) -> None:
        self.close()
        self._rival = self._open()
        self._rival.load_no_ops(self._runs)

    def run(self) -> float:
        rival = self._rival
        assert rival is not None
        start = perf_counter()
        rival.start()
        rival.ends.wait(self._runs)
        took = perf_counter() - start
        self.close()  # an idle rival that polls would be charged to the next one
        return took / self._runs

    def close(self) -> None:
        if self._rival is not None:
            self._rival.close()
            self._rival = None
        shutil.rmtree(self._directory, ignore_errors=True)


def steps(size: Size, directory: Path) -> list[Step]:
    """Return the steps that measure the scheduler.

    Args:
        size: how large and how long.
        directory: on the disk in question; left empty again.
    """
    kinds = rivals()
    put_seconds = 3 + 4 * size.seconds * size.rounds
    run_seconds = 3 + size.rounds * sum(
        size.runs[kind.peer] * _EACH_SECONDS[kind.peer] for kind in kinds
    )
    return [
        *(
            Step(
                GROUP,
                name,
                put_seconds,
                partial(_measure_puts, callers, size, directory),
            )
            for callers, name in _PUT_NAMES.items()
        ),
        *(
            Step(
                GROUP,
                name,
                run_seconds,
                partial(_measure_runs, workers, size, directory),
            )
            for workers, name in _RUN_NAMES.items()
        ),
        *scheduler_lag.steps(GROUP, size.lags, directory),
        *scheduler_size.steps(GROUP, size.sizes, directory),
    ]


def _measure_puts(
    callers: int, size: Size, directory: Path, progress: Progress
) -> list[Row]:
    with work_directory(directory) as place, ExitStack() as stack:
        disk = stack.enter_context(
            closing(Fdatasync(place, size_bytes=put_frame_bytes()))
        )
        opened = [
            stack.enter_context(closing(kind(place / kind.peer, workers=1)))
            for kind in rivals()
        ]
        cases: list[Sustained] = [
            OneCaller(rival) if callers == 1 else Threads(rival, callers)
            for rival in opened
        ]
        for case in (disk, *cases):
            case.seconds = size.seconds
        return interleave(
            disk,
            cases,
            group=f"{GROUP}, 60-byte payloads",
            name=_PUT_NAMES[callers],
            rounds=size.rounds,
            tries=size.tries,
            unit=JOBS,
            progress=progress,
        )


def _measure_runs(
    workers: int, size: Size, directory: Path, progress: Progress
) -> list[Row]:
    with work_directory(directory) as place, ExitStack() as stack:
        disk = stack.enter_context(
            closing(Fdatasync(place, size_bytes=run_frame_bytes(), timers=RUNS_A_SYNC))
        )
        disk.seconds = size.seconds
        cases = [
            stack.enter_context(
                closing(
                    Runs(
                        kind,
                        place / kind.peer,
                        runs=size.runs[kind.peer],
                        workers=workers,
                    )
                )
            )
            for kind in rivals()
        ]
        return interleave(
            disk,
            cases,
            group=f"{GROUP}, 60-byte payloads",
            name=_RUN_NAMES[workers],
            rounds=size.rounds,
            tries=size.tries,
            unit=JOBS,
            progress=progress,
        )


def put_frame_bytes() -> int:
    """Return what we write to make one job."""
    payload = encode(PlainJob("no_op", PAYLOAD.encode(), 1 << 60, 1 << 60))
    return frame_bytes(
        len(encode_records([timer_scheduled(Base.ELAPSED, 1 << 60, payload)]))
    )


def run_frame_bytes() -> int:
    """Return what we write for the starts and the ends of RUNS_A_SYNC runs."""
    job = PlainJob("no_op", PAYLOAD.encode(), 1 << 60, 1 << 60)
    run = job.run(JobId("0" * 36), RunState.SUCCEEDED, attempts=1, started_ns=1 << 60)
    attempt = Attempt(
        run_id=run.id,
        number=1,
        worker="w" * 40,
        token=1 << 20,
        started_ns=1 << 60,
        ended_ns=1 << 60,
        outcome=Outcome.OK,
    )
    end = HistoryRun(run=run, payload=Payload(PAYLOAD.encode()), attempt=attempt)
    events = [timer_fired(TimerId(1 << 20), 1), record(Kind.PLAIN_ENDED, end)]
    return frame_bytes(len(encode_records(events * RUNS_A_SYNC)))
