"""The tail rule: a torn write, or damage?

A crash leaves a torn tail; a bad disk leaves damage. The rule tells them apart by what a
crash *can* leave, and refuses everything else. `judge_tail` is a pure function of bytes.

What makes it a proof: a durable frame is written only after the sync before it returned,
every frame says how far the log was synced when it was written, files are zero-filled
before use and never used twice, headers do not straddle sectors, and no sector of a
frame's body is all zero (wal/frame.py). The table: docs/wal-format.md.

Source: the zero-sector test is etcd's; that later frames prove earlier syncs is in
hashicorp/raft-wal; the rest of the table is ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from wal.frame import (
    ALIGN_BYTES,
    HEADER_BYTES,
    MAGIC,
    Flag,
    Header,
    Lsn,
    decode_header,
    has_unwritten_sector,
)


class Verdict(Enum):
    """What the bytes after the last good frame are."""

    CLEAN = "only zeros follow"
    CUT = "never acknowledged"
    REFUSE = "acknowledged bytes are damaged"


@dataclass(frozen=True, slots=True)
class Tail:
    """The verdict on a last segment from its first bad frame on.

    Attributes:
        verdict: what to do.
        what: what was found, in words.
        doubtful: cut on a rule that a relaxed frame or a disk without atomic sectors
            forces on us; damage would look the same.
        next_offset: where the next valid frame starts, None without one.
        next_lsn: its first LSN.
        records_at_stake: what a cut loses, at least.
    """

    verdict: Verdict
    what: str
    doubtful: bool = False
    next_offset: int | None = None
    next_lsn: Lsn | None = None
    records_at_stake: int = 0


_CLEAN: Final = Tail(Verdict.CLEAN, "only zeros follow")


def judge_tail(
    data: bytes,
    offset: int,
    *,
    expected_lsn: int,
    expected_chain: int,
    seed: int,
    last_flags: Flag,
    atomic_sectors: bool,
) -> Tail:
    """Judge what follows the last good frame of a last segment.

    Args:
        data: the whole segment.
        offset: where the first bad frame starts.
        expected_lsn: the number that would come next.
        expected_chain: the chain checksum that it would carry.
        seed: `SegmentHeader.seed`.
        last_flags: of the last good frame; Flag(0) if the segment has none.
        atomic_sectors: whether the disk writes 512-byte sectors whole or not at all.

    Cost: O(bytes left).
    """
    if not data[offset:].strip(b"\0"):
        return _CLEAN
    here = decode_header(data, offset, seed)
    later = list(later_headers(data, offset + ALIGN_BYTES, seed))
    if Flag.CLOSE in last_flags:
        verdict = _refuse("bytes follow the frame that closed the log")
    elif here is not None and (
        here.first_lsn != expected_lsn or here.chain_crc != expected_chain
    ):
        verdict = _refuse(
            f"a valid frame that starts at LSN {here.first_lsn} and does not follow"
        )
    elif later:
        verdict = _judge_by_later(later, expected_lsn)
    else:
        forgiving = not atomic_sectors or Flag.RELAXED in last_flags
        verdict = _judge_alone(data, offset, here, forgiving=forgiving)
    if later:
        return replace(
            verdict,
            next_offset=later[0][0],
            next_lsn=later[0][1].first_lsn,
            records_at_stake=max(later[-1][1].last_lsn - expected_lsn + 1, 1),
        )
    return replace(verdict, records_at_stake=here.record_count if here else 1)


def _judge_by_later(later: list[tuple[int, Header]], expected_lsn: int) -> Tail:
    """Judge by what the valid frames behind the bad one prove."""
    for at, header in later:
        if header.first_lsn > expected_lsn and header.durable_lsn >= expected_lsn:
            return _refuse(
                f"a bad frame, and the frame at offset {at} (LSN {header.first_lsn}) "
                f"proves that LSN {header.durable_lsn} had been synced"
            )
    return Tail(Verdict.CUT, "a frame that was never synced, later ones likewise")


def _judge_alone(
    data: bytes, offset: int, here: Header | None, *, forgiving: bool
) -> Tail:
    """Judge a bad frame that no valid frame follows.

    Args:
        data: the whole segment.
        offset: where the frame starts.
        here: its header, if that is valid.
        forgiving: a torn write may look like damage here, so it must be cut.
    """
    if here is not None:
        if has_unwritten_sector(data, offset, here):
            return Tail(Verdict.CUT, "a torn frame: part of it was never written")
        what = "a frame whose every sector was written and whose body is damaged"
        if forgiving or Flag.RELAXED in here.flags:
            return Tail(Verdict.CUT, what, doubtful=True)
        return _refuse(what)
    if not data[offset : offset + HEADER_BYTES].strip(b"\0"):
        return Tail(Verdict.CUT, "a torn frame: its header was never written")
    if forgiving:
        return Tail(Verdict.CUT, "a damaged frame header", doubtful=True)
    return _refuse("a damaged frame header, which no crash can leave")


def _refuse(what: str) -> Tail:
    return Tail(Verdict.REFUSE, what)


def later_headers(data: bytes, offset: int, seed: int) -> Iterator[tuple[int, Header]]:
    """Yield every valid frame header from `offset` on, with its place."""
    at = data.find(MAGIC, offset)
    while at >= 0:
        if at % ALIGN_BYTES == 0:
            header = decode_header(data, at, seed)
            if header is not None:
                yield at, header
        at = data.find(MAGIC, at + 1)
