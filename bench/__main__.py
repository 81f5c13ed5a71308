"""python -m bench: engine and scheduler against baselines and peers, in one table."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType, ModuleType
from typing import TypeVar

from bench import (
    cluster,
    cron,
    durable,
    live,
    recovery,
    scale,
    scheduler,
    server,
    wheel,
)
from bench.disk import SpaceError
from bench.machine import about, first_lines
from bench.peers import LEFT_OUT
from bench.plot import wheel_costs
from bench.progress import Reporter, Step, clock_text
from bench.rounds import Progress
from bench.row import Row
from bench.table import as_json, render
from bench.wheel_peers import Sorted

WHEEL = "wheel"
GROUPS = (
    WHEEL,
    live.GROUP,
    durable.GROUP,
    recovery.GROUP,
    scale.GROUP,
    cron.GROUP,
    scheduler.GROUP,
    server.GROUP,
    cluster.GROUP,
)
SHAPES = (wheel.UNIFORM, wheel.LOG_UNIFORM)
WHEEL_SMOKE = [(1_000, shape) for shape in SHAPES]
WHEEL_NORMAL = [(timers, wheel.UNIFORM) for timers in (10_000, 100_000, 1_000_000)]
WHEEL_FULL = [
    *WHEEL_NORMAL,
    (10_000_000, wheel.UNIFORM),
    *((timers, wheel.LOG_UNIFORM) for timers in (100_000, 1_000_000)),
]
SIZE_MIN, SIZE_MAX = 1_000, 100_000_000
DIRECTORY = Path("bench/out")
PLOT = "wheel-cost.svg"
INTERRUPTED = 130
Size = TypeVar("Size")
_WHEEL_SECONDS = 10.0
_WHEEL_EACH_SECONDS = 100e-6  # a timer and round, all peers together
_EXAMPLES = """
examples:
  python -m bench                                  everything, in about 20 minutes
  python -m bench --full --only wheel --json docs/benchmarks/wheel.json
                                                   one group of what the page shows
  python -m bench --smoke                          does it all run: about two minutes
  python -m bench --only durable --dir /mnt/ssd    durable timers, on the disk meant
  python -m bench --only wheel --sizes 1e4,1e5     the wheel alone, at two sizes
  python -m bench --only scheduler --only cron     jobs, against other schedulers
  python -m bench --json out.json --plot docs/images

A busy machine gives noise: close what else runs. Rounds in which other programs used the
processors are run again, and noise that is left is noted below the figures.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for and print the table; return the exit code."""
    asked = _parser().parse_args(arguments)
    asked.only = asked.only or GROUPS
    steps = _steps(asked)
    if asked.list:
        for step in steps:
            minutes = clock_text(step.estimate_seconds)
            print(f"{step.group:10}  about {minutes:>6}  {step.name}")
        return 0
    signal.signal(signal.SIGTERM, _interrupt)
    rows: list[Row] = []
    interrupted = False
    try:
        asked.dir.mkdir(parents=True, exist_ok=True)
        facts = about(asked.dir) | {"full": asked.full}
        total = sum(step.estimate_seconds for step in steps)
        print(*first_lines(facts, asked.dir), sep="\n")
        print(f"time        about {clock_text(total)} (minutes:seconds)\n", flush=True)
        Reporter(steps).run(rows)
    except KeyboardInterrupt:
        interrupted = True
        print("\ninterrupted; this was measured before:\n", file=sys.stderr)
    except (SpaceError, OSError) as error:
        print(f"\npython -m bench: {error}", file=sys.stderr)
        return 1
    print(render(rows))
    for name, reason in sorted(LEFT_OUT.items()):
        print(f"left out: {name}, {reason}")
    if asked.smoke:
        print("A smoke run: too small and too short for its figures to mean anything.")
    if rows:
        _write(asked, rows, facts | {"left_out": dict(LEFT_OUT)})
    return INTERRUPTED if interrupted else 0


def _steps(asked: argparse.Namespace) -> list[Step]:
    """Return what a run consists of."""
    steps: list[Step] = []
    if WHEEL in asked.only:
        loads = _sized(asked, WHEEL_SMOKE, WHEEL_NORMAL, WHEEL_FULL)
        if asked.sizes:
            loads = [(timers, shape) for timers in asked.sizes for shape in SHAPES]
        steps += [_wheel_step(*load, asked) for load in loads]
    steps += _plain_steps(live, asked)
    steps += _plain_steps(durable, asked)
    if recovery.GROUP in asked.only:
        stores = _sized(
            asked, recovery.SMOKE_SIZE, recovery.NORMAL_SIZE, recovery.FULL_SIZE
        )
        if asked.sizes:
            stores = replace(stores, timers=asked.sizes)
        steps += recovery.steps(stores, asked.dir)
    if scale.GROUP in asked.only:
        scales = _sized(asked, scale.SMOKE_SIZE, scale.NORMAL_SIZE, scale.FULL_SIZE)
        if asked.sizes:
            scales = replace(scales, timers=asked.sizes, fired=())
        steps += scale.steps(scales, asked.dir)
    if cron.GROUP in asked.only:
        steps.append(cron.step(smoke=asked.smoke))
    if scheduler.GROUP in asked.only:
        jobs = _sized(
            asked, scheduler.SMOKE_SIZE, scheduler.NORMAL_SIZE, scheduler.FULL_SIZE
        )
        if asked.sizes:
            jobs = jobs.resized(asked.sizes)
        steps += scheduler.steps(jobs, asked.dir)
    steps += _plain_steps(server, asked)
    steps += _plain_steps(cluster, asked)
    return steps


def _plain_steps(group: ModuleType, asked: argparse.Namespace) -> list[Step]:
    """Return the steps of a group that `--sizes` means nothing to."""
    if group.GROUP not in asked.only:
        return []
    size = _sized(asked, group.SMOKE_SIZE, group.NORMAL_SIZE, group.FULL_SIZE)
    steps: list[Step] = group.steps(size, asked.dir)
    return steps


def _sized(asked: argparse.Namespace, smoke: Size, normal: Size, full: Size) -> Size:
    return smoke if asked.smoke else full if asked.full else normal


def _wheel_step(timers: int, shape: str, asked: argparse.Namespace) -> Step:
    rounds = None if asked.full else 1 if asked.smoke or timers > 100_000 else 3
    few = timers > Sorted.timers_max  # and one round of them
    each = _WHEEL_EACH_SECONDS * (0.5 if few else 3 if asked.full else 1)

    def measure(progress: Progress) -> list[Row]:
        return wheel.measure(timers, progress=progress, rounds=rounds, shape=shape)

    return Step(
        WHEEL,
        f"{timers:,} timers, {shape}",
        _WHEEL_SECONDS + timers * each,
        measure,
    )


def _write(
    asked: argparse.Namespace, rows: list[Row], facts: dict[str, object]
) -> None:
    if asked.json is not None:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(as_json(rows, about=facts), encoding="utf-8")
        print(f"wrote {asked.json}")
    if asked.plot is not None:
        picture = wheel_costs(rows)
        if picture is None:
            print("no plot: it needs the wheel at two sizes or more")
            return
        asked.plot.mkdir(parents=True, exist_ok=True)
        (asked.plot / PLOT).write_text(picture, encoding="utf-8")
        print(f"wrote {asked.plot / PLOT}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure engine and scheduler against baselines and peers.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--smoke", action="store_true", help="small sizes: does everything run")
    add("--full", action="store_true", help="all sizes and rounds: over an hour")
    add(
        "--only",
        action="append",
        choices=GROUPS,
        help="measure this group alone; may be given several times",
    )
    add(
        "--sizes",
        type=_sizes,
        metavar="N,N",
        help="timers in the wheel, timers and jobs in the stores that are opened, and "
        "jobs due at once, such as 1e4,1e6",
    )
    add(
        "--dir",
        type=Path,
        default=DIRECTORY,
        help="where on a disk to write; emptied again (default: %(default)s)",
    )
    add("--json", type=Path, metavar="FILE", help="write the figures there too")
    add("--plot", type=Path, metavar="DIR", help=f"draw {PLOT} there")
    add("--list", action="store_true", help="list what would be measured, and leave")
    return parser


def _sizes(text: str) -> tuple[int, ...]:
    sizes = []
    for piece in text.split(","):
        try:
            size = float(piece)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{piece!r} is no number: write 10000,1000000 or 1e4,1e6"
            ) from None
        if not SIZE_MIN <= size <= SIZE_MAX or size % 1:
            raise argparse.ArgumentTypeError(
                f"{piece!r}: whole numbers from {SIZE_MIN:,} to {SIZE_MAX:,}"
            )
        sizes.append(int(size))
    return tuple(sizes)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt  # so that `kill` tidies up as Ctrl-C does


if __name__ == "__main__":
    sys.exit(main())
