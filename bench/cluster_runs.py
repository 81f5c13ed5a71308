"""Runs from end to end, by one process and by two: ours, and the queues on PostgreSQL.

All jobs are there before; the handler does nothing; the clock runs until the last end is
durable. Our nodes are up and have shared the shards, and the clock starts when the jobs
come due. Processes of a peer are up and connected, and it starts with the word to begin.
Each peer is used as its manual advises (see the programs), in as many processes as we are,
and once more as it comes; we are judged against the former.

The baseline writes and syncs, with nobody beside it, what our server has written to its log
for the starts and ends of RUNS_A_SYNC such runs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from bench.cluster_nodes import is_done, serving, wait
from bench.cluster_peers import UNTUNED, Queue, queues
from bench.cluster_place import Database, Place, Program, place_in, programs
from bench.cluster_tally import Tally
from bench.disk import Fdatasync
from bench.peers import LEFT_OUT, PeerError
from bench.progress import Step
from bench.rounds import JOBS, OURS, Case, Progress, interleave
from bench.row import Row
from bench.schedulers import NO_OP, NS, PAYLOAD, draft_of
from bench.stores import LOAD_STEP
from timingwheel.jobs.triggers import At, Moment
from timingwheel.stores.postgres.store import PostgresStore

RUNS_A_SYNC = 256
_LOOK_SECONDS = 0.002
_LEAD_SECONDS = 4.0
_PUT_SECONDS = 200e-6  # a job
_NUMBERS = count()


def load_ours(url: str, jobs: int, when: Moment) -> None:
    """Make so many no-ops."""
    draft = draft_of(NO_OP.call(PAYLOAD), when)
    with closing(PostgresStore.open(url, hints="auto")) as store:
        for done in range(0, jobs, LOAD_STEP):
            store.put([draft] * min(LOAD_STEP, jobs - done))


class Runs(Case):
    """Processes that run what is there, to the last end.

    Attributes:
        wal_bytes: that the server's log has grown by in the last run.

    Args:
        place: the server.
        jobs: how many.
        processes: that run them.
    """

    def __init__(self, place: Place, *, jobs: int, processes: int) -> None:
        self._place = place
        self._jobs = jobs
        self._processes = processes
        self._stack = ExitStack()
        self.wal_bytes = 0

    def close(self) -> None:
        self._stack.close()

    def _tally_at(self, name: str) -> tuple[Path, Tally]:
        path = self._place.directory / f"tally-{name}-{next(_NUMBERS)}"
        tally = Tally(path)
        self._stack.callback(tally.close)
        return path, tally

    def _commands(
        self, words: Sequence[str], database: Database, tally: Path, *more: str
    ) -> list[list[str]]:
        return [
            [*words, database.url, str(tally), str(number), *more]
            for number in range(self._processes)
        ]


class OurRuns(Runs):
    """Nodes that stay up from round to round.

    Args:
        place: the server.
        jobs: how many.
        processes: nodes.
        workers: handlers at once in each; 1: in the node's own thread.
    """

    peer = OURS

    def __init__(
        self, place: Place, *, jobs: int, processes: int, workers: int
    ) -> None:
        super().__init__(place, jobs=jobs, processes=processes)
        inline = "handlers in the node's own thread"
        self.note = f"{workers} threads a node" if workers > 1 else inline
        self._database = place.new_database()
        PostgresStore.open(self._database.url).close()
        path, self._tally = self._tally_at("ours")
        command = ["-m", "bench.cluster_node", "run"]
        commands = self._commands(command, self._database, path, str(workers))
        try:
            self._nodes = self._stack.enter_context(serving(self._database, commands))
        except BaseException:
            self.close()
            raise

    def prepare(self) -> None:
        lead_seconds = _LEAD_SECONDS + self._jobs * _PUT_SECONDS
        self._due_ns = time.time_ns() + int(lead_seconds * NS)
        load_ours(self._database.url, self._jobs, At(self._due_ns))
        self._database.settle()
        assert time.time_ns() < self._due_ns, "the jobs were made after they were due"

    def run(self) -> float:
        done, before = self._tally.total() + self._jobs, self._place.wal_bytes()
        time.sleep(max(self._due_ns - time.time_ns(), 0) / NS)
        wait(lambda: self._tally.total() >= done, self._nodes, _LOOK_SECONDS)
        took = (time.time_ns() - self._due_ns) / NS
        assert is_done(self._database), "more runs than jobs"
        self.wal_bytes = self._place.wal_bytes() - before
        return took / self._jobs


class QueueRuns(Runs):
    """Processes of a peer, started anew each round, in a database of its own.

    Args:
        queue: which.
        place: the server.
        jobs: how many.
        processes: that run them.
    """

    def __init__(
        self, queue: Queue, place: Place, *, jobs: int, processes: int
    ) -> None:
        super().__init__(place, jobs=jobs, processes=processes)
        self.peer, self.note = queue.peer, queue.note
        self._queue = queue

    def prepare(self) -> None:
        queue = self._queue
        self._database = self._place.new_database()
        words = ["-m", queue.module]
        load = [*words, "load", self._database.url, str(self._jobs)]
        Program(load, python=queue.python).end()
        self._database.settle()
        path, self._tally = self._tally_at(queue.peer)
        commands = self._commands([*words, "work"], self._database, path, *queue.words)
        self._programs = self._stack.enter_context(
            programs(commands, python=queue.python)
        )

    def run(self) -> float:
        running, left = self._programs, f"SELECT EXISTS ({self._queue.unfinished})"
        start = time.perf_counter()
        for program in running:
            program.say("go")
        wait(lambda: self._tally.total() >= self._jobs, running, _LOOK_SECONDS)
        wait(lambda: not self._database.ask(left), running, _LOOK_SECONDS)
        took = time.perf_counter() - start
        self.close()
        self._place.drop(self._database)
        return took / self._jobs


ONE, TWO = "runs, 1 node", "runs, 2 nodes"
THREADS = "runs, 1 node, 8 threads"
_LOADS = {ONE: (1, 1), TWO: (2, 1), THREADS: (1, 8)}
"""How many processes, and how many handlers of ours at once in each."""


@dataclass(frozen=True, slots=True)
class RunSizes:
    """How large these are.

    Attributes:
        loads: which of them.
        jobs: that each runs in a round with one process, by name; with two, twice as many.
        rounds: that a figure is the median of.
        tried: whether each runs once before the rounds: that warms the machine, leaves
            out a peer that fails, and says what goes to the log, for the baseline.
    """

    loads: Sequence[str]
    jobs: Mapping[str, int]
    rounds: int
    tried: bool = True


FULL = RunSizes(
    loads=(ONE, TWO, THREADS),
    jobs={
        OURS: 15_000,
        "pgqueuer": 6_000,
        f"pgqueuer{UNTUNED}": 3_000,
        "oban": 2_000,
        f"oban{UNTUNED}": 1_000,
        "procrastinate": 300,
        f"procrastinate{UNTUNED}": 200,
    },
    rounds=3,
)
NORMAL = RunSizes(
    loads=(ONE, TWO, THREADS),
    jobs={
        OURS: 6_000,
        "pgqueuer": 3_000,
        f"pgqueuer{UNTUNED}": 1_500,
        "oban": 1_000,
        f"oban{UNTUNED}": 500,
        "procrastinate": 150,
        f"procrastinate{UNTUNED}": 100,
    },
    rounds=3,
)
SMOKE = RunSizes(
    loads=(ONE,),
    jobs={
        OURS: 200,
        "pgqueuer": 100,
        f"pgqueuer{UNTUNED}": 50,
        "oban": 50,
        f"oban{UNTUNED}": 50,
        "procrastinate": 20,
        f"procrastinate{UNTUNED}": 20,
    },
    rounds=1,
    tried=False,
)
_EACH_SECONDS = {
    OURS: 400e-6,
    "pgqueuer": 700e-6,
    f"pgqueuer{UNTUNED}": 1.5e-3,
    "oban": 1.5e-3,
    f"oban{UNTUNED}": 3e-3,
    "procrastinate": 8e-3,
    f"procrastinate{UNTUNED}": 10e-3,
}
_SHARE_SECONDS = 20.0
_ROUND_SECONDS = 2.0


def steps(group: str, sizes: RunSizes, directory: Path) -> list[Step]:
    """Return the steps that measure runs.

    Args:
        group: of the steps.
        sizes: how large they are.
        directory: on the disk in question; left empty again.
    """
    seconds = 3.0
    for name in sizes.loads:
        processes, workers = _LOADS[name]
        peers = [OURS] if workers > 1 else [*sizes.jobs]
        each = sum(sizes.jobs[peer] * _EACH_SECONDS[peer] for peer in peers)
        one_round = len(peers) * _ROUND_SECONDS + processes * each
        seconds += _SHARE_SECONDS * (processes - 1)
        seconds += (sizes.tried + sizes.rounds) * one_round
    return [Step(group, "runs", seconds, partial(_measure, group, sizes, directory))]


def _measure(
    group: str, sizes: RunSizes, directory: Path, progress: Progress
) -> list[Row]:
    with place_in(directory) as place:
        return [
            row
            for name in sizes.loads
            for row in _measure_one(name, group, place, sizes, progress)
        ]


def _measure_one(
    name: str, group: str, place: Place, sizes: RunSizes, progress: Progress
) -> list[Row]:
    processes, workers = _LOADS[name]
    with ExitStack() as stack:
        ours = OurRuns(
            place,
            jobs=sizes.jobs[OURS] * processes,
            processes=processes,
            workers=workers,
        )
        cases: list[Runs] = [ours]
        if workers == 1:
            cases += [
                QueueRuns(
                    queue,
                    place,
                    jobs=sizes.jobs[queue.peer] * processes,
                    processes=processes,
                )
                for queue in queues()
            ]
        for case in cases:
            stack.enter_context(closing(case))
        disk: Fdatasync | None = None
        if sizes.tried:
            progress(f"{group}: {name}, a first time")
            cases = [case for case in cases if _works(case)]
            each = ours.wal_bytes // (sizes.jobs[OURS] * processes)
            disk = Fdatasync(
                place.directory,
                size_bytes=max(each, 1) * RUNS_A_SYNC,
                timers=RUNS_A_SYNC,
            )
            stack.enter_context(closing(disk))
        return interleave(
            disk,
            cases,
            group=f"{group}, 60-byte payloads",
            name=name,
            rounds=sizes.rounds,
            tries=1,
            unit=JOBS,
            progress=progress,
        )


def _works(case: Runs) -> bool:
    """Try it once; a peer that fails is left out and told, we are not."""
    try:
        case.prepare()
        case.run()
    except PeerError as error:
        case.close()
        if case.peer == OURS:
            raise
        LEFT_OUT[case.peer] = str(error)
        return False
    return True
