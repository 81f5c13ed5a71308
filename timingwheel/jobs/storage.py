"""How a store stands: its log, its snapshots, its last recovery, its wheels.

What `Scheduler.storage` returns, for people and for a page that draws it. All of it is in
memory or in the names and sizes of files; no content is read for it.
"""

from __future__ import annotations

import msgspec


class SegmentFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A segment of the log.

    Attributes:
        name: of its file.
        first_lsn: of the first record that it may hold.
        size_bytes: of the file, which is made full-size ahead of need.
        used_bytes: what is written; only of the one that is written now is it less.
    """

    name: str
    first_lsn: int
    size_bytes: int
    used_bytes: int


class SnapshotFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot.

    Attributes:
        name: of its file.
        pin_lsn: replay starts after this record.
        size_bytes: of the file.
        created_ns: when it was begun, on the wall clock; None of all but the newest.
    """

    name: str
    pin_lsn: int
    size_bytes: int
    created_ns: int | None = None


class RecoveryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the last opening found and did.

    Attributes:
        clean: the store had been closed, or is new.
        last_lsn: of the last record kept.
        last_wall_ns: when the log was last written before; 0 for a new one.
        snapshot: the one it began with; None: the whole log was read.
        replayed_bytes: of records read after it.
        took_ns: how long reading it all took, on the monotonic clock.
        torn_bytes: what was cut off the end, since no commit had reached it.
        torn_what: what that was, in words; "" if there was none.
        damaged_snapshots: files that failed their check and were passed over.
    """

    clean: bool
    last_lsn: int
    last_wall_ns: int
    snapshot: str | None
    replayed_bytes: int
    took_ns: int
    torn_bytes: int = 0
    torn_what: str = ""
    damaged_snapshots: tuple[str, ...] = ()


class LogFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The log of a store.

    Attributes:
        durability: "durable" or "interval".
        appended_lsn: of the last record appended.
        durable_lsn: of the last record that is durable.
        bytes_waiting: appended and not durable yet.
        records_waiting: likewise.
        bytes_written: of records made durable since the opening.
        segments: oldest first; the last is being written.
        segments_ready: made ahead and not in use yet.
        snapshots: newest first.
        disk_full: the last try to make a segment found no room.
        scrub_errors: damaged files that were found and set aside.
        recovery: what the last opening found.
    """

    durability: str
    appended_lsn: int
    durable_lsn: int
    bytes_waiting: int
    records_waiting: int
    bytes_written: int
    segments: tuple[SegmentFacts, ...]
    segments_ready: int
    snapshots: tuple[SnapshotFacts, ...]
    disk_full: bool
    scrub_errors: int
    recovery: RecoveryFacts


class LevelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One level of a wheel.

    Attributes:
        slot_ns: how much time a slot of it is.
        cursor: the slot in which the present is, 0 to 255.
        slots: which slots hold a timer, ascending. A slot may hold nothing but
            cancelled ones that were not swept yet.
    """

    slot_ns: int
    cursor: int
    slots: tuple[int, ...]


class WheelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One of the wheels.

    Attributes:
        name: "elapsed" for delays, "wall" for what follows the wall clock.
        timers: that wait in it.
        now_ns: how far it has turned, on its scale.
        levels: level 0 first, where slots are narrowest.
    """

    name: str
    timers: int
    now_ns: int
    levels: tuple[LevelFacts, ...]


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    """How a store stands.

    Attributes:
        path: of its directory; ":memory:" if it has none.
        timers: that wait, those outside the wheels too.
        wheels: what they wait in.
        history_lsn: the history has what ended up to this record.
        log: its log; None if it keeps none.
    """

    path: str
    timers: int
    wheels: tuple[WheelFacts, ...]
    history_lsn: int
    log: LogFacts | None = None
