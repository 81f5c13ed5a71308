"""Reading one segment past its faults.

`SegmentReader` passes what holds and stops at the first frame that does not;
`SegmentSalvage` says what is wrong there and goes on with the next frame that proves
itself. A segment whose header is damaged can still be read, see `rescue_header`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wal.faults import Fault, Lost
from wal.frame import (
    ALIGN_BYTES,
    Flag,
    FormatError,
    Header,
    Lsn,
    decode_body,
    decode_header,
    decode_records,
    segment_seed,
)
from wal.reader import SegmentReader
from wal.segment import (
    NO_PREDECESSOR,
    SEGMENT_HEADER_BYTES,
    SegmentEnd,
    SegmentHeader,
    claims_of_damaged_header,
    parse_segment_name,
)
from wal.tail import Tail, Verdict, later_headers


@dataclass(frozen=True, slots=True)
class Frame:
    """A valid frame and where it stands."""

    file: str
    offset: int
    header: Header
    body: bytes


class SegmentSalvage:
    """A segment being read. At any time it stands at `offset`, after `last_lsn`.

    Args:
        name: of the file.
        data: all of it.
        header: what its header says, or said (`rescue_header`).
        end: where it ends according to its successor; None without one.
        is_last: no segment follows, so the tail rule judges what stands at its end.
    """

    def __init__(
        self,
        name: str,
        data: bytes,
        *,
        header: SegmentHeader,
        end: SegmentEnd | None,
        is_last: bool,
    ) -> None:
        self._name = name
        self._reader = SegmentReader(data, header)
        self.end = end
        self.is_last = is_last

    @property
    def offset(self) -> int:
        """Where reading stands."""
        return self._reader.offset

    @property
    def closed(self) -> bool:
        """Whether the frame before `offset` is CLOSE."""
        return Flag.CLOSE in self._reader.last_flags

    def frames(self) -> Iterator[Frame | Fault]:
        """Yield the frames that hold, CLOSE too, up to the first one that does not."""
        reader, seed = self._reader, self._reader.header.seed
        groups = reader.groups(until=self.end.offset if self.end is not None else None)
        more = True
        while more:
            at = reader.offset
            group = next(groups, None)
            more = group is not None
            while at < reader.offset:  # a CLOSE frame is no group, but it is a frame
                header = decode_header(reader.data, at, seed)
                assert header is not None
                body = group.body if group is not None and header.record_count else b""
                frame = Frame(self._name, at, header, body)
                yield frame if _adds_up(frame) else _nonsense(frame)
                at += header.frame_bytes

    def fault(self) -> Fault | None:
        """Return what is wrong at `offset`, None if the segment ends there as it should.

        After damage that frames follow, reading stands at the next one.
        """
        found, tail = self._next_valid(), self._judge()
        if tail is None and found is None:
            return None
        if tail is None:
            tail = Tail(Verdict.REFUSE, "a frame that does not hold")
        torn = tail.verdict is Verdict.CUT
        at, last = self.offset, self._reader.last_lsn
        lost = None if torn else self._lost(found)
        if found is not None and not torn:
            self._resume(*found)
        return Fault(
            self._name,
            at,
            last + 1,
            tail.what,
            torn=torn,
            doubtful=tail.doubtful,
            next_offset=found[0] if found is not None else None,
            next_lsn=found[1].first_lsn if found is not None else None,
            records_at_stake=max(
                tail.records_at_stake, lost.count or 1 if lost is not None else 1
            ),
            lost=lost,
        )

    def is_suspicious(self) -> bool:
        """Return whether `fault` would find something, without going on behind it."""
        return self._judge() is not None or self._next_valid() is not None

    def holds_in(self, data: bytes) -> bool:
        """Take newer bytes of the file; return whether the frame at `offset` holds."""
        reader = self._reader
        reader.data = data
        seed = reader.header.seed
        header = decode_header(data, reader.offset, seed)
        return (
            header is not None
            and self._follows(header)
            and decode_body(data, reader.offset, header=header, seed=seed) is not None
        )

    def _judge(self) -> Tail | None:
        """Return the verdict on what stands at `offset`, None if nothing is wrong.

        If the successor is lost, only a frame further on can tell that one is missing.
        """
        reader, end = self._reader, self.end
        if end is not None:
            if reader.end() == end:
                return None
            return Tail(
                Verdict.REFUSE,
                f"its successor says that it ends at offset {end.offset} with LSN "
                f"{end.last_lsn}, and the frame here does not hold",
                records_at_stake=max(end.last_lsn - reader.last_lsn, 1),
            )
        if not self.is_last:
            return None
        tail = reader.tail(atomic_sectors=True)
        return tail if tail.verdict is not Verdict.CLEAN else None

    def _next_valid(self) -> tuple[int, Header] | None:
        """Return the next header that can be read on from, with its place."""
        reader = self._reader
        seed, start = reader.header.seed, reader.offset
        here = decode_header(reader.data, start, seed)
        if here is None or self._follows(here):
            start += ALIGN_BYTES  # what stands here has been tried
        for at, header in later_headers(reader.data, start, seed):
            if self.end is not None and at >= self.end.offset:
                return None
            if header.first_lsn > reader.last_lsn:
                return at, header
        return None

    def _lost(self, found: tuple[int, Header] | None) -> Lost | None:
        first = self._reader.last_lsn + 1
        if found is not None:
            last = int(found[1].first_lsn) - 1
        elif self.end is not None:
            last = int(self.end.last_lsn)
        else:
            reader = self._reader
            here = decode_header(reader.data, reader.offset, reader.header.seed)
            if here is None or not self._follows(here):
                return Lost(first, None)
            last = int(here.last_lsn)
        return Lost(first, last) if last >= first else None

    def _follows(self, header: Header) -> bool:
        reader = self._reader
        return (
            header.first_lsn == reader.last_lsn + 1
            and header.chain_crc == reader.chain_crc
            and Flag.CLOSE not in reader.last_flags
        )

    def _resume(self, offset: int, header: Header) -> None:
        reader = self._reader
        reader.offset = offset
        reader.last_lsn = Lsn(header.first_lsn - 1)
        reader.chain_crc = header.chain_crc
        reader.last_flags = Flag.NONE


def rescue_header(
    name: str, data: bytes, *, uuid: bytes, block: bytes
) -> SegmentHeader | None:
    """Return a header for a segment whose own is damaged, None if that cannot be.

    All that the frames need of it is the salt. If a frame holds under the salt that
    stands in the damaged block, or under one that differs from it by one bit, then that
    was the salt; the file's name tells the rest.

    Args:
        name: of the file.
        data: all of it.
        uuid: of the store.
        block: where the header was.

    Raises:
        FormatError: under one of those salts a frame is of a newer version.
    """
    named, claims = parse_segment_name(name), claims_of_damaged_header(block)
    if named is None or claims is None:
        return None
    segment_id, first_lsn = named
    stored = claims[1]
    for salt in (stored, *(stored ^ (1 << bit) for bit in range(64))):
        seed = segment_seed(salt, segment_id)
        found = next(later_headers(data, SEGMENT_HEADER_BYTES, seed), None)
        if found is None:
            continue
        at, frame = found
        chain_crc = frame.chain_crc if at == SEGMENT_HEADER_BYTES else 0
        before = SegmentEnd(segment_id - 1, 0, Lsn(first_lsn - 1), chain_crc)
        return SegmentHeader(
            store_uuid=uuid,
            segment_id=segment_id,
            first_lsn=first_lsn,
            salt=salt,
            size_bytes=len(data),
            created_ns=frame.wall_ns,
            predecessor=before if segment_id > 1 else NO_PREDECESSOR,
        )
    return None


def _adds_up(frame: Frame) -> bool:
    try:
        return sum(1 for _ in decode_records(frame.body)) == frame.header.record_count
    except FormatError:
        return False


def _nonsense(frame: Frame) -> Fault:
    header = frame.header
    return Fault(
        frame.file,
        frame.offset,
        header.first_lsn,
        "a frame that holds, but whose records do not add up: a faulty program wrote it",
        next_offset=frame.offset + header.frame_bytes,
        next_lsn=header.last_lsn + 1,
        records_at_stake=header.record_count,
        lost=Lost(header.first_lsn, header.last_lsn),
    )
