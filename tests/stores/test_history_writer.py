"""The writer: only what is durable, in order, again after a failure, and never polling."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.stores.history_samples import (
    DAY,
    T0,
    entries_of,
    job_entry,
    job_of,
    plain_entry,
    run_entry,
    run_of,
)
from timingwheel.jobs.model import JobId, Run
from timingwheel.jobs.store import RunQuery
from timingwheel.stores.history import Entry, History, HistoryError, Retention
from timingwheel.stores.history_writer import (
    BATCH_ENTRIES,
    LINGER_NS,
    PURGE_NS,
    RETRY_NS,
    HistoryWriter,
)
from timingwheel.testing import ManualClock


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    history = History(str(tmp_path / "history.db"))
    yield history
    history.check()
    history.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(wall_ns=T0)


@pytest.fixture
def reached() -> list[int]:
    return []


@pytest.fixture
def writer(history: History, clock: ManualClock, reached: list[int]) -> HistoryWriter:
    """Not started: stepped by hand."""
    writer = HistoryWriter(history, clock, on_written=reached.append)
    walk_first_purge(writer)
    return writer


@pytest.fixture
def running(writer: HistoryWriter, clock: ManualClock) -> Iterator[HistoryWriter]:
    """Started, and at rest."""
    writer.start()
    clock.settle(threads=1)
    yield writer
    writer.stop()
    writer.check()


def walk_first_purge(writer: HistoryWriter) -> None:
    while writer.step():
        pass


def runs_in(history: History) -> list[Run]:
    return history.runs(RunQuery(limit=1_000)).runs


def entry(lsn: int, name: str = "j") -> Entry:
    return run_entry(lsn, run_of(f"{name}{lsn}", T0 + lsn))


def make_full(history: History) -> Callable[[], None]:
    """Let SQLite find the disk full; returns what makes room."""
    ask = history._connections.writer.execute
    pages = ask("PRAGMA page_count").fetchone()[0]
    ask(f"PRAGMA max_page_count = {pages}")

    def make_room() -> None:
        ask("PRAGMA max_page_count = 1000000")

    return make_room


# -- by hand --------------------------------------------------------------------------------


def test_only_what_is_durable_is_written(
    writer: HistoryWriter, history: History, reached: list[int]
) -> None:
    writer.offer([entry(1), entry(2), entry(3)])
    assert not writer.step()
    assert history.reached_lsn == 0
    writer.durable(2)
    assert writer.step()
    assert not writer.step()
    assert history.reached_lsn == 2
    assert len(runs_in(history)) == 2
    writer.durable(3)
    assert writer.step()
    assert reached == [2, 3]
    writer.check()


def test_covered_grows_with_what_is_written_and_with_what_is_nothing_for_it(
    writer: HistoryWriter,
) -> None:
    assert writer.covered_lsn == 0
    writer.durable(10)
    assert writer.covered_lsn == 10
    writer.offer([entry(15), entry(17)])
    assert writer.covered_lsn == 10
    writer.durable(20)
    assert writer.covered_lsn == 14
    writer.step()
    assert writer.covered_lsn == 20


def test_durable_never_goes_back(writer: HistoryWriter, history: History) -> None:
    writer.offer([entry(5)])
    writer.durable(5)
    writer.durable(3)
    writer.step()
    assert history.reached_lsn == 5


def test_a_batch_never_parts_what_shares_an_lsn(
    writer: HistoryWriter, history: History, reached: list[int]
) -> None:
    many = [run_entry(2, run_of("j", T0 + i)) for i in range(BATCH_ENTRIES + 5)]
    writer.offer([entry(1), *many, entry(3)])
    writer.durable(3)
    assert writer.step()
    assert history.reached_lsn == 2
    assert len(history.planned(JobId("j"))) == len(many)
    assert writer.step()
    assert reached == [2, 3]
    writer.check()


def test_a_batch_is_bounded(
    writer: HistoryWriter, history: History, reached: list[int]
) -> None:
    writer.offer([entry(lsn) for lsn in range(1, 2 * BATCH_ENTRIES + 2)])
    writer.durable(2 * BATCH_ENTRIES + 1)
    while writer.step():
        pass
    assert reached == [BATCH_ENTRIES, 2 * BATCH_ENTRIES, 2 * BATCH_ENTRIES + 1]


def test_what_the_history_has_is_passed_over(
    history: History, clock: ManualClock
) -> None:
    history.write(entries_of(7))
    writer = HistoryWriter(history, clock)
    assert writer.covered_lsn == 7
    writer.offer([entry(6), entry(7), entry(8)])
    writer.durable(8)
    while writer.step():
        pass
    assert {run.job_id for run in runs_in(history)} == {"job-000000007", "j8"}


def test_a_full_disk_loses_nothing_and_is_logged_once(
    writer: HistoryWriter,
    history: History,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="timingwheel")
    make_room = make_full(history)
    writer.offer([entry(lsn) for lsn in range(1, 400)])
    writer.durable(400)
    assert not writer.step()
    assert not writer.step()
    assert history.reached_lsn == 0
    assert runs_in(history) == []
    assert writer.covered_lsn == 0
    [record] = caplog.records
    assert "no room" in record.getMessage()

    make_room()
    assert writer.step()
    assert len(runs_in(history)) == 399
    assert "again" in caplog.records[-1].getMessage()
    assert len(caplog.records) == 2
    writer.check()


def test_it_is_congested_while_more_waits_than_should(
    history: History, clock: ManualClock
) -> None:
    writer = HistoryWriter(history, clock, pending_bytes_max=1_000)
    seen = [writer.congested]
    writer.offer([entry(lsn) for lsn in range(1, 20)])
    seen.append(writer.congested)
    writer.durable(20)
    while writer.step():
        pass
    seen.append(writer.congested)
    assert seen == [False, True, False]


def test_jobs_end_by_the_clock_of_the_writer(
    history: History, clock: ManualClock
) -> None:
    writer = HistoryWriter(history, clock)
    clock.step(9 * DAY)
    writer.offer([job_entry(1, job_of("j", created_ns=T0))])
    writer.durable(1)
    writer.step()
    assert history.purge(T0 + 16 * DAY, Retention()) == 0
    assert history.purge(T0 + 16 * DAY + 1, Retention()) == 1


# -- with its thread --------------------------------------------------------------------------


def test_it_lingers_for_company_and_then_writes(
    running: HistoryWriter, history: History, clock: ManualClock, reached: list[int]
) -> None:
    for lsn in (1, 2, 3):
        running.offer([entry(lsn)])
        running.durable(lsn)
        clock.settle()
    clock.advance(ns=LINGER_NS - 1)
    clock.settle()
    assert reached == []
    clock.advance(ns=1)
    clock.settle()
    assert reached == [3]


def test_a_full_batch_does_not_linger(
    running: HistoryWriter, clock: ManualClock, reached: list[int]
) -> None:
    for lsn in range(1, BATCH_ENTRIES + 1):
        running.offer([entry(lsn)])
        running.durable(lsn)
    clock.settle()
    assert reached == [BATCH_ENTRIES]


def test_flush_does_not_linger_and_returns_when_it_is_written(
    running: HistoryWriter, history: History
) -> None:
    running.offer([entry(1), entry(2)])
    running.durable(2)
    assert running.flush(2)
    assert history.reached_lsn == 2


def test_flush_waits_for_the_log(
    running: HistoryWriter, history: History, clock: ManualClock
) -> None:
    running.offer([entry(1)])
    seen: list[tuple[bool, int]] = []
    waiter = threading.Thread(
        target=lambda: seen.append((running.flush(1), history.reached_lsn))
    )
    waiter.start()
    clock.settle(threads=2)
    assert seen == []
    running.durable(1)
    waiter.join()
    assert seen == [(True, 1)]


def test_stop_writes_what_is_durable_and_frees_who_waits(
    writer: HistoryWriter, history: History, clock: ManualClock
) -> None:
    writer.start()
    writer.offer([entry(1), entry(2)])
    writer.durable(1)
    seen: list[bool] = []
    waiter = threading.Thread(target=lambda: seen.append(writer.flush(2)))
    waiter.start()
    clock.settle(threads=2)
    writer.stop()
    waiter.join()
    assert seen == [False]
    assert history.reached_lsn == 1
    writer.stop()
    assert writer.flush(1)
    assert not writer.flush(2)


def test_stop_does_not_linger(
    running: HistoryWriter, history: History, clock: ManualClock
) -> None:
    running.offer([entry(1), entry(2), entry(3)])
    running.durable(2)
    clock.settle()
    assert history.reached_lsn == 0
    running.stop()
    assert history.reached_lsn == 2


def test_stop_without_start_is_nothing(history: History, clock: ManualClock) -> None:
    writer = HistoryWriter(history, clock)
    writer.stop()
    assert not writer.flush(1)


def test_a_full_disk_is_tried_again_each_second_and_not_sooner(
    running: HistoryWriter,
    history: History,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    make_room = make_full(history)
    running.offer([entry(lsn) for lsn in range(1, 400)])
    running.durable(399)
    clock.advance(ns=LINGER_NS)
    clock.settle()
    assert len(caplog.records) == 1
    make_room()
    running.offer([entry(400)])
    running.durable(400)  # a wake-up that comes too soon
    clock.settle()
    assert history.reached_lsn == 0
    clock.advance(ns=RETRY_NS)
    clock.settle()
    assert history.reached_lsn == 400


def test_who_only_reads_hears_of_a_full_disk(
    running: HistoryWriter, history: History
) -> None:
    make_room = make_full(history)
    running.offer([entry(lsn) for lsn in range(1, 400)])
    running.durable(399)
    with pytest.raises(HistoryError, match="no room"):
        running.flush(399, may_fail=True)
    make_room()


def test_stop_does_not_wait_for_a_disk_that_is_full(
    writer: HistoryWriter, history: History
) -> None:
    make_room = make_full(history)
    writer.start()
    writer.offer([entry(lsn) for lsn in range(1, 400)])
    writer.durable(399)
    writer.stop()
    assert history.reached_lsn == 0
    assert not writer.flush(399)
    make_room()


def test_without_a_thread_who_flushes_writes(
    history: History, clock: ManualClock
) -> None:
    before = threading.active_count()
    writer = HistoryWriter(history, clock, background=False)
    writer.start()
    writer.offer([entry(1), entry(2)])
    writer.durable(1)
    assert history.reached_lsn == 0
    assert writer.flush(1)
    assert history.reached_lsn == 1
    writer.durable(2)
    writer.stop()
    assert history.reached_lsn == 2
    assert threading.active_count() == before


def test_without_a_thread_a_full_batch_is_written_by_who_says_that_it_is_durable(
    history: History, clock: ManualClock
) -> None:
    writer = HistoryWriter(history, clock, background=False)
    writer.start()
    writer.offer([entry(lsn) for lsn in range(1, BATCH_ENTRIES + 1)])
    writer.durable(BATCH_ENTRIES)
    assert history.reached_lsn == BATCH_ENTRIES
    writer.stop()


def test_without_a_thread_who_flushes_hears_of_a_full_disk(
    history: History, clock: ManualClock
) -> None:
    writer = HistoryWriter(history, clock, background=False)
    mend = make_full(history)
    writer.offer([entry(lsn) for lsn in range(1, 400)])
    writer.durable(399)
    with pytest.raises(HistoryError):
        writer.flush(399)
    mend()
    assert writer.flush(399)
    writer.stop()


def test_the_purge_comes_at_most_every_ten_minutes(
    running: HistoryWriter, history: History, clock: ManualClock
) -> None:
    old = run_of("old", T0 - 8 * DAY)
    running.offer([plain_entry(1, old)])
    running.durable(1)
    assert running.flush(1)
    clock.settle()
    clock.advance(ns=PURGE_NS - 1)
    clock.settle()
    assert runs_in(history) == [old]
    clock.advance(ns=1)
    clock.settle()
    assert runs_in(history) == []


def test_the_first_purge_comes_at_the_start(
    history: History, clock: ManualClock
) -> None:
    history.write([plain_entry(1, run_of("old", T0 - 8 * DAY))])
    writer = HistoryWriter(history, clock)
    writer.start()
    clock.settle(threads=1)
    assert runs_in(history) == []
    writer.stop()


def test_many_threads_may_ask_while_it_writes(
    running: HistoryWriter, history: History, reached: list[int]
) -> None:
    last = 5_000
    flushed: list[bool] = []
    waiters = [
        threading.Thread(target=lambda lsn=lsn: flushed.append(running.flush(lsn)))
        for lsn in range(500, last + 1, 500)
    ]
    for waiter in waiters:
        waiter.start()
    for lsn in range(1, last + 1):
        running.offer([entry(lsn)])
        running.durable(lsn)
    for waiter in waiters:
        waiter.join()
    assert flushed == [True] * len(waiters)
    assert reached == sorted(reached)
    assert reached[-1] == history.reached_lsn == last
