"""The bodies of the timer table, for every test that must hold on each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from timingwheel.engine.table import TimerTable

if TYPE_CHECKING:
    CompiledTable = TimerTable  # for a checker they are one, as in engine.bodies
else:
    try:
        from timingwheel.engine._table import TimerTable as CompiledTable
    except ModuleNotFoundError:
        CompiledTable = None

NOT_BUILT = (
    "THE COMPILED TABLE WAS NOT BUILT, so half of what has to hold is not tested: "
    "`pip install -v -e .` says why"
)
needs_the_compiled_table = pytest.mark.skipif(CompiledTable is None, reason=NOT_BUILT)

TABLES = [
    pytest.param(TimerTable, id="plain"),
    pytest.param(CompiledTable, id="compiled", marks=needs_the_compiled_table),
]
