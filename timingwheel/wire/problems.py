"""Errors on their way: an exception here, `application/problem+json` on the wire (RFC 9457).

The document has the words of the error and its facts, so a client raises the very error
that a Scheduler would have raised.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from timingwheel.errors import (
    ArgumentError,
    BatchTooLargeError,
    CronError,
    DeadlineError,
    EngineClosedError,
    EngineFailedError,
    MissingExtraError,
    PayloadTooLargeError,
    TimingWheelError,
    shown,
)
from timingwheel.jobs.errors import (
    DatabaseAwayError,
    KeyConflictError,
    NameTakenError,
    PayloadError,
    RevisionConflictError,
    RunStateError,
    TaskError,
    UnknownCalendarError,
    UnknownJobError,
    UnknownRunError,
    UnknownTaskError,
    UnknownWorkerError,
)
from wal.errors import CommitUnknownError, DiskFullError, StoreError

PROBLEM_TYPE: Final = "application/problem+json"


class AccessError(TimingWheelError):
    """The server does not let this caller do that; nothing has changed.

    Pass a token that it knows, with a role that may: `Client(url, token=...)`.
    """


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong, by RFC 9457.

    Attributes:
        type: which kind, as a URI reference: "urn:timingwheel:" and the code.
        title: the kind in words.
        status: of HTTP.
        detail: what was found and what to do about it.
        code: the kind for programs; it never changes.
        field: the argument or the field that is meant, where there is one.
        facts: attributes of the error.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    field: str | None = None
    facts: dict[str, Any] = {}


class _Kind(NamedTuple):
    error: type[Exception]
    code: str
    status: int
    facts: tuple[str, ...] = ()


_VALUE: Final = ("argument", "found", "fix")
# A child before its parent: the first that fits is taken.
_KINDS: Final = (
    _Kind(UnknownJobError, "unknown-job", 422, _VALUE),
    _Kind(UnknownRunError, "unknown-run", 422, _VALUE),
    _Kind(UnknownWorkerError, "unknown-worker", 422, _VALUE),
    _Kind(UnknownTaskError, "unknown-task", 422, _VALUE),
    _Kind(UnknownCalendarError, "unknown-calendar", 422, _VALUE),
    _Kind(PayloadTooLargeError, "payload-too-large", 413, _VALUE),
    _Kind(BatchTooLargeError, "batch-too-large", 413, _VALUE),
    _Kind(TaskError, "task", 422, _VALUE),
    _Kind(ArgumentError, "argument", 422, _VALUE),
    _Kind(DeadlineError, "deadline", 422, _VALUE),
    _Kind(
        CronError,
        "cron",
        422,
        ("expression", "field", "piece", "code", "found", "fix"),
    ),
    _Kind(KeyConflictError, "key-conflict", 409, ("key", "task", "job_id")),
    _Kind(NameTakenError, "name-taken", 409, ("name", "job_id")),
    _Kind(
        RevisionConflictError,
        "revision-conflict",
        412,
        ("job_id", "expected", "found"),
    ),
    _Kind(RunStateError, "run-state", 409, ("run_id", "state", "fix")),
    _Kind(PayloadError, "payload", 422),
    _Kind(MissingExtraError, "missing-extra", 501),
    _Kind(AccessError, "access", 403),
    _Kind(EngineClosedError, "closed", 503),
    _Kind(EngineFailedError, "failed", 503),
    _Kind(DatabaseAwayError, "database-away", 503),
    _Kind(DiskFullError, "disk-full", 507),
    _Kind(CommitUnknownError, "commit-unknown", 500),
    _Kind(StoreError, "store", 503),
)
_UNKNOWN: Final = frozenset(
    {
        UnknownJobError,
        UnknownRunError,
        UnknownWorkerError,
        UnknownTaskError,
        UnknownCalendarError,
    }
)
_RUNS_AND_JOBS: Final = frozenset({"run", "job"})
_OF_THE_WHOLE: Final = frozenset({"changes", "the time to run"})
"""What errors call the options together; in a request no field has that name."""
# Of the server's disk or database, not of this process: a client tells their words alone.
_BY_WORDS: Final = frozenset(
    {
        CommitUnknownError,
        DatabaseAwayError,
        DiskFullError,
        MissingExtraError,
        StoreError,
    }
)
_FACT_CHARS_MAX: Final = 1_000
_TITLES: Final = {
    "argument": "a value is invalid",
    "access": "that is not allowed",
    "closed": "the scheduler was stopped",
    "failed": "the scheduler stopped for good",
}


class RefusedByServerError(TimingWheelError):
    """The server failed, or refused in a way that has no class of its own.

    Attributes:
        problem: what it said.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.problem.title} ({self.problem.status}): {self.problem.detail}"


def problem_of(error: BaseException, *, place: Collection[str] = ()) -> Problem | None:
    """Return an error as a document; None if it is a fault of the server's own code.

    Args:
        error: which.
        place: what the path of the request names. It is 404 if that is what is
            unknown, and 422 if the request only mentions something unknown.
    """
    for kind in _KINDS:
        if isinstance(error, kind.error):
            facts = {name: _plain(getattr(error, name)) for name in kind.facts}
            field = "cron" if kind.error is CronError else facts.get("argument")
            if field in _OF_THE_WHOLE:
                field = "body"
            # A job that runs once stands in a path for its only run, or that for it.
            if field in _RUNS_AND_JOBS and field not in place:
                field = next((name for name in place if name in _RUNS_AND_JOBS), field)
            is_place = kind.error in _UNKNOWN and field in place
            status = 404 if is_place else kind.status
            return make_problem(kind.code, status, str(error), field=field, facts=facts)
    return None


@contextlib.contextmanager
def within(place: str) -> Iterator[None]:
    """Have what is refused in the block be named as a part of a place.

    Raises:
        ArgumentError: "retry.attempts" for "attempts", of the same class.
    """
    try:
        yield
    except ArgumentError as error:
        argument = f"{place}.{error.argument}"
        if error.argument in _OF_THE_WHOLE:
            argument = place
        raise type(error)(argument, error.found, error.fix) from error


def make_problem(
    code: str,
    status: int,
    detail: str,
    *,
    field: str | None = None,
    facts: dict[str, Any] | None = None,
) -> Problem:
    """Return a document.

    Args:
        code: the kind.
        status: of HTTP.
        detail: what was found and what to do.
        field: which argument.
        facts: attributes of the error.
    """
    return Problem(
        type=f"urn:timingwheel:{code}",
        title=_TITLES.get(code, code.replace("-", " ")),
        status=status,
        detail=detail,
        code=code,
        field=field,
        facts=facts or {},
    )


def error_of(problem: Problem) -> Exception:
    """Return the error that a document stands for."""
    for kind in _KINDS:
        if kind.code != problem.code:
            continue
        if kind.facts and problem.facts.keys() >= set(kind.facts):
            return kind.error(**{name: problem.facts[name] for name in kind.facts})
        if not kind.facts and kind.error not in _BY_WORDS:
            return kind.error(problem.detail)
    return RefusedByServerError(problem)


def _plain(value: object) -> Any:
    """Return a value if JSON can hold it and it is short, else how it is shown."""
    try:
        body = msgspec.json.encode(value)
    except (TypeError, ValueError):
        return shown(value)
    if len(body) > _FACT_CHARS_MAX:
        return shown(value)
    return msgspec.json.decode(body)
