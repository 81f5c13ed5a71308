"""The bodies of the log's hot parts, for every test that must hold on each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from wal import frame, plan, runs


@dataclass(frozen=True)
class Codec:
    """One body of each function."""

    chain_of: Any
    encode_records: Any
    encode_frame: Any
    read_frames: Any


PLAIN = Codec(
    frame.chain_of, frame.encode_records, frame.encode_frame, runs.read_frames
)
COMPILED: Codec | None
if TYPE_CHECKING:  # for a checker they are one, as in wal.bodies
    COMPILED = PLAIN
    CompiledPlan = plan.FramePlan
else:
    try:
        from wal import _codec
        from wal._plan import FramePlan as CompiledPlan
    except ImportError:
        COMPILED = CompiledPlan = None
    else:
        COMPILED = Codec(
            _codec.chain_of,
            _codec.encode_records,
            _codec.encode_frame,
            _codec.read_frames,
        )

NOT_BUILT = (
    "THE COMPILED LOG CODEC WAS NOT BUILT, so half of what has to hold is not tested: "
    "`pip install -v -e .` says why"
)
needs_the_compiled_codec = pytest.mark.skipif(COMPILED is None, reason=NOT_BUILT)

CODECS = [
    pytest.param(PLAIN, id="plain"),
    pytest.param(COMPILED, id="compiled", marks=needs_the_compiled_codec),
]
PLANS = [
    pytest.param(plan.FramePlan, id="plain"),
    pytest.param(CompiledPlan, id="compiled", marks=needs_the_compiled_codec),
]
