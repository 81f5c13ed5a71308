"""Answers as HTTP responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.responses import Response

from timingwheel.wire.problems import PROBLEM_TYPE, Problem

_HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_RETRY_SECONDS: Final = "1"


def value_response(
    value: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a value as JSON."""
    return Response(
        msgspec.json.encode(value),
        status_code=status,
        headers={**_HEADERS, **(headers or {})},
        media_type="application/json",
    )


def problem_response(
    problem: Problem, *, headers: Mapping[str, str] | None = None
) -> Response:
    """Return what went wrong."""
    busy = {"retry-after": _RETRY_SECONDS} if problem.status == 503 else {}
    return Response(
        msgspec.json.encode(problem),
        status_code=problem.status,
        headers={**_HEADERS, **busy, **(headers or {})},
        media_type=PROBLEM_TYPE,
    )
