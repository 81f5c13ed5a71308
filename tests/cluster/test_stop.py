"""A node sleeps past its lease and wakes up: whatever it still sends is refused.

Its process is stopped by SIGSTOP at one message, goes on when others own all that it had,
and finds out for itself. What it had in hand starts again elsewhere, once.
"""

from __future__ import annotations

import signal

import pytest

from tests.cluster.bed import Bed, Fault, Node
from tests.cluster.conftest import Keep
from tests.cluster.node import WRITE

LATE_BEAT = Fault("stop", "beat", 1, "before")
PLACES = [
    Fault("stop", "fire", 1, "before"),
    Fault("stop", "fire", 1, "after"),
    Fault("stop", "fire", 3, "before"),
    Fault("stop", "claim", 1, "after"),
    Fault("stop", "claim", WRITE),
    Fault("stop", "finish", 1, "before"),
    Fault("stop", "finish", 1, "after"),
    Fault("stop", "finish", WRITE),
    LATE_BEAT,
    Fault("stop", "beat", 1, "after"),
    Fault("stop", "beat", 2, "before"),
]
SAMPLE = {
    "stop before fire 3",
    "stop before claim writes",
    "stop before finish writes",
    "stop before beat 1",
}


def wake_up(bed: Bed, sleeper: Node) -> tuple[int, int]:
    """Wake it; return what the witness had seen by then, and its return as another."""
    woken = bed.last_change()
    sleeper.signal(signal.SIGCONT)
    return woken, bed.comes_back(sleeper, woken)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(
            place,
            id=str(place),
            marks=() if str(place) in SAMPLE else pytest.mark.long,
        )
        for place in PLACES
    ],
)
def test_a_node_that_sleeps_inside_a_call_is_refused_when_it_wakes(
    bed: Bed, keep: Keep, fault: Fault
) -> None:
    bed.put(times=25, period_s=0.1)
    sleeper, *others = bed.start(
        ("sleeper", {"fault": fault, "work_s": 0.02}), "a", "b"
    )
    bed.hear_struck(sleeper)
    bed.wait_until(sleeper.has_stopped)
    in_flight = bed.outlive(sleeper, *others)
    woken, back = wake_up(bed, sleeper)
    bed.finish(sleeper, *others)
    found = bed.account()
    keep(f"SIGSTOP past the lease, inside {fault.kind}", found, in_flight)
    assert not found.faults
    assert found.started_twice <= in_flight + bed.refused(*others)
    for what in ("run", "shard"):
        assert not bed.changes_by("sleeper", what, since=woken, before=back)
    [result] = sleeper.report.struck
    if fault.kind == "finish" and fault.moment == "before":
        assert set(result) == {"LEASE_LOST"}
    if fault == LATE_BEAT:
        before, after = result
        assert after > before
    assert len(sleeper.report.incs) >= 2


def test_a_node_that_sleeps_at_rest_comes_back_under_another_number(
    bed: Bed, keep: Keep
) -> None:
    sleeper, *others = bed.start("sleeper", "a", "b")
    bed.wait_until(lambda: bed.are_owned_by("sleeper", "a", "b"), *bed.nodes)
    sleeper.signal(signal.SIGSTOP)
    bed.wait_until(sleeper.has_stopped)
    in_flight = bed.outlive(sleeper, *others)
    bed.put(times=5, period_s=0.1)
    woken, back = wake_up(bed, sleeper)
    bed.finish(sleeper, *others)
    found = bed.account()
    keep("SIGSTOP past the lease, at rest", found, in_flight)
    assert not found.faults
    assert in_flight == 0
    assert found.started_twice <= bed.refused(*others)
    assert not bed.changes_by("sleeper", "run", since=woken, before=back)


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "work_s"),
    [
        (Fault("stop", "fire", 3, "before"), 0.05),
        (Fault("stop", "beat", 1, "before", call=3), 0.1),
    ],
    ids=["fire", "beat"],
)
def test_without_guards_the_sleeper_does_harm(
    bed: Bed, keep: Keep, fault: Fault, work_s: float
) -> None:
    """The control: what wakes up believes what it read, and the account shows it."""
    bed.put(plain=8, named=0, recurring=8, times=200, period_s=0.1)
    bare = {"fault": fault, "guarded": False, "work_s": 0.02}
    [sleeper] = bed.start(("sleeper", bare))
    sleeper.hear("struck")
    bed.wait_until(sleeper.has_stopped)
    others = bed.start(("a", {"work_s": work_s}), ("b", {"work_s": work_s}))
    bed.outlive(sleeper, *others)
    started = bed.started()
    bed.wait_until(lambda: bed.started() > started, *others)
    sleeper.signal(signal.SIGCONT)
    bed.wait_until(lambda: bed.account().faults.keys() - {"lost"} != set())
    keep(f"control: SIGSTOP inside {fault.kind}, no guards", bed.account())


@pytest.mark.parametrize(
    "fault", [Fault("stop", "claim", WRITE), Fault("stop", "finish", WRITE)], ids=str
)
def test_without_guards_what_another_has_in_hand_is_taken_or_ended(
    bed: Bed, keep: Keep, fault: Fault
) -> None:
    """The control for both: one run, which another has in hand when the sleeper wakes."""
    bed.put(plain=1, named=0, recurring=0)
    [sleeper] = bed.start(("sleeper", {"fault": fault, "guarded": False}))
    sleeper.hear("struck")
    bed.wait_until(sleeper.has_stopped)
    bed.wait_until(lambda: not bed.lives("sleeper"))
    held = {"fault": Fault("stop", "work"), "ttl_s": 600.0}
    [other] = bed.start(("a", held))
    other.hear("struck")
    bed.wait_until(other.has_stopped)
    sleeper.signal(signal.SIGCONT)
    sleeper.stop()
    other.signal(signal.SIGCONT)
    other.stop()
    found = bed.account()
    keep(f"control: SIGSTOP inside {fault.kind}, no guards", found)
    assert found.faults
