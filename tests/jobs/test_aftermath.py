"""Where a run goes when an attempt at it ends, sentence by sentence of the table."""

from __future__ import annotations

from typing import Any

import pytest

from timingwheel.jobs.aftermath import Aftermath, after_attempt
from timingwheel.jobs.backoff import backoff_ns
from timingwheel.jobs.model import Delivery, Outcome, Policy, RetryPolicy, RunState

SECOND_NS = 1_000_000_000
RETRY = RetryPolicy(attempts=3, first_ns=SECOND_NS, max_ns=60 * SECOND_NS, jitter=0.5)
AT_LEAST_ONCE = Policy(retry=RETRY, lost_max=2)
AT_MOST_ONCE = Policy(delivery=Delivery.AT_MOST_ONCE, retry=RETRY, lost_max=2)
POLICIES = [AT_LEAST_ONCE, AT_MOST_ONCE]
POLICY_IDS = ["at_least_once", "at_most_once"]
FAILURES = [Outcome.ERROR, Outcome.TIMEOUT]

policies = pytest.mark.parametrize("policy", POLICIES, ids=POLICY_IDS)
failures = pytest.mark.parametrize("failure", FAILURES)


def after(policy: Policy, outcome: Outcome, **more: Any) -> Aftermath:
    """The end of a first attempt of which nothing else is known, unless said so."""
    said = {"tries": 1, "lost": 0, "ending": False} | more
    return after_attempt(policy, outcome, **said)


# -- it went well ----------------------------------------------------------------------


@policies
def test_an_attempt_that_went_well_is_a_success(policy: Policy) -> None:
    assert after(policy, Outcome.OK) == Aftermath(RunState.SUCCEEDED)


@policies
def test_what_was_done_before_a_cancel_came_to_it_is_a_success(policy: Policy) -> None:
    assert after(policy, Outcome.OK, ending=True) == Aftermath(RunState.SUCCEEDED)


@policies
@pytest.mark.parametrize("snooze_ns", [0, 5])
def test_a_snooze_waits_as_long_as_was_asked_and_uses_up_no_attempt(
    policy: Policy, snooze_ns: int
) -> None:
    found = after(policy, Outcome.OK, tries=3, snooze_ns=snooze_ns)
    assert found == Aftermath(RunState.RETRYING, snooze_ns, counts=False)


def test_a_run_that_was_told_to_end_does_not_snooze() -> None:
    found = after(AT_LEAST_ONCE, Outcome.OK, ending=True, snooze_ns=5)
    assert found == Aftermath(RunState.SUCCEEDED)


# -- it failed -------------------------------------------------------------------------


@failures
@pytest.mark.parametrize("tries", [1, 2])
@pytest.mark.parametrize("draw", [0.0, 0.9])
def test_a_failure_with_attempts_left_is_tried_again_after_its_backoff(
    failure: Outcome, tries: int, draw: float
) -> None:
    found = after(AT_LEAST_ONCE, failure, tries=tries, draw=draw)
    assert found == Aftermath(RunState.RETRYING, backoff_ns(RETRY, tries, draw))
    assert found.counts


@failures
def test_a_draw_that_nobody_made_stands_for_no_jitter(failure: Outcome) -> None:
    assert after(AT_LEAST_ONCE, failure).wait_ns == SECOND_NS


@failures
@pytest.mark.parametrize("tries", [3, 4])
def test_a_failure_of_the_last_attempt_is_final(failure: Outcome, tries: int) -> None:
    found = after(AT_LEAST_ONCE, failure, tries=tries)
    assert found == Aftermath(RunState.FAILED)


@failures
def test_an_error_that_no_retry_can_mend_is_final_at_once(failure: Outcome) -> None:
    found = after(AT_LEAST_ONCE, failure, gives_up=True)
    assert found == Aftermath(RunState.FAILED)


@failures
def test_what_runs_at_most_once_is_never_tried_again(failure: Outcome) -> None:
    assert after(AT_MOST_ONCE, failure) == Aftermath(RunState.FAILED)


@policies
@pytest.mark.parametrize("outcome", [*FAILURES, Outcome.CANCELLED, Outcome.SHUTDOWN])
@pytest.mark.parametrize("tries", [1, 3])
def test_a_run_that_was_told_to_end_and_did_not_succeed_is_cancelled(
    policy: Policy, outcome: Outcome, tries: int
) -> None:
    found = after(policy, outcome, ending=True, tries=tries)
    assert found == Aftermath(RunState.CANCELLED)


@policies
def test_a_handler_that_ends_itself_as_cancelled_is(policy: Policy) -> None:
    assert after(policy, Outcome.CANCELLED) == Aftermath(RunState.CANCELLED)


# -- it was not its fault --------------------------------------------------------------


def test_a_shutdown_uses_up_no_attempt() -> None:
    found = after(AT_LEAST_ONCE, Outcome.SHUTDOWN, tries=3)
    assert found == Aftermath(RunState.READY, counts=False)


def test_what_runs_at_most_once_is_lost_in_a_shutdown() -> None:
    found = after(AT_MOST_ONCE, Outcome.SHUTDOWN)
    assert found == Aftermath(RunState.LOST, counts=False)


def test_a_lost_attempt_uses_up_none_and_the_run_is_ready_again() -> None:
    found = after(AT_LEAST_ONCE, Outcome.LOST, tries=3, lost=1)
    assert found == Aftermath(RunState.READY, counts=False)


@pytest.mark.parametrize("lost", [2, 3])
def test_a_run_that_is_lost_too_often_has_failed(lost: int) -> None:
    """It may be what kills its worker."""
    found = after(AT_LEAST_ONCE, Outcome.LOST, lost=lost)
    assert found == Aftermath(RunState.FAILED)


@pytest.mark.parametrize("ending", [False, True])
def test_what_runs_at_most_once_and_is_lost_stays_lost(*, ending: bool) -> None:
    found = after(AT_MOST_ONCE, Outcome.LOST, lost=1, ending=ending)
    assert found == Aftermath(RunState.LOST)


@pytest.mark.parametrize("lost", [1, 2])
def test_a_lost_run_that_was_told_to_end_is_cancelled(lost: int) -> None:
    found = after(AT_LEAST_ONCE, Outcome.LOST, lost=lost, ending=True)
    assert found == Aftermath(RunState.CANCELLED)
