"""The log over frames and files that belong elsewhere, are missing, or unreadable."""

from __future__ import annotations

import contextlib
import errno

import pytest

from tests.crash.damaged_store import (
    STORES,
    Frame,
    Store,
    assert_refused,
    build,
    plain,
    plain_program,
    with_snapshots,
)
from tests.crash.log_driver import open_log, read_entries
from wal.errors import LogCorruptError, StoreError
from wal.frame import (
    Flag,
    decode_body,
    decode_header,
    decode_records,
    encode_frame,
    encode_records,
)
from wal.segment import SEGMENT_HEADER_BYTES, decode_segment_header
from wal.testing import MemoryFileSystem

pytestmark = pytest.mark.usefixtures("quiet_log")


def test_frames_that_changed_places_are_refused() -> None:
    store = plain()
    for one in store.frames:
        for other in store.frames:
            if one is other:
                continue
            disk = store.disk.copy()
            copied = content_of(store, one)
            disk.overwrite(other.file, other.start, copied)
            if one.end - one.start == other.end - other.start:
                disk.overwrite(one.file, one.start, content_of(store, other))
            first = min(one, other, key=lambda frame: frame.first_lsn)
            error = assert_refused(store.attempt(disk))
            assert error.expected_lsn in (first.first_lsn, other.first_lsn)


def test_a_frame_replaced_by_another_that_is_valid_is_refused() -> None:
    """The chain proves it: what follows was not written after this one."""
    store = plain()
    for frame in store.frames[:-1]:
        whole = store.disk.content(frame.file)
        segment = decode_segment_header(whole[:SEGMENT_HEADER_BYTES], frame.file)
        assert segment is not None
        header = decode_header(whole, frame.start, segment.seed)
        assert header is not None
        body = decode_body(whole, frame.start, header=header, seed=segment.seed)
        assert body is not None
        records = [bytes(b ^ 1 for b in record) for record in decode_records(body)]
        forged = encode_frame(
            encode_records(records),
            record_count=header.record_count,
            first_lsn=header.first_lsn,
            durable_lsn=header.durable_lsn,
            wall_ns=header.wall_ns,
            chain_crc=header.chain_crc,
            flags=Flag.NONE,
            seed=segment.seed,
            offset=frame.start,
        )
        disk = store.disk.copy()
        disk.overwrite(frame.file, frame.start, forged)
        with pytest.raises(LogCorruptError) as refused:
            read_entries(open_log(disk, store.options))
        assert refused.value.file == frame.file
        assert refused.value.expected_lsn == frame.last_lsn + 1


def test_a_frame_that_comes_again_behind_the_end_costs_nothing() -> None:
    store = plain()
    last = store.segments[-1]
    for frame in store.frames:
        for at in (store.used_bytes(last), store.used_bytes(last) + 64):
            disk = store.disk.copy()
            disk.overwrite(last, at, content_of(store, frame))
            store.attempt(disk)


def test_a_segment_from_elsewhere_is_refused() -> None:
    store = plain()
    foreign = build(plain_program()[:6])
    strange = MemoryFileSystem(seed=1)
    log = open_log(strange, store.options)
    log.append(b"of another store")
    log.close()
    assert foreign.segments[0] == store.segments[0]
    for name in store.segments:
        for data in (
            strange.content("wal-0000000000000001-0000000000000001.seg"),
            *(store.disk.content(n) for n in store.segments if n != name),
        ):
            disk = store.disk.copy()
            disk.put(name, data)
            assert assert_refused(store.attempt(disk)).file == name
    # An older state of the same segment, as a backup would bring it back.
    disk = store.disk.copy()
    disk.put(store.segments[0], foreign.disk.content(store.segments[0]))
    assert assert_refused(store.attempt(disk)).file == store.segments[0]


def test_the_identity_of_another_store_is_refused() -> None:
    store = plain()
    strange = MemoryFileSystem(seed=1)
    open_log(strange, store.options).start()
    disk = store.disk.copy()
    disk.put("STORE", strange.content("STORE"))
    assert_refused(store.attempt(disk))


@pytest.mark.parametrize("store", ["plain", "closed", "with snapshots"])
def test_a_missing_or_renamed_file_costs_nothing_acknowledged(store: str) -> None:
    chosen = STORES[store]()
    names = chosen.disk.names()
    for name in names:
        missing = chosen.disk.copy()
        missing.remove(name)
        outcome = chosen.attempt(missing)
        if name == "STORE":
            assert isinstance(outcome, StoreError)
        for new in (name + ".bak", *(n for n in names if n[:4] == name[:4] != "LOCK")):
            if new != name:
                renamed = chosen.disk.copy()
                renamed.put(new, chosen.disk.content(name))
                renamed.remove(name)
                chosen.attempt(renamed)


def test_a_log_without_any_segment_is_no_empty_log() -> None:
    for store in (plain(), with_snapshots()):
        disk = store.disk.copy()
        for name in store.segments:
            disk.remove(name)
        assert isinstance(store.attempt(disk), StoreError)


# -- a disk that cannot be read ---------------------------------------------------------


@pytest.mark.parametrize("store", STORES)
def test_an_unreadable_file_is_no_verdict_and_changes_nothing(store: str) -> None:
    chosen = STORES[store]()
    for name in chosen.disk.names():
        for op in ("open", "pread", "sync"):
            disk = chosen.disk.copy()
            before = disk.snapshot_of_all()
            disk.fail(op, errno.EIO, name=name, times=None)
            with contextlib.suppress(OSError):
                assert read_entries(open_log(disk, chosen.options)) == chosen.everything
            assert disk.snapshot_of_all() == before


def content_of(store: Store, frame: Frame) -> bytes:
    return store.disk.content(frame.file)[frame.start : frame.end]
