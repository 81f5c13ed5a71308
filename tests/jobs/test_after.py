"""Triggers that wait for other jobs."""

from __future__ import annotations

import pytest

from timingwheel.errors import ArgumentError
from timingwheel.jobs.after import JOBS_MAX, After
from timingwheel.jobs.model import JobId
from timingwheel.jobs.store import JobRef
from timingwheel.jobs.triggers import AfterJobs, AfterOn


def test_a_job_is_named_by_its_id_or_by_what_add_returned() -> None:
    expected = AfterJobs(jobs=("a",), on=AfterOn.SUCCESS)
    assert After("a").rule == expected
    assert After(JobRef(JobId("a"), created=True)).rule == expected


def test_several_jobs_are_waited_for_together_or_for_the_first() -> None:
    assert After.all_of("a", "b", "a").rule == AfterJobs(jobs=("a", "b"))
    assert After.any_of("a", "b").rule == AfterJobs(jobs=("a", "b"), need="any")
    assert After.any_of("a", "b", on="any").rule == AfterJobs(
        jobs=("a", "b"), on=AfterOn.ANY, need="any"
    )


@pytest.mark.parametrize("on", ["success", "failure", "any", AfterOn.FAILURE])
def test_the_end_that_counts_is_kept(on: AfterOn) -> None:
    assert After("a", on=on).rule.on == on


@pytest.mark.parametrize("job", ["", None, 7, b"a", ("a", "b")])
def test_what_is_no_job_is_refused(job: object) -> None:
    with pytest.raises(ArgumentError, match="pass a job id") as refused:
        After(job)  # type: ignore[arg-type]
    assert (refused.value.argument, refused.value.found) == ("job", job)


def test_an_end_that_does_not_exist_is_refused_with_those_that_do() -> None:
    for on in ("done", None):
        with pytest.raises(
            ArgumentError, match='"success", "failure", "any"'
        ) as refused:
            After("a", on=on)  # type: ignore[arg-type]
        assert (refused.value.argument, refused.value.found) == ("on", on)


def test_it_waits_for_one_job_at_least_and_a_bounded_number() -> None:
    names = [str(number) for number in range(JOBS_MAX + 1)]
    assert len(After.all_of(*names[1:]).rule.jobs) == JOBS_MAX
    for jobs in ([], names):
        with pytest.raises(ArgumentError, match="1 to 1,000") as refused:
            After.any_of(*jobs)
        assert (refused.value.argument, refused.value.found) == ("jobs", len(jobs))


def test_equal_ones_are_equal_and_repr_is_how_it_is_made() -> None:
    after = After.any_of("a", "b", on="failure")
    assert repr(after) == "After.any_of('a', 'b', on='failure')"
    assert repr(After("a")) == "After('a', on='success')"
    assert eval(repr(after), {"After": After}) == after
    assert hash(After("a")) == hash(After.all_of("a"))
    assert After("a") != After("b")
    assert After("a") != "a"
