"""Which body of the hot modules serves: the compiled one, or the plain one.

A hot module has two bodies and one contract (PEP 399): `wheel.py`, which is there to be
read and to check the other by, and `_wheel`, compiled from `_wheel.pyx`. Whoever wants
*the* wheel imports it from here and gets the compiled one if it was built. It was not if
there was no C compiler at installation; all works then, ten times slower.

The environment variable TIMINGWHEEL_PURE=1, read at the first import, chooses the plain
body though the compiled one is there: to compare them, or to step through in a debugger.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

__all__ = ["PURE_VARIABLE", "TimerWheel"]

PURE_VARIABLE: Final = "TIMINGWHEEL_PURE"

# For a type checker they are one: tests/test_bodies.py holds that they have one interface.
if TYPE_CHECKING or os.environ.get(PURE_VARIABLE) == "1":
    from timingwheel.wheel import TimerWheel
else:
    try:
        from timingwheel._wheel import TimerWheel
    except ModuleNotFoundError as error:
        if error.name != "timingwheel._wheel":
            raise
        from timingwheel.wheel import TimerWheel
    except ImportError as error:
        raise ImportError(
            f"the compiled timing wheel is there but does not load ({error}): install "
            f"timingwheel again, or set {PURE_VARIABLE}=1 to run without it"
        ) from error
