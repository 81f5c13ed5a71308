# The contract, argument by argument, is told in wal/frame.py and wal/runs.py.
from collections.abc import Iterable

from wal.frame import Flag, Group
from wal.runs import Place

__all__ = ["chain_of", "encode_frame", "encode_records", "read_frames"]

def encode_records(payloads: Iterable[bytes]) -> bytes: ...
def encode_frame(
    body: bytes | bytearray,
    *,
    record_count: int,
    first_lsn: int,
    durable_lsn: int,
    wall_ns: int,
    chain_crc: int,
    flags: Flag,
    seed: int,
    offset: int,
) -> bytes: ...
def chain_of(frame: bytes, offset: int = 0) -> int: ...
def read_frames(
    data: bytes, place: Place, *, seed: int, until: int, after_lsn: int, bytes_max: int
) -> tuple[Place, Group | None]: ...
