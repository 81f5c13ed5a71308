"""How a store stands: what `Scheduler.storage` tells of log, recovery and wheels."""

from __future__ import annotations

from tests.stores.conftest import MakeStage
from tests.stores.embedded_stage import EmbeddedStage
from tests.stores.stage import DAY, SECOND, at
from timingwheel.clock import SystemClock
from timingwheel.engine.volatile import MEMORY
from timingwheel.jobs.storage import LogFacts
from timingwheel.stores.embedded import EmbeddedStore


def log_of(stage: EmbeddedStage) -> LogFacts:
    facts = stage.store.storage().log
    assert facts is not None
    return facts


def test_a_new_store_has_one_segment_and_no_snapshot(any_disk: EmbeddedStage) -> None:
    log = log_of(any_disk)
    assert log.recovery.clean
    assert log.recovery.snapshot is None
    assert [one.first_lsn for one in log.segments] == [1]
    assert log.snapshots == ()
    assert log.appended_lsn == log.durable_lsn
    before = log.segments[-1].used_bytes
    any_disk.put(100)
    after = log_of(any_disk)
    assert before < after.segments[-1].used_bytes < after.segments[-1].size_bytes
    assert after.appended_lsn > log.appended_lsn
    assert after.bytes_written > log.bytes_written


def test_a_snapshot_is_seen_with_its_age_and_again_after_a_restart(
    make_stage: MakeStage,
) -> None:
    stage = make_stage()
    stage.put(100)
    at_ns = stage.now_ns
    stage.snapshot()
    (snapshot,) = log_of(stage).snapshots
    assert snapshot.created_ns == at_ns
    stage.put(at(stage.now_ns + DAY))
    stage.restart(crash=True)
    log = log_of(stage)
    assert log.snapshots[0] == snapshot
    assert log.recovery.snapshot == snapshot.name
    assert not log.recovery.clean
    assert log.recovery.replayed_bytes > 0
    assert len(log.segments) >= 2


def test_the_wheels_show_where_timers_wait(make_stage: MakeStage) -> None:
    stage = make_stage()
    assert stage.store.storage().timers == 0
    stage.put(100)
    stage.put(at(stage.now_ns + DAY), name="far")
    facts = stage.store.storage()
    assert facts.timers == 2
    wheels = {wheel.name: wheel for wheel in facts.wheels}
    assert {name: wheel.timers for name, wheel in wheels.items()} == {
        "elapsed": 1,
        "wall": 1,
    }
    for wheel, away_ns in ((wheels["elapsed"], 100 * SECOND), (wheels["wall"], DAY)):
        held = [level for level in wheel.levels if level.slots]
        (level,) = held
        (slot,) = level.slots
        # Ahead of the present, and as far as a slot can tell.
        ahead = slot - level.cursor
        assert ahead > 0
        assert abs(ahead * level.slot_ns - away_ns) <= level.slot_ns
    stage.advance(101)
    stage.step()
    assert {w.name: w.timers for w in stage.store.storage().wheels}["elapsed"] == 0


def test_a_store_in_memory_has_wheels_and_no_log() -> None:
    store = EmbeddedStore.open(MEMORY, clock=SystemClock())
    facts = store.storage()
    store.close()
    assert (facts.path, facts.log) == (MEMORY, None)
    assert [len(wheel.levels) for wheel in facts.wheels] == [8, 8]
