"""The page Audit: who did what, over the API and here, and what was refused."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from timingwheel.server.dashboard.run_rows import ROWS, moment_of
from timingwheel.server.dashboard.visits import FormErrors, Page, View, Visit
from timingwheel.wire.audit import AuditEntry, AuditQuery

NAV: Final = "Audit"
OUTCOMES: Final = ("done", "refused", "failed")
_TEXTS: Final = ("actor", "operation", "target", "outcome")
_FILTERS: Final = (*_TEXTS, "since", "until")


def show_audit(visit: Visit) -> View:
    """Show who did what, newest first."""
    errors = FormErrors()
    query = visit.query
    asked: dict[str, Any] = {name: query.get(name) or None for name in _TEXTS}
    for name in ("since", "until"):
        with errors.caught(name):
            asked[name] = moment_of(query.get(name), visit.zone, name)
    if asked["outcome"] not in (None, *OUTCOMES):
        errors["outcome"] = "There is no such outcome."
        asked["outcome"] = None
    cursor = query.get("cursor") or None
    page = visit.audit.entries(AuditQuery(**asked, limit=ROWS, cursor=cursor))
    values = {
        "rows": [(entry, arguments_line(entry)) for entry in page],
        "cursor": page.cursor,
        "outcomes": OUTCOMES,
        "errors": errors,
        "is_filtered": any(query.get(name) for name in _FILTERS),
    }
    return View("audit.html", values, 422 if errors else 200)


def arguments_line(entry: AuditEntry) -> str:
    """Return the arguments of an entry in one line: `note=rain until=...`."""
    return "  ".join(
        f"{name}={value if isinstance(value, str) else _json(value)}"
        for name, value in entry.arguments.items()
    )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


AUDIT_PAGES: Final = (Page("GET", "/audit", show_audit, nav=NAV),)
