"""That the table, the plot and the progress say what was measured."""

from __future__ import annotations

import io
from xml.etree import ElementTree as ET

import pytest

from bench.__main__ import GROUPS, main
from bench.plot import wheel_costs
from bench.progress import Reporter, Step
from bench.rounds import BASELINE, COUNT, OURS, RATE, Case, PairedRow, interleave
from bench.row import Row
from bench.table import render, to_baseline, to_best_peer


class Taking(Case):
    """Takes the seconds it is told, round by round."""

    def __init__(self, peer: str, *seconds: float) -> None:
        self.peer = peer
        self._seconds = list(seconds)

    def run(self) -> float:
        return self._seconds.pop(0)


def by_peer(rows: list[Row]) -> dict[str, Row]:
    return {row.peer: row for row in rows}


def test_a_ratio_is_taken_inside_each_round_and_its_median_counts() -> None:
    # A neighbour slows the second round tenfold, for both alike. Each one's own median
    # would say 1.0 against 4.0, which is true of the third round alone.
    rows = interleave(
        Taking(BASELINE, 1.0, 10.0, 1.0),
        [Taking(OURS, 2.0, 20.0, 4.0)],
        group="g",
        name="n",
        rounds=3,
        tries=1,
        progress=lambda _: None,
    )

    ours = by_peer(rows)[OURS]
    assert isinstance(ours, PairedRow)
    assert ours.to_baseline == pytest.approx(0.5)
    assert ours.ns_per_op == pytest.approx(4e9)


def test_the_best_peer_is_the_fastest_that_promises_as_much() -> None:
    line = {
        OURS: PairedRow("g", "n", OURS, 100.0, unit=RATE, ours_to_it=1.0),
        "slow": PairedRow("g", "n", "slow", 300.0, unit=RATE, ours_to_it=3.1),
        "equal": PairedRow("g", "n", "equal", 200.0, unit=RATE, ours_to_it=2.1),
        "lax": PairedRow("g", "n", "lax", 1.0, unit=RATE, ours_to_it=0.01, equal=False),
    }

    assert to_best_peer(line) == (2.1, "equal")


def test_a_cost_against_the_baseline_is_its_multiple_and_a_rate_its_share() -> None:
    cost = {
        BASELINE: Row("g", "n", BASELINE, 100.0),
        OURS: Row("g", "n", OURS, 150.0),
    }
    rate = {
        BASELINE: PairedRow("g", "n", BASELINE, 100.0, unit=RATE, to_baseline=1.0),
        OURS: PairedRow("g", "n", OURS, 125.0, unit=RATE, to_baseline=0.8),
    }

    assert to_baseline(cost) == 1.5
    assert to_baseline(rate) == 0.8


def test_the_table_sets_rivals_side_by_side_and_tells_each_note_once() -> None:
    text = render(
        [
            Row("wheel", "insert", BASELINE, 50.0),
            Row("wheel", "insert", OURS, 100.0),
            Row("wheel", "insert", "heapq", 250.0, "lazy"),
            Row("wheel", "cancel", "heapq", 20.0, "lazy"),
        ]
    )

    lines = [line.split() for line in text.splitlines()]
    assert ["insert", "50.0", "100", "250", "[1]", "2.00", "2.50"] in lines
    assert ["cancel", "-", "-", "20.0", "[1]", "-", "-"] in lines
    assert text.count("lazy") == 1


def test_the_plot_is_a_picture_with_a_line_for_each_peer() -> None:
    rows = [
        Row(f"wheel, {timers:,} timers", "insert", peer, cost * timers**0.1)
        for timers in (10_000, 1_000_000)
        for peer, cost in ((OURS, 100.0), ("heapq + dict", 900.0))
    ]

    picture = wheel_costs(rows)

    assert picture is not None
    svg = ET.fromstring(picture)
    lines = svg.findall(".//{http://www.w3.org/2000/svg}polyline")
    texts = {text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")}
    assert len(lines) == 2
    assert {OURS, "heapq + dict", "10k", "1M", "100 ns"} <= texts


def test_there_is_no_plot_of_a_single_size() -> None:
    assert wheel_costs([Row("wheel, 1,000 timers", "insert", OURS, 1.0)]) is None


def test_the_estimate_learns_from_the_steps_that_are_done() -> None:
    now = 0.0
    left: list[float] = []

    def take(seconds: float) -> list[Row]:
        nonlocal now
        left.append(reporter.left_seconds())
        now += seconds
        return []

    steps = [Step("g", "n", 10.0, lambda _: take(20.0)) for _ in range(3)]
    reporter = Reporter(steps, io.StringIO(), clock=lambda: now)
    reporter.run([])

    assert left == [30.0, 40.0, 20.0]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--sizes", "many"], "'many' is no number"),
        (["--sizes", "1e4,12"], "'12': whole numbers from 1,000"),
        (["--only", "heap"], "invalid choice: 'heap'"),
    ],
)
def test_a_wrong_option_is_refused_with_what_to_write_instead(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)

    assert refused.value.code == 2
    assert complaint in capsys.readouterr().err


def test_the_list_names_every_group_and_measures_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--list"]) == 0

    listed = capsys.readouterr().out
    assert set(GROUPS) == {line.split()[0] for line in listed.splitlines()}


def test_nobody_is_many_times_better_than_nothing() -> None:
    line = {
        OURS: Row("g", "early", OURS, 0.0, unit=COUNT),
        "uvloop": Row("g", "early", "uvloop", 890.0, unit=COUNT),
    }

    assert to_best_peer(line) is None
    assert "890" in render(list(line.values()))
