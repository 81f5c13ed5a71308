"""Schedules in words."""

from __future__ import annotations

import pytest

from timingwheel.jobs.cron import Cron

WORDS = [
    ("30 2 * * *", "At 02:30 every day"),
    ("0,30 2 * * *", "At 02:00 and 02:30 every day"),
    ("0 0 13 * 5", "At 00:00 on the 13th of the month or on Friday"),
    ("0 0 * * 1", "At 00:00 on Monday"),
    ("0 0 * * 0", "At 00:00 on Sunday"),
    ("0 0 * * 7", "At 00:00 on Sunday"),
    ("* * * * *", "Every minute"),
    ("0 * * * *", "At minute 0 of every hour"),
    ("*/15 * * * *", "Every 15 minutes"),
    ("0,15,30,45 * * * *", "Every 15 minutes"),
    ("0-59/15 * * * *", "Every 15 minutes"),
    ("*/30 * * * *", "Every 30 minutes"),
    ("*/2 * * * *", "Every 2 minutes"),
    ("*/7 * * * *", "At minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour"),
    ("*/59 * * * *", "At minutes 0 and 59 of every hour"),
    ("1-5 * * * *", "At minutes 1 to 5 of every hour"),
    ("*/5 9-17 * * MON-FRI", "Every 5 minutes of hours 9 to 17 on Monday to Friday"),
    ("0 9-17 * * *", "At minute 0 of hours 9 to 17 every day"),
    ("* 5 * * *", "Every minute of hour 5"),
    ("30 */2 * * *", "At minute 30 of every 2nd hour from 0"),
    ("30 1-23/3 * * *", "At minute 30 of every 3rd hour from 1"),
    ("*/5 */6 * * *", "Every 5 minutes of every 6th hour from 0"),
    ("*/5 5-23/6 * * *", "Every 5 minutes of every 6th hour from 5"),
    ("*/5 18-23 * * *", "Every 5 minutes of hours 18 to 23"),
    ("*/5 8,10,13,20 * * *", "Every 5 minutes of hours 8, 10, 13 and 20"),
    (
        "30 */4 * * *",
        "At 00:30, 04:30, 08:30, 12:30, 16:30 and 20:30 every day",
    ),
    ("30 5,8,11 * * *", "At 05:30, 08:30 and 11:30 every day"),
    ("@yearly", "At 00:00 on the 1st of the month, in January only"),
    ("@monthly", "At 00:00 on the 1st of the month"),
    ("@weekly", "At 00:00 on Sunday"),
    ("@daily", "At 00:00 every day"),
    ("@hourly", "At minute 0 of every hour"),
    ("30 3 29-31 * *", "At 03:30 on the 29th to 31st of the month"),
    ("0 0 1,2,3,22,23 * *", "At 00:00 on the 1st to 3rd, 22nd and 23rd of the month"),
    ("0 0 11,12,13,21 * *", "At 00:00 on the 11th to 13th and 21st of the month"),
    ("0 0 L * *", "At 00:00 on the last day of the month"),
    ("0 0 L-1 * *", "At 00:00 on the day 1 day before the last of the month"),
    ("0 0 L-2 * *", "At 00:00 on the day 2 days before the last of the month"),
    ("0 0 L-3 * *", "At 00:00 on the day 3 days before the last of the month"),
    ("0 0 LW * *", "At 00:00 on the last weekday (Monday to Friday) of the month"),
    (
        "0 0 1W,15W * *",
        (
            "At 00:00 on the weekday (Monday to Friday) nearest to the 1st and 15th of "
            "the month"
        ),
    ),
    ("0 0 1,L * *", "At 00:00 on the 1st of the month or the last day of the month"),
    (
        "0 0 1,L,LW * *",
        (
            "At 00:00 on the 1st of the month, the last day of the month or the last weekday "
            "(Monday to Friday) of the month"
        ),
    ),
    ("0 0 * * 5L", "At 00:00 on the last Friday of the month"),
    ("0 0 * * 0#2", "At 00:00 on the second Sunday of the month"),
    ("0 0 * * MON#5", "At 00:00 on the fifth Monday of the month"),
    ("0 0 * * FRI-MON", "At 00:00 on Friday to Monday"),
    ("0 0 * * SAT,SUN", "At 00:00 on Saturday and Sunday"),
    ("0 0 * * SUN,WED", "At 00:00 on Wednesday and Sunday"),
    ("0 0 * * SUN,MON,TUE", "At 00:00 on Sunday to Tuesday"),
    ("0 0 * * MON,WED,FRI", "At 00:00 on Monday, Wednesday and Friday"),
    (
        "0 0 */2 * SAT",
        "At 00:00 on every 2nd day of the month from the 1st if that is Saturday",
    ),
    ("0 0 1-31 * MON", "At 00:00 every day"),
    ("0 0 ? * ?", "At 00:00 every day"),
    ("0 0 29 2 *", "At 00:00 on the 29th of the month, in February only"),
    (
        "0 0 * JAN-MAR,DEC *",
        "At 00:00 every day, in January to March and December only",
    ),
    ("* * * * * *", "Every second"),
    ("*/10 * * * * *", "Every 10 seconds"),
    ("30 * * * * *", "At second 30 of every minute"),
    ("15 10 * * * *", "At second 15 of minute 10 of every hour"),
    ("* 10 * * * *", "Every second of minute 10 of every hour"),
    ("30 * 5 * * *", "At second 30 of every minute of hour 5"),
    ("* * 5 * * *", "Every second of hour 5"),
    ("15 30 2 * * *", "At 02:30:15 every day"),
    ("0,30 30 2 * * *", "At 02:30:00 and 02:30:30 every day"),
    (
        "0 0 0 29 2 * 2028-2036/8",
        "At 00:00 on the 29th of the month, in February only, in 2028 and 2036 only",
    ),
    (
        "0 0 0 1 1 ? 2026/4",  # up to the last year that can be named
        "At 00:00 on the 1st of the month, in January only, in every 4th year from 2026",
    ),
    (
        "0 0 0 1 1 ? 2028/4",
        (
            "At 00:00 on the 1st of the month, in January only, in every 4th year from "
            "2028"
        ),
    ),
]


@pytest.mark.parametrize(("expression", "words"), WORDS)
def test_a_schedule_in_words(expression: str, words: str) -> None:
    assert Cron(expression).explain() == f"{words}, UTC time."


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("*/5 */12 * * *", "Every 5 minutes of hours 0 and 12"),
        ("* */8 * * *", "Every minute of hours 0, 8 and 16"),
        ("* * */12 * * *", "Every second of hours 0 and 12"),
        ("* */30 * * * *", "Every second of minutes 0 and 30 of every hour"),
        ("*/10 */15 5 * * *", "Every 10 seconds of every 15th minute from 0 of hour 5"),
        ("30 */7 * * * *", "At second 30 of every 7th minute from 0"),
    ],
)
def test_a_step_says_which_hours_and_minutes_those_before_it_count_in(
    expression: str, words: str
) -> None:
    assert Cron(expression).explain() == f"{words}, UTC time."


def test_a_hash_is_shown_as_the_value_it_gives() -> None:
    assert Cron("H H * * *", hash_key="nightly report").explain() == (
        "At 05:13 every day, UTC time."
    )


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (
            {},
            (
                "A time that the clock skips runs once, when the gap ends; one that it shows "
                "twice runs once, the first time."
            ),
        ),
        (
            {"gap": "skip", "overlap": "second"},
            (
                "A time that the clock skips does not run; one that it shows twice runs "
                "once, the second time."
            ),
        ),
        (
            {"gap": "shift", "overlap": "both"},
            (
                "A time that the clock skips runs later by the length of the gap; one that "
                "it shows twice runs both times."
            ),
        ),
    ],
)
def test_the_rule_for_clock_changes_is_said(options: dict[str, str], rule: str) -> None:
    cron = Cron("30 2 * * *", tz="Europe/Berlin", **options)  # type: ignore[arg-type]
    assert cron.explain() == f"At 02:30 every day, Europe/Berlin time. {rule}"


def test_a_schedule_that_follows_the_clock_says_so_whatever_the_options() -> None:
    words = (
        "Every minute, Europe/Berlin time. It follows the clock: nothing in an hour "
    )
    words += "that the clock skips, and both copies of one that it shows twice."
    assert Cron("* * * * *", tz="Europe/Berlin").explain() == words
    assert Cron("* * * * *", tz="Europe/Berlin", gap="shift").explain() == words
