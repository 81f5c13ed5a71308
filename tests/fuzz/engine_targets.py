"""What the engine makes of records and blocks, and its bodies of the same programs."""

from __future__ import annotations

from array import array
from functools import partial
from typing import Any

from tests.engine.table_bodies import CompiledTable
from tests.fuzz.log_targets import outcome
from tests.fuzz.source import Source
from tests.wal.example_stores import counting_clock
from tests.wheel_bodies import CompiledWheel
from timingwheel.engine.opening import open_timers
from timingwheel.engine.records import describe
from timingwheel.engine.table import TimerTable
from timingwheel.errors import TimingWheelError
from timingwheel.testing import ManualClock
from timingwheel.wheel import TimerWheel
from timingwheel.wheel_arguments import DEADLINE_MAX
from wal.errors import WalError
from wal.log import Log
from wal.testing import MemoryFileSystem

STEPS_MAX = 200
ID_MAX = 1 << 62
SEGMENT_SIZE_BYTES = 64 << 10


# -- records and blocks, by an engine ----------------------------------------------------


def fuzz_records(data: bytes) -> None:
    """A log of any records, and a snapshot of any blocks, opens or is refused in words."""
    source = Source(data)
    disk = MemoryFileSystem()
    with Log.open(
        disk,
        wall_ns=counting_clock(),
        segment_size_bytes=SEGMENT_SIZE_BYTES,
        reserve_bytes=0,
        background=False,
    ) as log:
        log.start()
        blocks = [source.piece() for _ in range(source.number(1) % 4)]
        while source:
            record = source.piece()
            assert describe(record)
            log.append(record)
            if source.number(1) & 1:
                log.commit()
        log.commit()
        if any(blocks):
            writer = log.begin_snapshot()
            for block in filter(None, blocks):
                writer.add(block)
            log.finish_snapshot(writer, reach_lsn=log.appended_lsn)
    first = outcome(lambda: timers_of(disk), TimingWheelError, WalError)
    assert outcome(lambda: timers_of(disk), TimingWheelError, WalError) == first


def timers_of(disk: MemoryFileSystem) -> list[Any]:
    """What an engine has of a disk, once it has held its invariants."""
    timers = open_timers(
        disk,
        ManualClock(),
        may_wait=True,
        segment_size_bytes=SEGMENT_SIZE_BYTES,
        reserve_bytes=1,
    )
    try:
        timers.core.state.check()
        table = timers.core.state.table
        return sorted(table.walk(0, table.slot_count))
    finally:
        timers.core.close()


# -- both bodies of the table --------------------------------------------------------------


def fuzz_tables(data: bytes) -> None:
    """Both bodies take the same of any records and rows, and give the same back."""
    source = Source(data)
    tables: list[TimerTable] = [TimerTable()]
    if CompiledTable is not None:
        tables.append(CompiledTable())
    next_id = 1
    used: set[int] = set()
    for _ in range(STEPS_MAX):
        if not source:
            break
        answers: list[Any]
        match source.number(1) % 4:
            case 0:
                body, at = source.piece(), source.number(1) % 8
                answers = [
                    table.insert_scheduled(next_id, body, at=at, known_lsn=0)
                    for table in tables
                ]
                next_id += answers[0][0]
            case 1:
                block = source.piece()
                ids = ids_of(block)
                if len(set(ids) | used) < len(ids) + len(used):
                    continue  # no id comes twice: the caller's promise
                if max(ids, default=0) > ID_MAX:
                    continue
                answers = [
                    outcome(partial(table.load_rows, block, 0), TimingWheelError)
                    for table in tables
                ]
                next_id = max([next_id, *(timer_id + 1 for timer_id in ids)])
            case 2:
                timer_id = source.number(8) >> 1
                answers = [
                    outcome(partial(table.remove, timer_id), KeyError)
                    for table in tables
                ]
            case _:
                ids_asked = array("q", [source.number(2) for _ in range(4)])
                lsn = source.number(7)
                answers = [
                    table.fire_many(ids_asked, last_lsn=lsn, attempt=7)
                    for table in tables
                ]
        assert answers[0] == answers[-1], answers
        used = set(tables[0].timer_ids())
    dumps = [table.pack_rows(0, 1 << 20, bytes_max=1 << 30) for table in tables]
    assert dumps[0] == dumps[-1]
    for table in tables:
        table.check()


def ids_of(block: bytes) -> list[int]:
    """The ids of the rows of a block, as far as it goes."""
    ids, at = [], 0
    while at + 34 <= len(block):
        ids.append(int.from_bytes(block[at : at + 8], "little", signed=True))
        at += 34 + int.from_bytes(block[at + 30 : at + 34], "little")
    return ids


# -- both bodies of the wheel --------------------------------------------------------------


def fuzz_wheels(data: bytes) -> None:
    """Both bodies fire the same of any program."""
    source = Source(data)
    start = source.number(8) % DEADLINE_MAX
    bits = source.choice((1, 3, 28))
    wheels: list[TimerWheel] = [TimerWheel(start, generation_bits=bits)]
    if CompiledWheel is not None:
        wheels.append(CompiledWheel(start, generation_bits=bits))
    handles: list[list[int]] = []
    for key in range(STEPS_MAX):
        if not source:
            break
        answers: list[Any]
        now = wheels[0].now_tick
        match source.number(1) % 6:
            case 0 | 1:
                deadline = min(
                    now + source.number(source.choice((1, 2, 3, 7))), DEADLINE_MAX
                )
                handles.append([wheel.insert(deadline, key) for wheel in wheels])
                continue
            case 2 if handles:
                chosen = handles[source.number(1) % len(handles)]
                pairs = zip(wheels, chosen, strict=True)
                answers = [wheel.cancel(handle) for wheel, handle in pairs]
            case 3:
                most = source.number(1) or None
                until = min(
                    now + source.number(source.choice((1, 2, 3, 7))), DEADLINE_MAX
                )
                answers = [wheel.advance(until, most) for wheel in wheels]
            case 4:
                count = source.number(1)
                deadlines = array(
                    "q",
                    [min(now + source.number(2), DEADLINE_MAX) for _ in range(count)],
                )
                keys = array("q", range(count))
                many = [wheel.insert_many(deadlines, keys) for wheel in wheels]
                handles += map(list, zip(*many, strict=True))
                continue
            case _:
                answers = [(wheel.next_due(), len(wheel)) for wheel in wheels]
        assert answers[0] == answers[-1], answers
    if bits == 3:  # as slow as all the rest, so at one in three
        for wheel in wheels:
            wheel.check()
