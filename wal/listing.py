"""What a store holds, item by item: for programs as dicts, for people as lines.

An item is a dict with a `type`: store, snapshot, segment, frame, record, fault or file.
Numbers are integers, times are ISO 8601 in UTC; all of it can go to JSON as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Final

from wal.faults import Fault
from wal.filesystem import FileSystem
from wal.frame import Flag, decode_records
from wal.inspection import Survey, check_snapshots, iso_utc, kind_of, survey
from wal.salvage import Frame
from wal.scan import Scan, pause_between_looks
from wal.segment import FORMAT_MAJOR, FORMAT_MINOR
from wal.segment_files import SegmentFile
from wal.snapshot import SnapshotInfo

PREVIEW_BYTES: Final = 32
"""How much of a payload is shown."""

Item = dict[str, object]


def inspect(
    files: FileSystem,
    *,
    from_lsn: int = 0,
    limit: int | None = None,
    records: bool = False,
    describe: Callable[[bytes], str] | None = None,
    pause: Callable[[], None] = pause_between_looks,
) -> Iterator[Item]:
    """Yield what a store holds, in order: STORE, snapshots, other files, then the log.

    Args:
        files: the directory.
        from_lsn: the log from this record on; what lies before is not read.
        limit: end after that many frames, with `records` after that many records.
        records: every record too, with the beginning of its payload.
        describe: says in words what a payload is, for `records`.
        pause: waits between two looks at what may be a write under way.

    Raises:
        StoreError: it is no store, or one of a newer format.
        OSError: the disk cannot be read.
    """
    store = survey(files)
    yield _store_item(files, store)
    snapshots, faults = check_snapshots(files, store.uuid)
    yield from map(_snapshot_item, snapshots)
    yield from map(fault_item, [*store.faults, *faults])
    for name, size in store.sizes.items():
        if kind_of(name) not in {"segment", "snapshot", "other"}:
            yield {"type": "file", "file": name, "kind": kind_of(name), "bytes": size}
    left = limit
    head: SegmentFile | None = None
    for item in Scan(files, store.uuid, from_lsn=from_lsn, pause=pause).items():
        if isinstance(item, SegmentFile):
            head = item
            if not from_lsn:
                yield _segment_item(item)
            continue
        if isinstance(item, Frame) and item.header.last_lsn < from_lsn:
            continue
        if left == 0:
            return
        if from_lsn and head is not None:
            yield _segment_item(head)
            head = None
        if isinstance(item, Fault):
            yield fault_item(item)
            continue
        yield _frame_item(item)
        shown = 1
        if records:
            shown = 0
            for record in _record_items(item, from_lsn, limit=left, describe=describe):
                yield record
                shown += 1
        left = left - shown if left is not None else None


def fault_item(fault: Fault) -> Item:
    """Return a fault as an item."""
    lost = fault.lost
    return {
        "type": "fault",
        "file": fault.file,
        "offset": fault.offset,
        "verdict": "torn" if fault.torn else "corrupt",
        "what": fault.what,
        "expected_lsn": fault.expected_lsn,
        "next_offset": fault.next_offset,
        "next_lsn": fault.next_lsn,
        "records_at_stake": fault.records_at_stake,
        "doubtful": fault.doubtful,
        "lost": None
        if lost is None
        else {"first": lost.first, "last": lost.last, "exact": lost.exact},
    }


def as_json(item: Item) -> str:
    """Return an item as one line of JSON."""
    return json.dumps(item)


def as_text(item: Item) -> str:
    """Return an item as a line for people."""
    kind = str(item["type"])
    if item.get("records") == 0:
        kind = "close"
    return _TEXTS[kind].format_map(_Readable(item)).rstrip()


# -- inside ----------------------------------------------------------------------------

_TEXTS: Final = {
    "store": "STORE     uuid {uuid}  format {format}  created {created}  {state}",
    "snapshot": "snapshot  {file}  pin LSN {pin_lsn}  reach LSN {reach_lsn}  "
    "{blocks} block(s)  {bytes} bytes  {created}",
    "file": "{kind:<9} {file}  {bytes} bytes",
    "segment": "segment   {file}  id {id}  first LSN {first_lsn}  {bytes} bytes  "
    "{created}",
    "frame": "  frame   @{offset}  LSN {first_lsn} to {last_lsn}  {records} record(s)  "
    "durable {durable_lsn}  {bytes} bytes  {wall}  {flags}",
    "close": "  CLOSE   @{offset}  after LSN {last_lsn}  {bytes} bytes  {wall}",
    "record": "    LSN {lsn}  {bytes} bytes  {hex}  |{ascii}|  {description}",
    "fault": "  FAULT   {file} @{offset}: {what} ({verdict}); LSN {expected_lsn} "
    "expected, next valid frame: {next_offset} (LSN {next_lsn}), at least "
    "{records_at_stake} record(s) at stake",
}


class _Readable(dict[str, object]):
    """Gives what a line shows for a field: words for lists and for nothing at all."""

    def __init__(self, item: Item) -> None:
        super().__init__(
            {
                key: "none"
                if value is None
                else " ".join(map(str, value))
                if isinstance(value, list)
                else value
                for key, value in item.items()
            }
        )

    def __missing__(self, key: str) -> str:
        return ""


def _store_item(files: FileSystem, store: Survey) -> Item:
    identity = store.identity
    states = []
    if identity is not None and identity.repaired:
        states.append("repaired")
    if store.holder:
        states.append(f"held by {store.holder}, or left so by a crash")
    return {
        "type": "store",
        "path": files.path,
        "uuid": store.uuid.hex(),
        "format": f"{FORMAT_MAJOR}.{FORMAT_MINOR}",
        "created": iso_utc(identity.created_ns) if identity is not None else None,
        "repaired": identity.repaired if identity is not None else None,
        "holder": store.holder,
        "state": states,
    }


def _snapshot_item(info: SnapshotInfo) -> Item:
    return {
        "type": "snapshot",
        "file": info.name,
        "pin_lsn": info.pin_lsn,
        "reach_lsn": info.reach_lsn,
        "blocks": info.block_count,
        "bytes": info.size_bytes,
        "created": iso_utc(info.created_ns),
    }


def _segment_item(segment: SegmentFile) -> Item:
    item: Item = {
        "type": "segment",
        "file": segment.name,
        "id": segment.segment_id,
        "first_lsn": segment.first_lsn,
        "bytes": segment.size_bytes,
        "created": None,
        "made_with_bytes": None,
        "predecessor": None,
    }
    if segment.header is not None:
        before = segment.header.predecessor
        item["created"] = iso_utc(segment.header.created_ns)
        item["made_with_bytes"] = segment.header.size_bytes
        item["predecessor"] = {
            "id": before.segment_id,
            "end": before.offset,
            "last_lsn": before.last_lsn,
            "chain_crc": before.chain_crc,
        }
    return item


def _frame_item(frame: Frame) -> Item:
    header = frame.header
    return {
        "type": "frame",
        "file": frame.file,
        "offset": frame.offset,
        "bytes": header.frame_bytes,
        "first_lsn": header.first_lsn,
        "last_lsn": header.last_lsn,
        "records": header.record_count,
        "durable_lsn": header.durable_lsn,
        "wall": iso_utc(header.wall_ns),
        "flags": [flag.name for flag in Flag if flag in header.flags],
        "body_bytes": header.body_length,
    }


def _record_items(
    frame: Frame,
    from_lsn: int,
    *,
    limit: int | None,
    describe: Callable[[bytes], str] | None,
) -> Iterator[Item]:
    shown = 0
    for lsn, payload in enumerate(decode_records(frame.body), frame.header.first_lsn):
        if shown == limit:
            return
        if lsn < from_lsn:
            continue
        shown += 1
        part = payload[:PREVIEW_BYTES]
        item: Item = {
            "type": "record",
            "lsn": lsn,
            "bytes": len(payload),
            "hex": part.hex(),
            "ascii": "".join(chr(b) if 32 <= b < 127 else "." for b in part),
        }
        if describe is not None:
            item["description"] = describe(payload)
        yield item
