"""Make the golden store of the present format: `python -m tests.golden.make`.

A golden store is what a release wrote, kept for ever: later versions must read it. The
one of the present format is made from a fixed life, with fixed entropy and a clock that
counts, so it is the same byte for byte wherever it is made; a difference means that the
writer has changed. When the format changes, raise its version in wal/segment.py and run
this again: it makes a new directory, and the old ones stay as they are.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable
from pathlib import Path

from wal.frame import encode_records
from wal.log import Durability, Log
from wal.segment import FORMAT_MAJOR, FORMAT_MINOR
from wal.testing import MemoryFileSystem

HERE = Path(__file__).resolve().parent
NAME = f"format-{FORMAT_MAJOR}.{FORMAT_MINOR}"
SEGMENT_SIZE_BYTES = 5120
BIRTH_NS = 1_767_225_600_000_000_000  # 2026-01-01 UTC


class FixedEntropy(MemoryFileSystem):
    """A disk whose random numbers are the hashes of 0, 1, 2, ..."""

    def __init__(self, first: int) -> None:
        super().__init__("golden", process="process 1")
        self._numbers = itertools.count(first)

    def entropy(self, size_bytes: int) -> bytes:
        return hashlib.sha256(b"%d" % next(self._numbers)).digest()[:size_bytes]


def opened(
    disk: FixedEntropy, wall_ns: Callable[[], int], *, durability: Durability
) -> Log:
    return Log.open(
        disk,
        wall_ns=wall_ns,
        durability=durability,
        segment_size_bytes=SEGMENT_SIZE_BYTES,
        reserve_bytes=0,
        background=False,
    )


def golden_life() -> tuple[dict[str, bytes], dict[str, object]]:
    """Return the files of the store and what they hold.

    It is born, rolls over, is masked, takes a snapshot, is torn by a crash, reopened in
    interval mode and closed.
    """
    times = itertools.count(BIRTH_NS, 1_000_000)
    records: dict[int, bytes] = {}
    disk = FixedEntropy(0)

    def put(log: Log, *payloads: bytes) -> None:
        log.start()
        if len(payloads) == 1:
            first = log.append(payloads[0])
        else:
            first = log.append_group(encode_records(payloads), len(payloads))
        records.update(enumerate(payloads, first))
        log.sync()

    log = opened(disk, times.__next__, durability="durable")
    put(log, b"the first record")
    put(log, b"")
    put(log, b"a group", b"of three", b"holds together")
    put(log, bytes(600))  # its sectors would be zero: masked
    put(log, "naïve and façade, in UTF-8".encode())
    writer = log.begin_snapshot()
    writer.add(b"block 0 of the state")
    writer.add(b"block 1")
    log.finish_snapshot(writer, reach_lsn=log.appended_lsn)
    put(log, bytes(range(256)))
    last = max(name for name in disk.names() if name.endswith(".seg"))
    end = log.stats().segment_offset
    log.append(b"torn " * 80)
    log.sync()

    # The power fails while the last group is written: one sector never comes.
    disk, after = FixedEntropy(1000), disk.snapshot_of_all()
    for name, data in after.items():
        disk.put(name, data)
    disk.overwrite(last, end + 512 - end % 512, bytes(512))
    log = opened(disk, times.__next__, durability="interval")
    put(log, b"relaxed")
    put(log, b"relaxed too")
    log.close()

    files = {
        name: data
        for name, data in disk.snapshot_of_all().items()
        if name != "LOCK" and not name.endswith(".tmp")
    }
    holds: dict[str, object] = {
        "records": {str(lsn): payload.hex() for lsn, payload in records.items()},
        "snapshot": [b"block 0 of the state".hex(), b"block 1".hex()],
        "torn": [name for name in files if name.endswith(".torn")],
        "closed": True,
    }
    return files, holds


def main() -> None:
    files, holds = golden_life()
    directory = HERE / NAME
    directory.mkdir(exist_ok=True)
    for path in directory.iterdir():
        path.unlink()
    for name, data in files.items():
        (directory / name).write_bytes(data)
    text = json.dumps(holds, indent=2) + "\n"
    (HERE / f"{NAME}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
