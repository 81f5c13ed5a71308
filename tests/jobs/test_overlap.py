"""What an occurrence meets: a previous run that is active, or one that waits behind it."""

from __future__ import annotations

import pytest

from timingwheel.jobs.model import Overlap, OverlapPolicy
from timingwheel.jobs.overlap import Admission, admit, room_for_behind

BOUNDED = [rule for rule in Overlap if rule is not Overlap.ALLOW]


def admitted(rule: Overlap, *, active: int, behind: int, limit: int = 2) -> Admission:
    policy = OverlapPolicy(rule=rule, limit=limit)
    return admit(policy, active=active, behind=behind)


@pytest.mark.parametrize("rule", Overlap)
def test_an_occurrence_that_meets_nobody_starts(rule: Overlap) -> None:
    assert admitted(rule, active=0, behind=0) is Admission.START


@pytest.mark.parametrize("rule", BOUNDED)
def test_who_waits_behind_is_not_overtaken(rule: Overlap) -> None:
    """Between the end of the previous run and the start of the one that waited for it."""
    assert admitted(rule, active=0, behind=1) is not Admission.START


@pytest.mark.parametrize("behind", [0, 1, 5])
def test_skip_lets_the_time_pass(behind: int) -> None:
    assert admitted(Overlap.SKIP, active=1, behind=behind) is Admission.SKIP


def test_buffer_one_lets_one_wait_and_no_second() -> None:
    assert admitted(Overlap.BUFFER_ONE, active=1, behind=0) is Admission.BEHIND
    assert admitted(Overlap.BUFFER_ONE, active=1, behind=1) is Admission.SKIP


def test_buffer_all_lets_as_many_wait_as_its_limit_says() -> None:
    found = [admitted(Overlap.BUFFER_ALL, active=1, behind=n) for n in range(4)]
    assert found == [Admission.BEHIND] * 2 + [Admission.SKIP] * 2


@pytest.mark.parametrize(
    ("rule", "admission"),
    [
        (Overlap.CANCEL_OTHER, Admission.INSTEAD),
        (Overlap.KILL_OTHER, Admission.INSTEAD_KILL),
    ],
    ids=["cancel", "kill"],
)
@pytest.mark.parametrize(("active", "behind"), [(1, 0), (1, 1), (0, 1)])
def test_who_ends_the_others_takes_the_place_of_all_of_them(
    rule: Overlap, admission: Admission, *, active: int, behind: int
) -> None:
    assert admitted(rule, active=active, behind=behind) is admission


def test_allow_starts_up_to_its_limit_at_once_and_none_waits() -> None:
    found = [admitted(Overlap.ALLOW, active=n, behind=0) for n in range(4)]
    assert found == [Admission.START] * 2 + [Admission.SKIP] * 2


@pytest.mark.parametrize("rule", BOUNDED)
def test_one_who_waited_goes_when_the_former_run_is_over(rule: Overlap) -> None:
    policy = OverlapPolicy(rule=rule, limit=5)
    assert [room_for_behind(policy, active=n) for n in range(3)] == [1, 0, 0]


def test_as_many_who_waited_go_as_allow_has_room_for() -> None:
    """Under another rule they came to wait, and it was changed to this one."""
    policy = OverlapPolicy(rule=Overlap.ALLOW, limit=3)
    assert [room_for_behind(policy, active=n) for n in range(5)] == [3, 2, 1, 0, 0]
