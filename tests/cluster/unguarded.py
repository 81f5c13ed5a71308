"""The store without its guards: the control that shows that the harness would see it.

Statements lose what they compare on their way to the database, and a node trusts for ever.
"""

from __future__ import annotations

import re
from typing import Any

from timingwheel.jobs.model import JobId, RunState
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.deciding.live import LiveRun, RunKey
from timingwheel.stores.postgres import claiming, ends, taking, trust
from timingwheel.stores.postgres.connections import Texts

_TRUST: Any = trust
_CLAIMING: Any = claiming.Claiming
_TAKING: Any = taking.Taking

_GUARDS = (
    (rb"AND (\w+)\.version = \w+\.version", rb""),
    (rb"AND s\.epoch = g\.epoch\s+AND s\.owner_inc = %s", rb"AND %s > 0"),
    (rb"AND r\.token = u\.token AND r\.inc = u\.inc", rb""),
    (rb"(inc = (?:%s|ANY\(%s\)))\s+AND until_ns > timingwheel_elapsed\(\)", rb"\1"),
)
_FOR_EVER_NS = 1 << 60


def without_guards(sql: bytes) -> bytes:
    """Return a statement that compares nothing with what was read before."""
    for guard, bare in _GUARDS:
        sql = re.sub(guard, bare, sql)
    return sql


def trust_for_ever() -> None:
    """Have this process never doubt its leases, and whose an attempt is."""
    ends._running = _whoever_holds_it
    _TRUST.trusted_ns = lambda _: _FOR_EVER_NS
    # Plain runs are handed out by who fires them, and nodes rarely meet there: without
    # that all runs become ready, for everybody.
    _TAKING.direct = lambda _, **__: Texts()
    _CLAIMING._take_directly = lambda *_: True


def _whoever_holds_it(
    decision: Decision,
    job_id: JobId,
    key: RunKey,
    token: int,
) -> LiveRun | None:
    live = decision.run(job_id, *key)
    return live if live is not None and live.run.state is RunState.RUNNING else None
