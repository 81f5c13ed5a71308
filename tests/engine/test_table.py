"""The timer table: rows by slot and by id."""

from __future__ import annotations

import random
import sys

import pytest

from timingwheel.engine.records import Base, TimerId
from timingwheel.engine.table import NO_HANDLE, Row, State, TimerTable


@pytest.fixture
def table() -> TimerTable:
    return TimerTable()


def insert(table: TimerTable, timer_id: int, payload: bytes = b"") -> int:
    return table.insert(
        timer_id, last_lsn=timer_id, deadline_ns=7, base=Base.ELAPSED, payload=payload
    )


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
    table._timer_id[0] = 2
    with pytest.raises(AssertionError):
        table.check()
