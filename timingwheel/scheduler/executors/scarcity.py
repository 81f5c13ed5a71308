"""What must not fail when memory runs out is done again until there is some.

An attempt that has begun is known to its executor alone. If a step between its begin and
its end found no memory and gave up, the run would count as running until the program ends,
and nobody would hear of it. Nothing that such a step does is half done: it may be repeated.
"""

from __future__ import annotations

import time
from typing import Final

_PAUSE_S: Final = 0.01


def await_memory() -> None:
    """Wait a moment for others to give memory back."""
    time.sleep(_PAUSE_S)
