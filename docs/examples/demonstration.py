"""What this is, in less than a minute: `make run`, or `python docs/examples/demonstration.py`.

Two acts: a program with jobs that is killed while they run (demonstration_jobs.py), and a
million timers of the engine below, killed in the middle of a write
(demonstration_timers.py). What was promised is written down outside of what is killed,
and compared with what came of it. The exit code is 0 if every promise was kept, 1 if not.
"""

from __future__ import annotations

import argparse
import logging
import os
import platform
import shutil
import signal
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from demonstration_jobs import JobsAct
from demonstration_page import Verdict, say
from demonstration_timers import TimersAct

from timingwheel import COMPILED

TIMERS = 1_000_000
DISK_BYTES = 400 << 20  # more than it ever needs, about 150 MB


def introduce(directory: Path, timers: int) -> None:
    build = "compiled" if COMPILED else "pure-Python"
    print(
        f"timingwheel {version('timingwheel-engine')}, {build} build, "
        f"Python {platform.python_version()}, {os.cpu_count()} processors\n"
    )
    say(
        'A job is a promise: "call this function with these arguments, at that time". '
        "Here it lives in a directory and not in the process, so it outlives the "
        "process. There is no server and no database: like SQLite, it is a library.",
        indent="",
    )
    print()
    say(
        "First a program with jobs is killed while two of them run, and started again. "
        f"Then {timers:,} timers of the engine below are made in another process, which "
        "is killed in the middle of making more. All along this process writes down what "
        "was promised, and in the end it looks whether all was kept. It takes less than a "
        "minute, 0.7 GB of memory, and 150 MB of disk "
        f"in {directory}, which is removed at the end.",
        indent="",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="See what timingwheel is.")
    parser.add_argument("--timers", type=int, default=TIMERS, help="how many to load")
    parser.add_argument("--place", help="where to make a directory of its own")
    options = parser.parse_args()
    place = options.place or tempfile.gettempdir()
    if shutil.disk_usage(place).free < DISK_BYTES:
        print(
            f"{place} has less than {DISK_BYTES >> 20} MB free: pass --place ELSEWHERE"
        )
        return 2
    logging.basicConfig(stream=sys.stdout, format="   log of %(name)s: %(message)s")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    directory = Path(tempfile.mkdtemp(prefix="timingwheel-", dir=place))
    try:
        introduce(directory, options.timers)
        verdict = Verdict()
        JobsAct(directory / "jobs", verdict).run()
        TimersAct(directory / "timers", options.timers, verdict).run()
        return 0 if verdict.print() else 1
    except KeyboardInterrupt:
        print("\nstopped")
        return 130
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
