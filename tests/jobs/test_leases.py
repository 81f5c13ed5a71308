"""How long the holder of a lease trusts in it."""

from __future__ import annotations

import pytest

from timingwheel.jobs.leases import MARGIN_NS, trusted_ns
from timingwheel.jobs.schedule import NS


def test_trust_ends_a_second_before_the_lease_or_a_sixth_of_a_short_one() -> None:
    assert MARGIN_NS == NS
    assert trusted_ns(60 * NS) == 59 * NS
    assert trusted_ns(6 * NS) == 5 * NS
    assert trusted_ns(3 * NS) == 2_500_000_000
    assert trusted_ns(5) == 5
    assert trusted_ns(0) == 0


@pytest.mark.parametrize("ttl_ns", [1, 6, 7, 6 * NS - 1, 6 * NS, 6 * NS + 1, 10**15])
def test_trust_never_outlives_the_lease(ttl_ns: int) -> None:
    assert 0 < trusted_ns(ttl_ns) <= ttl_ns
