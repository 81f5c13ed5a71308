"""Lets a coverage-guided fuzzer loose on one target: `python -m tests.fuzz frames`.

It stops at the first input that a target cannot bear, and keeps it as a file beside the
corpus; `python -m tests.fuzz frames FILE ...` runs files alone. Needs atheris
(`pip install -e '.[test,fuzz]'`, or `make fuzz`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["timingwheel", "wal"]):
    from tests.fuzz.targets import TARGETS, bounded, corpus_of

KEPT = Path("build/fuzz")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("files", nargs="*", type=Path, help="run these, and no more")
    parser.add_argument("--seconds", type=int, default=60)
    asked = parser.parse_args()
    target = bounded(TARGETS[asked.target])
    if asked.files:
        for file in asked.files:
            target(file.read_bytes())
        return
    kept = KEPT / asked.target
    kept.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(corpus_of(asked.target)):
        (kept / f"seed-{number:03}").write_bytes(data)
    atheris.Setup(
        [
            sys.argv[0],
            str(kept),
            f"-max_total_time={asked.seconds}",
            f"-artifact_prefix={kept.parent}/{asked.target}-",
            "-max_len=4096",
            "-timeout=20",
            "-rss_limit_mb=4096",  # tracemalloc itself grows, a KiB or so an input
            "-print_final_stats=1",
        ],
        target,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
