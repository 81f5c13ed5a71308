"""Who did what over HTTP: the entries of the audit, as a server keeps and tells them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from timingwheel.jobs.store import PAGE_LIMIT
from timingwheel.wire.bodies import Body

AuditOutcome = Literal["done", "refused", "failed"]
AuditVia = Literal["api", "page"]


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that somebody did, or was refused.

    Attributes:
        id: grows with each entry, and is never used twice.
        time_ns: when it was answered, on the wall clock.
        actor: whose token it was, or who it said it was; None: neither is known.
        role: what that token may: "read", "operate" or "admin".
        via: by the API, or on the page.
        operation: which, such as "pause_job".
        target: of which job, run, queue or the like; "" if of none.
        arguments: what was asked for; values of payloads are left out.
        outcome: whether it was done, refused as it was asked, or failed.
        status: of the HTTP response.
        problem: the code of what was wrong; None if nothing was.
        field: which argument was wrong.
    """

    id: int = 0
    time_ns: int
    actor: str | None
    role: str
    via: AuditVia
    operation: str
    target: str
    arguments: dict[str, Any]
    outcome: AuditOutcome
    status: int
    problem: str | None = None
    field: str | None = None


class AuditQuery(Body):
    """Which entries; what is left out does not matter.

    Attributes:
        actor, operation, target, outcome: as the entry has it.
        since, until: bounds of the time, the second not included.
        limit: rows at most.
        cursor: of the page before.
    """

    actor: str | None = None
    operation: str | None = None
    target: str | None = None
    outcome: AuditOutcome | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int = PAGE_LIMIT
    cursor: str | None = None
