"""Hard cases of cron and daylight saving, each met by some scheduler before."""

from __future__ import annotations

import json
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from timingwheel import Cron, CronError

CASES = json.loads((Path(__file__).parent / "cron_cases.json").read_text())


def cases(*, refused: bool) -> list[Any]:
    return [
        pytest.param(case, id=case["id"])
        for case in CASES
        if ("error" in case) == refused
    ]


@pytest.mark.parametrize("case", cases(refused=False))
def test_the_case_gives_its_times_forwards_and_backwards(case: dict[str, Any]) -> None:
    cron = Cron(case["expr"], tz=case["tz"], **case.get("opts", {}))
    expected = [datetime.fromisoformat(text) for text in case["expect"]]
    after = datetime.fromisoformat(case["after"])

    found = [after]
    for _ in expected:
        following = cron.next(found[-1])
        assert following is not None
        found.append(following)
    assert found[1:] == expected

    for earlier, later in pairwise(expected):
        assert cron.prev(later) == earlier
    former = cron.prev(expected[0])
    assert former is None or former <= after
    assert cron.count(expected[0], expected[-1]) == len(expected) - 1
    assert cron.between(expected[0], expected[-1]) == expected[:-1]


@pytest.mark.parametrize("case", cases(refused=True))
def test_the_case_is_refused_for_its_reason(case: dict[str, Any]) -> None:
    with pytest.raises(CronError) as refused:
        Cron(case["expr"], tz=case["tz"])
    assert refused.value.code == case["error"]


def test_there_are_49_cases_and_each_has_its_own_name() -> None:
    assert len({case["id"] for case in CASES}) == len(CASES) == 49
