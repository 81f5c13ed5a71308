"""Our cron against cronsim and croniter, with each known difference named.

Both are test oracles only. Where one of them differs by rule, its case is left out or
compared with our option for that rule; nothing is left out without its reason.

cronsim 2.8 follows Debian cron, as we do, but
- asked inside the second copy of an hour, it can answer with the first, in the past;
- it steps by whole hours, and loses runs after a shift of 30 minutes; where the clock
  moves off the hour, it may never answer (`57 */3` in Chatham, before 2032-04-03 14:45Z);
- it runs a job of the skipped day of a date-line change at the following midnight;
- where midnight is in a gap, it adds a run at the gap's end to jobs that follow the
  clock, though it shows no such time (`*/3 */3` in Beirut);
- its rule for fixed times holds for five fields only; six follow the clock;
- it refuses a range that wraps around, and takes a step larger than the field for the
  whole of it.

croniter 7.0.0
- runs fixed times in both copies of an overlap: that is our overlap="both";
- adds a run at the end of a gap to jobs that follow the clock where their hour field is
  not `*` (`45 */3`, `*/5 2,22`);
- loses fixed times in the second copy of two hours (`35 0,1` in Troll);
- takes `*/2` in a day field for a restriction: OR where cron and we say AND;
- forgets the day of the month where the weekday has a `#` (taichino/croniter#177);
- ends the weekday field at 6 where cron and we end it at 7 (`5/2`);
- takes `jan-jan` for the whole year, `*/90` for hourly, and has no `LW`.
"""

from __future__ import annotations

import random
import zoneinfo
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from croniter import croniter
from cronsim import CronSim, CronSimError

from tests.jobs.oracle import changes
from timingwheel import Cron, CronError

RESULTS = 5
DAY = timedelta(days=1)
# Zones whose offset moves by whole hours on the hour, never by three in these years.
WHOLE_HOUR_ZONES = [
    *("UTC", "Asia/Tokyo", "Asia/Kolkata", "America/New_York", "America/Santiago"),
    *("America/St_Johns", "Europe/London", "Europe/Dublin", "Europe/Berlin"),
    *("Europe/Lisbon", "Atlantic/Azores", "Africa/Cairo", "Asia/Beirut"),
    *("Asia/Jerusalem", "Australia/Sydney", "Pacific/Auckland"),
    *("America/Havana", "America/Asuncion", "Antarctica/Troll"),
]
YEARS = (2024, 2036)


class Draw:
    """Random expressions of the grammar that all three read, made part by part."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def field(self, low: int, high: int, *, stars: bool = True) -> str:
        rng = self.rng
        kind = rng.randrange(8)
        if kind <= 2 and stars:
            step = rng.choice([1, 2, 3, 5, 7, 10])
            return "*" if step == 1 or step > high - low else f"*/{step}"
        if kind == 3:
            a, b = sorted(rng.sample(range(low, high + 1), 2))
            return f"{a}-{b}"
        if kind == 4:
            a, b = sorted(rng.sample(range(low, high + 1), 2))
            return f"{a}-{b}/{rng.randrange(1, max(2, b - a))}"
        values = rng.sample(range(low, high + 1), rng.choice([1, 1, 1, 2, 3]))
        return ",".join(map(str, sorted(values)))

    def days(self) -> str:
        rng = self.rng
        month = rng.choice(["*", "*", "*", "*", self.field(1, 12), "MAR,OCT", "FEB"])
        match rng.randrange(8):
            case 0:
                return f"{self.field(1, 28, stars=False)} {month} *"
            case 1:
                return f"* {month} {self.field(0, 6)}"
            case 2:
                days = self.field(1, 28, stars=False)
                return f"{days} {month} {self.field(0, 6, stars=False)}"
            case 3:
                return f"L {month} *"
            case 4:
                weekday = rng.choice(["SUN", "MON", "FRI", "0", "3"])
                return f"* {month} {weekday}#{rng.randrange(1, 5)}"
            case 5:
                return f"* {month} {rng.choice(['MON-FRI', 'SAT,SUN', 'TUE-SAT'])}"
        return f"* {month} *"

    def expression(self, near: datetime) -> str:
        hour = self.field(0, 23)
        if self.rng.random() < 0.5:
            hours = [(near.hour + n) % 24 for n in self.rng.sample(range(-3, 3), 2)]
            hour = ",".join(map(str, sorted(set(hours))))
        return f"{self.field(0, 59)} {hour} {self.days()}"


def draws(rng: random.Random, number: int) -> list[tuple[str, str, datetime]]:
    """Return (expression, zone, start) of so many cases, most of them at a change."""
    found = []
    draw = Draw(rng)
    first, last = (datetime(year, 1, 1, tzinfo=UTC) for year in YEARS)
    for _ in range(number):
        name = rng.choice(WHOLE_HOUR_ZONES)
        zone = zoneinfo.ZoneInfo(name)
        start = first + (last - first) * rng.random()
        near = changes(zone, start, start + 200 * DAY)
        if near and rng.random() < 0.7:
            start = rng.choice(near) + 2 * DAY * (rng.random() - 0.7)
        # On whole seconds: cronsim and croniter cut the fraction off, each in its way.
        start = start.replace(microsecond=0)
        expression = draw.expression(start.astimezone(zone))
        found.append((expression, name, start))
    return found


def ours(cron: Cron, start: datetime) -> list[datetime]:
    found: list[datetime] = []
    moment = cron.next(start)
    while moment is not None and len(found) < RESULTS:
        found.append(moment)
        moment = cron.next(moment)
    return found


def of_cronsim(expression: str, name: str, start: datetime) -> list[datetime]:
    local = start.astimezone(zoneinfo.ZoneInfo(name))
    search = CronSim(expression, local)
    return [next(search).astimezone(UTC) for _ in range(RESULTS)]


def of_croniter(expression: str, name: str, start: datetime) -> list[datetime]:
    local = start.astimezone(zoneinfo.ZoneInfo(name))
    search = croniter(expression, local)
    return [search.get_next(datetime).astimezone(UTC) for _ in range(RESULTS)]


def in_a_second_copy(name: str, start: datetime) -> bool:
    return start.astimezone(zoneinfo.ZoneInfo(name)).fold == 1


def gaps(name: str, start: datetime, end: datetime) -> list[datetime]:
    """Return the wall times at which the clock jumps ahead around a span of time."""
    zone = zoneinfo.ZoneInfo(name)

    def wall(moment: datetime) -> datetime:
        return moment.astimezone(zone).replace(tzinfo=None)

    return [
        wall(moment - DAY) + DAY
        for moment in changes(zone, start - DAY, end + DAY)
        if wall(moment) - wall(moment - DAY) > DAY
    ]


def in_a_long_overlap(name: str, moments: list[datetime]) -> bool:
    """Return whether one of them is shown twice, the two more than an hour apart."""
    zone = zoneinfo.ZoneInfo(name)
    for moment in moments:
        local = moment.astimezone(zone)
        first, second = (local.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
        if second - first > timedelta(hours=1):
            return True
    return False


def restricted_by_star(expression: str) -> bool:
    day, weekday = expression.split()[2], expression.split()[4]
    return "*" not in (day, weekday) and "*" in day[0] + weekday[0]


def or_with_nth(expression: str) -> bool:
    day, weekday = expression.split()[2], expression.split()[4]
    return not day.startswith("*") and "#" in weekday


def check_cronsim(expression: str, name: str, start: datetime) -> bool:
    if in_a_second_copy(name, start):
        return False
    cron = Cron(expression, tz=name)
    found = ours(cron, start)
    if (
        cron.follows_clock
        and expression.split()[1] != "*"
        and any(wall.hour == 0 for wall in gaps(name, start, found[-1]))
    ):
        return False
    assert found == of_cronsim(expression, name, start), (expression, name, start)
    return True


def check_croniter(expression: str, name: str, start: datetime) -> bool:
    if restricted_by_star(expression) or or_with_nth(expression):
        return False
    cron = Cron(expression, tz=name, overlap="both")
    found = ours(cron, start)
    if (
        cron.follows_clock
        and expression.split()[1] != "*"
        and gaps(name, start, found[-1])
    ):
        return False
    if in_a_long_overlap(name, found):
        return False
    assert found == of_croniter(expression, name, start), (expression, name, start)
    return True


NY = "America/New_York"
LORD_HOWE = "Australia/Lord_Howe"
DIFFERENCES = [
    # What is named above, one by one: were it mended, it had to be checked again.
    (of_cronsim, "26 1 * * *", NY, "2025-11-02T06:01Z", "2025-11-02T05:26Z"),
    (of_cronsim, "45 * * * *", LORD_HOWE, "2025-10-04T15:29Z", "2025-10-04T16:45Z"),
    (of_cronsim, "0 9 * * *", "Pacific/Apia", "2011-12-30T00:00Z", "2011-12-30T10:00Z"),
    (of_cronsim, "0 30 1 * * *", NY, "2026-11-01T05:30Z", "2026-11-01T06:30Z"),
    (
        *(of_cronsim, "*/3 */3 * * 0,3,4", "Asia/Beirut"),
        *("2034-03-24T22:00Z", "2034-03-25T22:00Z"),
    ),
    (of_croniter, "30 1 * * *", NY, "2026-11-01T05:30Z", "2026-11-01T06:30Z"),
    (
        *(of_croniter, "45 */3 * * *", "Europe/Athens"),
        *("2026-03-29T00:00Z", "2026-03-29T01:00Z"),
    ),
    (of_croniter, "0 0 */2 * 6", "UTC", "2026-05-01T00:00Z", "2026-05-02T00:00Z"),
    (of_croniter, "0 0 8-9 * 0#2", "UTC", "2021-01-01T00:00Z", "2021-01-10T00:00Z"),
    (of_croniter, "0 0 * * 5/2", "UTC", "2026-01-02T00:00Z", "2026-01-09T00:00Z"),
    (of_croniter, "0 0 1 jan-jan *", "UTC", "2026-01-01T00:00Z", "2026-02-01T00:00Z"),
]


@pytest.mark.parametrize(("peer", "expression", "name", "start", "theirs"), DIFFERENCES)
def test_each_named_difference_is_one(
    peer: Callable[[str, str, datetime], list[datetime]],
    expression: str,
    name: str,
    start: str,
    theirs: str,
) -> None:
    after = datetime.fromisoformat(start)
    assert peer(expression, name, after)[0] == datetime.fromisoformat(theirs)
    assert Cron(expression, tz=name).next(after) != datetime.fromisoformat(theirs)


def test_croniter_loses_times_in_an_overlap_of_two_hours() -> None:
    start = datetime(2029, 10, 27, 23, 36, tzinfo=UTC)
    expression, troll = "35 0,1 * * *", "Antarctica/Troll"
    again, next_day = (
        start + timedelta(minutes=119),
        start + timedelta(minutes=59 + 1440),
    )
    assert Cron(expression, tz=troll, overlap="both").next(start) == again
    assert of_croniter(expression, troll, start)[0] == next_day


@pytest.mark.parametrize("expression", ["0 0 * * FRI-MON", "0 22-4 * * *"])
def test_cronsim_refuses_ranges_that_wrap_around(expression: str) -> None:
    assert Cron(expression).next(datetime(2026, 1, 1, tzinfo=UTC))
    with pytest.raises(CronSimError):
        CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC))


def test_both_take_a_step_larger_than_the_field() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    assert of_cronsim("*/90 * * * *", "UTC", start)[0] == start + timedelta(hours=1)
    assert of_croniter("*/90 * * * *", "UTC", start)[0] == start + timedelta(hours=1)
    with pytest.raises(CronError, match="use an interval"):
        Cron("*/90 * * * *")


CHECKS = [check_cronsim, check_croniter]


@pytest.mark.parametrize("check", CHECKS)
def test_we_agree_but_for_what_is_named(
    check: Callable[[str, str, datetime], bool], rng: random.Random
) -> None:
    checked = sum(check(*case) for case in draws(rng, 300))
    assert checked > 200


@pytest.mark.long
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("shard", range(8))
def test_we_agree_in_many_cases_but_for_what_is_named(
    check: Callable[[str, str, datetime], bool], shard: int, rng: random.Random
) -> None:
    shard_rng = random.Random(rng.getrandbits(32) + shard)
    checked = sum(check(*case) for case in draws(shard_rng, 2_500))
    assert checked > 1_600
