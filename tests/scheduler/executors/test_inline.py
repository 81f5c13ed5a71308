"""The submitting thread as the only slot."""

from __future__ import annotations

import asyncio
import threading

from tests.scheduler.executors import handlers
from tests.scheduler.executors.stage import RecordingHost, work_of
from timingwheel.jobs.model import Outcome
from timingwheel.scheduler.executors.executor import Work
from timingwheel.scheduler.executors.inline import InlineExecutor


def test_submit_returns_when_all_has_run_in_this_thread() -> None:
    host = RecordingHost()
    executor = InlineExecutor()
    executor.start(host)
    before = threading.active_count()
    executor.submit([work_of(handlers.add.call(number)) for number in range(3)])
    assert [finish.outcome for finish in host.finishes] == [Outcome.OK] * 3
    assert threading.active_count() == before


def test_what_a_beginning_submits_runs_after_it() -> None:
    host = RecordingHost()
    executor = InlineExecutor()
    executor.start(host)
    first, second = work_of(handlers.add.call(1)), work_of(handlers.add.call(2))

    def submit_more(work: Work) -> None:
        if work is first:
            executor.submit([second])
            assert executor.free == 0

    host.on_begin = submit_more
    executor.submit([first])
    tokens = [finish.token for finish in host.finishes]
    assert tokens == [first.claim.token, second.claim.token]


def test_a_coroutine_can_run_inline_beside_a_running_loop() -> None:
    host = RecordingHost()
    executor = InlineExecutor()
    executor.start(host)

    async def main() -> None:
        executor.submit([work_of(handlers.add_async.call(1))])

    asyncio.run(main())
    assert [finish.outcome for finish in host.finishes] == [Outcome.OK]
