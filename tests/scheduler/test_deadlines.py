"""A heap of moments at which attempts are to be ended."""

from __future__ import annotations

from timingwheel.scheduler.deadlines import Deadline, Deadlines


def test_deadlines_come_soonest_first_and_only_when_their_time_has_come() -> None:
    deadlines = Deadlines()
    assert deadlines.next_ns() is None
    assert deadlines.add(Deadline(30, 1, kill=False))
    assert deadlines.add(Deadline(10, 2, kill=False))
    assert not deadlines.add(Deadline(20, 3, kill=True))
    assert deadlines.next_ns() == 10
    assert deadlines.take_due(9) == []
    assert [found.token for found in deadlines.take_due(20)] == [2, 3]
    assert deadlines.next_ns() == 30
    assert [found.token for found in deadlines.take_due(99)] == [1]
    assert deadlines.next_ns() is None
