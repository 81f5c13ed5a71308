"""The page Log: segments, snapshots, the last recovery, and what the wheels hold."""

from __future__ import annotations

from typing import Final

from timingwheel.jobs.storage import Storage
from timingwheel.server.dashboard.log_drawing import (
    SLOT_WIDTH,
    WIDTH,
    draw_log,
    draw_wheel,
)
from timingwheel.server.dashboard.visits import Page, View, Visit

NAV: Final = "Log"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP: Final = 1_024


def show_log(visit: Visit) -> View:
    """Show how the store stands."""
    storage = visit.scheduler.storage()
    log = storage.log
    values = {
        "storage": storage,
        "log": log,
        "drawing": None if log is None else draw_log(log),
        "wheels": [(wheel, draw_wheel(wheel)) for wheel in storage.wheels],
        "log_bytes": size_words(log_bytes(storage)),
        "snapshot_ns": None
        if log is None or not log.snapshots
        else log.snapshots[0].created_ns,
        "segment_count": 0 if log is None else len(log.segments),
        "snapshot_count": 0 if log is None else len(log.snapshots),
        "size": size_words,
        "width": WIDTH,
        "slot_width": SLOT_WIDTH,
        "live": True,
    }
    return View("log.html", values)


def log_bytes(storage: Storage) -> int:
    """Return what the segments take on the disk."""
    if storage.log is None:
        return 0
    return sum(segment.size_bytes for segment in storage.log.segments)


def size_words(size_bytes: int) -> str:
    """Return a size with about three digits: "16 MiB", "3.42 KiB"."""
    size, unit = float(size_bytes), _UNITS[0]
    for unit in _UNITS:
        if size < _STEP or unit == _UNITS[-1]:
            break
        size /= _STEP
    return f"{size:.3g} {unit}" if size < 1_000 else f"{size:.0f} {unit}"


LOG_PAGES: Final = (Page("GET", "/log", show_log, nav=NAV),)
