# The contract, argument by argument, is told in wal/plan.py.
from wal.frame import Lsn
from wal.pool import SegmentPool

__all__ = ["FramePlan", "PendingFrame"]

class PendingFrame:
    body: bytearray
    record_count: int
    first_lsn: int
    rotate: bool
    sealed: bytes | None
    def __init__(self, first_lsn: int, *, rotate: bool) -> None: ...
    @property
    def last_lsn(self) -> Lsn: ...

class FramePlan:
    next_lsn: int
    bytes_waiting: int
    records_waiting: int
    bytes_written: int
    def __init__(
        self,
        pool: SegmentPool,
        *,
        next_lsn: int,
        segment_size_bytes: int,
        offset: int,
        size: int,
    ) -> None: ...
    @property
    def body_bytes_max(self) -> int: ...
    def __bool__(self) -> bool: ...
    def add(self, body: bytes, *, record_count: int, urgent: bool) -> Lsn | None: ...
    def take(self, *, everything: bool) -> list[PendingFrame]: ...
    def written(self) -> None: ...
