"""What the tools say of records that cannot be read any more."""

from __future__ import annotations

import pytest

from wal.faults import Lost, merge_losses


def test_what_is_lost_is_told_with_its_numbers_and_how_many_they_are() -> None:
    lost = Lost(3, 1_200)
    assert lost.count == 1_198
    assert str(lost) == "LSN 3 to 1200 (1,198 record(s))"
    assert str(Lost(3, 3)) == "LSN 3 to 3 (1 record(s))"


def test_numbers_that_may_never_have_been_given_out_are_told_as_the_most() -> None:
    assert str(Lost(3, 4, exact=False)) == "LSN 3 to 4 (2 record(s) at most)"


def test_an_unknown_end_is_told_as_unknown() -> None:
    lost = Lost(3, None)
    assert lost.count is None
    assert str(lost) == "LSN 3 and an unknown number after it"


@pytest.mark.parametrize(
    ("losses", "merged"),
    [
        ([], []),
        ([Lost(5, 7), Lost(1, 3)], [Lost(1, 3), Lost(5, 7)]),
        ([Lost(1, 3), Lost(4, 6)], [Lost(1, 3), Lost(4, 6)]),
        ([Lost(1, 4), Lost(4, 6)], [Lost(1, 6)]),
        ([Lost(1, 9), Lost(2, 3)], [Lost(1, 9)]),
        ([Lost(1, 4), Lost(3, None)], [Lost(1, None)]),
        ([Lost(1, None), Lost(5, 6)], [Lost(1, None)]),
        ([Lost(1, 4, exact=False), Lost(2, 6)], [Lost(1, 6, exact=False)]),
        ([Lost(1, 4), Lost(2, 6, exact=False)], [Lost(1, 6, exact=False)]),
    ],
    ids=[
        "none",
        "out of order",
        "side by side",
        "at one number",
        "inside",
        "open end",
        "after an open end",
        "the first at most",
        "the second at most",
    ],
)
def test_losses_come_in_order_and_those_that_overlap_as_one(
    losses: list[Lost], merged: list[Lost]
) -> None:
    assert merge_losses(losses) == merged
