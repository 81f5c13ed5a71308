"""That a soak runs, sees what a kill takes, and calls nothing else a fault."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bench.soak import Soak
from bench.soak_ledger import (
    ACKNOWLEDGED,
    ASKED,
    BUCKETS,
    CANCEL_ASKED,
    CANCELLED,
    DELIVERED,
    FAULTS,
    LIVE,
    LOST,
    PHANTOM,
    UNDONE,
    UNSERVED,
    Ledger,
    bucket_of,
    percentile_ms,
    verdicts,
)
from wal.log import Durability

HELD = ASKED | ACKNOWLEDGED


@pytest.mark.parametrize(
    ("marks", "is_over", "fault"),
    [
        (HELD, False, LOST),
        (HELD | CANCELLED | CANCEL_ASKED | LIVE, False, UNDONE),
        (HELD | CANCELLED | CANCEL_ASKED | DELIVERED, False, UNDONE),
        (LIVE, False, PHANTOM),
        (HELD | LIVE, True, UNSERVED),
    ],
)
def test_a_ledger_sees(marks: int, is_over: bool, fault: str) -> None:
    found = set(verdicts(marks, is_over=is_over))
    assert found & set(FAULTS) == {fault}


@pytest.mark.parametrize(
    "marks",
    [
        0,
        ASKED,  # the answer was not there yet: it may be lost, or live
        ASKED | LIVE,
        HELD | LIVE,
        HELD | DELIVERED,
        HELD | DELIVERED | LIVE,  # its end was not durable yet
        HELD | CANCEL_ASKED,
        HELD | CANCEL_ASKED | LIVE,
        HELD | CANCEL_ASKED | CANCELLED,
    ],
)
def test_a_ledger_blames_nobody_for_what_a_kill_may_leave(marks: int) -> None:
    assert not set(verdicts(marks, is_over=False)) & set(FAULTS)


def test_a_ledger_counts_what_another_process_would_see(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, 1)
    ledger.marks[3] = HELD
    ledger.marks[5] = HELD | LIVE
    assert Ledger(tmp_path, 1).judge(is_over=False)[LOST] == 1
    ledger.clear_live()
    assert Ledger(tmp_path, 1).judge(is_over=False)[LOST] == 2


@pytest.mark.parametrize("ms", [0.001, 0.7, 1.0, 3.3, 50.0, 9_000.0])
def test_a_percentile_is_a_bound_of_a_quarter_of_an_octave(ms: float) -> None:
    buckets = [0] * BUCKETS
    buckets[bucket_of(int(ms * 1e6))] += 1
    found = percentile_ms(buckets, 0.5)
    assert found is not None
    assert ms <= found <= ms * 2


@pytest.mark.parametrize("durability", ["durable", "interval"])
def test_a_soak_finds_what_kills_have_taken(
    tmp_path: Path, durability: Durability
) -> None:
    soak = Soak(
        store=tmp_path / "store",
        memory=tmp_path,
        rate=500,
        seconds=0.5,
        kill_every_s=60.0,
        long_life_s=(0, 0),
        durability=durability,
        rng=random.Random(1),
    )
    soak.run(4.0)
    assert soak.kills
    assert soak.samples
    assert bool(+soak.faults) == (durability == "interval"), soak.faults
