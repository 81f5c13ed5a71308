"""What of a form becomes an entry of the audit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from timingwheel.server.access import Caller
from timingwheel.server.audit import cut
from timingwheel.server.audit_operations import outcome_of_status
from timingwheel.server.dashboard.visits import Answer, Fields, Page, View
from timingwheel.wire.audit import AuditEntry
from timingwheel.wire.problems import Problem

_SHOWN: Final = 200
_DONE: Final = 303
_CONFLICT: Final = 409
_HIDDEN: Final = frozenset({"csrf", "next", "token"})
"""Fields that are of no interest, or nobody's business."""
_PAYLOADS: Final = frozenset({"args", "payload"})
_LEFT_OUT: Final = "..."
_TARGETS: Final = ("job", "run", "queue", "name", "task")
"""Fields that may say which thing was meant, where the path does not; in this order."""


def status_of(answer: Answer) -> int:
    """Return how an answer counts: 303 for what was done, 4xx for what was not."""
    if isinstance(answer, View):
        return answer.status
    return _CONFLICT if answer.tone == "bad" else _DONE


def is_recorded(page: Page, status: int) -> bool:
    """Return whether a visit is recorded: a form that only shows more did nothing."""
    return bool(page.operation) and status != _SHOWN


def page_entry(
    operation: str,
    caller: Caller,
    *,
    path: Mapping[str, str],
    form: Fields,
    status: int,
    problem: Problem | None,
    time_ns: int,
) -> AuditEntry:
    """Return the entry of a form that was sent.

    Args:
        operation: what was asked for.
        caller: who asked.
        path: the names in the form's path.
        form: what was sent.
        status: of the answer.
        problem: why it was refused, if the page did not say so itself.
        time_ns: the wall clock now.
    """
    return AuditEntry(
        time_ns=time_ns,
        actor=caller.name,
        role=caller.role.name.lower(),
        via="page",
        operation=operation,
        target=_target(path, form),
        arguments=_arguments(form),
        outcome=outcome_of_status(status),
        status=status,
        problem=None if problem is None else problem.code,
        field=None if problem is None else problem.field,
    )


def _target(path: Mapping[str, str], form: Fields) -> str:
    if path:
        return "/".join(path.values())
    for name in _TARGETS:
        found = form.all(name)
        if found:
            return found[0] if len(found) == 1 else f"{len(found)} of them"
    return ""


def _arguments(form: Fields) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in form:
        if name in _HIDDEN or not value:
            continue
        shown = _LEFT_OUT if name in _PAYLOADS else value
        former = found.get(name)
        if former is None:
            found[name] = shown
        elif isinstance(former, list):
            former.append(shown)
        else:
            found[name] = [former, shown]
    return cut(found)
