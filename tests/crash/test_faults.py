"""Every system call fails, one after the other: log, engine and job store.

What must hold is told in the three sweeps. `make test` fails a sample of the calls, and
the tests marked long every one of them.
"""

from __future__ import annotations

import errno
import random
from typing import Final

import pytest

from tests.crash.engine_fault_sweep import EngineFaultSweep
from tests.crash.engine_sweep import life as timer_life
from tests.crash.fault_disk import Trouble
from tests.crash.log_driver import Options, open_log
from tests.crash.log_fault_sweep import LogFaultSweep
from tests.crash.log_ledger import Violation as LogViolation
from tests.crash.log_program import random_program, scripted
from tests.crash.planted_faults import _SameDisk
from tests.crash.store_driver import Broken
from tests.crash.store_fault_sweep import StoreFaultSweep
from tests.crash.test_engine_crash_states import OnCore, a_short_life
from tests.crash.test_store_crash_states import a_short_life as a_short_job_life
from tests.crash.test_store_crash_states import life as job_life
from tests.crash.test_store_crash_states import planted
from tests.model.engine_oracle import Violation as EngineViolation
from timingwheel.clock import Clock
from timingwheel.engine.core import EngineCore
from timingwheel.engine.owner import Owner
from timingwheel.engine.volatile import VolatileLog
from timingwheel.jobs.model import Job, JobId
from timingwheel.stores.embedded import EmbeddedStore
from wal.filesystem import FileSystem, Handle
from wal.log import Log
from wal.testing import MemoryFileSystem

pytestmark = [pytest.mark.usefixtures("quiet"), pytest.mark.timeout(600)]

TROUBLES: Final = [
    Trouble(errno.EIO, "once"),
    Trouble(errno.EIO, "from then on"),
    Trouble(errno.ENOSPC, "once"),
    Trouble(errno.ENOSPC, "from then on"),
    Trouble(errno.ENOSPC, "fills up"),
    Trouble(errno.EROFS, "from then on"),
    Trouble(errno.EMFILE, "once"),
    Trouble(errno.EMFILE, "from then on"),
    Trouble(errno.ENFILE, "from then on"),
]
SAMPLED: Final = [TROUBLES[0], TROUBLES[4]]
each_trouble = pytest.mark.parametrize("trouble", TROUBLES, ids=str)


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Keep thousands of warnings and tracebacks out of the report."""
    caplog.set_level(60, logger="wal")
    caplog.set_level(60, logger="timingwheel")


def report(
    sweep: LogFaultSweep | EngineFaultSweep | StoreFaultSweep, tried: int
) -> None:
    print(f"{sweep.trouble}: {tried} calls failed, {sweep.states} states, ", end="")
    print(", ".join(f"{n} {what}" for what, n in sweep.outcomes.most_common()))


def sweep_log(trouble: Trouble, rng: random.Random, *, stride: int = 1) -> int:
    sweep = LogFaultSweep(trouble, rng, Options(5120), scripted())
    tried = sweep.run(start=rng.randrange(stride), stride=stride)
    report(sweep, tried)
    return tried


def sweep_engine(trouble: Trouble, rng: random.Random, *, stride: int = 1) -> int:
    sweep = EngineFaultSweep(trouble, rng, timer_life())
    tried = sweep.run(start=rng.randrange(stride), stride=stride)
    report(sweep, tried)
    return tried


def sweep_store(trouble: Trouble, rng: random.Random, *, stride: int = 1) -> int:
    sweep = StoreFaultSweep(trouble, rng, job_life())
    tried = sweep.run(start=rng.randrange(stride), stride=stride)
    report(sweep, tried)
    return tried


def test_a_fault_at_any_call_of_a_log_loses_nothing_and_invents_nothing(
    rng: random.Random,
) -> None:
    assert sum(sweep_log(trouble, rng, stride=151) for trouble in TROUBLES) > 10


def test_a_fault_at_any_call_of_an_engine_loses_no_timer(rng: random.Random) -> None:
    assert sum(sweep_engine(trouble, rng, stride=97) for trouble in SAMPLED) > 4


def test_a_fault_at_any_call_of_a_job_store_loses_no_job(rng: random.Random) -> None:
    assert sum(sweep_store(trouble, rng, stride=149) for trouble in SAMPLED) > 2


@pytest.mark.long
@each_trouble
def test_a_fault_at_every_call_of_a_log_loses_nothing_and_invents_nothing(
    trouble: Trouble, rng: random.Random
) -> None:
    assert sweep_log(trouble, rng) > 100


@pytest.mark.long
@each_trouble
def test_a_fault_at_every_call_of_an_engine_loses_no_timer(
    trouble: Trouble, rng: random.Random
) -> None:
    assert sweep_engine(trouble, rng) > 60


@pytest.mark.long
@each_trouble
def test_a_fault_at_every_call_of_a_job_store_loses_no_job(
    trouble: Trouble, rng: random.Random
) -> None:
    assert sweep_store(trouble, rng) > 75


@pytest.mark.long
@pytest.mark.timeout(3600)
@each_trouble
def test_faults_in_random_programs_of_a_log_lose_nothing(
    trouble: Trouble, rng: random.Random
) -> None:
    tried = number = 0
    while tried < 2_000:
        source = random.Random(f"{rng.random()} {number}")
        options, program = random_program(source, source.randint(5, 40))
        sweep = LogFaultSweep(trouble, source, options, program)
        tried += sweep.run(start=source.randrange(4), stride=4)
        number += 1
    print(f"{trouble}: {tried} calls failed in {number} programs")


# -- planted faults: each must be seen -----------------------------------------------------


class RetriesSyncs(_SameDisk):
    """What a program does that believes in the second fsync."""

    def datasync(self, handle: Handle) -> None:
        """Sync; if that fails, sync again."""
        try:
            super().datasync(handle)
        except OSError:
            super().datasync(handle)


class SaysItIsFull(_SameDisk):
    """Reports each failed write as a full disk."""

    def pwrite(self, handle: Handle, data: bytes, offset: int) -> int:
        """Write, or complain of the wrong thing."""
        try:
            return super().pwrite(handle, data, offset)
        except OSError as error:
            error.errno = errno.ENOSPC
            raise


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        (RetriesSyncs, "is lost|acknowledged record"),
        (SaysItIsFull, "a full disk, of a disk that is not"),
    ],
)
def test_a_log_that_hides_a_fault_is_caught(
    kind: type[_SameDisk], seen: str, rng: random.Random
) -> None:
    def opener(disk: FileSystem, options: Options) -> Log:
        assert isinstance(disk, MemoryFileSystem)
        return open_log(kind(disk), options)

    program = scripted()[:9]
    trouble = Trouble(errno.EIO, "once")
    sweep = LogFaultSweep(trouble, rng, Options(5120), program, opener)
    with pytest.raises(LogViolation, match=seen) as caught:
        sweep.run()
    print(caught.value)


class DeafCore(EngineCore):
    """Reads and deliveries go on after the disk has failed."""

    def __init__(self, log: Log | VolatileLog, owner: Owner, clock: Clock) -> None:
        """Open as an engine does; from then on nothing is required."""
        super().__init__(log, owner, clock)
        self.require_alive = lambda: None


def test_an_engine_that_goes_on_after_a_failure_is_caught(rng: random.Random) -> None:
    sweep = EngineFaultSweep(
        Trouble(errno.EIO, "once"),
        rng,
        a_short_life(),
        make=lambda log, clock: OnCore(log, clock, DeafCore),
    )
    with pytest.raises(EngineViolation, match="whose disk had failed goes on"):
        sweep.run()


class DeafStore(EmbeddedStore):
    """Jobs are shown after the disk has failed."""

    def get(self, job_id: JobId) -> Job | None:
        """Return a job, whatever the log says."""
        with self._core.lock:
            return self._read.live_job(job_id)


def test_a_store_that_goes_on_after_a_failure_is_caught(rng: random.Random) -> None:
    trouble = Trouble(errno.EIO, "once")
    sweep = StoreFaultSweep(trouble, rng, a_short_job_life(), planted(DeafStore))
    with pytest.raises(Broken, match="whose disk had failed goes on"):
        sweep.run(stride=4)
