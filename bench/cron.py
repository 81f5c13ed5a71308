"""The next time of a cron schedule: ours, cronsim's and croniter's.

Each asks for one time after the other, as a scheduler does, and gets a datetime; a peer
that keeps its place between two answers may do so. A figure is CPU time an answer, the
median of rounds in which all take turns. A peer that is not installed is left out.
"""

from __future__ import annotations

import importlib
import importlib.util
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from bench.progress import Step
from bench.rounds import OURS, Progress
from bench.row import Row
from bench.wheel import cpu_ns
from timingwheel.jobs.cron import Cron
from timingwheel.jobs.schedule import NS

GROUP = "cron"
ASKS = 300
ASKS_SMOKE = 10
ROUNDS = 7
START = datetime(2026, 1, 1, tzinfo=UTC)
# Name, expression, zone, how many answers are worth asking for.
LOADS = (
    ("next, daily in a zone", "30 2 * * *", "America/New_York", ASKS),
    ("next, weekdays in a zone", "0 9 * * MON-FRI", "Europe/Berlin", ASKS),
    ("next, every minute in UTC", "* * * * *", "UTC", ASKS),
    ("next, 29 February in a zone", "0 0 29 2 *", "Europe/Berlin", 20),
)
FRESH = "read the text, then the first next"
_ASK_SECONDS = 8e-3  # all loads and peers together
Answers = Callable[[str, str], Iterator[object]]


def of_ours(expression: str, tz: str) -> Iterator[object]:
    """Ask `Cron.next` from one answer to the next."""
    cron = Cron(expression, tz=tz)
    moment: datetime | None = START
    while moment is not None:
        moment = cron.next(moment)
        yield moment


def of_ours_in_ints(expression: str, tz: str) -> Iterator[object]:
    """Ask `Cron.next_ns`, as the scheduler does."""
    cron = Cron(expression, tz=tz)
    firing = cron.next_ns(int(START.timestamp()) * NS)
    while firing is not None:
        yield firing
        firing = cron.next_ns(firing.utc_ns)


def of_cronsim(expression: str, tz: str) -> Iterator[object]:
    """Iterate over a CronSim."""
    cronsim: Any = importlib.import_module("cronsim")
    answers: Iterator[object] = cronsim.CronSim(
        expression, START.astimezone(ZoneInfo(tz))
    )
    return answers


def of_croniter(expression: str, tz: str) -> Iterator[object]:
    """Ask a croniter for datetimes."""
    croniter: Any = importlib.import_module("croniter")
    search = croniter.croniter(expression, START.astimezone(ZoneInfo(tz)))
    while True:
        yield search.get_next(datetime)


PEERS: tuple[tuple[str, Answers], ...] = (
    (OURS, of_ours),
    ("cronsim", of_cronsim),
    ("croniter", of_croniter),
)
IN_INTS = "in integers, as the scheduler asks"


def step(*, smoke: bool) -> Step:
    """Return the step that measures every peer on every load."""
    asks, rounds = (ASKS_SMOKE, 1) if smoke else (ASKS, ROUNDS)

    def measured(progress: Progress) -> list[Row]:
        return measure(progress=progress, rounds=rounds, asks=asks)

    return Step(GROUP, "the next time", 2 + asks * rounds * _ASK_SECONDS, measured)


def measure(
    *, progress: Progress = lambda _: None, rounds: int = ROUNDS, asks: int = ASKS
) -> list[Row]:
    """Measure every peer on every load.

    Args:
        progress: called with a line of text before each step.
        rounds: how often each figure is taken.
        asks: how many answers a round asks for at most.
    """
    peers = [peer for peer in PEERS if _is_installed(*peer)]
    rows: list[Row] = []
    for name, expression, tz, asks_max in LOADS:
        number = min(asks, asks_max)
        progress(f"{GROUP}: {name}")

        # The text is read within, once for all the answers.
        load = partial(_answer, expression=expression, tz=tz, number=number)
        rows += _rows(name, load, peers, number=number, rounds=rounds)
        ints = ((OURS, of_ours_in_ints),)
        [row] = _rows(name, load, ints, number=number, rounds=rounds)
        rows.append(replace(row, name=f"{name}, in ns", note=IN_INTS))
    progress(f"{GROUP}: {FRESH}")

    def fresh(peer: Answers) -> None:
        for minute in range(asks):
            text = f"{minute % 60} 2 * * *"
            _answer(peer, expression=text, tz="America/New_York", number=1)

    return rows + _rows(FRESH, fresh, peers, number=asks, rounds=rounds)


def _rows(
    name: str,
    load: Callable[[Answers], None],
    peers: Sequence[tuple[str, Answers]],
    *,
    number: int,
    rounds: int,
) -> list[Row]:
    figures: dict[str, list[float]] = {peer: [] for peer, _ in peers}
    for _, answers in peers:
        load(answers)  # what is learned of a zone is kept: that is once a process
    for _ in range(rounds):
        for peer, answers in peers:
            took, _ = cpu_ns(load, answers)
            figures[peer].append(took / number)
    return [
        Row(GROUP, name, peer, statistics.median(took))
        for peer, took in figures.items()
    ]


def _answer(peer: Answers, *, expression: str, tz: str, number: int) -> None:
    answers = peer(expression, tz)
    for _ in range(number):
        next(answers)


def _is_installed(peer: str, _: Answers) -> bool:
    return peer == OURS or importlib.util.find_spec(peer) is not None
