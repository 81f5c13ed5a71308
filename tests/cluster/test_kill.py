"""A node is killed in the middle of its work; nothing is lost, nothing is done twice.

An attempt that was under way when its node died is on record as lost, and its run starts
again; nothing else may start twice.
"""

from __future__ import annotations

import signal

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


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "bare"])
def test_without_the_guards_alone_two_nodes_do_one_work_twice(
    bed: Bed, keep: Keep, guarded: bool
) -> None:
    """The control: it shows that the harness would see it.

    Each sleeps inside the handler until it is the other's turn, so they meet for certain:
    one past its lease, the other with the same run in its hands and a lease that lasts.
    """
    bed.put(plain=1, named=0, recurring=0)
    plan = {"guarded": guarded, "fault": Fault("stop", "work")}
    [a] = bed.start(("a", plan))
    a.hear("struck")
    bed.wait_until(a.has_stopped)
    bed.wait_until(lambda: not bed.lives("a"))
    [b] = bed.start(("b", plan | {"ttl_s": 600.0}))
    b.hear("struck")
    bed.wait_until(b.has_stopped)
    a.signal(signal.SIGCONT)
    refused = a.stop().verdicts["LEASE_LOST"]
    b.signal(signal.SIGCONT)
    bed.finish(b)
    found = bed.account()
    keep(f"control: {'' if guarded else 'no '}guards", found)
    assert found.started_twice == 1
    assert (found.faults == {}) is guarded
    assert bool(refused) is guarded
