"""Reading a log back: one segment, and the chain of them.

Nothing in this module writes. The verdict on the last segment's tail is wal/tail.py's.

Source: what a header says of its predecessor is RocksDB's `track_and_verify_wals`;
syncing and dropping caches before reading is TigerBeetle's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wal.bodies import read_frames
from wal.errors import LogCorruptError, StoreError
from wal.filesystem import FileSystem, opened, read_whole
from wal.frame import ALIGN_BYTES, Flag, FormatError, Group, Header, Lsn
from wal.runs import Place
from wal.segment import (
    NO_PREDECESSOR,
    SEGMENT_HEADER_BYTES,
    SegmentEnd,
    SegmentHeader,
    decode_segment_header,
    parse_segment_name,
)
from wal.tail import Tail, Verdict, judge_tail, later_headers


class SegmentReader:
    """Reads the frames of one segment in order and stops at the first bad one.

    After `groups()` is used up, `offset`, `last_lsn`, `chain_crc` and `last_flags` say
    where the good part ends.
    """

    def __init__(self, data: bytes, header: SegmentHeader) -> None:
        self.data = data
        self.header = header
        self.offset = SEGMENT_HEADER_BYTES
        self.last_lsn = Lsn(header.first_lsn - 1)
        self.chain_crc = header.predecessor.chain_crc
        self.last_flags = Flag(0)
        self.last_wall_ns = header.created_ns
        self._seed = header.seed

    def groups(
        self, *, until: int | None = None, after_lsn: int = 0, joined_bytes: int = 0
    ) -> Iterator[Group]:
        """Yield the good frames up to the offset `until`. Cost: one pass.

        Args:
            until: an offset; None for the end of the file.
            after_lsn: frames without a record above it are left out.
            joined_bytes: see `Log.groups`.
        """
        read = True
        while read:
            before = self._place()
            place, group = read_frames(
                self.data,
                before,
                seed=self._seed,
                until=len(self.data) if until is None else until,
                after_lsn=after_lsn,
                bytes_max=joined_bytes,
            )
            self.offset, self.last_lsn, self.chain_crc = place[:3]
            self.last_flags, self.last_wall_ns = place[3:]
            read = place.offset > before.offset
            if group is not None:
                yield group

    def _place(self) -> Place:
        return Place(
            self.offset,
            self.last_lsn,
            self.chain_crc,
            self.last_flags,
            self.last_wall_ns,
        )

    def end(self) -> SegmentEnd:
        """Return where the part read so far ends."""
        return SegmentEnd(
            self.header.segment_id, self.offset, self.last_lsn, self.chain_crc
        )

    def tail(self, *, atomic_sectors: bool) -> Tail:
        """Judge what follows, this being the last segment."""
        tail = judge_tail(
            self.data,
            self.offset,
            expected_lsn=self.last_lsn + 1,
            expected_chain=self.chain_crc,
            seed=self._seed,
            last_flags=self.last_flags,
            atomic_sectors=atomic_sectors,
        )
        closed = Flag.CLOSE in self.last_flags
        if closed or len(self.data) >= self.header.size_bytes:
            return tail
        if tail.verdict is Verdict.REFUSE and tail.next_offset is not None:
            return tail  # damage before the place where the file ends
        # Files are full-size before they get their name, and only a close (or a
        # successor that names the end) makes one shorter. No crash does.
        what = (
            f"the file has {len(self.data)} bytes of {self.header.size_bytes} and no "
            "frame that closed it: its end was cut off"
        )
        stake = max(tail.records_at_stake, 1)
        return replace(
            tail,
            verdict=Verdict.REFUSE,
            what=what,
            doubtful=False,
            records_at_stake=stake,
        )


class LogReader:
    """The segments of a store as one log.

    Args:
        files: the directory.
        uuid: of the store; a segment of another one is refused.
        atomic_sectors: see `judge_tail`.
        settle: sync each file and drop its cached pages before reading it, so that the
            verdict rests on the disk. Off for a reader beside a live log.
        names: of the segments to look at, in order; all of them without.

    Raises:
        LogCorruptError: a header is damaged or a segment is missing.
        StoreError: a segment of a newer format.
        OSError: the disk cannot be read.
    """

    def __init__(
        self,
        files: FileSystem,
        uuid: bytes,
        *,
        atomic_sectors: bool = True,
        settle: bool = False,
        names: list[str] | None = None,
    ) -> None:
        self._files = files
        self._atomic_sectors = atomic_sectors
        self._settle = settle
        self.segments = read_headers(files, uuid, names=names)
        self.last: SegmentReader | None = None
        self.tail: Tail | None = None

    def groups(self, after_lsn: int = 0, *, joined_bytes: int = 0) -> Iterator[Group]:
        """Yield the groups that hold records above `after_lsn`, oldest first.

        When it is used up, `last` and `tail` tell where and how the log ends.

        Args:
            after_lsn: what a snapshot already covers.
            joined_bytes: see `Log.groups`.

        Raises:
            LogCorruptError: at the first fault that no crash can leave.
        """
        needed = self._needed(after_lsn)
        for place, header in enumerate(needed):
            successor = needed[place + 1] if place + 1 < len(needed) else None
            reader = SegmentReader(self._read(header.name), header)
            until = successor.predecessor.offset if successor is not None else None
            try:
                yield from reader.groups(
                    until=until, after_lsn=after_lsn, joined_bytes=joined_bytes
                )
                if successor is not None:
                    self._check_sealed(reader, successor.predecessor)
                else:
                    self._check_tail(reader)
            except FormatError as error:
                raise StoreError(
                    f"{self._files.path}/{header.name}",
                    str(error),
                    "open it with a newer version of this package",
                ) from error

    def verify_first(self) -> None:
        """Read the first segment and check it to the end that the second one names.

        Raises:
            LogCorruptError: it is damaged.
        """
        segment, end = self.segments[0], self.segments[1].predecessor
        reader = SegmentReader(self._read(segment.name), segment)
        for _ in reader.groups(until=end.offset, after_lsn=end.last_lsn):
            pass
        self._check_sealed(reader, end)

    def _needed(self, after_lsn: int) -> list[SegmentHeader]:
        """Return the segments that may hold a record above `after_lsn`."""
        segments = self.segments
        if not segments:
            return []
        first = segments[0]
        if first.predecessor.last_lsn > after_lsn:
            raise self._corrupt(
                first.name,
                first.first_lsn,
                f"the log starts after LSN {first.predecessor.last_lsn}, and no valid "
                f"snapshot reaches further than LSN {after_lsn}",
                offset=0,
                stake=first.predecessor.last_lsn - after_lsn,
            )
        start = 0
        for place, header in enumerate(segments[1:], start=1):
            if header.predecessor.last_lsn <= after_lsn:
                start = place
        return segments[start:]

    def _check_sealed(self, reader: SegmentReader, end: SegmentEnd) -> None:
        if reader.end() == end:
            return
        name, expected = reader.header.name, reader.last_lsn + 1
        what = (
            f"its successor says that it ends at offset {end.offset} with LSN "
            f"{end.last_lsn}, and the frame here does not hold"
        )
        stake = max(end.last_lsn - reader.last_lsn, 1)
        later = later_headers(
            reader.data, reader.offset + ALIGN_BYTES, reader.header.seed
        )
        found = next((pair for pair in later if pair[0] < end.offset), None)
        raise self._corrupt(
            name, expected, what, offset=reader.offset, stake=stake, found=found
        )

    def _check_tail(self, reader: SegmentReader) -> None:
        tail = reader.tail(atomic_sectors=self._atomic_sectors)
        self.last, self.tail = reader, tail
        if tail.verdict is Verdict.REFUSE:
            raise LogCorruptError(
                self._files.path,
                reader.header.name,
                offset=reader.offset,
                expected_lsn=reader.last_lsn + 1,
                what=tail.what,
                next_offset=tail.next_offset,
                next_lsn=tail.next_lsn,
                records_at_stake=tail.records_at_stake,
            )

    def _read(self, name: str) -> bytes:
        if self._settle:
            with opened(self._files, name, writable=True) as handle:
                self._files.sync(handle)
                self._files.forget_cache(handle)
        return read_whole(self._files, name)

    def _corrupt(
        self,
        name: str,
        expected: int,
        what: str,
        *,
        offset: int,
        stake: int,
        found: tuple[int, Header] | None = None,
    ) -> LogCorruptError:
        return LogCorruptError(
            self._files.path,
            name,
            offset=offset,
            expected_lsn=expected,
            what=what,
            next_offset=found[0] if found is not None else None,
            next_lsn=found[1].first_lsn if found is not None else None,
            records_at_stake=stake,
        )


def read_headers(
    files: FileSystem, uuid: bytes, *, names: list[str] | None = None
) -> list[SegmentHeader]:
    """Return the headers of a store's segments in order, checked as a chain.

    Args:
        files: the directory.
        uuid: of the store.
        names: of the segments, in order; all of them without.

    Raises:
        LogCorruptError: one is damaged, from another store, misnamed, or missing.
        StoreError: one is of a newer format.
    """
    headers: list[SegmentHeader] = []
    for name in files.names() if names is None else names:
        parsed = parse_segment_name(name)
        if parsed is None:
            continue
        with opened(files, name) as handle:
            block = files.pread(handle, SEGMENT_HEADER_BYTES, 0)
        header = decode_segment_header(block, f"{files.path}/{name}")
        what: str | None = "a damaged segment header, which no crash can leave"
        if header is not None:
            what = _fault_of_header(header, parsed, uuid)
            if what is None and headers:
                what = _fault_of_link(headers[-1], header)
            if what is None:
                headers.append(header)
        if what is not None:
            raise LogCorruptError(
                files.path, name, offset=0, expected_lsn=parsed[1], what=what
            )
    return headers


def _fault_of_header(
    header: SegmentHeader, named: tuple[int, Lsn], uuid: bytes
) -> str | None:
    if header.store_uuid != uuid:
        return "the segment of another store"
    if (header.segment_id, header.first_lsn) != named:
        return f"the header of {header.name}: the file was renamed"
    if header.segment_id == 1 and header.predecessor != NO_PREDECESSOR:
        return "a first segment that claims a predecessor"
    return None


def _fault_of_link(before: SegmentHeader, header: SegmentHeader) -> str | None:
    if header.segment_id != before.segment_id + 1:
        missing = header.segment_id - before.segment_id - 1
        return f"{missing} segment(s) missing between {before.name} and this one"
    if header.predecessor.segment_id != before.segment_id:
        return f"it names segment {header.predecessor.segment_id} as its predecessor"
    return None
