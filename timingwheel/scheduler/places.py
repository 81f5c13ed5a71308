"""Where a function can be imported from: a stored job knows its task by that alone."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, Final

from timingwheel.jobs.errors import TaskError

MAIN: Final = "__main__"
MAIN_IN_CHILD: Final = "__mp_main__"
"""How a child process calls its parent's main module, as multiprocessing does."""


def place_of(function: Callable[..., Any]) -> str:
    """Return where a function can be imported from.

    Raises:
        TaskError: nowhere.
    """
    if inspect.ismethod(function):
        fix = "a bound method cannot be found again by name; pass a top-level function"
        raise TaskError("function", function, fix)
    module = getattr(function, "__module__", None)
    qualname = getattr(function, "__qualname__", None)
    if not inspect.isroutine(function) or not module or not qualname:
        fix = "pass a function made by def (or async def) at the top level of a module"
        raise TaskError("function", function, fix)
    if "<lambda>" in qualname:
        fix = "a lambda has no name to be found by; def it at the top level of a module"
        raise TaskError("function", function, fix)
    if "<locals>" in qualname:
        fix = (
            "it is defined inside a function and cannot be imported; move it to the top "
            "level of its module and pass as arguments what it takes from outside"
        )
        raise TaskError("function", function, fix)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        fix = "calling a generator runs nothing of it; return instead of yield"
        raise TaskError("function", function, fix)
    if "." in qualname and next(iter(inspect.signature(function).parameters), "") in {
        "self",
        "cls",
    }:
        fix = "a method needs its object; pass a top-level function or a staticmethod"
        raise TaskError("function", function, fix)
    return f"{_module_name(module)}:{qualname}"


def _module_name(module: str) -> str:
    """Return by which name a module can be imported elsewhere."""
    if module not in {MAIN, MAIN_IN_CHILD}:
        return module
    # Run by `python -m package.module`, the main module has a name to be found by.
    spec = getattr(sys.modules.get(module), "__spec__", None)
    name = getattr(spec, "name", None)
    return name if name and name != MAIN_IN_CHILD else MAIN
