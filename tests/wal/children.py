"""Forked children, for the tests of what one may do."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

# CPython 3.12 warns of any fork beside threads, and the test runner has some.
forks = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


def in_child(work: Callable[[], None]) -> int:
    """Fork, do the work there, and return its exit status: 0 if it did not raise."""
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
