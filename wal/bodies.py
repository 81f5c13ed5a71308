"""Which body of the log's hot parts serves: the compiled one, or the plain one.

A hot part has two bodies and one contract (PEP 399): plain Python, which is there to be
read and to check the other by, and one compiled with Cython, if there was a C compiler at
installation. Whoever wants *the* codec imports it from here.

The environment variable TIMINGWHEEL_PURE=1, read at the first import, chooses the plain
bodies though the compiled ones are there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

__all__ = [
    "COMPILED",
    "PURE_VARIABLE",
    "FramePlan",
    "PendingFrame",
    "chain_of",
    "encode_frame",
    "encode_records",
    "read_frames",
]

PURE_VARIABLE: Final = "TIMINGWHEEL_PURE"

# For a type checker they are one: tests/wal/test_bodies.py holds that they have one
# interface.
if TYPE_CHECKING or os.environ.get(PURE_VARIABLE) == "1":
    from wal.frame import chain_of, encode_frame, encode_records
    from wal.plan import FramePlan, PendingFrame
    from wal.runs import read_frames
else:
    try:
        from wal._codec import chain_of, encode_frame, encode_records, read_frames
        from wal._plan import FramePlan, PendingFrame
    except ModuleNotFoundError as error:
        if error.name not in {"wal._codec", "wal._plan"}:
            raise
        from wal.frame import chain_of, encode_frame, encode_records
        from wal.plan import FramePlan, PendingFrame
        from wal.runs import read_frames
    except ImportError as error:
        raise ImportError(
            f"the compiled log codec is there but does not load ({error}): install "
            f"timingwheel again, or set {PURE_VARIABLE}=1 to run without it"
        ) from error

COMPILED: Final = encode_frame.__module__ == "wal._codec"
"""Whether the compiled bodies serve; without them the pure-Python ones do."""
