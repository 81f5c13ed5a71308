"""A node is killed in the middle of its work; nothing is lost, nothing is done twice.

An attempt that was under way when its node died is on record as lost, and its run starts
again; nothing else may start twice.
"""

from __future__ import annotations

import pytest

from tests.cluster.bed import Bed, Fault
from tests.cluster.conftest import Keep

POINTS = 100
SAMPLE = {
    *((6, "after"), (8, "before"), (9, "after"), (11, "before"), (12, "after")),
    *((14, "before"), (17, "after"), (21, "before"), (34, "after"), (55, "before")),
}
"""Of `make test`: in joins, fires, claims, finishes and beats."""


def points() -> list[object]:
    """All points, all but the sample for `make test-long` alone."""
    found: list[object] = []
    for message in range(1, POINTS + 1):
        for moment in ("before", "after"):
            marks = () if (message, moment) in SAMPLE else (pytest.mark.long,)
            name = f"{moment} message {message}"
            found.append(pytest.param(message, moment, id=name, marks=marks))
    return found


@pytest.mark.parametrize(("message", "moment"), points())
def test_a_node_that_is_killed_loses_nothing_and_doubles_nothing(
    bed: Bed, keep: Keep, message: int, moment: str
) -> None:
    bed.put(times=12, period_s=0.1)
    fault = Fault("kill", "any", message, moment)  # type: ignore[arg-type]
    dies, *live = bed.start(("dies", {"fault": fault, "work_s": 0.005}), "a", "b")
    assert dies.has_died(), "it never sent so many messages"
    in_flight = bed.in_flight("dies")
    bed.finish(*live)
    found = bed.account()
    keep("kill -9 of one node of three", found, in_flight)
    assert not found.faults
    assert found.started_twice <= in_flight + bed.refused(*live)


def test_without_the_guards_the_same_nodes_do_work_twice(bed: Bed, keep: Keep) -> None:
    """The control: it shows that the harness would see it."""
    bed.put()
    bare = {"guarded": False}
    nodes = bed.start(("a", bare), ("b", bare))
    # Not to the end, which such nodes may never reach: each waits for what both believe
    # to be the other's.
    bed.wait_until(lambda: bed.started() >= 60, *nodes)
    for node in nodes:
        node.end()
    found = bed.account()
    keep("control: no guards", found)
    assert found.doubles > 0
