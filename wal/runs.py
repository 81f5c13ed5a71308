"""Frames in a row: verified one by one, and their bodies joined.

Recovery takes a log in pieces of many frames, so that a log of frames with one record
each is replayed about as fast as one with many: what costs is an object, not a frame.
This is the plain body, to be read and to check the other by; wal/bodies.py chooses.
"""

from __future__ import annotations

from typing import NamedTuple

from wal.frame import (
    Flag,
    FormatError,
    Group,
    Header,
    Lsn,
    chain_of,
    decode_body,
    decode_header,
)


class Place(NamedTuple):
    """Where reading a segment stands: behind a frame that holds, or at the first.

    Attributes:
        offset: where the next frame starts.
        last_lsn: of the last record read.
        chain_crc: what the next frame has to carry.
        flags: of the last frame.
        wall_ns: wall clock of the last frame.
    """

    offset: int
    last_lsn: Lsn
    chain_crc: int
    flags: Flag
    wall_ns: int


def read_frames(
    data: bytes, place: Place, *, seed: int, until: int, after_lsn: int, bytes_max: int
) -> tuple[Place, Group | None]:
    """Read the frames that follow each other from `place` on, and join them.

    It ends before the first frame that does not hold, that does not follow or that
    starts at `until` or later, behind a CLOSE frame, and before the joined bodies get
    larger than `bytes_max`; but one frame is read, whatever its size.

    Args:
        data: the whole segment.
        place: where reading stands.
        seed: `segment_seed` of the segment.
        until: an offset.
        after_lsn: groups without a record above it are verified and left out.
        bytes_max: of bodies to be joined; 0 for one frame a call.

    Returns:
        Where reading stands now, which is `place` if no frame was read; and the records
        read, None without any. Its `wall_ns` and `flags` are those of the last frame.

    Raises:
        FormatError: the frame at `place` is a newer version's.

    Cost: one pass. The compiled body makes no object for each frame.
    """
    bodies: list[bytes] = []
    first, size = place.last_lsn + 1, 0
    last = place
    while last.offset < until:
        try:
            header = decode_header(data, last.offset, seed)
        except FormatError:
            if last is place:
                raise
            break
        if header is None or not _follows(header, last):
            break
        if last is not place and size + header.body_length > bytes_max:
            break
        body = decode_body(data, last.offset, header=header, seed=seed)
        if body is None:
            break
        if header.last_lsn <= after_lsn:
            first = header.last_lsn + 1
        else:
            bodies.append(body)
            size += len(body)
        last = Place(
            last.offset + header.frame_bytes,
            header.last_lsn,
            chain_of(data, last.offset),
            header.flags,
            header.wall_ns,
        )
    count = last.last_lsn - first + 1
    if count <= 0:
        return last, None
    body = b"".join(bodies)
    return last, Group(Lsn(first), count, body, last.wall_ns, last.flags)


def _follows(header: Header, last: Place) -> bool:
    return (
        last.flags < Flag.CLOSE
        and header.first_lsn == last.last_lsn + 1
        and header.chain_crc == last.chain_crc
    )
