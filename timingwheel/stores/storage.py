"""How the embedded store stands, gathered from its log, its core and its directory."""

from __future__ import annotations

from typing import Final

from timingwheel.bodies import TimerWheel
from timingwheel.engine.core import EngineCore
from timingwheel.engine.timeline import TICK_NS
from timingwheel.jobs.storage import (
    LevelFacts,
    LogFacts,
    RecoveryFacts,
    SegmentFacts,
    SnapshotFacts,
    Storage,
    WheelFacts,
)
from timingwheel.wheel import LEVELS, SLOT_BITS, SLOTS
from wal.log import Log, LogStats
from wal.segment import parse_segment_name
from wal.snapshot import SnapshotInfo, parse_snapshot_name

_SLOT_MASK: Final = SLOTS - 1
_LEVEL_MASK: Final = (1 << SLOTS) - 1


def storage_of(
    core: EngineCore, *, history_lsn: int, snapshot: SnapshotInfo | None
) -> Storage:
    """Return how a store stands.

    Args:
        core: of the store.
        history_lsn: what its history has reached.
        snapshot: the newest that is known to be good.

    Cost: the lock for some microseconds; the names and sizes of the store's files.
    """
    with core.lock:
        timeline = core.state.timeline
        timers = len(timeline)
        wheels = tuple(_wheel(name, wheel) for name, wheel in timeline.wheels().items())
    log = core.log
    return Storage(
        path=log.path,
        timers=timers,
        wheels=wheels,
        history_lsn=history_lsn,
        log=_log(log, core, snapshot) if isinstance(log, Log) else None,
    )


def _wheel(name: str, wheel: TimerWheel) -> WheelFacts:
    now_tick, occupied = wheel.now_tick, wheel.occupied_slots()
    return WheelFacts(
        name=name,
        timers=len(wheel),
        now_ns=now_tick * TICK_NS,
        levels=tuple(
            LevelFacts(
                slot_ns=TICK_NS << level * SLOT_BITS,
                cursor=now_tick >> level * SLOT_BITS & _SLOT_MASK,
                slots=_set_bits(occupied >> level * SLOTS & _LEVEL_MASK),
            )
            for level in range(LEVELS)
        ),
    )


def _set_bits(bits: int) -> tuple[int, ...]:
    return tuple(at for at in range(bits.bit_length()) if bits >> at & 1)


def _log(log: Log, core: EngineCore, snapshot: SnapshotInfo | None) -> LogFacts:
    stats = log.stats()
    sizes = log.file_sizes()
    return LogFacts(
        durability=log.durability,
        appended_lsn=stats.appended_lsn,
        durable_lsn=stats.durable_lsn,
        bytes_waiting=stats.bytes_waiting,
        records_waiting=stats.records_waiting,
        bytes_written=log.bytes_written,
        segments=_segments(sizes, stats),
        segments_ready=stats.segments_ready,
        snapshots=_snapshots(sizes, snapshot),
        disk_full=stats.disk_full,
        scrub_errors=stats.scrub_errors,
        recovery=_recovery(log, core),
    )


def _segments(sizes: dict[str, int], stats: LogStats) -> tuple[SegmentFacts, ...]:
    found = []
    for name, size_bytes in sizes.items():
        place = parse_segment_name(name)
        if place is None:
            continue
        segment_id, first_lsn = place
        is_written = segment_id == stats.segment_id
        used_bytes = min(stats.segment_offset, size_bytes) if is_written else size_bytes
        facts = SegmentFacts(
            name=name, first_lsn=first_lsn, size_bytes=size_bytes, used_bytes=used_bytes
        )
        found.append((segment_id, facts))
    return tuple(facts for _, facts in sorted(found, key=lambda one: one[0]))


def _snapshots(
    sizes: dict[str, int], newest: SnapshotInfo | None
) -> tuple[SnapshotFacts, ...]:
    found = []
    for name, size_bytes in sizes.items():
        pin_lsn = parse_snapshot_name(name)
        if pin_lsn is None:
            continue
        created_ns = None
        if newest is not None and newest.name == name:
            created_ns = newest.created_ns
        found.append(
            SnapshotFacts(
                name=name, pin_lsn=pin_lsn, size_bytes=size_bytes, created_ns=created_ns
            )
        )
    return tuple(sorted(found, key=lambda facts: -facts.pin_lsn))


def _recovery(log: Log, core: EngineCore) -> RecoveryFacts:
    report = log.report
    assert report is not None, "the store is open"
    return RecoveryFacts(
        clean=report.clean,
        last_lsn=report.last_lsn,
        last_wall_ns=report.last_wall_ns,
        snapshot=None if report.snapshot is None else report.snapshot.name,
        replayed_bytes=core.replayed_bytes,
        took_ns=core.recovery_ns,
        torn_bytes=report.torn_bytes,
        torn_what=report.torn_what,
        damaged_snapshots=report.damaged_snapshots,
    )
