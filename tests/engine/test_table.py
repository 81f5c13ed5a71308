"""The timer table: rows by slot and by id, on every body of it."""

from __future__ import annotations

import random
import struct
import sys
from array import array
from collections.abc import Callable

import pytest

from tests.engine.table_bodies import TABLES
from timingwheel.engine.records import (
    Base,
    TimerId,
    timer_fired,
    timer_scheduled,
)
from timingwheel.engine.table import NO_HANDLE, Row, State, TimerTable
from timingwheel.errors import TimingWheelError
from wal.frame import encode_records

MakeTable = Callable[[], TimerTable]


@pytest.fixture(params=TABLES)
def make_table(request: pytest.FixtureRequest) -> MakeTable:
    made: MakeTable = request.param
    return made


@pytest.fixture
def table(make_table: MakeTable) -> TimerTable:
    return make_table()


def insert(table: TimerTable, timer_id: int, payload: bytes = b"") -> int:
    return table.insert(
        timer_id, last_lsn=timer_id, deadline_ns=7, base=Base.ELAPSED, payload=payload
    )


def test_a_walk_can_pass_by_what_is_in_a_wheel(table: TimerTable) -> None:
    slots = [insert(table, timer_id) for timer_id in (5, 6, 7, 8, 9)]
    for slot, handle in zip(slots, (1 << 32, NO_HANDLE, 7, -4, 1 << 59), strict=True):
        table.set_handle(slot, handle)
    table.remove(9)
    walked = table.walk(0, table.slot_count, in_wheels=False)
    assert [row.timer_id for row in walked] == [6, 8]
    walked = table.walk(slots[2], slots[3], in_wheels=False)
    assert list(walked) == []
    assert [row.timer_id for row in table.walk(0, 99)] == [5, 6, 7, 8]


def test_a_row_comes_back_as_it_was_put_in(table: TimerTable) -> None:
    slot = table.insert(
        41,
        last_lsn=43,
        deadline_ns=(1 << 63) - 1,
        base=Base.WALL,
        payload=b"p",
        attempt=2**32 - 1,
        state=State.FIRED,
    )
    assert table.row(slot) == Row(
        TimerId(41), 43, (1 << 63) - 1, 2**32 - 1, State.FIRED, Base.WALL, b"p"
    )
    assert table.slot(41) == slot
    assert table.slot(42) is None
    assert table.handle(slot) == NO_HANDLE
    assert not table.is_waiting(slot)


def test_a_free_slot_is_used_again_and_nothing_of_its_former_tenant_is_left(
    table: TimerTable,
) -> None:
    slot = insert(table, 1, b"old")
    table.set_handle(slot, 99)
    table.fire(slot, last_lsn=5, attempt=4)
    table.remove(1)
    assert insert(table, 2, b"new") == slot
    assert table.row(slot) == Row(TimerId(2), 2, 7, 0, State.WAITING, 0, b"new")
    assert table.handle(slot) == NO_HANDLE
    assert table.slot(1) is None
    assert table.slot_count == 1


def test_a_removed_row_holds_no_payload(table: TimerTable) -> None:
    payload = bytes([1, 2, 3])
    before = sys.getrefcount(payload)
    insert(table, 1, payload)
    table.remove(1)
    assert sys.getrefcount(payload) == before


def test_a_row_keeps_its_slot_whatever_happens_to_it(table: TimerTable) -> None:
    slots = [insert(table, timer_id) for timer_id in range(1, 6)]
    table.fire(slots[2], last_lsn=9, attempt=1)
    table.remove(2)
    table.reschedule(slots[2], last_lsn=10, deadline_ns=8, base=Base.WALL, attempt=1)
    insert(table, 11)
    assert table.slot(3) == slots[2]
    assert table.row(slots[2]) == Row(
        TimerId(3), 10, 8, 1, State.WAITING, Base.WALL, b""
    )


def test_a_walk_yields_the_rows_in_use_between_two_slots(table: TimerTable) -> None:
    for timer_id in range(1, 8):
        insert(table, timer_id)
    table.remove(3)
    assert [row.timer_id for row in table.walk(1, 5)] == [2, 4, 5]
    assert [row.timer_id for row in table.walk(5, 100)] == [6, 7]
    assert list(table.walk(7, 9)) == []


def test_ids_come_in_growing_order(table: TimerTable) -> None:
    for timer_id in (5, 1, 9, 3):
        insert(table, timer_id)
    table.remove(1)
    assert table.timer_ids() == [3, 5, 9]


def test_random_programs_agree_with_a_dictionary(
    table: TimerTable, rng: random.Random
) -> None:
    model: dict[int, bytes] = {}
    for timer_id in range(1, 2_000):
        payload = rng.randbytes(rng.randrange(9))
        insert(table, timer_id, payload)
        model[timer_id] = payload
        while model and rng.random() < 0.49:
            gone = rng.choice(list(model))
            del model[gone]
            table.remove(gone)
        if timer_id % 100 == 0:
            table.check()
    assert len(table) == len(model)
    assert {r.timer_id: r.payload for r in table.walk(0, table.slot_count)} == model


def test_check_sees_a_row_that_the_index_does_not_know(table: TimerTable) -> None:
    insert(table, 1)
    table.check()
    insert(table, 1)  # a second row of one id
    with pytest.raises(AssertionError):
        table.check()


@pytest.mark.parametrize("unknown", [0, -1, 7, 2**63, -(2**70)])
def test_an_id_that_was_never_given_leads_nowhere(
    table: TimerTable, unknown: int
) -> None:
    assert table.slot(unknown) is None
    insert(table, 1)
    assert table.slot(unknown) is None


def test_a_timer_that_is_not_there_cannot_be_removed(table: TimerTable) -> None:
    with pytest.raises(KeyError, match="1"):
        table.remove(1)
    insert(table, 1)
    table.remove(1)
    with pytest.raises(KeyError, match="1"):
        table.remove(1)
    assert len(table) == 0


def test_a_slot_that_was_never_made_is_refused(table: TimerTable) -> None:
    insert(table, 1)
    for read in (table.row, table.payload, table.deadline_ns, table.is_waiting):
        with pytest.raises(IndexError):
            read(1)
    with pytest.raises(IndexError):
        table.set_handle(2**31, 5)


@pytest.mark.parametrize("size", [0, 1, 100, 16_384, 16_385, 65_536, 1 << 20])
def test_a_payload_of_any_size_comes_back(table: TimerTable, size: int) -> None:
    payloads = [bytes([place]) * size for place in range(1, 20)]
    for timer_id, payload in enumerate(payloads, 1):
        insert(table, timer_id, payload)
    table.check()
    for timer_id in range(1, 20, 2):
        table.remove(timer_id)
    table.check()
    assert [row.payload for row in table.walk(0, 20)] == payloads[1::2]


def test_ids_in_runs_far_apart_are_all_found(table: TimerTable) -> None:
    """After an unclean start numbers go on 2**20 higher, time after time."""
    ids = [run * 2**20 + place for run in range(1, 40) for place in range(50)]
    slots = {timer_id: insert(table, timer_id) for timer_id in ids}
    for timer_id in ids[::3]:
        table.remove(timer_id)
        del slots[timer_id]
    table.check()
    assert {timer_id: table.slot(timer_id) for timer_id in slots} == slots
    assert all(table.slot(timer_id) is None for timer_id in ids[::3])


# -- many rows at once ------------------------------------------------------------------


def test_slots_of_a_state_come_by_growing_id(
    table: TimerTable, rng: random.Random
) -> None:
    ids = rng.sample(range(1, 10**6), 1_000)
    for timer_id in ids:
        insert(table, timer_id)
    for timer_id in ids[::3]:
        table.fire(slot_of(table, timer_id), last_lsn=1, attempt=1)
    for timer_id in ids[::7]:
        table.remove(timer_id)
    left = set(ids) - set(ids[::7])
    fired = left & set(ids[::3])
    for state, expected in ((State.FIRED, fired), (State.WAITING, left - fired)):
        slots = table.slots_in(state)
        assert slots.typecode == "I"
        assert [table.row(slot).timer_id for slot in slots] == sorted(expected)


def slot_of(table: TimerTable, timer_id: int) -> int:
    slot = table.slot(timer_id)
    assert slot is not None
    return slot


def test_a_wheel_batch_has_the_rows_of_one_base_and_their_ticks_rounded_up(
    table: TimerTable,
) -> None:
    deadlines = [1 << 10, (1 << 10) + 1, 0, (1 << 63) - 1, 5, -1, -(1 << 63)]
    for place, deadline_ns in enumerate(deadlines):
        for base in Base:
            table.insert(
                10 * place + base + 1,
                last_lsn=1,
                deadline_ns=deadline_ns,
                base=base,
                payload=b"",
            )
    slots = table.slots_in(State.WAITING)
    batch = table.wheel_batch(slots, Base.WALL, tick_bits=10)
    assert batch.timer_ids == array("q", range(2, 72, 10))
    assert [table.row(slot).timer_id for slot in batch.slots] == [*batch.timer_ids]
    assert batch.ticks == array("q", [1, 2, 0, 1 << 53, 1, 0, -(1 << 53)])
    assert batch.first_tick == -(1 << 53)
    assert [column.typecode for column in batch[:3]] == ["I", "q", "q"]
    assert table.wheel_batch(array("I"), 0, tick_bits=10).first_tick == 0


def test_handles_are_noted_for_many_rows(table: TimerTable) -> None:
    slots = array("I", [insert(table, timer_id) for timer_id in range(1, 6)])
    table.set_handles(slots[1:4], array("q", [7, 8, 7]))
    assert [table.handle(slot) for slot in slots] == [NO_HANDLE, 7, 8, 7, NO_HANDLE]
    assert table.count_handles(7) == 2
    with pytest.raises(ValueError, match="5 int64"):
        table.set_handles(slots, array("q", [1]))
    with pytest.raises(ValueError, match="5 int64"):
        table.set_handles(slots, array("i", [1] * 5))
    with pytest.raises(IndexError):
        table.set_handles(array("I", [99]), array("q", [1]))


SCHEDULED = [timer_scheduled(n % 2, n << 40, bytes(n)) for n in range(1, 30)]


def test_a_run_of_scheduled_records_becomes_rows(table: TimerTable) -> None:
    body = encode_records([timer_fired(1, 1), *SCHEDULED, timer_fired(2, 1)])
    start = len(encode_records([timer_fired(1, 1)]))
    count, end, slots = table.insert_scheduled(101, body, at=start, known_lsn=0)
    assert count == len(SCHEDULED) == len(slots)
    assert slots.typecode == "I"
    assert end == len(body) - start
    assert [table.row(slot) for slot in slots] == [
        Row(TimerId(100 + n), 100 + n, n << 40, 0, State.WAITING, n % 2, bytes(n))
        for n in range(1, 30)
    ]
    assert all(table.handle(slot) == NO_HANDLE for slot in slots)
    table.check()


def test_no_run_of_scheduled_records_is_no_rows(table: TimerTable) -> None:
    for body in (b"", encode_records([timer_fired(1, 1)])):
        count, end, slots = table.insert_scheduled(1, body, at=0, known_lsn=0)
        assert (count, end, slots) == (0, 0, array("I"))
    assert len(table) == 0


def test_of_a_run_what_is_known_already_stays_as_it_is(table: TimerTable) -> None:
    insert(table, 3, b"newer")
    insert(table, 5, b"newer")
    body = encode_records(SCHEDULED)
    count, _, slots = table.insert_scheduled(1, body, at=0, known_lsn=6)
    assert count == len(SCHEDULED)
    assert len(slots) == count - 2
    assert table.payload(slot_of(table, 3)) == table.payload(slot_of(table, 5))
    assert table.timer_ids() == [*range(1, 30)]
    table.check()


def test_a_run_ends_before_a_record_that_is_cut_off(table: TimerTable) -> None:
    body = encode_records(SCHEDULED[:3])
    whole = len(encode_records(SCHEDULED[:2]))
    for end in range(whole, len(body)):
        count, at, _ = table.insert_scheduled(1, body[:end], at=0, known_lsn=9)
        assert (count, at) == (2, whole)


def packed(table: TimerTable, count: int, bytes_max: int) -> bytes:
    parts, slot = [], 0
    while slot < table.slot_count:
        part, after = table.pack_rows(slot, count, bytes_max=bytes_max)
        assert slot < after <= slot + count
        parts.append(part)
        slot = after
    return b"".join(parts)


def test_packed_rows_come_back_and_are_the_same_bytes_from_every_body(
    table: TimerTable, make_table: MakeTable, rng: random.Random
) -> None:
    plain = TimerTable()
    for timer_id in range(1, 300):
        row = {
            "last_lsn": timer_id + rng.getrandbits(50),
            "deadline_ns": rng.getrandbits(64) - (1 << 63),
            "base": rng.randrange(2),
            "payload": rng.randbytes(rng.choice((0, 1, 60, 20_000))),
            "attempt": rng.getrandbits(32),
            "state": rng.choice([*State]),
        }
        for each in (plain, table):
            each.insert(timer_id, **row)
            if timer_id > 10 and timer_id % 7 == 0:
                each.remove(timer_id - 6)
    block = b"\1" + packed(table, 16, 64 << 10)
    assert block == b"\1" + packed(plain, 1_000, 1 << 30)
    back = make_table()
    back.load_rows(block, 1)
    back.check()
    assert list(back.walk(0, 300)) == list(table.walk(0, 300))


def test_rows_are_packed_within_bounds_of_slots_and_bytes(table: TimerTable) -> None:
    for timer_id in range(1, 11):
        insert(table, timer_id, bytes(66))
    table.remove(2)
    assert table.pack_rows(0, 3, bytes_max=10**6)[1] == 3
    part, after = table.pack_rows(0, 10, bytes_max=201)
    assert (len(part), after) == (300, 4)
    part, after = table.pack_rows(0, 10, bytes_max=200)
    assert (len(part), after) == (200, 3)
    assert table.pack_rows(1, 1, bytes_max=99) == (b"", 2)
    assert table.pack_rows(10, 5, bytes_max=99) == (b"", 10)


def test_a_block_that_ends_within_a_row_is_refused(table: TimerTable) -> None:
    insert(table, 1, b"payload")
    block = table.pack_rows(0, 1, bytes_max=1)[0]
    for end in range(1, len(block)):
        with pytest.raises(TimingWheelError, match=f"{end} bytes.*row at byte 0"):
            type(table)().load_rows(block[:end], 0)


@pytest.mark.parametrize(
    ("timer_id", "state", "base", "fits"),
    [
        (1, State.WAITING, Base.WALL, True),
        (1, State.FIRED, Base.ELAPSED, True),
        (0, State.WAITING, Base.WALL, False),
        (-1, State.WAITING, Base.WALL, False),
        (1, State.WAITING - 1, Base.WALL, False),
        (1, State.FIRED + 1, Base.ELAPSED, False),
        (1, State.FIRED, Base.WALL + 1, False),
    ],
)
def test_a_row_that_no_timer_has_is_refused_with_its_place(
    table: TimerTable, timer_id: int, state: int, base: int, *, fits: bool
) -> None:
    insert(table, 7, b"sound")
    sound = table.pack_rows(0, 1, bytes_max=1)[0]
    row = struct.pack("<qqqIBBI", timer_id, 9, 5, 0, state, base, 1) + b"p"
    back = type(table)()
    if fits:
        back.load_rows(sound + row, 0)
        assert back.row(1) == Row(TimerId(1), 9, 5, 0, State(state), base, b"p")
    else:
        at, size = len(sound), len(sound) + len(row)
        with pytest.raises(TimingWheelError, match=f"{size} bytes has no.*byte {at}:"):
            back.load_rows(sound + row, 0)
        assert back.timer_ids() == [7]
    back.check()


# -- many timers by id ---------------------------------------------------------------------


def test_many_fire_at_once_but_those_that_are_newer_or_gone(table: TimerTable) -> None:
    slots = [insert(table, timer_id, b"p%d" % timer_id) for timer_id in (3, 4, 5)]
    table.set_handle(slots[0], 77)
    assert table.fire_many(array("q", [5, 9, 3]), last_lsn=5, attempt=7) == [9]
    assert [table.row(slot)[1:5] for slot in slots] == [
        (5, 7, 7, State.FIRED),
        (4, 7, 0, State.WAITING),
        (5, 7, 0, State.WAITING),
    ]
    assert table.handle(slots[0]) == NO_HANDLE
    assert table.attempts([4, 3]) == [0, 7]
    with pytest.raises(KeyError):
        table.attempts([3, 9])
    table.check()


def test_many_go_at_once_but_those_that_are_newer_or_gone(table: TimerTable) -> None:
    for timer_id in range(1, 1_001):
        insert(table, timer_id, bytes(500))
    gone = [*range(1, 1_001, 2), 2_000]
    assert table.remove_many(gone, last_lsn=900) == [2_000]
    assert len(table) == 550
    assert table.slot(901) is not None
    assert table.slot(899) is None
    table.check()


def test_many_are_asked_whether_they_are_in_order_somewhere(table: TimerTable) -> None:
    slots = [insert(table, timer_id) for timer_id in (1, 2, 3)]
    for slot in slots[:2]:
        table.set_handle(slot, -4)
    assert table.with_handle([3, 2, 9, 1]) == [2, 1]
    assert table.unsettled([3, 2, 9, 1]) == [3]
    table.take_out([2])
    assert table.with_handle([3, 2, 9, 1]) == [1]
    table.fire(slots[2], last_lsn=4, attempt=1)
    assert table.unsettled([3, 2, 9, 1]) == [2]
    with pytest.raises(KeyError):
        table.take_out([9])
