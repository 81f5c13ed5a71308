"""What the fuzzer knows of this API beside its document; schemathesis loads it by name.

Nothing that it sends may hold a request for long, and one check is ours: an error names
a field that the request can have.
"""

from __future__ import annotations

import re
from typing import Any

import schemathesis
from schemathesis import Case, CheckContext, HookContext, Response

from timingwheel.server.app import OPERATIONS
from timingwheel.server.operations import API_PATH
from timingwheel.wire.problems import PROBLEM_TYPE

HOLD_SECONDS = 0.01
HEADERS = {"If-Match", "Idempotency-Key"}
_OPERATIONS = {(one.method, API_PATH + one.path): one for one in OPERATIONS}
_ROOT = re.compile(r"[^.\[]+")


@schemathesis.hook
def before_call(context: HookContext, case: Case, kwargs: dict[str, Any]) -> None:
    """Have neither a run nor a claim waited for."""
    if case.path.endswith("/end"):
        case.query = _brief(case.query, "timeout")
    if case.path.endswith("/claims"):
        case.body = _brief(case.body, "wait")


def _brief(values: Any, name: str) -> Any:
    """Cut a wait short; what is no wait at all stays, to be refused."""
    if not isinstance(values, dict):
        return values
    wait = values.get(name, HOLD_SECONDS)
    try:
        is_wait = 0 <= float(wait) <= 60
    except (TypeError, ValueError):
        is_wait = False
    return {**values, name: HOLD_SECONDS} if is_wait else values


@schemathesis.check
def a_refusal_names_what_is_meant(
    ctx: CheckContext, response: Response, case: Case
) -> None:
    """Check that a problem has its form, and its field is one of the request's."""
    if response.status_code < 400:
        return
    kind = response.headers.get("content-type")
    assert kind == [PROBLEM_TYPE], (kind, response.status_code, response.content)
    problem = response.json()
    assert problem["status"] == response.status_code, problem
    assert problem["type"] == f"urn:timingwheel:{problem['code']}", problem
    assert problem["detail"], problem
    field = problem.get("field")
    if field is None or problem["code"] == "cron":  # which says of the rule what it is
        return
    if re.search(
        "parameters here are|object contains unknown field", problem["detail"]
    ):
        return
    root = _ROOT.match(field)
    known = HEADERS | {"body"} | set(case.path_parameters) | _names(case)
    where = f"{field!r} is no field of {case.operation.label}: {problem}"
    assert root is not None, where
    assert root[0] in known, where


def _names(case: Case) -> set[str]:
    """Return the names of an operation's query parameters and of its body's fields."""
    one = _OPERATIONS[case.operation.method.upper(), case.operation.path]
    names: set[str] = set()
    for kind in (one.query, one.body):
        if kind is not None:
            names |= set(kind.__struct_fields__)
    return names
