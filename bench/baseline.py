"""Calls that do nothing: the least that a call like the wheel's can cost.

Ours are written in C by hand (_baseline.c) and parse as many ints. Where there was no C
compiler the closest of the standard library stand in for them: pure arithmetic, no system
call.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

try:
    from bench import _baseline
except ImportError:
    TWO_INTS: Callable[[int, int], object] = os.makedev
    ONE_INT: Callable[[int], object] = os.major
    NO_INTS: Callable[[], object] = sys.getallocatedblocks
    TWO_INTS_NOTE = "os.makedev: 2 ints, the result kept"
    ONE_INT_NOTE = "os.major: 1 int, in random memory"
    NO_INTS_NOTE = "sys.getallocatedblocks"
else:
    TWO_INTS, ONE_INT, NO_INTS = (
        _baseline.two_ints,
        _baseline.one_int,
        _baseline.no_ints,
    )
    TWO_INTS_NOTE = "a C function that parses 2 ints and does nothing, the result kept"
    ONE_INT_NOTE = "likewise for 1 int, in random memory"
    NO_INTS_NOTE = "likewise without arguments"
