"""What a store holds, item by item."""

from __future__ import annotations

import json

import pytest

from tests.wal.example_stores import (
    append,
    open_log,
    payload_of,
    segments_of,
    snapshots_of,
    store,
)
from wal.errors import StoreError
from wal.frame import encode_records
from wal.listing import Item, as_json, as_text, inspect
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
