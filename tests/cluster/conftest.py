"""Beds for tests of faults, and the table of what came of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.bed import Account, Bed
from tests.postgres import Postgres

Keep = Callable[..., None]
"""keep(fault, account, in_flight=0): put a row into the table."""
_COLUMNS = ("times", "runs", "lost", "twice", "started again", "in flight", "refused")


@pytest.fixture
def bed(postgres: Postgres, tmp_path: Path) -> Iterator[Bed]:
    """A store on the server that the tests share."""
    url = postgres.new_schema()
    made = Bed(url, url, tmp_path)
    yield made
    made.close()


@pytest.fixture
def keep(record_property: Callable[[str, object], None]) -> Keep:
    """Keeps what came of a fault for the table at the end."""

    def put(fault: str, account: Account, in_flight: int = 0) -> None:
        record_property("fault", [fault, in_flight, *account])

    return put


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print a row a fault, over all tests that made it."""
    rows: dict[str, list[int]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == "fault" and report.when == "call":
                    _add(rows, value)
    if rows:
        terminalreporter.section("faults of a cluster")
        terminalreporter.write_line(f"{'':48}" + "".join(f"{c:>15}" for c in _COLUMNS))
    for fault, numbers in sorted(rows.items()):
        terminalreporter.write_line(
            f"{fault:48}" + "".join(f"{number:15}" for number in numbers)
        )


def _add(rows: dict[str, list[int]], value: list[Any]) -> None:
    fault, in_flight, *numbers = value
    found = Account(*numbers)
    twice = found.done_twice + found.doubles
    more = [1, found.runs, found.lost, twice, found.started_twice, in_flight]
    more.append(found.refused)
    before = rows.get(fault, [0] * len(more))
    rows[fault] = [old + new for old, new in zip(before, more, strict=True)]
