"""The bodies of the wheel, for every test that must hold on each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from timingwheel.wheel import TimerWheel

if TYPE_CHECKING:
    CompiledWheel = TimerWheel  # for a checker they are one, as in timingwheel.bodies
else:
    try:
        from timingwheel._wheel import TimerWheel as CompiledWheel
    except ModuleNotFoundError:
        CompiledWheel = None

NOT_BUILT = (
    "THE COMPILED WHEEL WAS NOT BUILT, so half of what has to hold is not tested: "
    "`pip install -v -e .` says why"
)
needs_the_compiled_wheel = pytest.mark.skipif(CompiledWheel is None, reason=NOT_BUILT)

WHEELS = [
    pytest.param(TimerWheel, id="plain"),
    pytest.param(CompiledWheel, id="compiled", marks=needs_the_compiled_wheel),
]
