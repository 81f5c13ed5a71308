"""Jobs that belong to a transaction of the caller's: `conn=`."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import TypeVar

from timingwheel.errors import ArgumentError
from timingwheel.jobs.model import Draft
from timingwheel.jobs.store import IfExists, JobRef, JobStore, PutsWithin
from timingwheel.scheduler.awaited import RequestThreads
from timingwheel.stores.on_loop import OnLoop

_T = TypeVar("_T")


def put_one(
    store: JobStore, draft: Draft, *, conn: object, if_exists: IfExists = "update"
) -> JobRef:
    """Make a job; with a connection, within its transaction.

    Raises:
        ArgumentError: there is a connection, and the store is not in a database.
    """
    if conn is None:
        return store.put([draft], if_exists=if_exists)[0]
    if not isinstance(store, PutsWithin):
        raise ArgumentError(
            "conn",
            type(conn).__name__,
            "only a store in PostgreSQL can join your transaction: build the scheduler "
            'with Scheduler("postgresql://..."), or leave conn= out',
        )
    return store.put_within(conn, [draft], if_exists=if_exists)[0]


async def joined(
    threads: RequestThreads, conn: object, request: Callable[[object], _T]
) -> _T:
    """Make a request on a thread, and what it asks of the connection on the loop.

    Cancelled, it ends before it passes that on: the connection is the caller's again.

    Args:
        threads: where requests wait.
        conn: the caller's connection; None: there is none.
        request: takes the connection as a thread can use it.
    """
    if conn is None:
        return await threads.call(functools.partial(request, None))
    lent = OnLoop(conn, asyncio.get_running_loop())
    asked = asyncio.ensure_future(threads.call(functools.partial(request, lent)))
    try:
        return await asyncio.shield(asked)
    except asyncio.CancelledError:
        await lent.let_go()
        await asyncio.wait([asked])
        if not asked.cancelled():
            asked.exception()  # whatever it was, nobody asks for it any more
        raise
