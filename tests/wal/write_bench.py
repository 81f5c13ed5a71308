"""A plan and the writer that follows it, for the tests of both."""

from __future__ import annotations

from tests.wal.stores import SEGMENT_BYTES, UUID, WALL_NS
from wal.bodies import FramePlan, PendingFrame, encode_records
from wal.frame import decode_records
from wal.pool import SegmentPool
from wal.reader import LogReader
from wal.segment import NO_PREDECESSOR, SEGMENT_HEADER_BYTES, SegmentEnd
from wal.testing import MemoryFileSystem
from wal.writer import SegmentWriter

OPENING_BYTES = SEGMENT_HEADER_BYTES + 1024


class Bench:
    """A plan and the writer that follows it, on one disk."""

    def __init__(
        self,
        disk: MemoryFileSystem | None = None,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        opening_bytes: int = SEGMENT_BYTES,
        predecessor: SegmentEnd = NO_PREDECESSOR,
        first_lsn: int = 1,
        plan_body: type[FramePlan] = FramePlan,
    ) -> None:
        self.disk = disk if disk is not None else MemoryFileSystem()
        self.disk.make_directory()
        self.pool = SegmentPool(
            self.disk, size_bytes=segment_bytes, reserve=1, background=False
        )
        self.pool.start([])
        handle = self.disk.create("opening.tmp")
        self.disk.pwrite(handle, bytes(opening_bytes), 0)
        self.writer = SegmentWriter(
            self.disk,
            UUID,
            self.pool,
            predecessor=predecessor,
            first_lsn=first_lsn,
            blank=("opening.tmp", handle),
            wall_ns=lambda: WALL_NS,
        )
        self.plan = plan_body(
            self.pool,
            next_lsn=first_lsn,
            segment_size_bytes=segment_bytes,
            offset=self.writer.offset,
            size=self.writer.header.size_bytes,
        )
        self.durable_lsn = first_lsn - 1

    def add(self, *payloads: bytes, urgent: bool = False) -> int:
        """Plan a group, and make room for it if it needs that."""
        body, count = encode_records(payloads), len(payloads)
        lsn = self.plan.add(body, record_count=count, urgent=urgent)
        if lsn is None:
            self.pool.wait(urgent=urgent)
            lsn = self.plan.add(body, record_count=count, urgent=urgent)
        assert lsn is not None
        return lsn

    def flush(self, *, relaxed: bool = False, everything: bool = False) -> None:
        """Write and sync what the plan gives."""
        for frame in self.plan.take(everything=everything):
            self.write(frame, relaxed=relaxed)
        self.writer.sync()
        self.plan.written()
        self.durable_lsn = self.writer.end().last_lsn

    def write(self, frame: PendingFrame, *, relaxed: bool = False) -> None:
        self.writer.write(frame, durable_lsn=self.durable_lsn, relaxed=relaxed)

    def read(self) -> list[bytes]:
        groups = LogReader(self.disk, UUID).groups()
        return [payload for group in groups for payload in decode_records(group.body)]

    def ops(self, since: int) -> list[tuple[str, str]]:
        return [(call.op, call.name) for call in self.disk.trace[since:]]
