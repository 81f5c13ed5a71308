"""The dump: fuzzy, in short steps, and whole once the log is replayed over it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from timingwheel.engine.dump import BLOCK_BYTES, BYTES_A_STEP, SLOTS_A_STEP, dump, load
from timingwheel.engine.records import (
    Base,
    clock_stepped,
    timer_acknowledged,
    timer_cancelled,
    timer_fired,
    timer_rescheduled,
    timer_scheduled,
)
from timingwheel.engine.state import EngineState
from timingwheel.engine.table import Row, State
from timingwheel.errors import TimingWheelError
from wal.snapshot import BLOCK_BYTES_MAX

PACKED_ROW_BYTES = 34
"""Of a row without its payload, as drawn in dump.py."""


def new_state(reach_lsn: int = 0) -> EngineState:
    return EngineState(lambda _: None, reach_lsn=reach_lsn, gaps_allowed=False)


def rows(state: EngineState) -> list[Row]:
    return sorted(state.table.walk(0, state.table.slot_count))


def test_rows_and_steps_come_back_as_they_were() -> None:
    state = new_state()
    for timer_id in range(1, 700):
        state.table.insert(
            timer_id,
            last_lsn=timer_id + 1,
            deadline_ns=timer_id << 40,
            base=timer_id % 2,
            payload=bytes(timer_id % 7),
            attempt=timer_id % 3,
            state=State.FIRED if timer_id % 5 == 0 else State.WAITING,
        )
    for timer_id in range(1, 700, 11):
        state.table.remove(timer_id)
    state.apply(9_000, [clock_stepped(-5)])
    back = new_state()
    for block in dump(state, iter(()), threading.Lock()):
        assert load(back, block) is None
    assert rows(back) == rows(state)
    assert (back.steps_ns, back.steps_lsn) == (-5, 9_000)
    back.table.check()


@pytest.mark.parametrize(
    ("block_bytes", "sizes"),
    [
        (200, [200, 200, 200, 100]),
        (201, [300, 300, 100]),
        (700, [700]),
        (701, [700]),
    ],
)
def test_a_block_ends_with_the_row_that_fills_it(
    block_bytes: int, sizes: list[int]
) -> None:
    state = new_state()
    for timer_id in range(1, 8):
        state.table.insert(
            timer_id,
            last_lsn=timer_id,
            deadline_ns=5,
            base=Base.WALL,
            payload=bytes(100 - PACKED_ROW_BYTES),
        )
    blocks = dump(
        state, iter(()), threading.Lock(), slots_a_step=1, block_bytes=block_bytes
    )
    *of_rows, _ = blocks
    assert [len(block) - 1 for block in of_rows] == sizes


def test_without_timers_there_is_no_block_of_rows() -> None:
    (steps,) = dump(new_state(), iter(()), threading.Lock())
    assert load(new_state(), steps) is None


def test_the_owners_blobs_come_back_in_order() -> None:
    blobs = [b"first", b"", b"last"]
    blocks = dump(new_state(), iter(blobs), threading.Lock())
    state = new_state()
    assert [
        blob for block in blocks if (blob := load(state, block)) is not None
    ] == blobs


def test_a_block_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(TimingWheelError, match=r"block of kind 3.*version"):
        load(new_state(), bytes([3, 0]))


class Interruption:
    """Stands for the lock: whenever the dump frees it, others change the state."""

    def __init__(self, between: Callable[[], None]) -> None:
        self.between = between
        self.held = 0

    def __enter__(self) -> None:
        self.held += 1

    def __exit__(self, *_: object) -> None:
        self.between()


def test_a_step_is_bounded_in_rows_and_in_bytes() -> None:
    """The lock is held for a moment at a time, however large the table."""
    state = new_state()
    for timer_id in range(1, 10 * SLOTS_A_STEP):
        state.apply(timer_id, [timer_scheduled(Base.WALL, 1, b"")])
    few, last = Interruption(lambda: None), 10 * SLOTS_A_STEP
    for _ in dump(state, iter(()), cast("threading.Lock", few)):
        pass
    assert few.held >= 10
    for timer_id in range(last, last + 8):
        state.apply(timer_id, [timer_scheduled(Base.WALL, 1, bytes(BYTES_A_STEP))])
    more = Interruption(lambda: None)
    for _ in dump(state, iter(()), cast("threading.Lock", more)):
        pass
    assert more.held >= few.held + 7


def test_the_largest_payloads_fit_the_blocks_of_a_snapshot() -> None:
    state = new_state()
    for timer_id in range(1, 4):
        state.apply(timer_id, [timer_scheduled(Base.WALL, 1, bytes(1 << 20))])
    sizes = [len(block) for block in dump(state, iter(()), threading.Lock())]
    assert max(sizes) <= BLOCK_BYTES_MAX
    assert max(sizes) < BLOCK_BYTES + BYTES_A_STEP + (1 << 20) + 100


class RandomLog:
    """A log that grows at random, and the state that it adds up to."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.state = new_state()
        self.records: list[bytes] = []

    def grow(self) -> None:
        record = self._record()
        self.state.apply(len(self.records) + 1, [record])
        self.records.append(record)

    def _record(self) -> bytes:
        rng, known = self.rng, self.state.table.timer_ids()
        timer_id = rng.choice(known) if known else 0
        match rng.randrange(8) if known else 0:
            case 0 | 1 | 2:
                payload = rng.randbytes(rng.randrange(20))
                return timer_scheduled(rng.randrange(2), rng.getrandbits(60), payload)
            case 3 | 4:
                gone = rng.choice((timer_cancelled, timer_acknowledged))
                return gone(timer_id)
            case 5:
                return timer_fired(timer_id, rng.randrange(9))
            case 6:
                return timer_rescheduled(
                    timer_id,
                    base=rng.randrange(2),
                    deadline_ns=rng.getrandbits(60),
                    attempt=rng.randrange(9),
                )
        return clock_stepped(rng.randrange(-9, 9))


@pytest.mark.parametrize("busy", [1, 3, 20])
def test_a_dump_with_changes_between_all_its_steps_is_whole_after_replay(
    rng: random.Random, busy: int
) -> None:
    """Timers come, change and go in slots that were walked, and that were not."""
    for _ in range(60):
        log = RandomLog(rng)
        for _ in range(rng.randrange(60)):
            log.grow()
        pin_lsn = rng.randint(max(0, len(log.records) - 9), len(log.records))

        def meanwhile(log: RandomLog = log) -> None:
            for _ in range(rng.randrange(busy + 1)):
                log.grow()

        lock = cast("threading.Lock", Interruption(meanwhile))
        blocks = list(_dumped(log, lock))
        back = new_state(reach_lsn=len(log.records))
        for _ in range(rng.randrange(9)):
            log.grow()  # after the last step: the log alone has it
        for block in blocks:
            load(back, block)
        back.apply(pin_lsn + 1, log.records[pin_lsn:])
        assert rows(back) == rows(log.state)
        assert back.steps_ns == log.state.steps_ns


def _dumped(log: RandomLog, lock: threading.Lock) -> Iterator[bytes]:
    # The table may grow as fast as it is walked, so the walk is stopped from ending
    # never by a log that grows no more after a while.
    for block in dump(log.state, iter(()), lock, slots_a_step=2, block_bytes=1):
        if len(log.records) > 600:
            cast("Interruption", lock).between = lambda: None
        yield block
