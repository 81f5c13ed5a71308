"""The plan, on both bodies: where records will go.

It is tried against the writer that follows it: whatever is added, each frame must land
where it was planned, in blocks that are owned.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wal.codec_bodies import PLANS, CompiledPlan, needs_the_compiled_codec
from tests.wal.stores import SEGMENT_BYTES, frames_of, segment_header, segments_of
from tests.wal.write_bench import OPENING_BYTES, Bench
from wal.bodies import encode_records
from wal.errors import RecordTooLargeError
from wal.frame import BODY_BYTES_MAX, HEADER_BYTES, Flag
from wal.plan import FramePlan
from wal.segment import SEGMENT_HEADER_BYTES


@pytest.fixture(params=PLANS)
def plan_body(request: pytest.FixtureRequest) -> type[FramePlan]:
    body: type[FramePlan] = request.param
    return body


@pytest.fixture
def bench(plan_body: type[FramePlan]) -> Bench:
    return Bench(plan_body=plan_body)


# -- the plan --------------------------------------------------------------------------


def test_what_is_added_before_a_take_goes_together(bench: Bench) -> None:
    assert [bench.add(b"a"), bench.add(b"b", b"c"), bench.add(b"d")] == [1, 2, 4]
    (frame,) = bench.plan.take(everything=False)
    assert (frame.first_lsn, frame.last_lsn, frame.record_count) == (1, 4, 4)
    assert bytes(frame.body) == encode_records([b"a", b"b", b"c", b"d"])
    assert not frame.rotate


def test_nothing_is_added_to_a_frame_that_was_taken(bench: Bench) -> None:
    bench.add(b"a")
    (taken,) = bench.plan.take(everything=False)
    bench.add(b"b")
    assert taken.record_count == 1
    bench.flush()
    bench.flush()
    assert bench.read() == [b"a", b"b"]


def test_one_frame_is_taken_at_a_time_or_all_that_wait(bench: Bench) -> None:
    for _ in range(3):
        bench.add(b"x" * 3000)
    assert len(bench.plan.take(everything=False)) == 1
    bench.flush(everything=False)
    assert len(bench.plan.take(everything=True)) == 2
    bench.flush()
    assert not bench.plan
    assert bench.plan.take(everything=True) == []


def test_what_was_taken_and_not_written_comes_first_next_time(bench: Bench) -> None:
    bench.add(b"a")
    first = bench.plan.take(everything=False)[0]
    bench.add(b"b")
    assert bench.plan.take(everything=False) == [first]
    frames = bench.plan.take(everything=True)
    assert frames[0] is first
    assert [frame.first_lsn for frame in frames] == [1, 2]


def test_the_plan_counts_what_waits_until_it_is_written(bench: Bench) -> None:
    bench.add(b"four")
    bench.add(b"12", b"3456")
    size = 4 * 3 + 4 + 2 + 4
    assert (bench.plan.bytes_waiting, bench.plan.records_waiting) == (size, 3)
    bench.plan.take(everything=False)
    assert (bench.plan.bytes_waiting, bench.plan.records_waiting) == (size, 3)
    bench.flush()
    assert (bench.plan.bytes_waiting, bench.plan.records_waiting) == (0, 0)
    assert bench.plan.bytes_written == size


def test_a_group_that_no_frame_can_hold_changes_nothing(bench: Bench) -> None:
    limit = bench.plan.body_bytes_max
    assert limit == SEGMENT_BYTES - SEGMENT_HEADER_BYTES - 2 * HEADER_BYTES
    with pytest.raises(RecordTooLargeError) as caught:
        bench.plan.add(bytes(limit + 1), record_count=1, urgent=False)
    assert (caught.value.size_bytes, caught.value.limit_bytes) == (limit + 1, limit)
    assert isinstance(caught.value, ValueError)
    assert not bench.plan
    assert bench.plan.next_lsn == 1
    assert bench.plan.bytes_waiting == 0


def test_a_frame_is_never_larger_than_its_format_allows(
    plan_body: type[FramePlan],
) -> None:
    bench = Bench(plan_body=plan_body, segment_bytes=20 << 20, opening_bytes=20 << 20)
    assert bench.plan.body_bytes_max == BODY_BYTES_MAX
    bench.add(b"x" * (5 << 20))
    bench.add(b"y" * (5 << 20))
    frames = bench.plan.take(everything=True)
    assert [frame.rotate for frame in frames] == [False, False]


def test_two_groups_may_fill_a_frame_to_its_last_byte(
    plan_body: type[FramePlan],
) -> None:
    bench = Bench(segment_bytes=20 << 20, opening_bytes=20 << 20, plan_body=plan_body)
    bench.add(bytes(BODY_BYTES_MAX // 2 - 4))
    bench.add(bytes(BODY_BYTES_MAX // 2 - 4))
    (frame,) = bench.plan.take(everything=True)
    assert len(frame.body) == BODY_BYTES_MAX


def test_the_largest_group_fits_a_fresh_segment_with_its_close_frame(
    bench: Bench,
) -> None:
    bench.add(b"x" * (bench.plan.body_bytes_max - 4))
    bench.flush()
    assert bench.writer.offset == SEGMENT_BYTES - HEADER_BYTES
    bench.writer.close(mark=True)
    name = segments_of(bench.disk)[-1]
    assert len(bench.disk.content(name)) == SEGMENT_BYTES
    assert Flag.CLOSE in frames_of(bench.disk, name)[-1][1].flags


@pytest.mark.parametrize("over", [0, 1])
def test_a_segment_of_the_pool_keeps_room_for_its_close_frame_too(
    bench: Bench, over: int
) -> None:
    for payload in (b"x" * 3000, b"y" * 1000):  # the second one rotates
        bench.add(payload)
        bench.flush()
    left = SEGMENT_BYTES - HEADER_BYTES - bench.writer.offset
    bench.add(b"z" * (left - HEADER_BYTES - 4 + over))
    bench.flush()
    assert bench.writer.header.segment_id == 2 + over
    bench.writer.close(mark=True)
    assert len(bench.read()) == 3


@pytest.mark.parametrize("over", [0, 1])
def test_groups_share_a_frame_up_to_the_room_of_the_close_frame(
    bench: Bench, over: int
) -> None:
    bench.add(b"in a frame of its own")
    bench.flush()
    left = SEGMENT_BYTES - HEADER_BYTES - bench.writer.offset
    bench.add(b"x" * 1000)
    bench.add(b"y" * (left - HEADER_BYTES - 1004 - 4 + over))
    frames = bench.plan.take(everything=True)
    assert [frame.rotate for frame in frames] == [False, True][: 1 + over]


def test_a_group_that_needs_an_unready_segment_changes_nothing(bench: Bench) -> None:
    bench.add(b"x" * 3000)
    before = bench.plan.next_lsn, bench.plan.bytes_waiting
    body = encode_records([b"y" * 3000])
    assert bench.plan.add(body, record_count=1, urgent=False) is None
    assert (bench.plan.next_lsn, bench.plan.bytes_waiting) == before
    bench.flush()
    assert bench.read() == [b"x" * 3000]


def test_a_smaller_group_still_fits_after_one_that_did_not(bench: Bench) -> None:
    bench.add(b"x" * 3000)
    assert bench.plan.add(bytes(3000), record_count=1, urgent=False) is None
    assert bench.plan.add(encode_records([b"y"]), record_count=1, urgent=False) == 2
    bench.flush()
    assert bench.read() == [b"x" * 3000, b"y"]


def test_urgent_groups_go_into_the_reserve(bench: Bench) -> None:
    bench.pool.wait(urgent=True)  # one, which is the reserve
    bench.add(b"x" * 3000)
    body = encode_records([b"y" * 3000])
    assert bench.plan.add(body, record_count=1, urgent=False) is None
    assert bench.plan.add(body, record_count=1, urgent=True) == 2


SIZES = st.lists(
    st.one_of(st.integers(0, 200), st.integers(0, SEGMENT_BYTES)),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("plan_body", PLANS)
@given(
    st.lists(st.one_of(SIZES, st.sampled_from(["one", "all"])), max_size=30),
    st.sampled_from([OPENING_BYTES, SEGMENT_BYTES]),
)
def test_every_frame_lands_where_it_was_planned(
    plan_body: type[FramePlan], steps: list[list[int] | str], opening_bytes: int
) -> None:
    bench = Bench(opening_bytes=opening_bytes, plan_body=plan_body)
    expected: list[bytes] = []
    for number, step in enumerate(steps):
        if isinstance(step, str):
            bench.flush(everything=step == "all")
            continue
        payloads = [bytes([number % 251 + 1]) * size for size in step]
        try:
            lsn = bench.add(*payloads)
        except RecordTooLargeError:
            continue
        assert lsn == len(expected) + 1
        expected += payloads
        bench.pool.check()
    bench.flush(everything=True)
    assert bench.read() == expected
    assert bench.durable_lsn == len(expected)
    assert bench.pool.ready >= 0
    for name in segments_of(bench.disk):
        size = segment_header(bench.disk, name).size_bytes
        assert len(bench.disk.content(name)) <= size  # never grown: blocks it owned
        end = sum(header.frame_bytes for _, header in frames_of(bench.disk, name))
        assert SEGMENT_HEADER_BYTES + end <= size - HEADER_BYTES  # room for CLOSE


@needs_the_compiled_codec
@given(
    st.lists(st.one_of(SIZES, st.sampled_from(["one", "all", "take"])), max_size=30),
    st.sampled_from([OPENING_BYTES, SEGMENT_BYTES]),
    st.booleans(),
)
def test_both_bodies_plan_the_same(
    steps: list[list[int] | str], opening_bytes: int, urgent: bool
) -> None:
    benches = [
        Bench(opening_bytes=opening_bytes, plan_body=body)
        for body in (FramePlan, CompiledPlan)
    ]
    for step in steps:
        plain, other = (take_step(bench, step, urgent=urgent) for bench in benches)
        assert plain == other


def take_step(bench: Bench, step: list[int] | str, *, urgent: bool) -> list[object]:
    """Do one thing to a plan; return all that can be seen of it then."""
    plan = bench.plan
    result: object = None
    if isinstance(step, list):
        body = encode_records([b"x" * size for size in step])
        try:
            result = plan.add(body, record_count=len(step), urgent=urgent)
        except RecordTooLargeError as error:
            result = str(error)
        if result is None:
            bench.pool.wait(urgent=urgent)
    elif step == "take":
        result = [
            (bytes(frame.body), frame.first_lsn, frame.last_lsn, frame.record_count)
            for frame in plan.take(everything=False)
        ]
    else:
        bench.flush(everything=step == "all")
    return [
        result,
        bool(plan),
        plan.next_lsn,
        plan.bytes_waiting,
        plan.records_waiting,
        plan.bytes_written,
        bench.writer.end().offset,
        bench.pool.ready,
    ]
