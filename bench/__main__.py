"""python -m bench: engine and scheduler against baselines and peers, in one table."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

from bench import cron, durable, recovery, scheduler, wheel
from bench.disk import SpaceError
from bench.machine import about, first_lines
from bench.peers import LEFT_OUT
from bench.plot import wheel_costs
from bench.progress import Reporter, Step, clock_text
from bench.rounds import Progress
from bench.row import Row
from bench.table import as_json, render

WHEEL = "wheel"
GROUPS = (WHEEL, durable.GROUP, recovery.GROUP, cron.GROUP, scheduler.GROUP)
WHEEL_SIZES = (10_000, 100_000, 1_000_000)
WHEEL_SIZES_SMOKE = (1_000,)
SIZE_MIN, SIZE_MAX = 1_000, 100_000_000
DIRECTORY = Path("bench/out")
PLOT = "wheel-cost.svg"
INTERRUPTED = 130
_WHEEL_SECONDS = 10.0
_WHEEL_EACH_SECONDS = 200e-6  # a timer, all peers and rounds together
_EXAMPLES = """
examples:
  python -m bench                                  everything
  python -m bench --smoke                          does it all run: about a minute
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
        facts = about(asked.dir)
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
    steps = []
    if WHEEL in asked.only:
        sizes = asked.sizes or (WHEEL_SIZES_SMOKE if asked.smoke else WHEEL_SIZES)
        steps += [_wheel_step(timers, smoke=asked.smoke) for timers in sizes]
    if durable.GROUP in asked.only:
        loads = durable.SMOKE_SIZE if asked.smoke else durable.NORMAL_SIZE
        steps += durable.steps(loads, asked.dir)
    if recovery.GROUP in asked.only:
        stores = recovery.SMOKE_SIZE if asked.smoke else recovery.FULL_SIZE
        if asked.sizes:
            stores = replace(stores, timers=asked.sizes)
        steps += recovery.steps(stores, asked.dir)
    if cron.GROUP in asked.only:
        steps.append(cron.step(smoke=asked.smoke))
    if scheduler.GROUP in asked.only:
        jobs = scheduler.SMOKE_SIZE if asked.smoke else scheduler.FULL_SIZE
        if asked.sizes:
            jobs = jobs.resized(asked.sizes)
        steps += scheduler.steps(jobs, asked.dir)
    return steps


def _wheel_step(timers: int, *, smoke: bool) -> Step:
    def measure(progress: Progress) -> list[Row]:
        return wheel.measure(timers, progress=progress, rounds=1 if smoke else None)

    return Step(
        WHEEL,
        f"{timers:,} timers",
        _WHEEL_SECONDS + timers * (_WHEEL_EACH_SECONDS / (5 if smoke else 1)),
        measure,
    )


def _write(
    asked: argparse.Namespace, rows: list[Row], facts: dict[str, object]
) -> None:
    if asked.json is not None:
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
