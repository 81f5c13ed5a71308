"""Bad input: each error names the argument, what was found, and what to pass."""

from __future__ import annotations

import math
import os
from array import array
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timingwheel.engine.arguments import (
    BATCH_BYTES_MAX,
    BATCH_TIMERS_MAX,
    PAYLOAD_BYTES_MAX,
    check_log_options,
    checked_batch,
    checked_deadline_ns,
    checked_delay_ns,
    checked_payload,
    checked_snapshot_every,
    checked_timer_id,
    checked_wall_ns,
    checked_workers,
)
from timingwheel.engine.records import DEADLINE_MAX_NS
from timingwheel.errors import (
    ArgumentError,
    BatchTooLargeError,
    DeadlineError,
    PayloadTooLargeError,
)


@pytest.mark.parametrize(
    ("delay", "ns"),
    [
        (0, 0),
        (0.0, 0),
        (-0.0, 0),
        (1, 10**9),
        (1.5, 1_500_000_000),
        (1e-9, 1),
        (5e-324, 1),
        (9_223_372_036, 9_223_372_036 * 10**9),
    ],
)
def test_seconds_become_nanoseconds(delay: float, ns: int) -> None:
    assert checked_delay_ns(delay) == ns


@given(st.floats(0, 1e9))
def test_a_delay_is_never_cut_short_by_more_than_a_floats_own_error(
    delay: float,
) -> None:
    exact = Fraction(delay) * 10**9
    assert exact * (1 - Fraction(1, 2**52)) <= checked_delay_ns(delay) < exact + 129


@pytest.mark.parametrize(
    "delay", [-1, -1e-300, -math.inf, math.nan, "30", None, True, b"1", 1j, Fraction(1)]
)
def test_a_delay_that_cannot_be_meant_is_refused_by_name(delay: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^delay is .+: pass ") as caught:
        checked_delay_ns(delay)
    assert caught.value.argument == "delay"
    assert caught.value.found is delay


@pytest.mark.parametrize(
    "delay", [math.inf, 1e300, 2**63, 10**40, 9_223_372_037.0, 9_223_372_036.5]
)
def test_a_delay_beyond_2262_is_refused_as_an_overflow(delay: float) -> None:
    with pytest.raises(DeadlineError, match=r"delay is .*2262.*earlier") as caught:
        checked_delay_ns(delay)
    assert isinstance(caught.value, OverflowError)


def test_a_deadline_may_reach_2262_and_not_further() -> None:
    assert checked_deadline_ns(DEADLINE_MAX_NS - 5, 5, found=1) == DEADLINE_MAX_NS
    with pytest.raises(DeadlineError, match="delay is 7"):
        checked_deadline_ns(DEADLINE_MAX_NS - 5, 6, found=7)
    with pytest.raises(DeadlineError, match=r"delays\[3\] is 7"):
        checked_deadline_ns(DEADLINE_MAX_NS, 1, found=7, argument="delays[3]")


@pytest.mark.parametrize("wall_ns", [0, 1, DEADLINE_MAX_NS])
def test_a_moment_of_the_wall_clock_is_taken_as_it_is(wall_ns: int) -> None:
    assert checked_wall_ns(wall_ns) == wall_ns


@pytest.mark.parametrize("wall_ns", [-1, 1.7e18, "now", None, True, math.nan])
def test_a_moment_that_cannot_be_meant_is_refused(wall_ns: Any) -> None:
    with pytest.raises(ArgumentError, match=r"wall_ns is .*since 1970 as an int"):
        checked_wall_ns(wall_ns)


def test_a_moment_after_2262_is_refused() -> None:
    with pytest.raises(DeadlineError, match=r"wall_ns is 9223372036854775808: .*2262"):
        checked_wall_ns(DEADLINE_MAX_NS + 1)


@pytest.mark.parametrize("payload", [b"", b"x", bytes(PAYLOAD_BYTES_MAX)])
def test_bytes_up_to_a_mebibyte_are_a_payload(payload: bytes) -> None:
    assert checked_payload(payload) is payload


@pytest.mark.parametrize(
    "payload", ["text", None, 5, bytearray(b"x"), memoryview(b"x")]
)
def test_what_is_not_bytes_is_no_payload(payload: Any) -> None:
    with pytest.raises(ArgumentError, match=r"payload is .*pass bytes, not ") as caught:
        checked_payload(payload)
    assert type(payload).__name__ in str(caught.value)


def test_a_payload_over_a_mebibyte_is_refused_with_both_sizes() -> None:
    payload = bytes(PAYLOAD_BYTES_MAX + 1)
    with pytest.raises(
        PayloadTooLargeError, match=r"1,048,577 bytes.*1,048,576"
    ) as found:
        checked_payload(payload)
    assert found.value.found is payload
    assert len(str(found.value)) < 300  # its two ends are shown, not all of it


@pytest.mark.parametrize("timer_id", [0, -1, 1 << 63, 1.0, "1", None, True])
def test_what_no_engine_returned_is_no_timer_id(timer_id: Any) -> None:
    with pytest.raises(
        ArgumentError,
        match=r"timer_id is .*: pass an id that this engine's schedule returned$",
    ):
        checked_timer_id(timer_id)


@pytest.mark.parametrize("timer_id", [1, DEADLINE_MAX_NS])
def test_each_number_that_a_record_can_have_is_a_timer_id(timer_id: int) -> None:
    assert checked_timer_id(timer_id) == timer_id


def test_a_batch_is_taken_from_any_sequence() -> None:
    assert checked_batch(array("d", [0.5, 2]), (b"a", b"b")) == (
        [500_000_000, 2_000_000_000],
        (b"a", b"b"),
    )
    assert checked_batch([], [])[0] == []
    full = checked_batch([1] * BATCH_TIMERS_MAX, [bytes(64)] * BATCH_TIMERS_MAX)
    assert len(full[0]) * 64 == BATCH_BYTES_MAX


@pytest.mark.parametrize(
    ("delays", "payloads", "error", "message"),
    [
        ([1], [], ArgumentError, "payloads is 0: pass as many .* which are 1"),
        ([], [b""], ArgumentError, "payloads is 1: pass as many .* which are 0"),
        ([1, 2, -3], [b""] * 3, ArgumentError, r"^delays\[2\] is -3: "),
        ([1, math.nan], [b""] * 2, ArgumentError, r"^delays\[1\] is nan: "),
        ([math.inf, 1], [b""] * 2, DeadlineError, r"^delays\[0\] is inf: "),
        ([1, 2], [b"", "x"], ArgumentError, r"^payloads\[1\] is 'x': pass bytes"),
        (
            [1],
            [bytes(PAYLOAD_BYTES_MAX + 1)],
            PayloadTooLargeError,
            r"^payloads\[0\] is ",
        ),
        ([1] * 65_537, [b""] * 65_537, BatchTooLargeError, "delays is 65537.*65,536"),
        (
            [1] * 5,
            [bytes(900_000)] * 5,
            BatchTooLargeError,
            "payloads is 4500000.*split",
        ),
        (7, [b""], ArgumentError, "delays is 7: pass a sequence"),
        ([1], None, ArgumentError, "payloads is None: pass a sequence"),
        ({1}, [b""], ArgumentError, r"delays is \{1\}: pass a sequence"),
        (iter([1]), [b""], ArgumentError, "delays is <.*: pass a sequence"),
    ],
)
def test_a_bad_batch_is_refused_with_the_place(
    delays: Any, payloads: Any, error: type[ArgumentError], message: str
) -> None:
    with pytest.raises(error, match=message):
        checked_batch(delays, payloads)


@pytest.mark.parametrize("workers", [1, 1_024])
def test_workers_may_be_1_to_1024(workers: int) -> None:
    assert checked_workers(workers) == workers


def test_by_default_there_are_a_few_more_workers_than_cores() -> None:
    assert checked_workers(None) == min(32, (os.cpu_count() or 1) + 4)


@pytest.mark.parametrize("workers", [0, -1, 1_025, 2.0, "4", True])
def test_other_numbers_of_workers_are_refused(workers: Any) -> None:
    with pytest.raises(ArgumentError, match=r"workers is .*pass 1 to 1,024"):
        checked_workers(workers)


def test_between_two_snapshots_the_log_may_grow_by_a_byte_or_more() -> None:
    assert [checked_snapshot_every(size_bytes) for size_bytes in (1, 2)] == [1, 2]
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(ArgumentError, match=f"snapshot_every_bytes is {wrong}: "):
            checked_snapshot_every(wrong)  # type: ignore[arg-type]


LOG_OPTIONS: dict[str, Any] = {
    "durability": "durable",
    "interval_ms": 50,
    "segment_size_bytes": 5120,
    "reserve_bytes": 0,
}


def test_options_of_the_log_that_are_in_range_pass() -> None:
    check_log_options(**LOG_OPTIONS)
    for interval_ms in (1, 0.1e5, 60_000):
        more = {"durability": "interval", "interval_ms": interval_ms}
        check_log_options(**LOG_OPTIONS | more)
    check_log_options(**LOG_OPTIONS | {"segment_size_bytes": 1 << 30})


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("durability", "relaxed", 'pass "durable" or "interval"'),
        ("durability", None, 'pass "durable" or "interval"'),
        ("interval_ms", 0.5, "pass 1 to 60,000"),
        ("interval_ms", 60_001, "pass 1 to 60,000"),
        ("interval_ms", math.nan, "pass 1 to 60,000"),
        ("interval_ms", "50", "pass 1 to 60,000"),
        ("segment_size_bytes", 5119, "multiple of 512 from 5,120"),
        ("segment_size_bytes", 5121, "multiple of 512"),
        ("segment_size_bytes", 1 << 31, "to 1,073,741,824"),
        ("segment_size_bytes", 1e6, "multiple of 512"),
        ("reserve_bytes", -1, "0 bytes or more"),
        ("reserve_bytes", None, "0 bytes or more"),
    ],
)
def test_other_options_of_the_log_are_refused(
    option: str, value: Any, message: str
) -> None:
    with pytest.raises(ArgumentError, match=f"^{option} is .*{message}"):
        check_log_options(**LOG_OPTIONS | {option: value})
