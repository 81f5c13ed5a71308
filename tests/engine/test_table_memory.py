"""What the compiled table holds, and what becomes of it when there is no more memory.

CPython's own test module makes every allocation fail from the n-th on; each operation is
tried with n from 0 until it needs no more. tracemalloc sees what the table has allocated.
"""

from __future__ import annotations

import random
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator

import pytest

from tests.engine.table_bodies import CompiledTable, needs_the_compiled_table
from timingwheel.engine.records import timer_scheduled
from timingwheel.engine.table import TimerTable
from wal.frame import encode_records

pytestmark = needs_the_compiled_table

SLACK_BYTES = 3 << 16
BLOCK_ROWS = 4_096
"""Rows are allocated so many at a time."""
INDEX_DOMAIN = 0x7457
"""What tracemalloc knows the pages of an index by."""


def insert(table: TimerTable, timer_id: int, payload: bytes) -> None:
    table.insert(timer_id, last_lsn=1, deadline_ns=7, base=0, payload=payload)


@pytest.fixture
def bytes_held() -> Iterator[Callable[[], int]]:
    """How much more memory there is in use than when the test began."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    yield lambda: tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()


def test_a_row_takes_few_bytes_and_no_object(bytes_held: Callable[[], int]) -> None:
    table, payload = CompiledTable(), bytes(100)
    for timer_id in range(1, 20_001):
        insert(table, timer_id, payload)
    # 48 for the row, 104 in the arena, up to 8 to find it and 6 in the former index.
    rows_bytes = (20_000 + BLOCK_ROWS) * 48
    assert bytes_held() <= rows_bytes + 20_000 * (104 + 8 + 6) + SLACK_BYTES


def index_count() -> int:
    """Return how many indexes there are in this process; one that grows has two."""
    return sum(
        trace.domain == INDEX_DOMAIN for trace in tracemalloc.take_snapshot().traces
    )


@pytest.mark.usefixtures("bytes_held")
@pytest.mark.parametrize("change", ["insert", "insert_record", "run", "remove", "many"])
def test_an_index_that_grows_moves_a_piece_with_each_change(change: str) -> None:
    """The old one stays for long after the new one has come, and not for ever."""
    table, last = CompiledTable(), 0
    while last < 4_000 or index_count() < 2:
        for timer_id in range(last + 1, last + 101):
            insert(table, timer_id, b"")
        last += 100
        assert last < 10_000, "no index was seen to grow"
    record = timer_scheduled(0, 1, b"")
    run = encode_records([record] * 50)
    changed = 0
    while index_count() == 2:
        ids = range(changed + 1, changed + 51)
        new_ids = range(last + changed + 1, last + changed + 51)
        if change == "run":
            table.insert_scheduled(new_ids[0], run, at=0, known_lsn=0)
        elif change == "many":
            table.remove_many(ids, last_lsn=9)
        elif change == "remove":
            for timer_id in ids:
                table.remove(timer_id)
        else:
            for timer_id in new_ids:
                if change == "insert":
                    insert(table, timer_id, b"")
                else:
                    table.insert_record(timer_id, record)
        changed += 50
        table.check()
        assert changed <= last // 5, "too slow: the new one could be full before"
    assert changed >= last // 30, "it moved in one go, or nearly"


@pytest.mark.parametrize("sizes", [(100,), (1, 60, 3_000), (16_000, 17_000, 90_000)])
def test_payloads_hold_at_most_twice_what_lives_of_them(
    bytes_held: Callable[[], int], rng: random.Random, sizes: tuple[int, ...]
) -> None:
    """Whatever the order of removal, and in a table that churns for long."""
    count = 40_000_000 // sum(sizes) // 40
    payloads = {size: bytes(size) for size in sizes}
    live: list[int] = []
    table, next_id = CompiledTable(), 1
    for keep in (0.9, 0.5, 0.1, 0.01, 0.9, 0.001, 0):
        for timer_id in range(next_id, next_id + count):
            insert(table, timer_id, payloads[rng.choice(sizes)])
            live.append(timer_id)
        next_id += count
        rng.shuffle(live)
        while len(live) > count * keep:
            table.remove(live.pop())
        table.check()
    del live[:]
    # Rows and index stay for those to come; of the arena two chunks do.
    rows_bytes = (table.slot_count + BLOCK_ROWS) * 48 + table.slot_count * (8 + 6)
    assert len(table) == 0
    assert bytes_held() <= rows_bytes + SLACK_BYTES + sum(sizes) + 50_000


def test_an_insert_that_opens_a_chunk_keeps_the_bound_too() -> None:
    """Four payloads fill a chunk; of ten chunks, five keep two of them and five one."""
    table, payload = CompiledTable(), bytes(16_000)
    for timer_id in range(40):
        insert(table, 1 + timer_id, payload)
    for timer_id in range(40):
        if timer_id % 4 > (1 if timer_id < 20 else 0):
            table.remove(1 + timer_id)
    table.check()
    insert(table, 41, payload)
    table.check()


def runs_out(operation: Callable[[], object], allocations: int) -> bool:
    """Run an operation that has so many allocations left; say whether that was few."""
    testcapi = pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    testcapi.set_nomemory(allocations, 0)
    try:
        operation()
    except MemoryError:
        return True
    finally:
        testcapi.remove_mem_hooks()
    return False


def a_table(timers: int) -> TimerTable:
    table = CompiledTable()
    for timer_id in range(1, timers + 1):
        insert(table, timer_id, bytes(timer_id % 500))
    for timer_id in range(1, timers + 1, 3):
        table.remove(timer_id)
    return table


def out_of_memory(
    timers: int, operation_on: Callable[[TimerTable], Callable[[], object]]
) -> Iterator[TimerTable]:
    """Yield a table on which the operation has just failed, for each way it can fail."""
    allocations = 0
    while True:
        table = a_table(timers)
        if not runs_out(operation_on(table), allocations):
            return
        yield table
        allocations += 1


def unchanged(table: TimerTable, timers: int) -> bool:
    table.check()
    expected = [n for n in range(1, timers + 1) if n % 3 != 1]
    return table.timer_ids() == expected and all(
        row.payload == bytes(row.timer_id % 500)
        for row in table.walk(0, table.slot_count)
    )


@pytest.mark.parametrize("size", [10, 16_000, 100_000])
@pytest.mark.parametrize("timers", [0, 2, 24, 400])
def test_an_insert_without_memory_has_inserted_nothing(timers: int, size: int) -> None:
    payload, failures = bytes(size), 0
    for table in out_of_memory(
        timers, lambda table: lambda: insert(table, 9_999, payload)
    ):
        failures += 1
        assert unchanged(table, timers)
        insert(table, 9_999, payload)
        table.check()
    assert failures >= (4 if timers == 0 else size > 50_000)


def test_a_run_without_memory_has_inserted_nothing() -> None:
    body = encode_records([timer_scheduled(0, 1, bytes(9_000)) for _ in range(60)])
    failures = 0
    for table in out_of_memory(
        100,
        lambda table: lambda: table.insert_scheduled(9_000, body, at=0, known_lsn=0),
    ):
        failures += 1
        assert unchanged(table, 100)
        assert table.insert_scheduled(9_000, body, at=0, known_lsn=0)[0] == 60
        table.check()
    assert failures >= 8, "rows, index and the chunks of the arena were not all met"


def test_a_remove_needs_no_memory() -> None:
    """It takes some to compact if there is any, and else leaves that to the next one."""
    table, payload = CompiledTable(), bytes(1_000)
    for timer_id in range(1, 3_001):
        insert(table, timer_id, payload)
    gone = [timer_id for timer_id in range(1, 3_001) if timer_id % 10]
    removals = map(table.remove, gone)
    take_all = deque[None](maxlen=0).extend

    assert not runs_out(lambda: take_all(removals), 0)

    assert table.timer_ids() == [*range(10, 3_001, 10)]
    table.check()
    table.remove(10)
    table.check()
    assert all(row.payload == payload for row in table.walk(0, 3_000))
