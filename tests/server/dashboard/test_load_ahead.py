"""The page Load ahead: the peak, and what splay would make of it."""

from __future__ import annotations

import pytest

from tests.scheduler import program
from tests.server.dashboard.visitor import Visitor
from timingwheel.manual_clock import ManualClock
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.dashboard.forecast import FORECAST_NS, Forecast
from timingwheel.server.dashboard.load_ahead import spread

MINUTE_NS = 60_000_000_000


def test_splay_spreads_a_peak_over_its_length_and_loses_no_start() -> None:
    starts = [0, 40, 0, 0, 0, 0, 0, 8, 0, 0, 0]
    assert spread(starts, 4 * MINUTE_NS) == [0, 10, 10, 10, 10, 0, 0, 2, 2, 2, 2]
    assert spread(starts, 0) == starts
    for length_ns in (MINUTE_NS, MINUTE_NS * 3 // 2, MINUTE_NS * 11 // 4):
        assert sum(spread(starts, length_ns)) == pytest.approx(48)


def test_the_midnight_peak_is_named_with_what_splay_would_do(
    app: Scheduler, visitor: Visitor
) -> None:
    for n in range(20):
        app.add(program.note.call("x"), cron="0 0 * * *", name=f"nightly {n}")
    page = visitor.get("/load-ahead?splay=10m")
    assert page.by_id("figure-planned-starts").one("dd").text == "20"
    busiest = page.by_id("figure-busiest-minute").one("dd").text
    assert busiest.startswith("20 ")
    assert busiest.endswith(" 00:00")
    row = page.by_id("peaks").all("tr")[1]
    assert [cell.text for cell in row.all("td")[1:]] == ["20", "2.0"]


def test_a_splay_that_is_none_is_told(app: Scheduler, visitor: Visitor) -> None:
    app.add(program.note.call("x"), cron="0 0 * * *")
    page = visitor.get("/load-ahead?splay=soon", status=422)
    assert page.by_id("form-error").text


def test_nothing_planned_says_so(visitor: Visitor) -> None:
    assert "Nothing is planned" in visitor.get("/load-ahead").by_id("empty").text


def test_a_forecast_is_shared_until_it_is_old() -> None:
    clock = ManualClock()
    with Scheduler(":memory:", tasks=program.app.tasks, clock=clock) as app:
        forecast = Forecast(app)
        first = forecast.loads()
        app.add(program.note.call("x"), cron="* * * * *")
        assert forecast.loads() is first
        clock.advance(FORECAST_NS / 1e9)
        assert sum(load.due for load in forecast.loads()) > 1_000
