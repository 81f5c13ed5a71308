"""Memory that runs out at the n-th allocation of a call."""

from __future__ import annotations

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
