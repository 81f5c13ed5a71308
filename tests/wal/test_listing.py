"""What a store holds, item by item."""

from __future__ import annotations

import json

import pytest

from tests.wal.example_stores import (
    SEGMENT_SIZE_BYTES,
    append,
    open_log,
    payload_of,
    segments_of,
    snapshots_of,
    store,
)
from tests.wal.stores import frames_of, segment_header
from wal.errors import StoreError
from wal.frame import encode_records
from wal.inspection import iso_utc
from wal.listing import Item, as_json, as_text, inspect
from wal.repair import repair
from wal.scan import LOOKS
from wal.store import read_identity
from wal.testing import MemoryFileSystem


def listed(disk: MemoryFileSystem, **options: object) -> list[Item]:
    """All items; the disk must stay as it is, and JSON must hold them."""
    before, calls = disk.snapshot_of_all(), disk.calls
    items = list(inspect(disk, pause=lambda: None, **options))  # type: ignore[arg-type]
    assert disk.snapshot_of_all() == before
    assert disk.calls == calls
    assert [json.loads(as_json(item)) for item in items] == items
    assert all(as_text(item) for item in items)
    return items


def of_type(items: list[Item], kind: str) -> list[Item]:
    return [item for item in items if item["type"] == kind]


def test_the_store_comes_first_then_snapshots_and_files_then_the_log() -> None:
    disk = store(30, snapshots_at=(10, 20))
    disk.put("wal-0000000000000001-0000000000000001.seg.00001000.torn", b"x")

    items = listed(disk)

    kinds = [item["type"] for item in items]
    assert kinds[:5] == ["store", "snapshot", "snapshot", "file", "file"]
    assert set(kinds[5:]) == {"segment", "frame"}
    assert [item["file"] for item in of_type(items, "segment")] == segments_of(disk)
    assert [item["kind"] for item in of_type(items, "file")] == ["ready", "torn"]
    names = [item["file"] for item in of_type(items, "snapshot")]
    assert names == snapshots_of(disk)[::-1]


def test_a_frame_tells_its_place_numbers_flags_and_time() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    log.start()
    log.append_group(encode_records([b"one", b"two"]), 2)
    log.sync()
    log.append_group(encode_records([bytes(600)]), 1)
    log.close()

    group, masked, close = of_type(listed(disk), "frame")

    assert (group["offset"], group["bytes"], group["body_bytes"]) == (4096, 128, 14)
    assert (group["first_lsn"], group["last_lsn"], group["records"]) == (1, 2, 2)
    assert group["flags"] == ["ATOMIC"]
    assert str(group["wall"]).startswith("2023-11-14T22:13:20.")
    assert masked["flags"] == ["ATOMIC", "MASKED"]
    assert as_text(masked).endswith("  ATOMIC MASKED")
    assert masked["durable_lsn"] == 2
    assert (close["records"], close["flags"]) == (0, ["ATOMIC", "CLOSE"])
    assert as_text(close).startswith(f"  CLOSE   @{close['offset']}  after LSN 3")


def test_records_show_the_beginning_of_their_payload_and_what_it_means() -> None:
    items = listed(store(9), records=True, describe=lambda payload: f"{len(payload)} B")

    records = of_type(items, "record")
    assert [record["lsn"] for record in records] == list(range(1, 10))
    sixth = records[5]
    assert sixth["bytes"] == len(payload_of(6))
    assert sixth["hex"] == payload_of(6)[:32].hex()
    assert sixth["ascii"] == "record 6 record 6 record 6 recor"
    assert sixth["description"] == f"{len(payload_of(6))} B"


def test_without_a_describer_nothing_is_said_of_meaning() -> None:
    (record, *_) = of_type(listed(store(2), records=True), "record")
    assert "description" not in record
    assert as_text(record).endswith("|record 1 record 1 |")


@pytest.mark.parametrize(
    ("options", "lsns"),
    [
        ({"from_lsn": 28}, [28, 29, 30]),
        ({"from_lsn": 31}, []),
        ({"limit": 2}, [1, 2]),
        ({"from_lsn": 12, "limit": 4}, [12, 13, 14, 15]),
        ({"limit": 0}, []),
    ],
)
def test_a_listing_begins_and_ends_where_it_is_told(
    options: dict[str, int], lsns: list[int]
) -> None:
    disk = store(30)
    for records in (False, True):
        items = listed(disk, records=records, **options)
        frames = [frame for frame in of_type(items, "frame") if frame["records"]]
        assert [frame["first_lsn"] for frame in frames] == lsns
        if records:
            assert [record["lsn"] for record in of_type(items, "record")] == lsns


def test_a_listing_from_an_lsn_shows_only_segments_that_hold_something_of_it() -> None:
    disk = store(30)
    (segment,) = of_type(listed(disk, from_lsn=29), "segment")
    assert segment["file"] == segments_of(disk)[-1]


def test_a_group_is_entered_in_the_middle() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    log.start()
    log.append_group(encode_records([b"a", b"b", b"c", b"d"]), 4)
    log.close()

    items = listed(disk, records=True, from_lsn=2, limit=2)

    assert [record["ascii"] for record in of_type(items, "record")] == ["b", "c"]


def test_a_limit_counts_the_records_of_all_groups() -> None:
    disk = MemoryFileSystem()
    with open_log(disk) as log:
        log.start()
        for _ in range(2):
            log.append_group(encode_records([b"a", b"b", b"c", b"d"]), 4)
            log.sync()

    items = listed(disk, records=True, limit=6)

    assert [record["lsn"] for record in of_type(items, "record")] == [*range(1, 7)]


def test_a_segment_without_a_frame_is_listed() -> None:
    disk = MemoryFileSystem()
    open_log(disk).start()

    (segment,) = of_type(listed(disk), "segment")

    assert segment["file"] == segments_of(disk)[0]


def test_what_lies_before_the_asked_record_is_not_looked_for_damage() -> None:
    disk = store(30)
    disk.flip_bit(segments_of(disk)[0], 8 * (4096 + 70))

    assert of_type(listed(disk), "fault")
    assert not of_type(listed(disk, from_lsn=8), "fault")


def test_a_write_under_way_is_looked_at_again_before_it_is_called_torn() -> None:
    disk = store(3, close=False)
    (name,) = segments_of(disk)
    disk.overwrite(name, 4096 + 256, bytes(64))
    looks: list[int] = []

    items = list(inspect(disk, pause=lambda: looks.append(1)))

    assert len(of_type(items, "fault")) == 1
    assert len(looks) == LOOKS


def test_faults_stand_where_they_are_found_and_the_rest_is_listed() -> None:
    disk = store(30)
    name = segments_of(disk)[1]
    disk.flip_bit(name, 8 * (4096 + 70))
    disk.flip_bit("STORE", 100)

    items = listed(disk)

    identity, damage = of_type(items, "fault")
    assert (identity["file"], identity["verdict"]) == ("STORE", "corrupt")
    assert (damage["file"], damage["offset"]) == (name, 4096)
    assert damage["lost"] == {"first": 8, "last": 8, "exact": True}
    place = items.index(damage)
    assert items[place - 1]["type"] == "segment"
    assert items[place + 1]["first_lsn"] == 9
    assert as_text(damage).startswith(f"  FAULT   {name} @4096: ")
    assert of_type(items, "store")[0]["created"] is None


# -- item by item ----------------------------------------------------------------------


def test_the_store_is_told_by_its_identity() -> None:
    disk = store(3)
    identity = read_identity(disk)

    (item,) = of_type(listed(disk), "store")

    created = iso_utc(identity.created_ns)
    assert item == {
        "type": "store",
        "path": disk.path,
        "uuid": identity.uuid.hex(),
        "format": "1.0",
        "created": created,
        "repaired": False,
        "holder": "",
        "state": [],
    }
    line = f"STORE     uuid {identity.uuid.hex()}  format 1.0  created {created}"
    assert as_text(item) == line


def test_that_a_store_was_repaired_is_told() -> None:
    disk, out = store(3), MemoryFileSystem("new")
    disk.flip_bit(segments_of(disk)[0], 8 * (4096 + 70))
    repair(disk, out, pause=lambda: None)

    (item,) = of_type(listed(out), "store")

    assert (item["repaired"], item["state"]) == (True, ["repaired"])
    assert as_text(item).endswith("  repaired")


def test_a_store_without_its_identity_is_told_by_its_log() -> None:
    disk = store(3)
    uuid = read_identity(disk).uuid
    disk.remove("STORE")

    (item,) = of_type(listed(disk), "store")

    assert (item["uuid"], item["created"], item["repaired"]) == (uuid.hex(), None, None)
    assert "created none" in as_text(item)


def test_a_snapshot_is_told_by_its_reach_its_size_and_its_time() -> None:
    disk = store(12, snapshots_at=(10,))
    (name,) = snapshots_of(disk)
    size = len(disk.content(name))

    (item,) = of_type(listed(disk), "snapshot")

    created = item["created"]
    assert item == {
        "type": "snapshot",
        "file": name,
        "pin_lsn": 10,
        "reach_lsn": 10,
        "blocks": 1,
        "bytes": size,
        "created": created,
    }
    assert str(created).startswith("2023-11-14T22:13:20.")
    assert as_text(item) == (
        f"snapshot  {name}  pin LSN 10  reach LSN 10  1 block(s)  {size} bytes  {created}"
    )


def test_another_file_is_told_by_its_kind_and_its_size() -> None:
    disk = store(3)
    disk.put("snap-0000000000000001.snap.damaged", b"bad")

    (item,) = [i for i in of_type(listed(disk), "file") if i["kind"] == "damaged"]

    assert item == {
        "type": "file",
        "file": "snap-0000000000000001.snap.damaged",
        "kind": "damaged",
        "bytes": 3,
    }
    assert as_text(item) == "damaged   snap-0000000000000001.snap.damaged  3 bytes"


def test_a_segment_is_told_with_the_one_before_it() -> None:
    disk = store(10)
    first, second = segments_of(disk)
    header, before = segment_header(disk, second), frames_of(disk, first)[-1]
    size = len(disk.content(second))

    item = of_type(listed(disk), "segment")[1]

    assert item == {
        "type": "segment",
        "file": second,
        "id": 2,
        "first_lsn": 8,
        "bytes": size,
        "created": iso_utc(header.created_ns),
        "made_with_bytes": SEGMENT_SIZE_BYTES,
        "predecessor": {
            "id": 1,
            "end": before[0] + before[1].frame_bytes,
            "last_lsn": 7,
            "chain_crc": header.predecessor.chain_crc,
        },
    }
    assert as_text(item) == (
        f"segment   {second}  id 2  first LSN 8  {size} bytes  "
        f"{iso_utc(header.created_ns)}"
    )


def test_of_a_segment_whose_header_is_damaged_the_name_is_told() -> None:
    disk = store(10)
    name = segments_of(disk)[1]
    disk.flip_bit(name, 8 * 2000)

    item = of_type(listed(disk), "segment")[1]

    assert (item["id"], item["first_lsn"]) == (2, 8)
    assert item["created"] is item["made_with_bytes"] is item["predecessor"] is None


def test_a_frame_is_told_by_its_header() -> None:
    disk = store(3)
    (name,) = segments_of(disk)
    (at, header), *_, (end, close) = frames_of(disk, name)

    item, *_, last = of_type(listed(disk), "frame")

    wall = iso_utc(header.wall_ns)
    assert item == {
        "type": "frame",
        "file": name,
        "offset": at,
        "bytes": 128,
        "first_lsn": 1,
        "last_lsn": 1,
        "records": 1,
        "durable_lsn": 0,
        "wall": wall,
        "flags": ["ATOMIC"],
        "body_bytes": len(payload_of(1)) + 4,
    }
    assert as_text(item) == (
        f"  frame   @{at}  LSN 1 to 1  1 record(s)  durable 0  128 bytes  {wall}  ATOMIC"
    )
    wall = iso_utc(close.wall_ns)
    assert as_text(last) == f"  CLOSE   @{end}  after LSN 3  64 bytes  {wall}"


def test_a_record_is_told_by_the_first_32_bytes_of_its_payload() -> None:
    disk = MemoryFileSystem()
    with open_log(disk) as log:
        log.start()
        log.append(b"\x1f ~\x7f" + bytes(range(0x80, 0xA0)))

    (item,) = of_type(
        listed(disk, records=True, describe=lambda p: f"{p[0]}"), "record"
    )

    digits = b"\x1f ~\x7f".hex() + bytes(range(0x80, 0x9C)).hex()
    assert item == {
        "type": "record",
        "lsn": 1,
        "bytes": 36,
        "hex": digits,
        "ascii": ". ~." + "." * 28,
        "description": "31",
    }
    assert as_text(item) == f"    LSN 1  36 bytes  {digits}  |. ~.{'.' * 28}|  31"


def test_a_fault_is_told_with_all_that_is_known() -> None:
    disk = store(3)
    (name,) = segments_of(disk)
    disk.flip_bit(name, 8 * (4096 + 128 + 70))

    (item,) = of_type(listed(disk), "fault")

    what = str(item["what"])
    assert "proves that LSN 2 had been synced" in what
    assert item == {
        "type": "fault",
        "file": name,
        "offset": 4224,
        "verdict": "corrupt",
        "what": what,
        "expected_lsn": 2,
        "next_offset": 4352,
        "next_lsn": 3,
        "records_at_stake": 2,
        "doubtful": False,
        "lost": {"first": 2, "last": 2, "exact": True},
    }
    assert as_text(item) == (
        f"  FAULT   {name} @4224: {what} (corrupt); LSN 2 expected, next valid frame: "
        "4352 (LSN 3), at least 2 record(s) at stake"
    )


def test_of_a_torn_tail_nothing_is_told_as_lost() -> None:
    disk = store(3, close=False)
    (name,) = segments_of(disk)
    disk.overwrite(name, 4096 + 256, bytes(64))

    (item,) = of_type(listed(disk), "fault")

    assert (item["verdict"], item["lost"], item["next_lsn"]) == ("torn", None, None)
    assert "next valid frame: none (LSN none)" in as_text(item)


def test_who_holds_the_store_is_told() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, 1)

    (shown,) = of_type(listed(disk), "store")

    assert str(shown["holder"]).startswith("process 1, open since")
    assert "or left so by a crash" in as_text(shown)


def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(StoreError, match="does not exist"):
        list(inspect(MemoryFileSystem()))
