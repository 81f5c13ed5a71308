"""The values of the jobs layer and their bytes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timingwheel.jobs.model import (
    JobId,
    MisfirePolicy,
    Policy,
    Run,
    RunState,
    SkipReason,
    parse_run_id,
    run_id,
)
from timingwheel.jobs.schedule import DstMark


def test_a_run_is_named_by_job_nominal_time_and_number() -> None:
    run = Run(job_id=JobId("j"), nominal_ns=17, due_ns=20, task="t")

    assert run.id == "j@17"
    assert run_id("j", 17, 2) == "j@17#2"


@given(
    job_id=st.text(min_size=1), nominal_ns=st.integers(0, 2**63), n=st.integers(0, 99)
)
def test_a_run_id_is_read_back_whatever_the_job_is_called(
    job_id: str, nominal_ns: int, n: int
) -> None:
    assert parse_run_id(run_id(job_id, nominal_ns, n)) == (job_id, nominal_ns, n)


@pytest.mark.parametrize("text", ["", "@", "@5", "job", "job@", "job@x", "j@5#x"])
def test_a_text_that_is_no_run_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"run id|invalid literal"):
        parse_run_id(text)


def test_a_run_survives_both_encodings() -> None:
    run = Run(
        job_id=JobId("j"),
        nominal_ns=1,
        due_ns=2,
        task="t",
        state=RunState.SKIPPED,
        skip_reason=SkipReason.OVERLAP,
        mark=DstMark.SHIFTED,
    )

    packed = msgspec.msgpack.encode(run)
    assert msgspec.msgpack.decode(packed, type=Run) == run
    assert msgspec.json.decode(msgspec.json.encode(run), type=Run) == run


def test_the_defaults_are_those_of_the_semantics_table() -> None:
    policy = Policy()

    assert policy.delivery == "at_least_once"
    assert policy.overlap.rule == "skip"
    assert policy.misfire == MisfirePolicy()
    assert policy.misfire.rule == "latest"
    assert policy.retry.attempts == 5
    assert policy.retry.first_ns == 1_000_000_000
    assert policy.retry.max_ns == 600_000_000_000
    assert policy.retry.jitter == 0.2
    assert policy.start_deadline_ns is None
    assert policy.lost_max == 3
