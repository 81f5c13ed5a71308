"""Threads that are switched as often as the interpreter can: after every few bytecodes."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

SWITCH_SECONDS = 1e-6
"""5 ms by default: most races would never be run."""


@pytest.fixture(autouse=True)
def _switching() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    yield
    sys.setswitchinterval(usual)
