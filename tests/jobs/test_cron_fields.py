"""The parser: what each text means, and why each other one is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from timingwheel.errors import CronError
from timingwheel.jobs.cron import Cron
from timingwheel.jobs.cron_days import FIRST_YEAR, members
from timingwheel.jobs.cron_fields import EXPRESSION_CHARS_MAX, parse

MONDAY_TO_FRIDAY = [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("*", list(range(60))),
        ("0", [0]),
        ("05", [5]),
        ("59", [59]),
        ("1,3,5", [1, 3, 5]),
        ("5,3,5", [3, 5]),
        ("10-13", [10, 11, 12, 13]),
        ("10-10", [10]),
        ("*/15", [0, 15, 30, 45]),
        ("*/1", list(range(60))),
        ("*/59", [0, 59]),
        ("*/60", [0]),
        ("10-40/10", [10, 20, 30, 40]),
        ("10-39/10", [10, 20, 30]),
        ("50/3", [50, 53, 56, 59]),
        ("59/15", [59]),
        ("58-2", [0, 1, 2, 58, 59]),
        ("50-10/10", [0, 10, 50]),
        ("55-10/10", [5, 55]),
        ("0-59/7,1", [0, 1, 7, 14, 21, 28, 35, 42, 49, 56]),
    ],
)
def test_a_time_field_means(text: str, minutes: list[int]) -> None:
    assert members(parse(f"{text} 0 * * *", None).minutes) == minutes


@pytest.mark.parametrize(
    ("text", "months"),
    [
        ("*", list(range(1, 13))),
        ("JAN", [1]),
        ("jan-mar", [1, 2, 3]),
        ("Nov-Feb", [1, 2, 11, 12]),
        ("10-DEC", [10, 11, 12]),
        ("jan-jan", [1]),
        ("*/5", [1, 6, 11]),
        ("DEC/2", [12]),
        ("FEB/5", [2, 7, 12]),
    ],
)
def test_the_month_field_means(text: str, months: list[int]) -> None:
    assert members(parse(f"0 0 1 {text} *", None).days.months) == months


@pytest.mark.parametrize(
    ("text", "weekdays"),
    [
        ("*", list(range(7))),
        ("?", list(range(7))),
        ("0", [0]),
        ("7", [0]),
        ("SUN", [0]),
        ("1-5", MONDAY_TO_FRIDAY),
        ("mon-fri", MONDAY_TO_FRIDAY),
        ("5-7", [0, 5, 6]),
        ("0-7", list(range(7))),
        ("1-7", list(range(7))),
        ("FRI-MON", [0, 1, 5, 6]),
        ("SAT-SUN", [0, 6]),
        ("7-2", [0, 1, 2]),
        ("7-7", [0]),
        ("SUN-SUN", [0]),
        ("6-2/2", [1, 6]),
        ("*/2", [0, 2, 4, 6]),
        ("*/7", [0]),
        ("1-7/3", [0, 1, 4]),
        ("5/2", [0, 5]),  # to the end of the field, which is 7, as in cronie
        ("6/1", [0, 6]),
        ("7/2", [0]),
        ("MON,3,FRI", [1, 3, 5]),
        ("0,7", [0]),
    ],
)
def test_the_weekday_field_means(text: str, weekdays: list[int]) -> None:
    assert members(parse(f"0 0 * * {text}", None).days.weekdays) == weekdays


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("28-3", [1, 2, 3, 28, 29, 30, 31]),
        ("28-3/2", [1, 3, 28, 30]),
        ("*/10", [1, 11, 21, 31]),
        ("?", list(range(1, 32))),
    ],
)
def test_the_day_field_means(text: str, days: list[int]) -> None:
    assert members(parse(f"0 0 {text} * *", None).days.days) == days


def test_the_day_field_takes_last_days_and_weekdays_in_one_list() -> None:
    rule = parse("0 0 1,L-2,L,L-5,LW,15W,30W,3 * *", None).days
    assert members(rule.days) == [1, 3]
    assert members(rule.days_before_last) == [0, 2, 5]
    assert members(rule.weekdays_nearest) == [15, 30]
    assert rule.last_weekday


def test_the_weekday_field_takes_nth_and_last_ones_in_one_list() -> None:
    rule = parse("0 0 * * tue#1,MON#2,7#3,5#5,7L,wedl,2", None).days
    assert members(rule.weekdays) == [2]
    assert members(rule.nth_weekdays) == [2, 7 + 1, 2 * 7, 4 * 7 + 5]
    assert members(rule.last_weekdays) == [0, 3]


@pytest.mark.parametrize(
    ("day", "weekday", "needs_both"),
    [
        ("*", "1", True),
        ("13", "*", True),
        ("*/2", "1", True),
        ("13", "*/2", True),
        ("?", "1", True),
        ("13", "?", True),
        ("13", "1", False),
        ("1-31", "1", False),
        ("L", "0-6", False),
        ("H", "1", False),
    ],
)
def test_day_fields_must_both_match_if_one_begins_with_a_star(
    day: str, weekday: str, needs_both: bool
) -> None:
    fields = parse(f"0 0 {day} * {weekday}", "job")
    assert fields.days.needs_both is needs_both


def test_five_six_and_seven_fields() -> None:
    five = parse("1 2 3 4 *", None)
    six = parse("30 1 2 3 4 *", None)
    seven = parse("30 1 2 3 4 * 2030,2040-2042", None)
    assert (five.seconds, six.seconds, seven.seconds) == (1, 1 << 30, 1 << 30)
    assert five.minutes == six.minutes == seven.minutes == 1 << 1
    assert five.any_year
    assert six.years == five.years
    assert [FIRST_YEAR + n for n in members(seven.years)] == [2030, 2040, 2041, 2042]
    assert parse("30 1 2 3 4 * *", None) == six


@pytest.mark.parametrize(
    ("macro", "fields"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
        (" @Daily ", "0 0 * * *"),
    ],
)
def test_a_macro_means_its_fields(macro: str, fields: str) -> None:
    assert parse(macro, None) == parse(fields, None)


def test_blanks_part_fields_and_surround_them() -> None:
    assert parse("\t0  0\t* *\n1 ", None) == parse("0 0 * * 1", None)


# ------------------------------------------------------------------ H


def test_h_is_the_same_for_ever() -> None:
    # Part of what stored expressions mean. If this fails, mend the code, not the test.
    fields = parse("H H H H H", "nightly report")
    assert members(fields.minutes) == [13]
    assert members(fields.hours) == [5]
    assert members(fields.days.days) == [27]
    assert members(fields.days.months) == [2]
    assert members(fields.days.weekdays) == [3]
    assert members(parse("H * * * * *", "nightly report").seconds) == [15]
    assert members(parse("H/15 * * * *", "nightly report").minutes) == [13, 28, 43, 58]
    assert members(parse("H(10-20) * * * *", "nightly report").minutes) == [20]


def test_h_spreads_jobs_over_the_field_and_fields_of_a_job_apart() -> None:
    fields = [parse("H H H * H", f"job {n}") for n in range(2_000)]
    assert {f.minutes for f in fields} == {1 << n for n in range(60)}
    assert {f.hours for f in fields} == {1 << n for n in range(24)}
    assert {f.days.days for f in fields} == {1 << n for n in range(1, 29)}
    assert {f.days.weekdays for f in fields} == {1 << n for n in range(7)}
    assert len({(f.minutes, f.hours) for f in fields}) > 1_000


@pytest.mark.parametrize(
    ("text", "step", "low", "high"),
    [
        ("H/20", 20, 0, 59),
        ("H(5-25)/10", 10, 5, 25),
        ("H(0-9)/10", 10, 0, 9),
        ("H(0-0)", 1, 0, 0),
    ],
)
def test_h_with_a_step_starts_within_the_step(
    text: str, step: int, low: int, high: int
) -> None:
    firsts = set()
    for n in range(500):
        minutes = members(parse(f"{text} * * * *", f"job {n}").minutes)
        firsts.add(minutes[0])
        assert minutes == list(range(minutes[0], high + 1, step))
    assert firsts == set(range(low, low + step))


def test_h_takes_names_and_lists() -> None:
    fields = parse("H,0 0 * H(jan-mar) H(MON-FRI)", "job")
    assert fields.minutes & 1
    assert members(fields.days.months)[0] in (1, 2, 3)
    assert members(fields.days.weekdays)[0] in MONDAY_TO_FRIDAY


# ------------------------------------------------------------------ refusals

REFUSED = [
    ("", "whole", "bad-fields", "0 fields"),
    ("   ", "whole", "bad-fields", "0 fields"),
    ("* * * *", "whole", "bad-fields", "has 4 fields: write 5"),
    ("* * * * * * * *", "whole", "bad-fields", "8 fields"),
    ("60 * * * *", "minute", "bad-value", "'60' is no minute: write 0 to 59"),
    ("* 24 * * *", "hour", "bad-value", "write 0 to 23"),
    ("* * 0 * *", "day-of-month", "bad-value", "write 1 to 31"),
    ("* * 32 * *", "day-of-month", "bad-value", "write 1 to 31"),
    ("* * * 13 *", "month", "bad-value", "write 1 to 12 or JAN to DEC"),
    ("* * * 0 *", "month", "bad-value", "JAN to DEC"),
    ("* * * * 8", "day-of-week", "bad-value", "write 0 to 7 or SUN to SAT"),
    ("60 * * * * *", "second", "bad-value", "write 0 to 59"),
    ("0 0 0 1 1 * 1969", "year", "bad-value", "write 1970 to 2262"),
    ("0 0 0 1 1 * 2263", "year", "bad-value", "write 1970 to 2262"),
    ("0 0 0 1 1 * 2030-2028", "year", "bad-range", "runs backwards"),
    ("* * * JANUARY *", "month", "bad-value", "write JAN: names have three letters"),
    ("* * * * monday", "day-of-week", "bad-value", "write MON"),
    ("* * * * JAN", "day-of-week", "bad-value", "SUN to SAT"),
    ("X0 * * * *", "minute", "bad-value", "is no minute"),
    ("x * * * *", "minute", "bad-value", "'X' is no minute"),
    ("-5 * * * *", "minute", "bad-value", "is no minute"),
    ("+5 * * * *", "minute", "bad-value", "is no minute"),
    ("5- * * * *", "minute", "bad-value", "is no minute"),
    ("1-2-3 * * * *", "minute", "bad-value", "is no minute"),
    ("1.5 * * * *", "minute", "bad-value", "is no minute"),
    ("5-70 * * * *", "minute", "bad-value", "'5-70' holds '70', which is no minute"),
    ("99999999999999999999 * * * *", "minute", "bad-value", "is no minute"),
    ("1,,5 * * * *", "minute", "bad-value", "empty item"),
    (",1 * * * *", "minute", "bad-value", "empty item"),
    ("1, * * * *", "minute", "bad-value", "empty item"),
    ("** * * * *", "minute", "bad-value", "is no minute"),
    ("*5 * * * *", "minute", "bad-value", "is no minute"),
    ("*-5 * * * *", "minute", "bad-value", "is no minute"),
    ("? * * * *", "minute", "bad-value", "write *, or H"),
    ("* * ?,5 * *", "day-of-month", "bad-value", "write *, or H"),
    ("R * * * *", "minute", "bad-value", "write *, or H"),
    ("0~30 * * * *", "minute", "bad-value", "write *, or H"),
    ("*/0 * * * *", "minute", "bad-step", "write a number from 1"),
    ("*/ * * * *", "minute", "bad-step", "write a number from 1"),
    ("*/-5 * * * *", "minute", "bad-step", "write a number from 1"),
    ("*/x * * * *", "minute", "bad-step", "write a number from 1"),
    ("*/5/5 * * * *", "minute", "bad-step", "write a number from 1"),
    ("*/90 * * * *", "minute", "bad-step", "use an interval"),
    ("0/90 * * * *", "minute", "bad-step", "use an interval"),
    ("* */25 * * *", "hour", "bad-step", "use an interval"),
    ("0 0 */32 * *", "day-of-month", "bad-step", "31 values"),
    ("0 0 1 */13 *", "month", "bad-step", "12 values"),
    ("0 0 0 1 1 * */294", "year", "bad-step", "293 values"),
    ("0 0 * * */8", "day-of-week", "bad-step", "7 values"),
    ("0 0 * * 1#0", "day-of-week", "bad-nth", "number 0 of a month: write #1 to #5"),
    ("0 0 * * 1#6", "day-of-week", "bad-nth", "1L for the last"),
    ("0 0 * * 1#", "day-of-week", "bad-nth", "number nothing"),
    ("0 0 * * 1#2#3", "day-of-week", "bad-nth", "number '2#3' of a month"),
    ("0 0 * * 1#-1", "day-of-week", "bad-nth", "#1 to #5"),
    ("0 0 * * 8#1", "day-of-week", "bad-value", "SUN to SAT"),
    ("0 0 * * 1-5#1", "day-of-week", "bad-value", "SUN to SAT"),
    ("0 0 * * L", "day-of-week", "bad-value", "write 5L or FRIL"),
    ("0 0 * * L5", "day-of-week", "bad-value", "is no day-of-week"),
    ("0 0 * * 1-5L", "day-of-week", "bad-value", "is no day-of-week"),
    ("0 0 L-31 * *", "day-of-month", "bad-value", "write L-1 to L-30"),
    ("0 0 L-x * *", "day-of-month", "bad-value", "write L-1 to L-30"),
    ("0 0 0W * *", "day-of-month", "bad-value", "write 1 to 31"),
    ("0 0 32W * *", "day-of-month", "bad-value", "write 1 to 31"),
    ("0 0 1-5W * *", "day-of-month", "bad-value", "is no day-of-month"),
    ("0 0 WL * *", "day-of-month", "bad-value", "is no day-of-month"),
    ("0 0 W * *", "day-of-month", "bad-value", "is no day-of-month"),
    ("L * * * *", "minute", "bad-value", "is no minute"),
    ("H * * * *", "minute", "bad-hash", "pass hash_key="),
    ("H( * * * *", "minute", "bad-hash", "write H, H(2-5)"),
    ("H5 * * * *", "minute", "bad-hash", "write H, H(2-5)"),
    ("H-5 * * * *", "minute", "bad-hash", "write H, H(2-5)"),
    ("H(5-2) * * * *", "minute", "bad-hash", "lower bound first"),
    ("H(0-9)/20 * * * *", "minute", "bad-hash", "a step that fits"),
    ("H(5-9)/6 * * * *", "minute", "bad-hash", "a step that fits"),
    ("H(0-70) * * * *", "minute", "bad-value", "write 0 to 59"),
    ("0 0 0 1 1 * H", "year", "bad-hash", "years have no hash"),
    ("@reboot", "whole", "bad-macro", "where the program starts"),
    ("@every 90m", "whole", "bad-macro", 'every="90m"'),
    ("@every 1h 30m", "whole", "bad-macro", 'every="90m"'),
    ("@fortnightly", "whole", "bad-macro", "@yearly"),
    ("@daily x", "whole", "bad-macro", "@yearly"),
    ("@", "whole", "bad-macro", "@yearly"),
    ("TZ=UTC * * * * *", "whole", "bad-fields", "pass it as tz="),
    ("CRON_TZ=UTC * * * * *", "whole", "bad-fields", "pass it as tz="),
    ("\u0665 * * * *", "minute", "bad-value", "is no minute"),  # an Arabic digit
    ("\uff15 * * * *", "minute", "bad-value", "is no minute"),  # a full-width one
    ("0 0 * * \u017fun", "day-of-week", "bad-value", "SUN"),  # a long s
    ("\u00a00 0 * * *", "minute", "bad-value", "is no minute"),
    ("0\u00a00 * * *", "whole", "bad-fields", "has 4 fields"),  # a no-break space
    ("0 0 30 2 *", "whole", "never-matches", "days that its months and years have"),
    ("0 0 31 4,6,9,11 *", "whole", "never-matches", "never matches"),
    ("0 0 30W 2 *", "whole", "never-matches", "never matches"),
    ("0 0 L-29 2 *", "whole", "never-matches", "never matches"),
    ("0 0 L-30 4 *", "whole", "never-matches", "never matches"),
    ("0 0 0 29 2 * 2025-2027", "whole", "never-matches", "never matches"),
    ("0 0 0 29 2 * 2100", "whole", "never-matches", "never matches"),
]


@pytest.mark.parametrize(("expression", "field", "code", "words"), REFUSED)
def test_a_text_that_cannot_be_meant_is_refused_with_field_piece_and_fix(
    expression: str, field: str, code: str, words: str
) -> None:
    with pytest.raises(CronError) as refused:
        Cron(expression)
    assert (refused.value.field, refused.value.code) == (field, code)
    assert words in str(refused.value)
    assert refused.value.expression == expression
    assert refused.value.fix
    assert refused.value.piece.lower() in expression.lower()


def test_a_zone_in_the_expression_is_the_piece_that_is_refused() -> None:
    with pytest.raises(CronError) as refused:
        Cron("TZ=UTC 0 0 * * *")
    assert refused.value.piece == "TZ=UTC"


def test_an_expression_can_be_as_long_as_the_limit_and_no_longer() -> None:
    text = "0 0 * * *"
    longest = text + " " * (EXPRESSION_CHARS_MAX - len(text))
    assert parse(longest, None) == parse(text, None)
    with pytest.raises(CronError, match="too long") as refused:
        parse(longest + " ", None)
    assert (refused.value.field, refused.value.piece) == ("whole", "")
    assert refused.value.code == "bad-fields"


# ------------------------------------------------------------------ any text at all

NOW = datetime(2026, 11, 29, 21, 0, 7, 500_000, tzinfo=UTC)


def cron_or_error(expression: str, hash_key: str | None) -> Cron | CronError:
    try:
        return Cron(expression, hash_key=hash_key)
    except CronError as refused:
        return refused


def check_any(expression: str, hash_key: str | None) -> None:
    cron = cron_or_error(expression, hash_key)
    if isinstance(cron, CronError):
        assert cron.fix
        assert str(cron).isprintable()
        return
    assert cron.explain().startswith(("At ", "Every "))
    following, former = cron.next(NOW), cron.prev(NOW)
    assert following is not None or former is not None
    if following is not None:
        assert following > NOW
        assert cron.count(NOW, following) == 0
    if former is not None:
        assert former < NOW
        assert cron.count(former, NOW) == 1


@given(st.text(max_size=60), st.none() | st.text(max_size=5))
@example("\ud800 * * * *", None)
@example("H * * * *", "\ud800")
def test_any_text_is_a_cron_or_a_cron_error(
    expression: str, hash_key: str | None
) -> None:
    check_any(expression, hash_key)


PIECES = [
    *("*", "?", "H", "L", "W", "LW", "#", "/", "-", ",", "(", ")", "~", "R", "0", "1"),
    *("2", "5", "7", "15", "29", "30", "31", "59", "60", "2028", "2100", "JAN", "feb"),
    *("SUN", "fri", "MON#2", "5L", "15W", "L-3", "H(1-5)", "*/2", "1-5", "22-4"),
]
FIELD = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join)


@given(st.lists(st.sampled_from(PIECES) | FIELD, min_size=4, max_size=8).map(" ".join))
def test_any_text_of_the_right_characters_is_a_cron_or_a_cron_error(text: str) -> None:
    check_any(text, "job")
