"""The log over damaged files: what no crash leaves is refused, or costs nothing.

What cannot be told from a crash is named here too, and bounded: a sector of the last
group that is zero was perhaps never written.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from tests.crash.damaged_store import (
    STORES,
    Frame,
    Outcome,
    Store,
    assert_refused,
    build,
    plain,
    unfinished,
    with_snapshots,
)
from tests.crash.log_driver import Options, Step, open_log, read_entries
from tests.crash.log_program import payload, random_program
from wal.errors import StoreError
from wal.filesystem import SECTOR_BYTES
from wal.frame import HEADER_BYTES
from wal.segment import SEGMENT_HEADER_BYTES
from wal.testing import MemoryFileSystem

pytestmark = [pytest.mark.usefixtures("quiet_log"), pytest.mark.timeout(300)]

HEADER_FIELDS_BYTES = 116  # of a segment header; the rest is zeros and a checksum


def bits_of(start: int, stop: int, step: int = 1) -> Iterable[int]:
    return range(8 * start, 8 * stop, step)


# -- one flipped bit --------------------------------------------------------------------


@pytest.mark.parametrize("segment", range(3))
def test_a_flipped_bit_in_an_acknowledged_group_is_refused_with_its_place(
    segment: int,
) -> None:
    store = plain()
    name = store.segments[segment]
    frames = [frame for frame in store.frames if frame.file == name]
    for frame, after in zip(frames, [*frames[1:], None], strict=True):
        for bit, outcome in store.flips(name, bits_of(frame.start, frame.end)):
            error = assert_refused(outcome)
            assert (error.file, error.offset) == (name, frame.start)
            assert error.expected_lsn == frame.first_lsn
            if after is None:
                assert (error.next_offset, error.next_lsn) == (None, None)
            else:
                assert error.next_offset == after.start
                assert error.next_lsn == after.first_lsn
            stake = frames[-1].last_lsn - frame.first_lsn + 1
            in_header = bit // 8 < frame.start + HEADER_BYTES
            if in_header and frame is store.frames[-1]:
                stake = 1  # nothing else tells how many there were
            assert error.records_at_stake == stake


def test_the_last_group_is_refused_also_if_the_bit_makes_a_sector_zero() -> None:
    # 444 bytes fill the first sector; the last one holds a single bit that is set.
    faint = build([Step("group", (b"x" * 440, b"\x01" + bytes(7))), Step("commit")])
    zeros = build([Step("append", (bytes(600),)), Step("commit")])
    for store in (faint, zeros):
        frame = store.frames[-1]
        for _, outcome in store.flips(frame.file, bits_of(frame.start, frame.end)):
            assert assert_refused(outcome).offset == frame.start


@pytest.mark.parametrize("store", ["closed", "unfinished", "with snapshots"])
def test_a_flipped_bit_in_a_frame_costs_nothing_acknowledged_in(store: str) -> None:
    chosen = STORES[store]()
    name = chosen.segments[-1]
    start, end = chosen.frames[-1].start, len(chosen.disk.content(name))
    before = bits_of(SEGMENT_HEADER_BYTES, start, 5)
    for _ in chosen.flips(name, [*before, *bits_of(start, min(end, start + 256))]):
        pass  # `attempt` has checked it


@pytest.mark.parametrize("segment", range(3))
def test_a_flipped_bit_in_a_segment_header_is_refused(segment: int) -> None:
    store = plain()
    name = store.segments[segment]
    fields = [
        *bits_of(0, HEADER_FIELDS_BYTES),
        *bits_of(SEGMENT_HEADER_BYTES - 4, SEGMENT_HEADER_BYTES),
    ]
    # Of what is zero, another bit of each byte; `test-long` flips them all.
    zeros = bits_of(HEADER_FIELDS_BYTES, SEGMENT_HEADER_BYTES - 4, 8 * 3 + 1)
    for _, outcome in store.flips(name, [*fields, *zeros]):
        error = assert_refused(outcome)
        assert (error.file, error.offset) == (name, 0)


def test_a_flipped_bit_behind_the_end_costs_nothing() -> None:
    for store in (plain(), unfinished()):
        for name in store.segments:
            start, size = store.used_bytes(name), len(store.disk.content(name))
            for bit, outcome in store.flips(name, bits_of(start, size, 5)):
                if isinstance(outcome, list):
                    assert outcome == store.everything
                else:
                    # At the place of the next header it may be what is left of one.
                    assert name == store.segments[-1]
                    assert bit // 8 < start + HEADER_BYTES


def test_a_flipped_bit_in_the_identity_is_refused() -> None:
    store = plain()
    size = len(store.disk.content("STORE"))
    for _, outcome in store.flips("STORE", bits_of(0, size)):
        assert isinstance(outcome, StoreError)


def test_a_flipped_bit_in_the_text_of_the_lock_means_nothing() -> None:
    store = plain()
    size = len(store.disk.content("LOCK"))
    assert size > 0
    for _, outcome in store.flips("LOCK", bits_of(0, size)):
        assert outcome == store.everything


@pytest.mark.parametrize("age", [0, 1])
def test_a_flipped_bit_in_one_snapshot_costs_nothing(age: int) -> None:
    store = with_snapshots()
    name = sorted(snapshot_names(store), reverse=True)[age]
    size = len(store.disk.content(name))
    bits = [
        *bits_of(0, 64),
        *bits_of(64, SEGMENT_HEADER_BYTES - 4, 8 * 3 + 1),
        *bits_of(SEGMENT_HEADER_BYTES - 4, size),
    ]
    for _, outcome in store.flips(name, bits):
        assert outcome == store.everything


def test_both_snapshots_damaged_is_refused_and_nothing_is_deleted() -> None:
    store = with_snapshots()
    one, other = snapshot_names(store)
    disk = store.disk.copy()
    disk.flip_bit(one, 8 * 4100)
    for _, outcome in damaged(store, disk).flips(other, bits_of(4096, 4200, 3)):
        error = assert_refused(outcome)
        assert error.file == store.segments[0]
        assert error.records_at_stake == store.frames[0].first_lsn - 1


def test_damage_after_a_relaxed_group_is_cut_and_said_aloud() -> None:
    steps = [Step("append", (payload("text", 50),)), Step("sync")] * 3
    store = build(steps, Options(durability="interval"))
    last = store.frames[-1]
    for byte in (last.start + 20, last.start + HEADER_BYTES + 20):
        disk = store.disk.copy()
        disk.flip_bit(last.file, 8 * byte)
        log = open_log(disk, store.options)
        assert read_entries(log) == store.everything[:2]
        report = log.start()
        assert report.doubtful
        assert report.torn_file is not None
        assert disk.content(report.torn_file)


# -- truncation -------------------------------------------------------------------------


@pytest.mark.parametrize("store", STORES)
def test_a_file_cut_anywhere_costs_nothing_acknowledged(store: str) -> None:
    chosen = STORES[store]()
    for name in chosen.disk.names():
        disk = chosen.disk.copy()
        for size in reversed(sizes_to_cut(chosen, name)):
            disk.cut(name, size)
            outcome = chosen.attempt(disk)
            if name in chosen.segments:
                assert_cut_is_judged(chosen, name, size, outcome)
            elif name == "STORE":
                assert isinstance(outcome, StoreError)
            else:
                assert outcome == chosen.everything


def sizes_to_cut(store: Store, name: str) -> range:
    """Every byte of a plain store; of the others, of what they have and it has not."""
    size = len(store.disk.content(name))
    special = name.endswith(".snap") or name == store.segments[-1]
    return range(0, size, 1 if store is plain() else 3 if special else 101)


def assert_cut_is_judged(store: Store, name: str, size: int, outcome: Outcome) -> None:
    needed = name == store.segments[-1] or size < store.used_bytes(name)
    if not needed:
        assert outcome == store.everything
    elif size < SEGMENT_HEADER_BYTES or first_needed(store) <= name:
        error = assert_refused(outcome)
        assert error.file == name
        assert error.offset <= size


def test_a_rotated_segment_cut_at_the_edge_of_a_record_is_refused() -> None:
    store = plain()
    for frame in store.frames:
        if frame.file != store.segments[-1]:
            disk = store.disk.copy()
            disk.cut(frame.file, frame.start)
            error = assert_refused(store.attempt(disk))
            assert error.expected_lsn == frame.first_lsn


# -- sectors ----------------------------------------------------------------------------


def blanks_a_place(store: Store, name: str, offset: int, data: bytes) -> bool:
    """Return whether a sector's new bytes leave a place of a group all zero.

    Such a place is its header, or all that it has in a sector behind the header's.
    """
    for frame in store.frames:
        hit = frame.start < offset + len(data) and offset < frame.end
        if frame.file != name or not hit:
            continue
        has_header = frame.start >= offset
        start = frame.start if has_header else offset
        stop = start + HEADER_BYTES if has_header else frame.end
        if not any(data[start - offset : stop - offset]):
            return True
    return not any(data)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", ["ones", "random", "moved"])
def test_an_overwritten_sector_costs_nothing_acknowledged(
    store: str, kind: str, rng: random.Random
) -> None:
    chosen = STORES[store]()
    for name in chosen.disk.names():
        whole = chosen.disk.content(name)
        for offset in range(0, len(whole), SECTOR_BYTES):
            size = min(SECTOR_BYTES, len(whole) - offset)
            match kind:
                case "ones":
                    data = b"\xff" * size
                case "random":
                    data = rng.randbytes(size)
                case _:
                    source = rng.randrange(0, len(whole), SECTOR_BYTES)
                    data = whole[source : source + size]
                    if blanks_a_place(chosen, name, offset, data):
                        continue  # zeros there are another story, told below
            disk = chosen.disk.copy()
            disk.overwrite(name, offset, data)
            chosen.attempt(disk)


@pytest.mark.parametrize("store", ["plain", "closed", "unfinished"])
def test_a_sector_of_zeros_costs_the_last_groups_at_most(store: str) -> None:
    """What a zero sector held was perhaps never written: so it is if nothing follows."""
    chosen = STORES[store]()
    for name in chosen.segments:
        size = len(chosen.disk.content(name))
        for offset in range(0, size, SECTOR_BYTES):
            disk = chosen.disk.copy()
            disk.overwrite(name, offset, bytes(min(SECTOR_BYTES, size - offset)))
            hit = chosen.frame_at(name, offset) or first_in_sector(chosen, name, offset)
            survivors = [f for f in chosen.frames if f.start >= offset + SECTOR_BYTES]
            tail = name == chosen.segments[-1] and not survivors
            if hit is None or not tail or store == "closed":
                chosen.attempt(disk)
            else:
                log = open_log(disk, chosen.options)
                found = read_entries(log)
                assert found == [e for e in chosen.everything if e.lsn < hit.first_lsn]


# -- more of it -------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("store", STORES)
def test_every_bit_of_every_file_costs_nothing_acknowledged(store: str) -> None:
    chosen = STORES[store]()
    for name in chosen.disk.names():
        if not name.endswith(".tmp"):
            for _ in chosen.flips(name, bits_of(0, len(chosen.disk.content(name)))):
                pass


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("shard", range(8))
def test_flipped_bits_of_random_logs_cost_nothing_acknowledged(
    shard: int, rng: random.Random
) -> None:
    for number in range(25):
        seed = f"{rng.getrandbits(32)} {shard} {number}"
        print(seed)
        source = random.Random(seed)
        _, program = random_program(source, source.randint(5, 30))
        durable = [
            Step(step.verb, step.payloads, Options(step.options.segment_size_bytes))
            for step in program
        ]
        store = build([*durable, Step("sync")], Options(16384))
        for name in store.segments:
            size = store.used_bytes(name)
            bits = [source.randrange(8 * size) for _ in range(400)]
            for _ in store.flips(name, bits):
                pass


def snapshot_names(store: Store) -> list[str]:
    return [name for name in store.disk.names() if name.endswith(".snap")]


def damaged(store: Store, disk: MemoryFileSystem) -> Store:
    return Store(
        disk, store.ledger, store.frames, store.segments, store.options, store.opener
    )


def first_in_sector(store: Store, name: str, offset: int) -> Frame | None:
    for frame in store.frames:
        if frame.file == name and offset <= frame.start < offset + SECTOR_BYTES:
            return frame
    return None


def first_needed(store: Store) -> str:
    """The oldest segment that recovery reads: before it, only headers count."""
    log = open_log(store.disk.copy(), store.options)
    pin_lsn = log.snapshot.pin_lsn if log.snapshot is not None else 0
    log.close()
    return next(frame.file for frame in store.frames if frame.last_lsn > pin_lsn)
