"""A timer that is due in a year holds back nothing that others leave behind."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from timingwheel import TimerEngine

YEAR_S = 365 * 86_400.0
SEGMENT_BYTES = 128 << 10
BATCH = 500
BATCHES_A_SNAPSHOT = 5
BOUND_BYTES = 2 << 20
"""20,000 pairs take 2.6 MiB without snapshots."""


def disk_bytes(directory: Path) -> int:
    total = 0
    for path in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):  # a segment that was just renamed
            total += path.stat().st_blocks * 512
    return total


@pytest.mark.parametrize(
    "pairs", [20_000, pytest.param(1_000_000, marks=pytest.mark.long)]
)
def test_a_timer_due_in_a_year_pins_no_log_beside_put_and_cancelled_ones(
    tmp_path: Path, pairs: int
) -> None:
    """A segment lives as long as a record of it counts, unless snapshots free it."""
    fired: list[int] = []
    with TimerEngine(
        tmp_path / "data",
        lambda timer_id, _: fired.append(timer_id),
        durability="interval",
        snapshot_every_bytes=1 << 40,  # written below, when the test says so
        segment_size_bytes=SEGMENT_BYTES,
        reserve_bytes=SEGMENT_BYTES,
    ) as engine:
        far = engine.schedule(YEAR_S, b"far")
        written = most = 0
        for batch in range(pairs // BATCH):
            ids = engine.schedule_many([60.0] * BATCH, [bytes(100)] * BATCH)
            assert all(engine.cancel(timer_id) for timer_id in ids)
            written += BATCH
            if batch % BATCHES_A_SNAPSHOT == BATCHES_A_SNAPSHOT - 1:
                engine.snapshot()
            most = max(most, disk_bytes(tmp_path / "data"))
        assert written == pairs
        assert most <= BOUND_BYTES
        assert len(engine) == 1
    with TimerEngine(tmp_path / "data", lambda *_: None) as again:
        (timer,) = again.timers()
        assert (timer.id, timer.payload) == (far, b"far")
    assert fired == []
