"""One figure of the benchmark table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """What one peer needs for one operation.

    Rows of equal group and name are rivals: the table sets them side by side.

    Attributes:
        group: the size and kind of load, such as "wheel, 1,000,000 timers".
        name: the operation, such as "insert".
        peer: who was measured, such as "timingwheel" or "heapq + dict".
        ns_per_op: the figure, in nanoseconds of CPU time an operation unless `unit`
            says otherwise; less is better in every unit.
        note: what one must know to read the figure; "" for nothing.
        unit: "ns", or "B" for bytes a timer.
    """

    group: str
    name: str
    peer: str
    ns_per_op: float
    note: str = ""
    unit: str = "ns"
