"""The bytes of the engine's records: what is on people's disks must stay readable."""

from __future__ import annotations

import pytest

from timingwheel.engine.records import (
    DEADLINE_MAX_NS,
    Base,
    Kind,
    clock_stepped,
    describe,
    timer_acknowledged,
    timer_cancelled,
    timer_fired,
    timer_rescheduled,
    timer_scheduled,
    timers_acknowledged,
    timers_fired,
    until_scheduled,
)
from wal.frame import encode_records

ON_DISK = [
    (
        timer_scheduled(Base.WALL, 0x0102030405060708, b"pay"),
        "01 01 0807060504030201 706179",
        "TimerScheduled WALL 72623859790382856 payload=3B",
    ),
    (
        timer_scheduled(Base.ELAPSED, DEADLINE_MAX_NS, b""),
        "01 00 ffffffffffffff7f",
        f"TimerScheduled ELAPSED {DEADLINE_MAX_NS} payload=0B",
    ),
    (
        timer_rescheduled(5, base=Base.ELAPSED, deadline_ns=6, attempt=7),
        "02 00 07000000 0500000000000000 0600000000000000",
        "TimerRescheduled 5 ELAPSED 6 attempt=7",
    ),
    (timer_fired(9, 2), "03 02000000 0900000000000000", "TimerFired 9 attempt=2"),
    (timer_cancelled(9), "04 0900000000000000", "TimerCancelled 9"),
    (timer_acknowledged(9), "05 0900000000000000", "TimerAcknowledged 9"),
    (
        timers_fired([9, 10], 2),
        "07 02000000 0900000000000000 0a00000000000000",
        "TimersFired 9 10 attempt=2",
    ),
    (
        timers_acknowledged([9, 10, 11]),
        "08 0900000000000000 0a00000000000000 0b00000000000000",
        "TimersAcknowledged 9 10 11",
    ),
    (
        timers_acknowledged(range(9, 13)),
        "08 0900000000000000 0a00000000000000 0b00000000000000 0c00000000000000",
        "TimersAcknowledged 9 10 11 ... 12 count=4",
    ),
    (clock_stepped(-1), "06 ffffffffffffffff", "ClockStepped sum=-1ns"),
]


@pytest.mark.parametrize(("record", "bytes_on_disk", "words"), ON_DISK)
def test_a_record_has_the_bytes_that_the_module_draws(
    record: bytes, bytes_on_disk: str, words: str
) -> None:
    assert record == bytes.fromhex(bytes_on_disk)
    assert describe(record) == words


def test_what_is_not_the_engines_is_described_by_its_size() -> None:
    assert describe(bytes([64]) + b"abc") == "kind 64, 4 bytes"
    assert describe(b"") == "kind 0, 0 bytes"


def test_every_kind_of_the_engine_lies_below_those_of_owners() -> None:
    assert max(kind for kind in Kind if kind is not Kind.OWNER_FIRST) < 64
    assert int(Kind.OWNER_FIRST) == 64


def test_the_records_before_the_next_scheduled_one_are_taken_and_at_least_one() -> None:
    new, old, owned = timer_scheduled(0, 1, b"p"), timer_fired(9, 2), bytes([64])
    body = encode_records([old, owned, new, new, old])
    after_two = len(encode_records([old, owned]))
    assert until_scheduled(body, 0) == ([old, owned], after_two)
    assert until_scheduled(body, after_two)[0] == [new]
    assert until_scheduled(body, len(body)) == ([], len(body))
