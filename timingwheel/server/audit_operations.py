"""The operation on the audit, and what of a request becomes an entry of it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from timingwheel.server.access import Caller
from timingwheel.server.audit import shown_arguments
from timingwheel.server.operations import Asked, Operation, Reply
from timingwheel.wire.answers import PageAnswer
from timingwheel.wire.audit import AuditEntry, AuditOutcome, AuditQuery
from timingwheel.wire.problems import Problem

_REFUSED: Final = 400
_FAULT: Final = 500
_NAMES: Final = ("id", "name", "key", "new", "task")
"""What may say which thing was meant where the path does not, in this order."""


def list_audit(asked: Asked) -> PageAnswer[AuditEntry]:
    """Return who did what, and what was refused; newest first."""
    page = asked.audit.entries(asked.the_query(AuditQuery))
    return PageAnswer(items=list(page), cursor=page.cursor)


def entry_of(
    operation: Operation,
    caller: Caller,
    *,
    path: dict[str, str],
    asked: Asked | None,
    answer: object,
    status: int,
    problem: Problem | None,
    time_ns: int,
) -> AuditEntry:
    """Return the entry of a request that would change something.

    Args:
        operation: which was asked for.
        caller: who asked.
        path: the names in its path.
        asked: the request; None: it could not be read.
        answer: what was answered; None if it was refused.
        status: of the response.
        problem: why it was refused.
        time_ns: the wall clock now.
    """
    body = None if asked is None else asked.body
    said = getattr(body, "actor", None)
    return AuditEntry(
        time_ns=time_ns,
        actor=caller.name or said,
        role=caller.role.name.lower(),
        via="api",
        operation=operation.name,
        target=_target(path, body, answer),
        arguments=shown_arguments(body),
        outcome=outcome_of_status(status),
        status=status,
        problem=None if problem is None else problem.code,
        field=None if problem is None else problem.field,
    )


def outcome_of_status(status: int) -> AuditOutcome:
    """Return how a request ended that was answered with this status."""
    if status < _REFUSED:
        return "done"
    return "refused" if status < _FAULT else "failed"


def _target(path: dict[str, str], body: msgspec.Struct | None, answer: object) -> str:
    if path:
        return "/".join(path.values())
    value: Any = answer.value if isinstance(answer, Reply) else answer
    for thing in (value, body):
        for name in _NAMES:
            found = getattr(thing, name, None)
            if isinstance(found, str):
                return found
    return ""


AUDIT_OPERATIONS: Final = (
    Operation(
        "GET",
        "/audit",
        list_audit,
        PageAnswer[AuditEntry],
        "Who did what, newest first",
        query=AuditQuery,
    ),
)
