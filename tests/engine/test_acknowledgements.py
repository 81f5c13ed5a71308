"""Deliveries that ended: each recorded once, together, and kept while the disk is full."""

from __future__ import annotations

import logging

import pytest

from tests.engine.stage import SECOND_NS, SMALL, CountingClock, fill_up
from timingwheel.engine.acknowledgements import Acknowledgements
from timingwheel.engine.records import TimerId
from timingwheel.engine.timers import Timers
from timingwheel.errors import EngineClosedError
from wal.errors import DiskFullError
from wal.log import Log
from wal.testing import MemoryFileSystem


class Stage:
    """Timers of which the first so many are with their handlers."""

    def __init__(
        self,
        clock: CountingClock,
        running: int,
        *,
        segment_size_bytes: int = SMALL["segment_size_bytes"],
    ) -> None:
        self.disk = MemoryFileSystem()
        log = Log.open(
            self.disk,
            wall_ns=clock.wall_ns,
            segment_size_bytes=segment_size_bytes,
            reserve_bytes=1,
            background=False,
        )
        self.timers = Timers(log, clock, may_wait=True)
        self.core = self.timers.core
        self.ended = Acknowledgements(self.timers)
        for _ in range(running):
            self.timers.schedule(1, b"")
        clock.advance(ns=2 * SECOND_NS)
        self.ids: list[TimerId] = []
        while len(self.ids) < running:
            self.ids += self.core.step(50).timers
        for timer_id in self.ids:
            assert self.timers.begin(timer_id) == b""


def test_all_that_ended_meanwhile_take_one_record(clock: CountingClock) -> None:
    stage = Stage(clock, 300)
    before = stage.core.log.appended_lsn
    assert not stage.ended
    assert stage.ended.record() == 0
    for timer_id in stage.ids[:200]:
        stage.ended.add(timer_id)
    assert stage.ended
    assert stage.ended.record() == before + 1
    assert len(stage.timers) == 100
    for timer_id in stage.ids[200:]:
        stage.ended.add(timer_id)
        assert stage.ended.record() == stage.core.log.appended_lsn
    assert stage.core.log.appended_lsn == before + 1 + 100
    assert len(stage.timers) == 0
    stage.core.check()


def test_a_record_has_so_many_of_them_and_no_more(clock: CountingClock) -> None:
    stage = Stage(clock, 7)
    stage.ended._at_once = 3
    before = stage.core.log.appended_lsn
    for timer_id in stage.ids:
        stage.ended.add(timer_id)
    assert stage.ended.record() == before + 3
    assert len(stage.timers) == 0


def test_small_segments_take_them_in_parts(clock: CountingClock) -> None:
    stage = Stage(clock, 700, segment_size_bytes=5120)
    for timer_id in stage.ids:
        stage.ended.add(timer_id)
    lsn = stage.ended.record()
    stage.core.commit(lsn)
    assert len(stage.timers) == 0
    assert not stage.ended


def test_on_a_full_disk_they_stay_until_there_is_space(clock: CountingClock) -> None:
    stage = Stage(clock, 20)
    many = fill_up(stage.core, stage.disk)
    for timer_id in stage.ids:
        stage.ended.add(timer_id)
    with pytest.raises(DiskFullError):
        stage.ended.record()
    assert stage.ended
    assert stage.timers.cancel(stage.ids[0])[0] is False, "its handler ran"
    stage.disk.capacity_bytes = None
    stage.core.commit(stage.ended.record())
    assert len(stage.timers) == many


def test_when_the_engine_is_closed_a_warning_names_each(
    clock: CountingClock, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(clock, 2)
    for timer_id in stage.ids:
        stage.ended.add(timer_id)
    stage.core.close()
    with caplog.at_level(logging.WARNING), pytest.raises(EngineClosedError):
        stage.ended.record()
    assert [record.__dict__["timer_id"] for record in caplog.records] == stage.ids
    assert "is not acknowledged: the engine is closed" in caplog.text
    assert not stage.ended
