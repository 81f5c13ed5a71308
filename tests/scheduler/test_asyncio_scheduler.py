"""AsyncScheduler: the same names, awaited, on a loop that it never holds up."""

from __future__ import annotations

import asyncio
import functools
import inspect
import signal
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.stage import PATIENCE_S
from tests.scheduler import program
from timingwheel.clock import Clock
from timingwheel.errors import EngineClosedError
from timingwheel.jobs.errors import TaskError, UnknownRunError
from timingwheel.jobs.model import JobState, RunState
from timingwheel.jobs.store import CancelResult
from timingwheel.scheduler.asyncio_scheduler import AsyncScheduler
from timingwheel.scheduler.handles import RunFailedError
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.stores.embedded import EmbeddedStore
from wal.errors import StoreInUseError

Test = Callable[..., Awaitable[None]]


def on_a_loop(test: Test) -> Callable[..., None]:
    """Run an async test on a loop of its own, with patience."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**fixtures), PATIENCE_S))

    return run


def made(store: Any = ":memory:", **options: Any) -> AsyncScheduler:
    return AsyncScheduler(store, tasks=program.app.tasks, **options)


loops: list[asyncio.AbstractEventLoop] = []
gate: list[asyncio.Event] = []


@program.app.task
async def on_which_loop() -> None:
    """Note the loop."""
    loops.append(asyncio.get_running_loop())


@program.app.task
async def gated() -> str:
    """Wait at a gate of the test's own loop."""
    await gate[-1].wait()
    return "through"


def test_it_has_every_public_name_of_the_scheduler() -> None:
    names = {name for name in dir(Scheduler) if not name.startswith("_")}
    inner = {"actor", "desk", "holds", "is_serving"}
    assert names - set(dir(AsyncScheduler)) == inner
    quick = {
        "task",
        "snapshot_metrics",
        "add_failure_listener",
        "add_node_listener",
        "remove_failure_listener",
    }
    for name in names - inner - quick:
        method = getattr(AsyncScheduler, name)
        assert inspect.iscoroutinefunction(method), name
        assert inspect.getdoc(method), name


@on_a_loop
async def test_jobs_are_added_and_run_and_their_results_awaited() -> None:
    async with made() as app:
        ref = await app.add(program.note.call("x"), delay=0)
        handle = await app.run(ref)
        assert await handle.result() == "X"
        assert (await handle.get()).state is RunState.SUCCEEDED
        assert [a.number for a in await handle.attempts()] == [1]
        assert await handle.wait(0) == await handle.get()


@on_a_loop
async def test_coroutine_tasks_run_on_the_programs_own_loop() -> None:
    loops.clear()
    async with made() as app:
        job_id = await app.schedule(on_which_loop.call(), 0)
        await (await app.run(job_id)).wait()
    assert loops == [asyncio.get_running_loop()]


@on_a_loop
async def test_many_coroutines_wait_for_each_other() -> None:
    gate.append(asyncio.Event())
    async with made() as app:
        refs = [await app.add(gated.call(), delay=0) for _ in range(20)]
        handles = [await app.run(ref) for ref in refs]
        waits = [asyncio.ensure_future(handle.result()) for handle in handles]
        await asyncio.wait(waits, timeout=0)
        assert not any(wait.done() for wait in waits)
        gate[-1].set()
        assert await asyncio.gather(*waits) == ["through"] * 20


@on_a_loop
async def test_waits_need_no_thread_each() -> None:
    gate.append(asyncio.Event())
    async with made() as app:
        handle = await app.run(await app.schedule(gated.call(), 0))
        waits = [asyncio.ensure_future(handle.wait()) for _ in range(100)]
        assert (await app.job(handle.id.partition("@")[0])).task == gated.name
        gate[-1].set()
        runs = await asyncio.gather(*waits)
        assert {run.state for run in runs} == {RunState.SUCCEEDED}


@on_a_loop
async def test_a_wait_that_takes_too_long_says_so_and_the_run_goes_on() -> None:
    async with made() as app:
        handle = await app.run(await app.add(program.note.call("x"), delay="1h"))
        with pytest.raises(TimeoutError, match="goes on"):
            await handle.wait(0)
        assert (await handle.get()).state is RunState.PLANNED


@on_a_loop
async def test_requests_and_questions_are_the_same() -> None:
    async with made() as app:
        ref = await app.add(program.note.call("x"), cron="0 3 * * *", name="nightly")
        assert (await app.job("nightly")).id == ref.id
        assert await app.pause("nightly", note="n", actor="ada")
        assert (await app.job("nightly")).state is JobState.PAUSED
        await app.resume("nightly")
        change = await app.update("nightly", cron="0 4 * * *", dry_run=True)
        assert len(change.after) == 10
        assert len(await app.next_times("nightly", 3)) == 3
        assert "04:00" not in await app.explain("nightly")
        assert [job.id for job in await app.jobs(name="nightly")] == [ref.id]
        assert await app.check() == []
        assert await app.load_ahead("24h", step="1h")
        manual = await app.trigger("nightly")
        assert await manual.result() == "X"
        assert (await app.runs(job=ref, state="succeeded"))[0].id == manual.id
        assert await app.cancel("nightly") is CancelResult.CANCELLED


@on_a_loop
async def test_queues_and_calendars_are_awaited_too() -> None:
    async with made() as app:
        mail = await app.queue("mail")
        await mail.set(limit=3)
        assert (await mail.get()).limit == 3
        assert await app.pause(mail)
        assert (await mail.get()).pause is not None
        await app.resume(mail)
        assert (await mail.get()).pause is None
        calendar = await app.calendar("holidays")
        assert await calendar.get() is None
        await calendar.set(weekdays=["SAT", "SUN"])
        found = await calendar.get()
        assert found is not None
        assert found.weekdays == ("SAT", "SUN")


@on_a_loop
async def test_a_failed_run_is_retried_and_discarded_by_hand() -> None:
    program.log.errors += [ValueError("a"), ValueError("b")]
    async with made() as app:
        handle = await app.run(await app.schedule(program.fail_once.call(), 0))
        with pytest.raises(RunFailedError):
            await handle.result()
        await app.retry(handle)
        await handle.wait()
        assert (await app.discard(handle.id)).discarded
        with pytest.raises(UnknownRunError):
            await app.retry("00000000-0000-8000-8000-000000000001@5")


@on_a_loop
async def test_a_lambda_is_refused_at_the_call() -> None:
    async with made() as app:
        with pytest.raises(TaskError, match=r"^job"):
            await app.schedule(lambda: None, 0)  # type: ignore[arg-type]


@on_a_loop
async def test_a_second_opener_is_told(tmp_path: Path) -> None:
    async with made(tmp_path):
        with pytest.raises(StoreInUseError):
            await made(tmp_path).start()


@on_a_loop
async def test_after_a_stop_it_refuses_and_a_wait_has_ended() -> None:
    app = made()
    await app.start()
    handle = await app.run(await app.add(program.note.call("x"), delay="1h"))
    waiting = asyncio.ensure_future(handle.wait())
    await asyncio.wait([waiting], timeout=0)
    while not app._twin.desk.watch._tells:
        await app.jobs()
    await app.stop()
    with pytest.raises(EngineClosedError):
        await waiting
    with pytest.raises(EngineClosedError, match="stopped"):
        await app.jobs()


@on_a_loop
async def test_run_forever_returns_after_a_signal_and_a_clean_stop(
    tmp_path: Path,
) -> None:
    app = made(tmp_path)
    running = asyncio.ensure_future(app.run_forever())
    handle = None
    while handle is None:
        await asyncio.wait([running], timeout=0)
        handle = await app.run(await app.schedule(program.note.call("x"), 0))
    assert await handle.result() == "X"
    signal.raise_signal(signal.SIGTERM)
    await running
    async with made(tmp_path):
        pass  # the directory is free again


@on_a_loop
async def test_a_cancelled_run_forever_stops_too(tmp_path: Path) -> None:
    app = made(tmp_path)
    running = asyncio.ensure_future(app.run_forever())
    await app.schedule(program.note.call("x"), "1h")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    async with made(tmp_path) as again:
        assert len(await again.jobs()) == 1


@on_a_loop
async def test_a_start_that_is_cancelled_leaves_the_directory_free(
    tmp_path: Path,
) -> None:
    entered, gate = threading.Event(), threading.Event()

    def source(clock: Clock) -> EmbeddedStore:
        entered.set()
        assert gate.wait(PATIENCE_S)
        return EmbeddedStore.open(tmp_path, clock=clock)

    app = made(source)
    starting = asyncio.ensure_future(app.start())
    assert await asyncio.to_thread(entered.wait, PATIENCE_S)
    starting.cancel()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    async with made(tmp_path) as again:
        assert await again.jobs() == []
