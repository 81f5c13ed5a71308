"""That each fault can be made on each store that is here, and that a loss is seen."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from bench import reliability
from bench.reliability import KEPT, SILENT, TIMERS, Fault, Tally
from bench.reliability_subjects import (
    SUBJECTS,
    Beanstalkd,
    Ours,
    Redis,
    Sqlite,
    Subject,
)

PROGRAMS: dict[type[Subject], str] = {Redis: "redis-server", Beanstalkd: "beanstalkd"}


@pytest.mark.parametrize("make", SUBJECTS, ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    "fault", [reliability.flipped_bit, reliability.torn_tail, reliability.kill_9]
)
def test_a_fault_can_be_made(tmp_path: Path, make: type[Subject], fault: Fault) -> None:
    if make in PROGRAMS and shutil.which(PROGRAMS[make]) is None:
        pytest.skip(f"{PROGRAMS[make]} is not installed")
    tally = fault(make, tmp_path, random.Random(1), 2)
    assert tally.tries == sum(tally.outcomes.values()) == 2
    if make is Ours:
        assert tally.outcomes[SILENT] == 0
    if fault is not reliability.flipped_bit:
        assert tally.outcomes[KEPT] == 2


def test_what_is_missing_or_changed_is_counted(tmp_path: Path) -> None:
    subject = Sqlite(tmp_path / "store")
    subject.open()
    for number, payload in TIMERS.items():
        if number:
            subject.put(number, payload if number > 1 else payload[:10] + b"changed")
    tally = Tally("none", subject.name)
    tally.judge(subject, TIMERS)
    subject.end()
    assert (tally.lost, tally.changed, tally.outcomes[SILENT]) == (1, 1, 1)
