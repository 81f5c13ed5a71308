"""Memory that runs out at the n-th allocation of a call."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

_testcapi: Any = pytest.importorskip(
    "_testcapi", reason="this Python comes without the hooks that take memory away"
)

BEARS_IT = pytest.mark.skipif(
    hasattr(sys, "gettotalrefcount"),
    reason="a debug build of CPython 3.11 ends in an assertion of its own interpreter loop "
    "(STACK_LEVEL() == 0 in ceval.c) where a call finds no memory for its frame",
)
"""For tests that need a Python which bears that."""


def error_without(call: Callable[[], object], index: int) -> BaseException | None:
    """Return what a call whose `index`-th allocation fails raises, None if nothing."""
    _testcapi.set_nomemory(index, index + 1)
    try:
        call()
    except BaseException as caught:  # noqa: BLE001 - it is what is looked at
        return caught
    finally:
        _testcapi.remove_mem_hooks()
    return None


def each_without(
    trial: Callable[[int], tuple[T, BaseException | None]], *, start: int, stride: int
) -> Iterator[tuple[int, T, BaseException | None]]:
    """Let every `stride`-th allocation fail, until none is left that could.

    Args:
        trial: does the act anew without the allocation of that index; returns what it
            was done to, and what it raised.
        start: of the first that fails.
        stride: how much later each next one is.

    Yields:
        The index, and what the trial returned.
    """
    passed = 0
    index = start
    while passed < 8 // stride + 1:  # an allocation that fails may have been optional
        subject, error = trial(index)
        yield index, subject, error
        passed = passed + 1 if error is None else 0
        index += stride


def by_a_child(work: Callable[[Callable[[str], object]], None]) -> tuple[str, int]:
    """Do some work in a fork; return what it told, and how the fork ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            faulthandler.disable()
            with open(writer, "w", encoding="utf-8", buffering=1) as told:
                work(told.write)
        os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as told:
        text = told.read()
    return text, os.waitpid(child, 0)[1]
