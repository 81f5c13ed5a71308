"""Policies as text and as values."""

from __future__ import annotations

import pytest

from timingwheel.errors import ArgumentError
from timingwheel.jobs.model import (
    Delivery,
    Misfire,
    MisfirePolicy,
    Overlap,
    OverlapPolicy,
)
from timingwheel.jobs.store import CatchUp
from timingwheel.scheduler.policies import (
    catch_up_rule,
    delivery_kind,
    misfire_policy,
    overlap_policy,
)

HOUR_NS = 3_600 * 10**9


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("skip", OverlapPolicy()),
        ("buffer_one", OverlapPolicy(rule=Overlap.BUFFER_ONE)),
        ("buffer_all", OverlapPolicy(rule=Overlap.BUFFER_ALL)),
        ("buffer_all(50)", OverlapPolicy(rule=Overlap.BUFFER_ALL, limit=50)),
        (" allow( 3 ) ", OverlapPolicy(rule=Overlap.ALLOW, limit=3)),
        ("cancel_other", OverlapPolicy(rule=Overlap.CANCEL_OTHER)),
        ("kill_other", OverlapPolicy(rule=Overlap.KILL_OTHER)),
        (Overlap.BUFFER_ONE, OverlapPolicy(rule=Overlap.BUFFER_ONE)),
        (
            OverlapPolicy(rule=Overlap.ALLOW, limit=2),
            OverlapPolicy(rule=Overlap.ALLOW, limit=2),
        ),
    ],
)
def test_an_overlap_policy_is_read_from_text_or_value(
    text: object, policy: OverlapPolicy
) -> None:
    assert overlap_policy(text) == policy


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("latest", MisfirePolicy()),
        ("skip", MisfirePolicy(rule=Misfire.SKIP)),
        ("first", MisfirePolicy(rule=Misfire.FIRST)),
        ("all", MisfirePolicy(rule=Misfire.ALL)),
        ("all(100)", MisfirePolicy(rule=Misfire.ALL, limit=100)),
        (
            "all(100, 1h)",
            MisfirePolicy(rule=Misfire.ALL, limit=100, window_ns=HOUR_NS),
        ),
        (Misfire.SKIP, MisfirePolicy(rule=Misfire.SKIP)),
    ],
)
def test_a_misfire_policy_is_read_from_text_or_value(
    text: object, policy: MisfirePolicy
) -> None:
    assert misfire_policy(text) == policy


def test_a_resume_can_catch_up_in_four_ways() -> None:
    assert catch_up_rule("skip") == CatchUp("skip")
    assert catch_up_rule("latest") == CatchUp("latest")
    assert catch_up_rule("all") == CatchUp("all")
    assert catch_up_rule("since(1h)") == CatchUp("since", HOUR_NS)
    assert catch_up_rule(CatchUp("all")) == CatchUp("all")


def test_delivery_is_one_of_two_words() -> None:
    assert delivery_kind("at_most_once") is Delivery.AT_MOST_ONCE
    assert delivery_kind(Delivery.AT_LEAST_ONCE) is Delivery.AT_LEAST_ONCE


@pytest.mark.parametrize(
    "found", ["", "skp", "skip(3)", "allow(0)", "allow(x)", 3, None]
)
def test_what_is_no_overlap_policy_is_refused_with_the_words_there_are(
    found: object,
) -> None:
    with pytest.raises(ArgumentError, match=r"^overlap"):
        overlap_policy(found)


@pytest.mark.parametrize(
    "found", ["late", "latest(1)", "all(-1)", "all(1, 2, 3)", "all(5, soon)", ["all"]]
)
def test_what_is_no_misfire_policy_is_refused(found: object) -> None:
    with pytest.raises(ArgumentError, match=r"^misfire"):
        misfire_policy(found)


@pytest.mark.parametrize("found", ["since", "since()", "skip(1)", "some", 1])
def test_what_is_no_catch_up_is_refused(found: object) -> None:
    with pytest.raises(ArgumentError, match=r"^catch_up"):
        catch_up_rule(found)


def test_a_typed_policy_with_a_limit_beyond_sense_is_refused() -> None:
    with pytest.raises(ArgumentError, match="limit"):
        overlap_policy(OverlapPolicy(rule=Overlap.ALLOW, limit=0))
    with pytest.raises(ArgumentError, match="limit"):
        misfire_policy(MisfirePolicy(rule=Misfire.ALL, limit=10**9))
