"""Every target by its name, its corpus, and how much memory it may take.

A target takes bytes and returns, or raises: then it has found something. The corpus is in
tests/fuzz/corpus, a text file a target with one input a line, in hexadecimal: seeds to
begin with, and inputs like those that have broken a target.
"""

from __future__ import annotations

import functools
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.fuzz.engine_targets import fuzz_records, fuzz_tables, fuzz_wheels
from tests.fuzz.log_targets import fuzz_frames, fuzz_snapshots, fuzz_stores
from tests.fuzz.value_targets import fuzz_messages, fuzz_payloads, fuzz_texts

Target = Callable[[bytes], None]

CORPUS: Final = Path(__file__).parent / "corpus"
TARGETS: Final[Mapping[str, Target]] = {
    "frames": fuzz_frames,
    "stores": fuzz_stores,
    "snapshots": fuzz_snapshots,
    "records": fuzz_records,
    "tables": fuzz_tables,
    "wheels": fuzz_wheels,
    "payloads": fuzz_payloads,
    "messages": fuzz_messages,
    "texts": fuzz_texts,
}
MEMORY_MAX_BYTES: Final = 6 << 20
"""More than any input of a few KiB needs, and less than what its lengths may claim: one
frame or block may have 8 MiB, a message 64."""


def corpus_of(name: str) -> list[bytes]:
    """The inputs that are kept for a target."""
    return [bytes.fromhex(line) for line in _file(name).read_text().split()]


def write_corpus(name: str, inputs: set[bytes]) -> None:
    """Keep these inputs for a target, and no others."""
    lines = sorted({data.hex() for data in inputs if data}, key=lambda d: (len(d), d))
    _file(name).write_text("".join(f"{line}\n" for line in lines))


def bounded(target: Target) -> Target:
    """A target that also fails if it takes more memory at a time than it may."""
    target(b"")  # what is made once and kept does not count

    @functools.wraps(target)
    def checked(data: bytes) -> None:
        tracemalloc.start()
        try:
            target(data)
            taken = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert taken <= MEMORY_MAX_BYTES, f"{taken:,} bytes for {len(data)} of input"

    return checked


def _file(name: str) -> Path:
    return CORPUS / f"{name}.txt"
