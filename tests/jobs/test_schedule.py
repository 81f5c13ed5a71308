"""The edge between datetimes and instants, and what schedules may import."""

from __future__ import annotations

import ast
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timingwheel.jobs.schedule
from timingwheel.errors import ArgumentError
from timingwheel.jobs.every import Every
from timingwheel.jobs.schedule import BETWEEN_LIMIT, NS, instant_datetime, instant_ns

PURE = {
    *("__init__", "cron", "cron_days", "cron_fields", "cron_times", "cron_words"),
    *("every", "schedule", "stable_hash", "wall_schedule", "zones"),
}


@given(
    st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29)),  # noqa: DTZ001 - made aware below
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"]),
    st.integers(0, 1),
)
def test_an_instant_is_the_same_whatever_zone_it_is_written_in(
    wall: datetime, zone: str, fold: int
) -> None:
    moment = wall.replace(tzinfo=ZoneInfo(zone), fold=fold)
    since = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    assert instant_ns(moment, "moment") == since // timedelta(microseconds=1) * 1_000
    assert instant_datetime(instant_ns(moment, "moment")) == moment.astimezone(UTC)


def test_an_offset_of_any_kind_is_heard() -> None:
    odd = timezone(timedelta(hours=-3, minutes=-17, microseconds=-5))
    moment = datetime(2026, 1, 1, tzinfo=odd)
    assert instant_ns(moment, "moment") == instant_ns(moment.astimezone(UTC), "moment")


def test_an_instant_between_microseconds_is_shown_as_the_next_one() -> None:
    assert instant_datetime(1_001).microsecond == 2
    assert instant_datetime(1_000).microsecond == 1
    assert instant_datetime(-1) == datetime(1970, 1, 1, tzinfo=UTC)


NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
NAIVE = NOON.replace(tzinfo=None)


@pytest.mark.parametrize(
    ("passed", "found", "fix"),
    [
        (
            *(NAIVE, "2026-03-02T12:00:00"),
            "a naive datetime names no instant; pass an aware one, with tzinfo=ZoneInfo",
        ),
        (NOON.date(), NOON.date(), "pass an aware datetime"),
        (0, 0, "pass an aware datetime"),
    ],
)
def test_what_is_no_instant_is_refused_by_the_name_that_it_was_passed_under(
    passed: Any, found: object, fix: str
) -> None:
    hourly = Every(3_600 * NS, 0)
    for argument, ask in (
        ("after", lambda: hourly.next(passed)),
        ("before", lambda: hourly.prev(passed)),
        ("a", lambda: hourly.between(passed, NOON)),
        ("b", lambda: hourly.between(NOON, passed)),
        ("a", lambda: hourly.count(passed, NOON)),
        ("b", lambda: hourly.count(NOON, passed)),
    ):
        with pytest.raises(ArgumentError) as refused:
            ask()
        assert refused.value.argument == argument
        assert refused.value.found == found
        assert refused.value.fix.startswith(fix)


def test_an_end_before_the_start_is_refused_and_one_at_it_holds_nothing() -> None:
    hourly = Every(3_600 * NS, 0)
    with pytest.raises(
        ArgumentError, match=r"not before 2026-03-02T12:00:00\+00:00$"
    ) as (refused):
        hourly.between(NOON, NOON - timedelta(microseconds=1))
    assert refused.value.argument == "b"
    assert refused.value.found == "2026-03-02T11:59:59.999999+00:00"
    assert hourly.between(NOON, NOON) == []
    assert hourly.count(NOON, NOON) == 0
    assert hourly.count(NOON, NOON + timedelta(microseconds=1)) == 1


def test_as_many_times_come_as_the_limit_says_and_a_hundred_without_one() -> None:
    hourly = Every(3_600 * NS, 0)
    week = NOON + timedelta(days=7)
    assert hourly.between(NOON, week, limit=1) == [NOON]
    assert len(hourly.between(NOON, week, limit=2)) == 2
    assert len(hourly.between(NOON, week)) == BETWEEN_LIMIT == 100
    with pytest.raises(ArgumentError, match="from 1") as refused:
        hourly.between(NOON, week, limit=0)
    assert (refused.value.argument, refused.value.found) == ("limit", 0)


@pytest.mark.parametrize("name", sorted(PURE))
def test_schedules_import_the_standard_library_errors_and_each_other(name: str) -> None:
    folder = Path(timingwheel.jobs.schedule.__file__).parent
    tree = ast.parse((folder / f"{name}.py").read_text())
    imported = {
        node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
    } | {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    allowed = {"timingwheel.errors", *(f"timingwheel.jobs.{pure}" for pure in PURE)}
    foreign = {
        module
        for module in imported - allowed
        if module.partition(".")[0] not in sys.stdlib_module_names
    }
    assert name == "__init__" or foreign == set()
    impure = {"asyncio", "os", "pathlib", "random", "socket", "threading", "time"}
    assert imported & impure == set()
