"""The operations on runs and on the dead letter."""

from __future__ import annotations

import asyncio
from typing import Final

from timingwheel.errors import ArgumentError
from timingwheel.jobs.errors import PayloadError, UnknownRunError
from timingwheel.jobs.model import Attempt, Run, RunState
from timingwheel.jobs.store import CancelResult
from timingwheel.scheduler.asyncio_handles import AsyncRunHandle
from timingwheel.scheduler.handles import Page, RunHandle
from timingwheel.server.operations import Asked, Operation, Role
from timingwheel.server.queries import tags_of
from timingwheel.wire.answers import (
    CancelAnswer,
    ListAnswer,
    PageAnswer,
    RunAnswer,
    WaitAnswer,
    plain,
    run_answer,
)
from timingwheel.wire.bodies import CancelRunBody, DeadQuery, RunsQuery, WaitQuery

WAIT_SECONDS_MAX: Final = 60.0
"""How long a request is held at most; who wants to wait longer asks again."""


def list_runs(asked: Asked) -> PageAnswer[RunAnswer]:
    """Return runs."""
    query = asked.the_query(RunsQuery)
    return _page(
        asked,
        query,
        states=query.state or None,
        discarded=query.discarded,
        in_order=query.in_order,
    )


def list_dead(asked: Asked) -> PageAnswer[RunAnswer]:
    """Return the dead letter."""
    query = asked.the_query(DeadQuery)
    states = [RunState.FAILED.value, RunState.LOST.value]
    return _page(asked, query, states=states, discarded=False)


def get_run(asked: Asked) -> RunAnswer:
    """Return a run."""
    return run_of(asked, _handle(asked).get())


def list_attempts(asked: Asked) -> ListAnswer[Attempt]:
    """Return the attempts of a run, the one that goes on last."""
    handle = _handle(asked)
    handle.require_possible()
    return ListAnswer(handle.attempts())


async def wait_for_run(asked: Asked) -> WaitAnswer:
    """Return a run once it has ended; null after a while."""
    timeout_s = asked.the_query(WaitQuery).timeout
    if not 0 <= timeout_s <= WAIT_SECONDS_MAX:
        raise ArgumentError(
            "timeout", timeout_s, f"pass seconds, 0 to {WAIT_SECONDS_MAX:g}"
        )
    twin = await asked.threads.call(lambda: _handle(asked))
    ended = asyncio.ensure_future(AsyncRunHandle(twin, asked.threads).wait(timeout_s))
    stopping = asyncio.ensure_future(asked.stopping.wait())
    try:
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            return WaitAnswer(None)
        run = ended.result()
    except TimeoutError:
        return WaitAnswer(None)
    finally:
        ended.cancel()
        stopping.cancel()
    return WaitAnswer(await asked.threads.call(lambda: run_of(asked, run)))


def retry_run(asked: Asked) -> RunAnswer:
    """Make a failed or lost run ready again; it keeps its identity."""
    return run_of(asked, _handle(asked).retry().get())


def discard_run(asked: Asked) -> RunAnswer:
    """Take a run off the dead letter, or end one that waits for a retry."""
    return run_of(asked, _handle(asked).discard())


def cancel_run(asked: Asked) -> CancelAnswer:
    """End one run alone; its job goes on."""
    running = asked.the_body(CancelRunBody).running
    result = _handle(asked).cancel(running=running)
    if result is CancelResult.NOT_FOUND:
        raise UnknownRunError(
            "run",
            asked.path["run"],
            "there is no such run yet, or it is no longer kept",
        )
    return CancelAnswer(result=result, prevented=bool(result))


def run_of(asked: Asked, run: Run) -> RunAnswer:
    """Return a run as it travels, with what its handler returned."""
    value: object = None
    if run.state is RunState.SUCCEEDED:
        try:
            value = plain(asked.scheduler.run(run).decoded(run))
        except (PayloadError, ValueError):
            value = None  # bytes that only the task's own program can read
    return run_answer(run, value)


def _page(
    asked: Asked,
    query: DeadQuery,
    *,
    states: list[str] | None,
    discarded: bool | None,
    in_order: bool = True,
) -> PageAnswer[RunAnswer]:
    page: Page[Run] = asked.scheduler.runs(
        job=query.job,
        state=states,
        task=query.task,
        queue=query.queue,
        tags=tags_of(query.tag),
        discarded=discarded,
        since=query.since,
        until=query.until,
        limit=query.limit,
        cursor=query.cursor,
        in_order=in_order,
    )
    return PageAnswer(items=[run_of(asked, run) for run in page], cursor=page.cursor)


def _handle(asked: Asked) -> RunHandle:
    return asked.scheduler.run(asked.path["run"])


_ONE: Final = "/runs/{run}"
RUN_OPERATIONS: Final = (
    Operation(
        "GET",
        "/runs",
        list_runs,
        PageAnswer[RunAnswer],
        "List runs, newest nominal time first",
        query=RunsQuery,
    ),
    Operation(
        "GET",
        "/dead",
        list_dead,
        PageAnswer[RunAnswer],
        "List runs that failed for good or were lost",
        query=DeadQuery,
    ),
    Operation("GET", _ONE, get_run, RunAnswer, "Show a run, or a job's only one"),
    Operation(
        "GET",
        f"{_ONE}/attempts",
        list_attempts,
        ListAnswer[Attempt],
        "Show the attempts of a run",
    ),
    Operation(
        "GET",
        f"{_ONE}/end",
        wait_for_run,
        WaitAnswer,
        "Wait until a run has ended",
        query=WaitQuery,
        awaits=True,
    ),
    Operation(
        "POST",
        f"{_ONE}/retry",
        retry_run,
        RunAnswer,
        "Make a failed or lost run ready again",
        role=Role.OPERATE,
    ),
    Operation(
        "POST",
        f"{_ONE}/discard",
        discard_run,
        RunAnswer,
        "Take a run off the dead letter",
        role=Role.OPERATE,
    ),
    Operation(
        "POST",
        f"{_ONE}/cancel",
        cancel_run,
        CancelAnswer,
        "End one run; its job goes on",
        body=CancelRunBody,
        role=Role.OPERATE,
        needs_body=False,
    ),
)
