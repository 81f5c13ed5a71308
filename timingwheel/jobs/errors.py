"""What the scheduler's layers refuse, one class for each thing a caller can do about it."""

from __future__ import annotations

from typing import Final

import msgspec

from timingwheel.errors import ArgumentError, TimingWheelError

__all__ = [
    "DatabaseAwayError",
    "KeyConflictError",
    "NameTakenError",
    "NoStoreError",
    "PayloadError",
    "RevisionConflictError",
    "RunStateError",
    "TaskError",
    "UnknownCalendarError",
    "UnknownJobError",
    "UnknownRunError",
    "UnknownTaskError",
    "UnknownWorkerError",
]

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises of bytes that may be anything: no value, text that is no UTF-8, and
values within values deeper than the interpreter goes from where it stands."""


class DatabaseAwayError(TimingWheelError, ConnectionError):
    """The database does not answer. Whether the last statement was carried out is unknown.

    Ask again: a put under a key, a cancel and the end of an attempt may be repeated. A
    node goes on by itself when the database is back.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the database does not answer ({self.reason}): try again"


class NoStoreError(TimingWheelError):
    """The database has no tables of a job store, and none were to be made."""

    def __str__(self) -> str:
        return "the database has no job store yet, in the schemas that this role looks into"


class KeyConflictError(TimingWheelError):
    """An idempotency key is there with another payload; nothing has changed.

    Attributes:
        key: the key.
        task: its scope.
        job_id: the job that has it.
    """

    def __init__(self, key: str, task: str, job_id: str) -> None:
        super().__init__(key, task, job_id)
        self.key = key
        self.task = task
        self.job_id = job_id

    def __str__(self) -> str:
        return (
            f"key {self.key!r} of task {self.task!r} belongs to job {self.job_id} with "
            "another payload: use another key, or the same payload"
        )


class NameTakenError(TimingWheelError):
    """A job of that name is there with another definition; nothing has changed.

    Attributes:
        name: the name.
        job_id: the job that has it.
    """

    def __init__(self, name: str, job_id: str) -> None:
        super().__init__(name, job_id)
        self.name = name
        self.job_id = job_id

    def __str__(self) -> str:
        return (
            f"the name {self.name!r} belongs to job {self.job_id} with another "
            'definition: use another name, or if_exists="update"'
        )


class RevisionConflictError(TimingWheelError):
    """The job was changed by somebody else since it was read; nothing has changed.

    Attributes:
        job_id: which.
        expected: the revision that the caller knew.
        found: the revision that it has.
    """

    def __init__(self, job_id: str, expected: int, found: int) -> None:
        super().__init__(job_id, expected, found)
        self.job_id = job_id
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return (
            f"job {self.job_id} has revision {self.found}, not {self.expected}: read it "
            "again and decide anew"
        )


class UnknownJobError(ArgumentError):
    """There is no live job of that id or name; nothing has changed."""


class UnknownRunError(ArgumentError):
    """There is no run of that id, or it is not kept any more; nothing has changed."""


class UnknownCalendarError(ArgumentError):
    """There is no calendar of that name; nothing has changed."""


class UnknownTaskError(ArgumentError):
    """There is no task of that name in this program; nothing has changed."""


class UnknownWorkerError(ArgumentError):
    """There is no worker of that name, or its leases ran out: join again."""


class RunStateError(TimingWheelError):
    """The run is in a state in which that cannot be done; nothing has changed.

    Attributes:
        run_id: which.
        state: where it stands.
        fix: what can be done, as a phrase for the message.
    """

    def __init__(self, run_id: str, state: str, fix: str) -> None:
        super().__init__(run_id, state, fix)
        self.run_id = run_id
        self.state = state
        self.fix = fix

    def __str__(self) -> str:
        return f"run {self.run_id} is {self.state}: {self.fix}"


class TaskError(ArgumentError):
    """A function cannot be a task, or a task cannot be called so; nothing has changed."""


class PayloadError(TimingWheelError):
    """Stored arguments do not fit the task's signature any more; the bytes are kept."""
