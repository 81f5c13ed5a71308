"""A function's signature as a task sees it: its ctx apart, and with types to store.

def send(ctx, to: str, n: int = 1)    ->    ctx first; fields to: str, n: int = unset
"""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Iterator
from inspect import Parameter
from typing import Any, Final

import msgspec

from timingwheel.jobs.errors import TaskError
from timingwheel.scheduler.context import Context

CONTEXT_NAME: Final = "ctx"

_POSITIONAL: Final = {Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL}


class _Missing:
    def __repr__(self) -> str:
        return "missing"


class Signature:
    """The parameters of a task's function.

    Attributes:
        takes_ctx: whether the first parameter is the Context.
        bare: the signature without it.
        types: the type of each field by name; Any where nothing is annotated.
        text: the signature as one would write it.
        has_positional: whether some arguments cannot be passed by name.

    Raises:
        TaskError: an annotation cannot be resolved.
    """

    def __init__(self, function: Callable[..., object], task: str) -> None:
        try:
            whole = inspect.signature(function)
        except (TypeError, ValueError) as error:
            fix = f"its signature cannot be read ({error}); pass a function made by def"
            raise TaskError("function", function, fix) from error
        parameters = list(whole.parameters.values())
        self._function = inspect.unwrap(function)
        self.takes_ctx = bool(parameters) and self._is_context(parameters[0])
        rest = parameters[1:] if self.takes_ctx else parameters
        self.bare = whole.replace(parameters=rest)
        self._places = tuple(one.name for one in rest if _takes_place(one))
        self._required = frozenset(one.name for one in rest if _is_required(one))
        kinds = {one.name: self._resolved(one) for one in rest}
        self.types = {one.name: _field_type(one, kinds[one.name]) for one in rest}
        shown = [
            # Resolved, so that a module's postponed annotations are not shown as texts.
            one
            if one.annotation is Parameter.empty
            else one.replace(annotation=kinds[one.name])
            for one in rest
        ]
        self.text = f"{task}{inspect.Signature(shown)}"
        self.has_positional = any(one.kind in _POSITIONAL for one in rest) or any(
            one.kind is Parameter.VAR_KEYWORD for one in rest
        )

    def bind(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> dict[str, object]:
        """Return the arguments of a call by name; what was not passed is not there.

        They come in the order of the signature, so the same arguments make the same
        bytes, however they were passed: an idempotency key compares these.

        Raises:
            TaskError: one is missing, or one is too many.
        """
        if not self.has_positional and len(args) <= len(self._places):
            # Four times as fast as `bind`, which knows more cases than most tasks have.
            passed = dict(zip(self._places, args, strict=False)) | kwargs
            is_whole = len(passed) == len(args) + len(kwargs)
            if is_whole and self._required <= passed.keys() <= self.types.keys():
                return {name: passed[name] for name in self.types if name in passed}
        try:
            return dict(self.bare.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise self._misfit(args, kwargs, error) from None

    def checked(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return arguments by name if they are those of this signature.

        Raises:
            TaskError: one is missing, or one is too many.
        """
        for name, value in fields.items():
            if name not in self.types:
                raise TaskError(name, value, f"{self.text} has no such parameter")
        for name, parameter in self.bare.parameters.items():
            if name not in fields and _is_required(parameter):
                raise TaskError(name, _Missing(), f"{self.text} needs it")
        return fields

    def payload_type(self) -> type[msgspec.Struct]:
        """Return the Struct that holds the arguments.

        Raises:
            TaskError: the type of a parameter cannot be stored.
        """
        for name, kind in self.types.items():
            self._require_storable(name, kind)
        fields = [
            (name, self.types[name])
            if _is_required(parameter)
            else (name, self.types[name], msgspec.UNSET)
            for name, parameter in self.bare.parameters.items()
        ]
        return msgspec.defstruct(
            "Arguments", fields, kw_only=True, forbid_unknown_fields=True, gc=False
        )

    def shown_type(self, name: str) -> str:
        """Return the type of a parameter as one would write it."""
        kind = self.types[name]
        if kind is Any:
            return "plain values (text, numbers, lists, dicts with text as keys)"
        return inspect.formatannotation(kind)

    def _is_context(self, first: Parameter) -> bool:
        if first.kind in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}:
            return False
        if first.kind is Parameter.KEYWORD_ONLY:
            return False
        if first.name == CONTEXT_NAME:
            return True
        try:
            return self._resolved(first) is Context
        except TaskError:
            # Imported for the type checker alone, it has no value when this runs.
            note = str(first.annotation).strip("'\"")
            return note.rpartition(".")[2] == Context.__name__

    def _resolved(self, parameter: Parameter) -> Any:
        if parameter.annotation is Parameter.empty:
            return Any
        holder = types.SimpleNamespace(
            __annotations__={parameter.name: parameter.annotation}
        )
        names = getattr(self._function, "__globals__", {})
        try:
            return typing.get_type_hints(holder, names, include_extras=True)[
                parameter.name
            ]
        except Exception as error:
            raise TaskError(
                parameter.name,
                parameter.annotation,
                f"its annotation cannot be resolved ({error}); import what it names "
                "when the program runs too, not only under TYPE_CHECKING",
            ) from error

    def _require_storable(self, name: str, kind: Any) -> None:
        if kind is Context:
            raise TaskError(
                name, kind, "the Context is given to the first parameter alone"
            )
        fix = (
            "it cannot be stored; annotate the parameter with a type that msgspec knows "
            "(a dataclass or a Struct, for example), or declare the task with pickle=True"
        )
        try:
            msgspec.msgpack.Decoder(kind)
            foreign = next(_foreign_types(msgspec.inspect.type_info(kind), set()), None)
        except Exception as error:
            raise TaskError(name, kind, f"{fix} ({error})") from error
        if foreign is not None:
            raise TaskError(name, kind, f"{foreign.__qualname__}: {fix}")

    def _misfit(
        self,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        error: TypeError,
    ) -> TaskError:
        """Return which argument it is that does not fit the signature."""
        parameters = self.bare.parameters
        for name, value in kwargs.items():
            if name not in parameters:
                ctx = (
                    "; ctx is given to it when it runs" if name == CONTEXT_NAME else ""
                )
                return TaskError(name, value, f"{self.text} has no such parameter{ctx}")
        places = [one for one in parameters.values() if _takes_place(one)]
        if len(args) > len(places):
            found = args[len(places)]
            fix = f"one argument too many; the task is {self.text}"
            return TaskError(f"argument {len(places) + 1}", found, fix)
        for parameter in places[: len(args)]:
            if parameter.name in kwargs:
                fix = (
                    f"it is passed twice, by place and by name; the task is {self.text}"
                )
                return TaskError(parameter.name, kwargs[parameter.name], fix)
        for place, parameter in enumerate(parameters.values()):
            is_passed = place < len(args) or parameter.name in kwargs
            if _is_required(parameter) and not is_passed:
                return TaskError(
                    parameter.name, _Missing(), f"pass it; the task is {self.text}"
                )
        return TaskError("call", (args, kwargs), f"{error}; the task is {self.text}")


def arrives_as(sent: object, arrived: object) -> bool:
    """Return whether a value is the same after its way through bytes."""
    if isinstance(sent, list | tuple) and type(sent) is type(arrived):
        assert isinstance(arrived, list | tuple)
        return len(sent) == len(arrived) and all(map(arrives_as, sent, arrived))
    if isinstance(sent, dict) and isinstance(arrived, dict):
        return sent.keys() == arrived.keys() and all(
            arrives_as(value, arrived[key]) for key, value in sent.items()
        )
    if isinstance(sent, float) and isinstance(arrived, float) and math.isnan(sent):
        return math.isnan(arrived)
    # Objects that do not compare by content are taken at their type's word.
    return bool(sent == arrived) or (
        type(sent) is type(arrived) and type(sent).__eq__ is object.__eq__
    )


def _field_type(parameter: Parameter, kind: Any) -> Any:
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return types.GenericAlias(tuple, (kind, ...))
    if parameter.kind is Parameter.VAR_KEYWORD:
        return types.GenericAlias(dict, (str, kind))
    return kind


def _is_required(parameter: Parameter) -> bool:
    return parameter.default is Parameter.empty and parameter.kind not in {
        Parameter.VAR_POSITIONAL,
        Parameter.VAR_KEYWORD,
    }


def _takes_place(parameter: Parameter) -> bool:
    return parameter.kind in {
        Parameter.POSITIONAL_ONLY,
        Parameter.POSITIONAL_OR_KEYWORD,
    }


def _foreign_types(node: Any, seen: set[int]) -> Iterator[type]:
    """Yield the classes in a type that msgspec cannot store by itself."""
    if isinstance(node, msgspec.inspect.CustomType):
        yield node.cls
    if isinstance(node, tuple):
        for part in node:
            yield from _foreign_types(part, seen)
    elif isinstance(node, msgspec.inspect.Type | msgspec.inspect.Field):
        if id(node) in seen:
            return
        seen.add(id(node))
        for name in node.__struct_fields__:
            yield from _foreign_types(getattr(node, name), seen)
