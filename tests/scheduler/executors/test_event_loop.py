"""Coroutines: on an own loop or a given one, also beside one that blocks it."""

from __future__ import annotations

import asyncio

from tests.scheduler.executors import handlers
from tests.scheduler.executors.conftest import MakeStage
from tests.scheduler.executors.stage import Door, RecordingHost, work_of
from timingwheel.jobs.model import Outcome
from timingwheel.scheduler.executors.event_loop import AsyncioExecutor


def test_on_a_given_loop_coroutines_run_beside_what_else_runs_there() -> None:
    host = RecordingHost()

    async def main() -> None:
        executor = AsyncioExecutor(3, loop=asyncio.get_running_loop())
        executor.start(host)
        works = [work_of(handlers.add_async.call(number)) for number in range(10)]
        await asyncio.to_thread(executor.submit, works)
        await asyncio.to_thread(host.wait_for_ends, 10)
        assert await asyncio.to_thread(executor.stop, 10) == []

    asyncio.run(main())
    assert {finish.outcome for finish in host.finishes} == {Outcome.OK}


def test_a_coroutine_that_blocks_the_loop_loses_it_to_what_comes_after(
    make_stage: MakeStage, door: Door
) -> None:
    stage = make_stage("asyncio", slots=2)
    blocked = work_of(handlers.block.call(door.address))
    stage.submit(blocked)
    door.wait_for_knock()
    stage.executor.interrupt(blocked.claim.token, Outcome.TIMEOUT, kill=False)
    after = work_of(handlers.add_async.call(1))
    stage.submit(after)
    assert stage.host.finishes == []  # the loop cannot get on
    stage.executor.interrupt(blocked.claim.token, Outcome.TIMEOUT, kill=True)
    finishes = stage.host.wait_for_ends(2)
    assert {one.token: one.outcome for one in finishes} == {
        blocked.claim.token: Outcome.TIMEOUT,
        after.claim.token: Outcome.OK,
    }
    assert "blocks the event loop" in stage.host.alerts[0]


def test_neighbours_on_a_blocked_loop_go_on_once_it_is_let(
    make_stage: MakeStage, door: Door
) -> None:
    stage = make_stage("asyncio", slots=3)
    neighbour = work_of(handlers.wait_async.call(door.address))
    blocked = work_of(handlers.block.call(door.address))
    stage.submit(neighbour)
    door.wait_for_knock()
    stage.submit(blocked)
    door.wait_for_knock()
    stage.executor.interrupt(blocked.claim.token, Outcome.TIMEOUT, kill=True)
    door.open()
    finishes = stage.host.wait_for_ends(2)
    assert {one.token: one.outcome for one in finishes} == {
        blocked.claim.token: Outcome.TIMEOUT,
        neighbour.claim.token: Outcome.OK,
    }


def test_a_plain_function_is_refused_with_what_to_do(make_stage: MakeStage) -> None:
    stage = make_stage("asyncio")
    stage.submit(work_of(handlers.add.call(1)))
    (finish,) = stage.host.wait_for_ends(1)
    assert finish.outcome is Outcome.ERROR
    assert 'make it async def, or give it executor="thread"' in (finish.error or "")
