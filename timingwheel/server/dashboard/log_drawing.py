"""The log and the wheels as drawings: where blocks and marks stand, in a grid of units."""

from __future__ import annotations

from typing import Final, NamedTuple

from timingwheel.jobs.storage import LevelFacts, LogFacts, SegmentFacts, WheelFacts

SEGMENTS_MAX: Final = 48
"""Segments that are drawn; of more the newest."""
WIDTH: Final = 1_024
SLOTS: Final = 256
SLOT_WIDTH: Final = WIDTH // SLOTS
_GAP: Final = 3


class Block(NamedTuple):
    """A segment.

    Attributes:
        segment: which.
        x, width: of its block.
        used_width: how much of it is written.
        tone: "idle" if the oldest kept snapshot covers it, "accent" if it is being
            written, else "busy": it is replayed after a crash.
    """

    segment: SegmentFacts
    x: float
    width: float
    used_width: float
    tone: str


class Mark(NamedTuple):
    """A snapshot's place in the log."""

    name: str
    x: float


class LogDrawing(NamedTuple):
    """The segments in a row, and where snapshots stand among them.

    Attributes:
        left_out: older segments that are not drawn.
    """

    blocks: list[Block]
    marks: list[Mark]
    left_out: int


class LevelRow(NamedTuple):
    """One level of a wheel as a strip of 256 slots.

    Attributes:
        level: 0 for the narrowest.
        slot_ns: how much time a slot is.
        turn_ns: how much time all of them are.
        runs: (first slot, how many) of slots that hold a timer.
        cursor: the slot of the present.
        held: slots that hold any.
    """

    level: int
    slot_ns: int
    turn_ns: int
    runs: list[tuple[int, int]]
    cursor: int
    held: int


def draw_log(log: LogFacts) -> LogDrawing:
    """Return the segments of a log in a row."""
    segments = log.segments[-SEGMENTS_MAX:]
    if not segments:
        return LogDrawing([], [], 0)
    width = (WIDTH - _GAP * (len(segments) - 1)) / len(segments)
    newest_pin = log.snapshots[0].pin_lsn if log.snapshots else 0
    blocks = []
    for at, segment in enumerate(segments):
        share = segment.used_bytes / segment.size_bytes if segment.size_bytes else 1.0
        ends_lsn = segments[at + 1].first_lsn - 1 if at + 1 < len(segments) else None
        if ends_lsn is None:
            tone = "accent"
        else:
            tone = "idle" if ends_lsn <= newest_pin else "busy"
        blocks.append(Block(segment, at * (width + _GAP), width, width * share, tone))
    marks = [
        Mark(snapshot.name, x)
        for snapshot in log.snapshots
        if (x := _place(blocks, snapshot.pin_lsn, log.appended_lsn)) is not None
    ]
    return LogDrawing(blocks, marks, len(log.segments) - len(segments))


def draw_wheel(wheel: WheelFacts) -> list[LevelRow]:
    """Return the levels of a wheel that hold a timer, and those below them."""
    used = [at for at, level in enumerate(wheel.levels) if level.slots]
    return [_row(at, wheel.levels[at]) for at in range(max(used, default=-1) + 1)]


def _row(at: int, level: LevelFacts) -> LevelRow:
    runs: list[tuple[int, int]] = []
    for slot in level.slots:
        if runs and sum(runs[-1]) == slot:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((slot, 1))
    return LevelRow(
        at,
        level.slot_ns,
        level.slot_ns * SLOTS,
        runs,
        level.cursor,
        len(level.slots),
    )


def _place(blocks: list[Block], lsn: int, last_lsn: int) -> float | None:
    """Return where a record stands; None if its segment is not drawn."""
    for at, block in enumerate(blocks):
        first = block.segment.first_lsn
        following = (
            blocks[at + 1].segment.first_lsn if at + 1 < len(blocks) else last_lsn + 1
        )
        if first <= lsn + 1 <= following:
            share = (lsn + 1 - first) / max(following - first, 1)
            return block.x + block.used_width * share
    return None
