"""Payloads: a task's arguments as bytes, checked when the call is made.

The signature becomes a msgspec Struct, one field a parameter. A call is bound to the
signature, encoded, and decoded again at once; what would not arrive as it was passed is
refused there and then, in the caller's thread, and not at three in the night.

    first byte   form
    {            JSON object
    0xc1         pickle follows; only for a task that asked for it. MessagePack never
                 uses this byte
    else         MessagePack map

So a task may change its form and still read what it wrote before. Only arguments that
were passed are kept: a default is the function's business when it runs, and a parameter
that is added with a default leaves every stored payload readable.

A change that stored payloads cannot survive gets a new version, and `upgrade` says how
to make version n + 1 of version n: `{1: lambda old: {**old, "to": old["address"]}}`.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from timingwheel.engine.arguments import PAYLOAD_BYTES_MAX
from timingwheel.errors import PayloadTooLargeError
from timingwheel.jobs.errors import UNREADABLE, PayloadError, TaskError
from timingwheel.jobs.model import Payload
from timingwheel.scheduler.signatures import Signature, arrives_as

Form = Literal["msgpack", "json"]
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]

RESULT_BYTES_MAX: Final = PAYLOAD_BYTES_MAX

_PICKLE_MARK: Final = b"\xc1"
_JSON_MARK: Final = b"{"


class Arguments(NamedTuple):
    """What to call a function with, its ctx apart."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class PayloadCodec:
    """Turns the arguments of one task into bytes, and back.

    Args:
        signature: the task's function.
        task: its name, for messages.
        form: what to write; all forms are read.
        version: of what is written, 1 or more.
        upgrade: by version, how to make the next one of it.
        pickled: write pickle, and read it. Whoever can write to the store can then run
            any code in the worker.

    Raises:
        TaskError: a parameter's type cannot be stored, or an argument is invalid.
    """

    def __init__(
        self,
        signature: Signature,
        *,
        task: str,
        form: Form = "msgpack",
        version: int = 1,
        upgrade: Mapping[int, Upgrade] | None = None,
        pickled: bool = False,
    ) -> None:
        if form not in {"msgpack", "json"}:
            raise TaskError("form", form, 'pass "msgpack" or "json"')
        if type(version) is not int or version < 1:
            raise TaskError("version", version, "pass a whole number from 1")
        self.version: Final = version
        self.form: Final = form
        self.pickled: Final = pickled
        self.upgrade: Final = _checked_upgrade(upgrade or {}, version)
        self._task = task
        self._signature = signature
        if not pickled:
            self._type = signature.payload_type()
            self._from_json = msgspec.json.Decoder(self._type)
            self._from_msgpack = msgspec.msgpack.Decoder(self._type)
        self._encode = (
            # Sets and dicts in one order, so that equal arguments are equal bytes: by
            # them an idempotency key knows the call that it belongs to.
            msgspec.json.Encoder(order="deterministic")
            if form == "json"
            else msgspec.msgpack.Encoder(order="deterministic")
        ).encode

    def encode(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Payload:
        """Return the arguments of a call as a payload.

        Raises:
            TaskError: one is missing, too much, of the wrong type, or cannot be stored;
                it names the argument.
            PayloadTooLargeError: together they are longer than PAYLOAD_BYTES_MAX.
        """
        passed = self._signature.bind(args, kwargs)
        body = self._pickle(passed) if self.pickled else self._body(passed)
        if len(body) > PAYLOAD_BYTES_MAX:
            raise PayloadTooLargeError(
                f"the call of {self._task}",
                passed,
                f"{len(body):,} bytes, and at most {PAYLOAD_BYTES_MAX:,} fit; keep the "
                "bulk elsewhere and pass its key",
            )
        return Payload(body, self.version)

    def decode(self, payload: Payload) -> Arguments:
        """Return the arguments of a payload, of this version or another that fits.

        Raises:
            PayloadError: it does not fit the signature.
        """
        try:
            if payload.version < self.version and self.upgrade:
                return self._arguments(self._upgraded(payload))
            return self._arguments(self._fields(payload.body))
        except (PayloadError, MemoryError):  # which says nothing of the payload
            raise
        except Exception as error:  # an upgrade, or an unpickling, can raise anything
            raise PayloadError(self._misfit(payload.version, error)) from error

    def encode_result(self, value: object) -> bytes | None:
        """Return what a handler returned as bytes; nothing for None.

        Raises:
            PayloadError: it cannot be encoded, or is longer than RESULT_BYTES_MAX.
        """
        if value is None:
            return None
        try:
            body = (
                _PICKLE_MARK + pickle.dumps(value)
                if self.pickled
                else self._result_body(value)
            )
        except MemoryError:
            raise
        except Exception as error:  # whatever an object's own __reduce__ raises
            raise PayloadError(
                f"{self._task} returned a value of type {type(value).__qualname__} that "
                f"cannot be kept ({error}): {_fix_of(value)}return None, or a value of msgspec's types"
            ) from error
        if len(body) > RESULT_BYTES_MAX:
            raise PayloadError(
                f"{self._task} returned {len(body):,} bytes, and at most "
                f"{RESULT_BYTES_MAX:,} are kept: keep the bulk elsewhere and return "
                "its key"
            )
        return body

    def decode_result(self, body: bytes | None) -> object:
        """Return a handler's return value, as plain dicts, lists, numbers and text.

        Raises:
            PayloadError: the bytes are not such a value.
        """
        if body is None:
            return None
        try:
            if body[:1] == _PICKLE_MARK:
                return self._unpickled(body)
            if self.form == "json":
                return msgspec.json.decode(body)
            return msgspec.msgpack.decode(body)
        except UNREADABLE as error:
            raise PayloadError(
                f"the result of {self._task} is not {self.form} ({error}): did the task "
                "write another form before?"
            ) from error

    def _result_body(self, value: object) -> bytes:
        try:
            return self._encode(value)
        except TypeError:
            # A dict with numbers as keys has no place in that order. Of results nobody
            # needs one, but whoever shows them writes JSON, which not all keys allow.
            as_json = msgspec.json.encode(value)
            return as_json if self.form == "json" else msgspec.msgpack.encode(value)

    # -- writing ------------------------------------------------------------------------

    def _body(self, passed: dict[str, object]) -> bytes:
        try:
            body = self._encode(passed)
            arrived = self._fields(body)
        except Exception as error:
            raise self._culprit(passed, error) from error
        for name, value in passed.items():
            if not arrives_as(value, arrived[name]):
                found = arrived[name]
                raise TaskError(
                    name,
                    value,
                    f"it would arrive as {type(found).__qualname__}; pass "
                    f"{self._signature.shown_type(name)}, or annotate the parameter "
                    f"with the type that you pass ({type(value).__qualname__}) in "
                    f"{self._signature.text}",
                )
        return body

    def _culprit(self, passed: dict[str, object], error: Exception) -> TaskError:
        """Return which argument cannot be stored, by trying each alone."""
        for name, value in passed.items():
            kind = self._signature.types[name]
            try:
                body = self._encode(value)
            except Exception as cause:  # noqa: BLE001 - whatever the value raises
                fix = (
                    f"the keys of a dict are text, in {self._signature.text} too"
                    if "str keys" in str(cause)
                    else f"{self.form} cannot hold it ({cause}); pass "
                    f"{self._signature.shown_type(name)}, or something that it can be "
                    "looked up by"
                )
                return TaskError(name, value, fix)
            try:
                if self.form == "json":
                    msgspec.json.decode(body, type=kind)
                else:
                    msgspec.msgpack.decode(body, type=kind)
            except Exception as cause:  # noqa: BLE001 - a type's own hook can raise anything
                return TaskError(
                    name,
                    value,
                    f"pass {self._signature.shown_type(name)} ({cause}); the task is "
                    f"{self._signature.text}",
                )
        return TaskError("call", passed, f"the arguments do not fit together: {error}")

    def _pickle(self, passed: dict[str, object]) -> bytes:
        try:
            return _PICKLE_MARK + pickle.dumps(passed)
        except Exception as error:
            for name, value in passed.items():
                try:
                    pickle.dumps(value)
                except Exception as cause:
                    fix = f"it cannot be pickled ({cause}); pass what it is made from"
                    raise TaskError(name, value, fix) from cause
            raise TaskError("call", passed, f"it cannot be pickled: {error}") from error

    # -- reading ------------------------------------------------------------------------

    def _fields(self, body: bytes) -> dict[str, Any]:
        """Return the arguments by name, as the types that the parameters name."""
        if body[:1] == _PICKLE_MARK:
            fields = self._unpickled(body)
            if not isinstance(fields, dict):
                raise PayloadError(f"the pickle of {self._task} holds no arguments")
            return self._signature.checked(fields)
        if self.pickled:
            return self._signature.checked(_raw(body))
        decode = self._from_json if body[:1] == _JSON_MARK else self._from_msgpack
        struct = decode.decode(body)
        return {
            name: value
            for name in self._signature.types
            if (value := getattr(struct, name)) is not msgspec.UNSET
        }

    def _unpickled(self, body: bytes) -> Any:
        if not self.pickled:
            raise PayloadError(
                f"the bytes are a pickle, and {self._task} does not read any: declare "
                "it with pickle=True if you trust whoever wrote them"
            )
        return pickle.loads(memoryview(body)[1:])  # noqa: S301 - asked for

    def _upgraded(self, payload: Payload) -> dict[str, Any]:
        old = (
            self._unpickled(payload.body)
            if payload.body[:1] == _PICKLE_MARK
            else _raw(payload.body)
        )
        for version in range(payload.version, self.version):
            if step := self.upgrade.get(version):
                old = step(old)
                if not isinstance(old, dict):
                    raise PayloadError(
                        f"upgrade[{version}] of {self._task} returned "
                        f"{type(old).__qualname__}: return a dict of the arguments"
                    )
        if self.pickled:
            return self._signature.checked(old)
        # By way of bytes, so that text becomes the dates and enums that it stands for.
        return self._fields(self._encode(old))

    def _arguments(self, fields: dict[str, Any]) -> Arguments:
        if not self._signature.has_positional:
            return Arguments((), fields)
        bound = inspect.BoundArguments(self._signature.bare, fields)
        return Arguments(bound.args, bound.kwargs)

    def _misfit(self, version: int, error: Exception) -> str:
        if version > self.version:
            fix = f"run a program that has version {version} of it"
        elif version < self.version:
            fix = (
                f"give new parameters a default, or the task upgrade={{{version}: ...}}"
            )
        else:
            fix = "change the signature back, or give it a new version and an upgrade"
        return (
            f"a payload of version {version} does not fit {self._signature.text}, "
            f"version {self.version} of task {self._task} ({error}): {fix}"
        )


def _fix_of(value: object) -> str:
    """Return what to say first of a result that cannot be kept."""
    return "await it, in async def; or " if inspect.isawaitable(value) else ""


def _raw(body: bytes) -> dict[str, Any]:
    """Return a payload as plain values, not knowing its type."""
    if body[:1] == _JSON_MARK:
        return msgspec.json.decode(body, type=dict[str, Any])
    return msgspec.msgpack.decode(body, type=dict[str, Any])


def _checked_upgrade(
    upgrade: Mapping[int, Upgrade], version: int
) -> Mapping[int, Upgrade]:
    if not isinstance(upgrade, Mapping):
        raise TaskError("upgrade", upgrade, "pass a dict, version to function")
    for old, step in upgrade.items():
        if type(old) is not int or not 1 <= old < version:
            raise TaskError(
                "upgrade",
                old,
                f"its keys are versions before this one, 1 to {version - 1}",
            )
        if not callable(step):
            raise TaskError("upgrade", step, "its values take a dict and return one")
    return dict(upgrade)
