"""Simulate a scheduler's life from a seed, or many lives for a length of time.

    python -m timingwheel.testing soak --for 1h --workers 2
    python -m timingwheel.testing simulate --seed 7

Exit codes: 0 every promise was kept; 1 one was broken: each failing seed is printed with
the command that repeats it; 2 the arguments are invalid.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from timingwheel.clock import SystemClock
from timingwheel.errors import ArgumentError
from timingwheel.jobs.durations import duration_ns
from timingwheel.testing.simulating import (
    STEPS,
    STEPS_MAX,
    SimulationFailedError,
    simulate,
)
from timingwheel.testing.soak import soak

WORKERS_MAX = 64


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    arguments = _parser().parse_args(argv)
    if arguments.command == "soak":
        return _soak(arguments)
    return _simulate(arguments)


def _soak(arguments: argparse.Namespace) -> int:
    seed = arguments.seed
    if seed is None:  # so that each soak sees other lives
        seed = SystemClock().wall_ns() // 1_000_000
    _tell(f"from seed {seed} on, {arguments.steps} steps each; Ctrl-C ends it")
    tally = soak(
        arguments.length_ns,
        seed=seed,
        steps=arguments.steps,
        workers=arguments.workers,
        tell=_tell,
    )
    _tell(f"{'stopped' if tally.was_stopped else 'done'}: {tally}")
    for failure in tally.failures.values():
        _tell(failure)
    return 1 if tally.failures else 0


def _simulate(arguments: argparse.Namespace) -> int:
    try:
        found = simulate(arguments.seed, steps=arguments.steps, tell=_tell)
    except SimulationFailedError as failed:
        _tell(f"FAILED: {failed}")
        return 1
    _tell(f"{found.steps} steps, {found.lives} lives, digest {found.digest}")
    return 0


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m timingwheel.testing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    soaking = commands.add_parser("soak", help="simulate seed after seed")
    soaking.add_argument(
        "--for",
        dest="length_ns",
        type=_length_ns,
        default="1h",
        metavar="LENGTH",
        help='how long, such as "1h" (the default) or "90s"',
    )
    soaking.add_argument(
        "--seed", type=int, help="the first seed; by default one that is new each time"
    )
    soaking.add_argument(
        "--workers",
        type=_whole(WORKERS_MAX),
        default=1,
        help=f"processes beside each other, 1 to {WORKERS_MAX}",
    )
    single = commands.add_parser(
        "simulate", help="simulate one seed and tell each step"
    )
    single.add_argument("--seed", type=int, required=True, help="which life")
    for command in (soaking, single):
        command.add_argument(
            "--steps",
            type=_whole(STEPS_MAX),
            default=STEPS,
            help=f"of each life, 1 to {STEPS_MAX:,}; {STEPS} by default",
        )
    return parser


def _length_ns(text: str) -> int:
    try:
        return duration_ns(text, "--for")
    except ArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


class _whole:  # noqa: N801 - reads as the type it is to argparse
    """Reads a whole number from 1 to a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def __call__(self, text: str) -> int:
        number = int(text) if text.isdecimal() else 0
        if not 1 <= number <= self._limit:
            raise argparse.ArgumentTypeError(
                f"{text!r}: pass a whole number, 1 to {self._limit:,}"
            )
        return number


if __name__ == "__main__":
    sys.exit(main())
