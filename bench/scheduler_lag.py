"""How late handlers start: at a steady rate, and when very many are due at once.

Every handler notes the time at which it was called; its job carries its due time. A herd
comes due while somebody keeps calling `schedule`, who feels what the herd costs others.
Times are those of the clock, not of the processor, so each rival is measured alone, one
after the other: a ratio here is rougher than those of the rounds.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from bench.disk import work_directory
from bench.progress import Step
from bench.rounds import JOBS, MS, OURS, ForeignLoad, PairedRow, Progress
from bench.rounds import no_garbage_collection as quiet
from bench.row import Row
from bench.schedulers import HOUR, LAGS, NS, Huey, Rival, rivals

WORKERS = 8
LEAD_SECONDS = 1.0
_LEAD_TIMES = 2.5
"""Jobs are made so many times ahead of what a sample of them took, and a second."""
_SAMPLE_MIN = 50
_SAMPLE_SHARE = 50
"""One in so many is made beforehand, to see how long it takes."""
_QUIET_CALLS = 200
_LOAD_SECONDS = {OURS: 0.1e-3, "huey": 0.7e-3, "APScheduler": 3.5e-3}
_RUN_SECONDS = {OURS: 0.3e-3, "huey": 1.2e-3, "APScheduler": 4e-3}


@dataclass(frozen=True, slots=True)
class Lags:
    """How large these measurements are; numbers are by rival.

    Attributes:
        rate: due a second, and
        seconds: for how long.
        cron: jobs due on the same second.
        herds: one-time jobs due at once.
    """

    rate: Mapping[str, int]
    seconds: int
    cron: Mapping[str, int]
    herds: Sequence[Mapping[str, int]]


FULL = Lags(
    rate={OURS: 1_000, "huey": 200, "APScheduler": 100},
    seconds=5,
    cron={OURS: 10_000, "APScheduler": 300},
    herds=(
        {OURS: 100_000, "huey": 2_000, "APScheduler": 500},
        {OURS: 1_000_000},
    ),
)
SMOKE = Lags(
    rate={OURS: 200, "huey": 50, "APScheduler": 20},
    seconds=1,
    cron={OURS: 300, "APScheduler": 20},
    herds=({OURS: 2_000, "huey": 50, "APScheduler": 20},),
)


def steps(group: str, lags: Lags, directory: Path) -> list[Step]:
    """Return the steps that measure lateness.

    Args:
        group: of the steps.
        lags: how large they are.
        directory: on the disk in question; left empty again.
    """
    steady = {peer: rate * lags.seconds for peer, rate in lags.rate.items()}
    return [
        Step(
            group,
            f"{lags.rate[OURS]:,} due a second",
            _seconds(steady) + len(steady) * lags.seconds,
            partial(
                _each,
                _measure_steady,
                lags.rate,
                group=group,
                directory=directory,
                seconds=lags.seconds,
            ),
        ),
        Step(
            group,
            f"{lags.cron[OURS]:,} cron jobs on the same second",
            3 * _seconds(lags.cron),
            partial(_each, _measure_cron, lags.cron, group=group, directory=directory),
        ),
        *(
            Step(
                group,
                f"{herd[OURS]:,} due at once",
                _seconds(herd),
                partial(_each, _measure_herd, herd, group=group, directory=directory),
            )
            for herd in lags.herds
        ),
    ]


def _seconds(jobs: Mapping[str, int]) -> float:
    return 2 * len(jobs) + sum(
        number * (_LOAD_SECONDS[peer] + _RUN_SECONDS[peer])
        for peer, number in jobs.items()
    )


Measure = Callable[[Rival, int, int], tuple[str, Mapping[str, float]]]


def _each(
    measure: Measure,
    numbers: Mapping[str, int],
    progress: Progress,
    *,
    group: str,
    directory: Path,
    seconds: int = 0,
) -> list[Row]:
    """Measure each rival that has a number, one after the other."""
    rows: list[Row] = []
    for kind in rivals():
        number = numbers.get(kind.peer)
        if number is None:
            continue
        with work_directory(directory) as place:
            progress(f"{group}: {kind.peer}, {number:,} jobs")
            with (
                closing(kind(place / "store", workers=WORKERS)) as rival,
                ForeignLoad() as load,
            ):
                LAGS.clear()
                what, figures = measure(rival, number, seconds)
            fewer = number != numbers[OURS]
            rows += _rows(
                f"{group}, {what.format(numbers[OURS])}",
                kind,
                figures,
                note=f"of {what.format(number)}" if fewer else "",
                fewer=fewer,
                foreign_cores=load.cores,
            )
    return rows


def _rows(
    group: str,
    kind: type[Rival],
    figures: Mapping[str, float],
    *,
    note: str,
    fewer: bool,
    foreign_cores: float,
) -> list[Row]:
    if kind is Huey:
        note = f"{note}; its scheduler looks once a second".removeprefix("; ")
    return [
        PairedRow(
            group,
            name,
            kind.peer,
            figure,
            note,
            JOBS if name == DRAINED else MS,
            # A rate is that of one job; lateness under a smaller load is no rival's.
            equal=not fewer or name == DRAINED,
            foreign_cores=foreign_cores,
        )
        for name, figure in figures.items()
    ]


DRAINED = "drained"
"""The one figure that is a rate: ns of wall time a job."""


def _measure_steady(
    rival: Rival, rate: int, seconds: int
) -> tuple[str, dict[str, float]]:
    """Have jobs come due evenly, for some seconds."""
    jobs = rate * seconds
    rival.start()
    first_ns = time.time_ns() + _lead_ns(rival.load_stamps_later, jobs)
    with quiet():
        rival.load_stamps(first_ns + job * NS // rate for job in range(jobs))
        _require_loaded(first_ns)
        rival.ends.wait(jobs)
    return "{:,} due a second", lags_in_ms()


def _measure_cron(rival: Rival, jobs: int, _: int) -> tuple[str, dict[str, float]]:
    """Have cron jobs come due on one second, all of them."""
    rival.start()
    later = _whole_second(2 * HOUR.total_seconds())
    lead_ns = _lead_ns(lambda sample: rival.load_cron(sample, later), jobs)
    due = _whole_second(lead_ns / NS)
    due_ns = int(due.timestamp()) * NS
    with quiet():
        rival.load_cron(jobs, due)
        _require_loaded(due_ns)
        rival.ends.wait(jobs)
        took_ns = time.time_ns() - due_ns
    return "{:,} cron jobs on the same second", {
        DRAINED: took_ns / jobs,
        **lags_in_ms(),
    }


def _measure_herd(rival: Rival, jobs: int, _: int) -> tuple[str, dict[str, float]]:
    """Have one-time jobs come due at once, while somebody goes on making others."""
    before = [_timed_ms(rival.schedule) for _ in range(_QUIET_CALLS)]
    due_ns = time.time_ns() + _lead_ns(rival.load_stamps_later, jobs)
    with quiet():
        rival.load_stamps([due_ns] * jobs)
        _require_loaded(due_ns)
        rival.start()
        time.sleep(max(due_ns - time.time_ns(), 0) / NS)
        during = []
        while rival.ends.count < jobs:
            during.append(_timed_ms(rival.schedule))
        took_ns = time.time_ns() - due_ns
    return "{:,} due at once", {
        DRAINED: took_ns / jobs,
        "schedule() before, p50": statistics.median(before),
        "schedule() meanwhile, p50": statistics.median(during),
        "schedule() meanwhile, p99": percentile(during, 0.99),
        "schedule() meanwhile, longest": max(during),
    }


def lags_in_ms() -> dict[str, float]:
    """Return what the handlers have noted; none of them may have been early."""
    lags = [lag_ns / 1e6 for lag_ns in LAGS]
    assert min(lags) >= 0, f"started {-min(lags):.3f} ms early"
    return {"lag, p50": statistics.median(lags), "lag, p99": percentile(lags, 0.99)}


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that a share of all do not exceed.

    Args:
        values: one or more.
        share: 0 .. 1.
    """
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


def _whole_second(seconds: float) -> datetime:
    """Return a whole second of UTC at least so far ahead."""
    ahead = datetime.now(UTC) + timedelta(seconds=seconds + 1)
    return ahead.replace(microsecond=0)


def _lead_ns(load: Callable[[int], object], jobs: int) -> int:
    """Return how far ahead the due time must be for so many jobs to be made before it.

    Args:
        load: makes so many jobs that nobody waits for, to see how long it takes.
        jobs: how many.
    """
    sample = max(_SAMPLE_MIN, jobs // _SAMPLE_SHARE)
    start = time.perf_counter()
    load(sample)
    each = (time.perf_counter() - start) / sample
    return int((LEAD_SECONDS + _LEAD_TIMES * each * jobs) * NS)


def _require_loaded(due_ns: int) -> None:
    late_s = (time.time_ns() - due_ns) / NS
    assert late_s < 0, f"the jobs were made {late_s:.1f} s after they were due"


def _timed_ms(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3
