"""The page Log, and how segments and wheels are drawn."""

from __future__ import annotations

from pathlib import Path

from tests.scheduler import program
from tests.server.dashboard.visitor import Visitor
from timingwheel.jobs.storage import (
    LevelFacts,
    LogFacts,
    RecoveryFacts,
    SegmentFacts,
    SnapshotFacts,
    WheelFacts,
)
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.dashboard.log import size_words
from timingwheel.server.dashboard.log_drawing import (
    SEGMENTS_MAX,
    WIDTH,
    draw_log,
    draw_wheel,
)
from timingwheel.server.serving import HttpServer


def log_facts(*first_lsns: int, pins: tuple[int, ...] = (), last: int = 0) -> LogFacts:
    segments = tuple(
        SegmentFacts(name=str(lsn), first_lsn=lsn, size_bytes=100, used_bytes=100)
        for lsn in first_lsns
    )
    return LogFacts(
        durability="durable",
        appended_lsn=last,
        durable_lsn=last,
        bytes_waiting=0,
        records_waiting=0,
        bytes_written=0,
        segments=segments,
        segments_ready=1,
        snapshots=tuple(
            SnapshotFacts(name=f"at {pin}", pin_lsn=pin, size_bytes=1) for pin in pins
        ),
        disk_full=False,
        scrub_errors=0,
        recovery=RecoveryFacts(
            clean=True,
            last_lsn=0,
            last_wall_ns=0,
            snapshot=None,
            replayed_bytes=0,
            took_ns=0,
        ),
    )


def test_a_segment_is_drawn_by_whether_a_crash_would_replay_it() -> None:
    drawing = draw_log(log_facts(1, 101, 201, pins=(150, 100), last=250))
    assert [block.tone for block in drawing.blocks] == ["idle", "busy", "accent"]
    newest, oldest = drawing.marks
    block = drawing.blocks[1]
    assert newest.x == block.x + block.width / 2
    assert oldest.x in {block.x, drawing.blocks[0].x + drawing.blocks[0].width}
    last = drawing.blocks[-1]
    assert round(last.x + last.width, 6) == WIDTH


def test_only_the_newest_segments_are_drawn() -> None:
    lsns = range(1, 10 * SEGMENTS_MAX, 3)
    drawing = draw_log(log_facts(*lsns, pins=(1,), last=10 * SEGMENTS_MAX))
    assert len(drawing.blocks) == SEGMENTS_MAX
    assert drawing.left_out == len(lsns) - SEGMENTS_MAX
    assert drawing.marks == []  # it stands in one that is not drawn
    assert draw_log(log_facts()).blocks == []


def test_slots_in_a_row_are_one_piece_and_empty_levels_above_are_left_out() -> None:
    slots = [(), (3, 4, 5, 9), (), (255,), ()]
    levels = tuple(
        LevelFacts(slot_ns=256**at, cursor=2, slots=held)
        for at, held in enumerate(slots)
    )
    wheel = WheelFacts(name="wall", timers=5, now_ns=0, levels=levels)
    rows = draw_wheel(wheel)
    assert [row.runs for row in rows] == [[], [(3, 3), (9, 1)], [], [(255, 1)]]
    assert [row.held for row in rows] == [0, 4, 0, 1]
    assert rows[1].turn_ns == 256 * rows[1].slot_ns == 65_536


def test_a_store_in_a_directory_is_drawn(tmp_path: Path) -> None:
    app = Scheduler(str(tmp_path / "data"), tasks=program.app.tasks)
    with HttpServer(app, port=0) as server, Visitor(server.url) as visitor:
        app.add(program.note.call("x"), delay="1h")
        shown = visitor.get("/log")
        assert shown.by_id("figure-segments").text.startswith("Segments 1 ")
        assert shown.by_id("figure-newest-snapshot").text.endswith("none yet")
        assert "closed in order" in shown.by_id("recovery").text
        strips = shown.by_id("wheel-elapsed").all("div", data_testid="level")
        assert [strip.text.partition(" of ")[0][-1] for strip in strips][-1] == "1"


def test_a_store_in_memory_has_wheels_alone(visitor: Visitor) -> None:
    shown = visitor.get("/log")
    assert "in memory" in shown.root.text
    assert shown.root.all(data_testid="segments") == []
    assert shown.by_id("wheel-wall") is not None


def test_sizes_read_well() -> None:
    assert [size_words(n) for n in (0, 999, 1_024, 16 << 20, 1_023 << 20)] == [
        *("0 B", "999 B", "1 KiB", "16 MiB", "1023 MiB")
    ]
