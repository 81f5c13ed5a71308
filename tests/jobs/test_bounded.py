"""A schedule between two instants."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timingwheel.jobs.bounded import Bounded
from timingwheel.jobs.every import Every
from timingwheel.jobs.schedule import HORIZON_NS, NS, Firing


@given(
    period=st.integers(1, 30),
    start=st.none() | st.integers(0, 200),
    width=st.none() | st.integers(1, 200),
    asked=st.integers(-50, 500),
    span=st.integers(0, 300),
)
def test_it_has_the_firings_of_the_other_one_that_lie_between(
    period: int, start: int | None, width: int | None, asked: int, span: int
) -> None:
    end = None if width is None else (start or 0) + width
    bounded = Bounded(Every(period, 5), start_ns=start, end_ns=end)
    low, high = start or 0, 2_000 if end is None else end
    inside = [n for n in range(5, 2_000, period) if low <= n < high]
    later = [n for n in inside if n > asked]
    earlier = [n for n in inside if n < asked]
    following, former = bounded.next_ns(asked), bounded.prev_ns(asked)
    assert (following and following.utc_ns) == (later[0] if later else None)
    assert (former and former.utc_ns) == (earlier[-1] if earlier else None)
    counted = [n for n in inside if asked <= n < asked + span]
    assert bounded.count_ns(asked, asked + span) == len(counted)


def test_each_bound_and_each_question_holds_at_its_very_instant() -> None:
    bounds: list[int | None] = [None, *range(8)]
    for start, end, anchor in product(bounds, bounds, range(3)):
        bounded = Bounded(Every(3, anchor), start_ns=start, end_ns=end)
        low, high = start or 0, 100 if end is None else end
        inside = [n for n in range(anchor, 100, 3) if low <= n < high]
        for asked in range(-1, 10):
            later = [Firing(n) for n in inside if n > asked]
            earlier = [Firing(n) for n in inside if n < asked]
            assert bounded.next_ns(asked) == (later[0] if later else None)
            assert bounded.prev_ns(asked) == (earlier[-1] if earlier else None)
            for until in (asked - 1, asked, asked + 1, asked + 4):
                counted = [n for n in inside if asked <= n < until]
                assert bounded.count_ns(asked, until) == len(counted)


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (None, None, ""),
        (NS, None, " Nothing before 1970-01-01 00:00:01 UTC."),
        (None, NS, " Nothing from 1970-01-01 00:00:01 UTC on."),
        (
            *(NS, 2 * NS),
            (
                " Nothing before 1970-01-01 00:00:01 UTC and nothing from "
                "1970-01-01 00:00:02 UTC on."
            ),
        ),
    ],
)
def test_the_bounds_in_words(start: int | None, end: int | None, words: str) -> None:
    every = Every(HORIZON_NS, 0)
    bounded = Bounded(every, start_ns=start, end_ns=end)
    assert bounded.explain() == every.explain() + words
    silent = Bounded(every, start_ns=start, end_ns=end, is_said=False)
    assert silent.explain() == every.explain()
