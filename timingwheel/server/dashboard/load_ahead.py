"""The page Load ahead: planned starts of the next day, its peak, and what splay would do.

Cost: of a forecast (forecast.py), which all pages share for a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from timingwheel.jobs.durations import duration_ns
from timingwheel.jobs.store import Load
from timingwheel.server.dashboard.drawing import Column, Series, bars
from timingwheel.server.dashboard.visits import FormErrors, Page, View, Visit
from timingwheel.server.dashboard.words import count_words, time_words

STEP_MINUTES: Final = 5
"""Minutes that one bar stands for; it is as high as the busiest of them."""
SPLAYS: Final = ("1m", "5m", "10m", "30m", "1h")
DEFAULT_SPLAY: Final = "10m"
PEAKS: Final = 5
_MINUTE_NS: Final = 60_000_000_000


class Peak(NamedTuple):
    """A minute with many starts.

    Attributes:
        start_ns: when it begins.
        due: starts that are planned in it.
        splayed: how many it would be with splay, on average.
    """

    start_ns: int
    due: int
    splayed: float


def show_load(visit: Visit) -> View:
    """Show the load ahead."""
    errors = FormErrors()
    splay = visit.query.get("splay") or DEFAULT_SPLAY
    splay_ns = 0
    with errors.caught("splay"):
        splay_ns = duration_ns(splay, "splay")
    loads = visit.vitals.forecast.loads()
    due = [load.due for load in loads]
    splayed = spread([load.nominal for load in loads], splay_ns)
    values = {
        "errors": errors,
        "splay": splay,
        "splays": SPLAYS,
        "total": sum(due),
        "busiest": peaks(loads, splayed)[:1],
        "peaks": peaks(loads, splayed)[:PEAKS],
        "highest_splayed": max(splayed, default=0.0),
        **_charts(visit, loads, splayed),
    }
    return View("load_ahead.html", values, 422 if errors else 200)


def spread(starts: Sequence[int], splay_ns: int) -> list[float]:
    """Return how many starts a minute has on average if each is splayed.

    Args:
        starts: a minute each.
        splay_ns: each start moves later by up to this, all shares alike.

    Cost: O(minutes).
    """
    if splay_ns < _MINUTE_NS:
        return [float(count) for count in starts]
    window = splay_ns / _MINUTE_NS
    whole = int(window)
    found, inside = [], 0.0
    for place, count in enumerate(starts):
        inside += count
        if place >= whole:
            inside -= starts[place - whole]
        # What leaves the window by a part of a minute is still in it by the other part.
        part = starts[place - whole] * (window - whole) if place >= whole else 0.0
        found.append((inside + part) / window)
    return found


def peaks(loads: Sequence[Load], splayed: Sequence[float]) -> list[Peak]:
    """Return the minutes with starts, the busiest first."""
    found = [
        Peak(load.start_ns, load.due, share)
        for load, share in zip(loads, splayed, strict=True)
        if load.due
    ]
    return sorted(found, key=lambda peak: (-peak.due, peak.start_ns))


def _charts(
    visit: Visit, loads: Sequence[Load], splayed: Sequence[float]
) -> dict[str, Any]:
    planned, spread_out = [], []
    for place in range(0, len(loads), STEP_MINUTES):
        some = loads[place : place + STEP_MINUTES]
        busiest = max(some, key=lambda load: load.due)
        clock = time_words(busiest.start_ns, visit.zone, now_ns=visit.now_ns)[:-3]
        title = f"{clock}: {count_words(busiest.due, 'start')} in its busiest minute"
        planned.append(Column(title, (float(busiest.due),)))
        share = max(splayed[place : place + STEP_MINUTES])
        spread_out.append(Column(f"{clock}: {share:.1f} starts a minute", (share,)))
    top = max((column.values[0] for column in planned), default=0)
    label = "Planned starts, a minute, of the next 24 hours"
    return {
        "planned": bars(planned, [Series("as planned", "accent")], label=label),
        "spread_out": bars(
            spread_out,
            [Series("with splay", "good")],
            label=f"{label}, with splay",
            least=top,
        ),
        "axis": _axis(visit, loads),
    }


def _axis(visit: Visit, loads: Sequence[Load]) -> list[str]:
    if not loads:
        return []
    places = [round(n * (len(loads) - 1) / 6) for n in range(7)]
    return [
        time_words(loads[place].start_ns, visit.zone, now_ns=loads[place].start_ns)[:-3]
        for place in places
    ]


LOAD_PAGES: Final = (Page("GET", "/load-ahead", show_load, nav="Load ahead"),)
