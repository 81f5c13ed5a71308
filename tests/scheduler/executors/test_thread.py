"""Threads: started when needed, ended when idle, replaced when stuck."""

from __future__ import annotations

import threading

import pytest

from tests.scheduler.executors import handlers
from tests.scheduler.executors.conftest import MakeStage
from tests.scheduler.executors.stage import Door, RecordingHost, work_of
from timingwheel.clock import WAIT_MAX_NS
from timingwheel.jobs.model import Outcome
from timingwheel.scheduler.executors.executor import Work
from timingwheel.testing import ManualClock

NAME = "timingwheel-handler"


def threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith(NAME)]


def test_no_thread_is_started_before_there_is_work(make_stage: MakeStage) -> None:
    before = len(threads())
    make_stage("thread", slots=8)
    assert len(threads()) == before


def test_one_work_starts_one_thread_and_the_next_reuses_it(
    make_stage: MakeStage,
) -> None:
    clock = ManualClock()
    stage = make_stage("thread", slots=8, host=RecordingHost(clock))
    before = len(threads())
    for number in range(3):
        stage.submit(work_of(handlers.add.call(number)))
        clock.settle()
    assert len(stage.host.finishes) == 3
    assert len(threads()) == before + 1


def test_a_thread_that_cannot_be_started_costs_no_slot(
    make_stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make_stage("thread", slots=1)
    refused = work_of(handlers.add.call(1))

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as system:
        system.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="start new thread"):
            stage.submit(refused)
    works = [work_of(handlers.add.call(number)) for number in range(2)]
    stage.submit(*works)
    finishes = stage.host.wait_for_ends(2)
    assert {one.token for one in finishes} == {one.claim.token for one in works}


def test_work_for_which_no_thread_can_be_started_waits_for_one_that_there_is(
    make_stage: MakeStage, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make_stage("thread", slots=2)
    stage.submit(work_of(handlers.wait.call(door.address)))
    door.wait_for_knock()

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as system:
        system.setattr(threading.Thread, "start", start)
        stage.submit(work_of(handlers.add.call(1)))
    door.open()
    stage.host.wait_for_ends(2)


def test_idle_threads_end(make_stage: MakeStage) -> None:
    clock = ManualClock()
    stage = make_stage("thread", slots=3, host=RecordingHost(clock))
    before = set(threads())
    stage.submit(*[work_of(handlers.add.call(number)) for number in range(3)])
    clock.settle()
    new = set(threads()) - before
    clock.advance(ns=WAIT_MAX_NS)
    clock.step(0)  # every wait looks again, as it does within 10 s on the real clock
    for thread in new:
        thread.join(30)
    assert not any(thread.is_alive() for thread in new)
    stage.submit(work_of(handlers.add.call(9)))
    stage.host.wait_for_ends(4)


def test_stuck_threads_are_replaced_one_by_one_and_counted(
    make_stage: MakeStage, door: Door
) -> None:
    stage = make_stage("thread", slots=2)
    stuck = [work_of(handlers.wait_and_return.call(door.address)) for _ in range(2)]
    stage.submit(*stuck)
    door.wait_for_knock()
    door.wait_for_knock()
    for work in stuck:
        stage.executor.interrupt(work.claim.token, Outcome.TIMEOUT, kill=True)
    assert stage.executor.free == 2
    assert "1 stuck thread(s)" in stage.host.alerts[0]
    assert "2 stuck thread(s)" in stage.host.alerts[1]
    assert 'executor="process"' in stage.host.alerts[1]
    stage.submit(*[work_of(handlers.wait.call(door.address)) for _ in range(2)])
    door.wait_for_knock()
    door.wait_for_knock()  # both new ones run, while both old ones are still there
    assert stage.executor.free == 0


def test_a_stuck_thread_ends_with_its_handler(
    make_stage: MakeStage, door: Door
) -> None:
    before = set(threads())
    stage = make_stage("thread", slots=1)
    work = work_of(handlers.wait_and_return.call(door.address))
    stage.submit(work)
    door.wait_for_knock()
    (stuck,) = set(threads()) - before
    stage.executor.interrupt(work.claim.token, Outcome.TIMEOUT, kill=True)
    door.open()
    stuck.join(30)
    assert not stuck.is_alive()
    assert len(stage.host.finishes) == 1


def test_what_waits_behind_a_stuck_thread_starts_in_its_place(
    make_stage: MakeStage, door: Door
) -> None:
    stage = make_stage("thread", slots=1)
    stuck = work_of(handlers.wait_and_return.call(door.address))
    stage.submit(stuck, work_of(handlers.add.call(1)))
    door.wait_for_knock()
    stage.executor.interrupt(stuck.claim.token, Outcome.TIMEOUT, kill=True)
    assert {one.outcome for one in stage.host.wait_for_ends(2)} == {
        Outcome.TIMEOUT,
        Outcome.OK,
    }


def test_context_variables_do_not_pass_from_one_handler_to_the_next(
    make_stage: MakeStage,
) -> None:
    stage = make_stage("thread", slots=1)
    stage.submit(work_of(handlers.set_variable.call("mine")))
    stage.submit(work_of(handlers.get_variable.call()))
    last = stage.host.wait_for_ends(2)[1]
    assert handlers.get_variable.codec.decode_result(last.result) == "unset"


def test_a_coroutine_in_a_thread_is_cancelled_when_it_is_asked_to_end(
    make_stage: MakeStage, door: Door
) -> None:
    stage = make_stage("thread")
    work = work_of(handlers.wait_async.call(door.address))
    stage.submit(work)
    door.wait_for_knock()
    stage.executor.interrupt(work.claim.token, Outcome.CANCELLED, kill=False)
    (finish,) = stage.host.wait_for_ends(1)
    assert finish.outcome is Outcome.CANCELLED


def test_a_thread_whose_attempt_was_killed_before_it_began_ends_without_starting_it(
    make_stage: MakeStage, door: Door
) -> None:
    before = set(threads())
    stage = make_stage("thread", slots=1)
    made: list[threading.Thread] = []

    def kill(work: Work) -> None:
        made.extend(set(threads()) - before)
        stage.executor.interrupt(work.claim.token, Outcome.CANCELLED, kill=True)

    stage.host.on_begin = kill
    stage.submit(work_of(handlers.wait.call(door.address)))
    stage.host.wait_for_ends(1)
    (thread,) = made
    thread.join(1)  # it waits at the door if it has started it
    assert not thread.is_alive()
    assert not door.has_knock
