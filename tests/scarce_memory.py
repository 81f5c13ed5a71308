"""Memory that runs out at the n-th allocation of a call."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

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
