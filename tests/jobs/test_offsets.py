"""Splay and jitter: stable or drawn, and never past the next occurrence."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from timingwheel.jobs.offsets import due_ns, jitter_ns, splay_ns
from timingwheel.jobs.triggers import EveryPeriod, Trigger

MINUTE_NS = 60 * 10**9
EVERY_HOUR = EveryPeriod(60 * MINUTE_NS)


def test_a_share_is_the_same_for_ever() -> None:
    """Pinned: another value here moves the due times of stored jobs."""
    job_id = "0198c0de-0000-8000-8000-000000000001"
    assert splay_ns(job_id, 10 * MINUTE_NS) == 14_292_966_027


def test_shares_of_many_jobs_are_spread_over_the_whole_bound() -> None:
    shares = [splay_ns(f"job {number}", 100) for number in range(10_000)]
    assert min(shares) == 0
    assert max(shares) == 99
    per_hundredth = [shares.count(share) for share in range(100)]
    assert min(per_hundredth) > 50
    assert max(per_hundredth) < 160


def test_a_bound_of_nothing_adds_nothing() -> None:
    assert splay_ns("a", 0) == 0
    assert jitter_ns(random.Random(1), 0) == 0
    plain = Trigger(when=EVERY_HOUR)
    due = due_ns(plain, 7, job_id="a", next_ns=8, random=random.Random(1))
    assert due == 7


def test_jitter_is_drawn_from_what_is_passed() -> None:
    drawn = [jitter_ns(random.Random(seed), 10) for seed in range(200)]
    assert set(drawn) == set(range(10))
    assert jitter_ns(random.Random(3), 1_000) == jitter_ns(random.Random(3), 1_000)


@given(
    job_id=st.text(max_size=5),
    splay=st.integers(0, 10_000),
    jitter=st.integers(0, 10_000),
    gap=st.none() | st.integers(1, 20_000),
    seed=st.integers(0, 1_000),
)
def test_a_run_is_due_at_its_nominal_time_or_later_and_before_the_next(
    *, job_id: str, splay: int, jitter: int, gap: int | None, seed: int
) -> None:
    trigger = Trigger(when=EVERY_HOUR, splay_ns=splay, jitter_ns=jitter)
    nominal_ns = 1_000_000
    due = due_ns(
        trigger,
        nominal_ns,
        job_id=job_id,
        next_ns=None if gap is None else nominal_ns + gap,
        random=random.Random(seed),
    )
    assert nominal_ns <= due
    if gap is not None:
        assert due < nominal_ns + gap
    expected = splay_ns(job_id, splay) + jitter_ns(random.Random(seed), jitter)
    if gap is None or expected < gap:
        assert due == nominal_ns + expected
