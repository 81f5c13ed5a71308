"""The bodies of the lane, for every test that must hold on each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from timingwheel.engine.lane import Lane

if TYPE_CHECKING:
    CompiledLane = Lane  # for a checker they are one, as in engine.bodies
else:
    try:
        from timingwheel.engine._lane import Lane as CompiledLane
    except ModuleNotFoundError:
        CompiledLane = None

needs_the_compiled_lane = pytest.mark.skipif(
    CompiledLane is None,
    reason="THE COMPILED LANE WAS NOT BUILT: `pip install -v -e .` says why",
)

LANES = [
    pytest.param(Lane, id="plain"),
    pytest.param(CompiledLane, id="compiled", marks=needs_the_compiled_lane),
]
