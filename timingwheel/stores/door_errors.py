"""Errors on their way through a store's door: the same class, with the same facts.

An error is sent as the name of its class, its arguments and its attributes, and only
classes of the list here are made again; nothing that comes is ever run.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from timingwheel.errors import (
    ArgumentError,
    BatchTooLargeError,
    CronError,
    DeadlineError,
    EngineClosedError,
    EngineFailedError,
    PayloadTooLargeError,
    TimingWheelError,
    shown,
)
from timingwheel.jobs.errors import (
    KeyConflictError,
    NameTakenError,
    RevisionConflictError,
    RunStateError,
    UnknownCalendarError,
    UnknownJobError,
    UnknownRunError,
    UnknownWorkerError,
)
from timingwheel.stores.history_errors import HistoryError
from wal.errors import (
    CommitUnknownError,
    DiskFullError,
    LogFailedError,
    RecordTooLargeError,
    WalError,
)


class HolderLostError(CommitUnknownError):
    """The process that holds the directory ended during the call.

    What was asked may have been done, or not. What was acknowledged before is safe, and
    the next call goes to whoever holds the directory then. Look whether it was done, or
    ask again with a `key`: then it is done once.

    Attributes:
        path: of the directory.
        call: what was asked of the store.
    """

    def __init__(self, path: str, call: str) -> None:
        WalError.__init__(
            self,
            f"{path}: the process that holds the directory ended during `{call}`; it may "
            "or may not have been done. Look, and call again; with a key it is done once",
        )
        self.path = path
        self.lsn = 0
        self.call = call


class HolderFaultError(TimingWheelError):
    """The process that holds the directory could not do it, by a fault of its own code.

    Its log has the traceback.
    """


class Fault(msgspec.Struct, frozen=True, array_like=True):
    """An error as it is sent.

    Attributes:
        kind: the name of its class; "" for one that is not on the list.
        arguments: what the exception was made of.
        facts: its attributes.
        cause: what it was raised from.
    """

    kind: str
    arguments: list[Any]
    facts: dict[str, Any]
    cause: Fault | None = None


_KINDS: Final[dict[str, type[Exception]]] = {
    kind.__name__: kind
    for kind in (
        ArgumentError,
        BatchTooLargeError,
        CommitUnknownError,
        CronError,
        DeadlineError,
        DiskFullError,
        EngineClosedError,
        EngineFailedError,
        HistoryError,
        KeyConflictError,
        LogFailedError,
        NameTakenError,
        PayloadTooLargeError,
        RecordTooLargeError,
        RevisionConflictError,
        RunStateError,
        UnknownCalendarError,
        UnknownJobError,
        UnknownRunError,
        UnknownWorkerError,
    )
}
_OS_ERROR: Final = "OSError"
_FACT_BYTES_MAX: Final = 64 << 10


def fault_of(error: BaseException) -> Fault:
    """Return an error as it is sent."""
    cause = None if error.__cause__ is None else fault_of(error.__cause__)
    if isinstance(error, OSError):
        facts = [error.errno, error.strerror, error.filename]
        return Fault(_OS_ERROR, [_plain(fact) for fact in facts], {}, cause)
    kind = type(error).__name__
    if _KINDS.get(kind) is not type(error):
        return Fault("", [f"{kind}: {error}"], {}, cause)
    arguments = [_plain(argument) for argument in error.args]
    facts_by_name = {name: _plain(value) for name, value in vars(error).items()}
    return Fault(kind, arguments, facts_by_name, cause)


def error_of(fault: Fault) -> Exception:
    """Return the error that was sent."""
    made = _made(fault)
    if fault.cause is not None:
        made.__cause__ = error_of(fault.cause)
    return made


def _made(fault: Fault) -> Exception:
    if fault.kind == _OS_ERROR:
        return OSError(*fault.arguments)
    kind = _KINDS.get(fault.kind)
    if kind is None:
        return HolderFaultError(*fault.arguments)
    # Not by their own constructors: what these take is not always what they keep.
    made = kind.__new__(kind, *fault.arguments)
    vars(made).update(fault.facts)
    return made


def _plain(value: object) -> Any:
    """Return a value if it can be sent, else how it is shown."""
    try:
        body = msgspec.msgpack.encode(value)
    except (TypeError, ValueError, OverflowError):
        return shown(value)
    if len(body) > _FACT_BYTES_MAX:
        return shown(value)
    return value
