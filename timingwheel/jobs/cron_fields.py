"""The text of a cron expression, read into sets of numbers or refused with a reason.

    expression = macro | [second] minute hour day month weekday [year]
    field      = item {"," item}
    item       = ("*" | value | value "-" value | hash) ["/" step]
    hash       = "H" ["(" number "-" number ")"]
    value      = number | name                     JAN-DEC, SUN-SAT
    day item   = item | "L" | "L-" number | "LW" | number "W"
    weekday item = item | value "#" number | value "L"
    day, weekday = field | "?"

A value without a range but with a step runs to the end of the field; a range whose end
lies before its start wraps around. What other crons take but no one can mean (a step
larger than the field, a day that never comes) is refused here rather than guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase
from types import MappingProxyType
from typing import Final, NamedTuple

from timingwheel.errors import ArgumentError, CronError
from timingwheel.jobs.cron_days import FIRST_YEAR, LAST_YEAR, DayRule
from timingwheel.jobs.stable_hash import stable_number

EXPRESSION_CHARS_MAX: Final = 1_000
NTH_MAX: Final = 5

_MACROS: Final = MappingProxyType(
    {
        "@yearly": "0 0 1 1 *",
        "@annually": "0 0 1 1 *",
        "@monthly": "0 0 1 * *",
        "@weekly": "0 0 * * 0",
        "@daily": "0 0 * * *",
        "@midnight": "0 0 * * *",
        "@hourly": "0 * * * *",
    }
)
# str.upper makes S of a LONG S, and str.split parts at a NO-BREAK SPACE.
_UPPER: Final = str.maketrans(ascii_lowercase, ascii_uppercase)
_BLANK: Final = re.compile(r"[ \t\r\n]+")
_NUMBER: Final = re.compile(
    r"[0-9]{1,4}"
)  # not \d: that takes the digits of any script
_HASH: Final = re.compile(r"H(?:\((\w{1,4})-(\w{1,4})\))?")
_NEAREST: Final = re.compile(r"(\w+)W")
_BEFORE_LAST: Final = re.compile(r"L-(\w+)")
_HASH_DAY_MAX: Final = 28  # a hashed day must come in every month


class Field(NamedTuple):
    """One field of an expression: its name, its bounds, and the names of its values."""

    name: str
    low: int
    high: int
    names: Mapping[str, int] = MappingProxyType({})

    @property
    def bounds(self) -> str:
        """The values it takes, in words."""
        if not self.names:
            return f"{self.low} to {self.high}"
        first, *_, last = self.names
        return f"{self.low} to {self.high} or {first} to {last}"


def _numbered(names: str, first: int) -> Mapping[str, int]:
    return MappingProxyType({n: i for i, n in enumerate(names.split(), first)})


SECOND: Final = Field("second", 0, 59)
MINUTE: Final = Field("minute", 0, 59)
HOUR: Final = Field("hour", 0, 23)
DAY: Final = Field("day-of-month", 1, 31)
MONTH: Final = Field(
    "month",
    1,
    12,
    _numbered("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC", 1),
)
WEEKDAY: Final = Field("day-of-week", 0, 7, _numbered("SUN MON TUE WED THU FRI SAT", 0))
YEAR: Final = Field("year", FIRST_YEAR + 1, LAST_YEAR - 1)


@dataclass(frozen=True, slots=True)
class CronFields:
    """What an expression says. All sets are integers of one bit a member.

    Attributes:
        seconds: bits 0 to 59.
        minutes: bits 0 to 59.
        hours: bits 0 to 23.
        days: which days of a year.
        years: bit n for the year cron_days.FIRST_YEAR + n.
        any_year: there is no year field, or it is `*`.
        follows_clock: the second, minute or hour field begins with `*`.
    """

    seconds: int
    minutes: int
    hours: int
    days: DayRule
    years: int
    any_year: bool
    follows_clock: bool


def parse(expression: str, hash_key: str | None) -> CronFields:
    """Read an expression of 5, 6 or 7 fields, or a macro such as `@daily`.

    Args:
        expression: its text; the sixth field is the second and comes first, the
            seventh is the year and comes last.
        hash_key: what `H` is computed from, the same for ever; None if there is none.

    Raises:
        CronError: the text is invalid; the error names the field and the piece.
        ArgumentError: expression or hash_key is not a str.
    """
    if type(expression) is not str:
        raise ArgumentError("expression", expression, 'pass a str such as "30 2 * * *"')
    if hash_key is not None and type(hash_key) is not str:
        raise ArgumentError("hash_key", hash_key, "pass a str that never changes")
    return _Parser(expression, hash_key).parse()


class _Parser:
    def __init__(self, expression: str, hash_key: str | None) -> None:
        self.expression = expression
        self.hash_key = hash_key

    def parse(self) -> CronFields:
        if len(self.expression) > EXPRESSION_CHARS_MAX:
            fix = f"write it in at most {EXPRESSION_CHARS_MAX:,} characters"
            raise self.error(
                "whole", "", code="bad-fields", found="is too long", fix=fix
            )
        texts = self.fields()
        second, minute, hour, day, month, weekday, year = texts
        needs_both = day[0] in "*?" or weekday[0] in "*?"
        months = self.values(MONTH, month)
        return CronFields(
            seconds=self.values(SECOND, second),
            minutes=self.values(MINUTE, minute),
            hours=self.values(HOUR, hour),
            days=self.days(day, months, weekday=weekday, needs_both=needs_both),
            years=self.values(YEAR, year, offset=FIRST_YEAR)
            if year != "*"
            # All, with the two at the rim that wall clocks show and no field names.
            else (1 << (LAST_YEAR - FIRST_YEAR + 1)) - 1,
            any_year=year == "*",
            follows_clock=any(text[0] == "*" for text in (second, minute, hour)),
        )

    def fields(self) -> list[str]:
        """Return the seven fields as written; second and year if they are not."""
        text = self.expression.strip(" \t\r\n")  # as _BLANK
        if text.startswith("@"):
            return ["0", *self.macro(text).split(), "*"]
        texts = _BLANK.split(text.translate(_UPPER)) if text else []
        if texts and texts[0].startswith(("TZ=", "CRON_TZ=")):
            raise self.error(
                "whole",
                texts[0],
                code="bad-fields",
                found="sets a time zone",
                fix="pass it as tz=...",
            )
        match len(texts):
            case 5:
                return ["0", *texts, "*"]
            case 6:
                return [*texts, "*"]
            case 7:
                return texts
        fix = (
            "write 5 (minute hour day-of-month month day-of-week), 6 (second first) "
            "or 7 (year last)"
        )
        raise self.error(
            "whole", "", code="bad-fields", found=f"has {len(texts)} fields", fix=fix
        )

    def macro(self, text: str) -> str:
        name = text.split(maxsplit=1)[0].lower()
        if name == text.lower() and name in _MACROS:
            return _MACROS[name]
        fix = f"write one of {', '.join(_MACROS)}, or the fields"
        if name == "@every":
            fix = 'pass every="90m" instead of cron=, or write the fields'
        if name == "@reboot":
            fix = "call the job where the program starts: a start has no time"
        raise self.error(
            "whole", text, code="bad-macro", found="is no macro of ours", fix=fix
        )

    def values(self, field: Field, text: str, offset: int = 0) -> int:
        """Return the set that a field without days of its own kind names."""
        if text == "*":  # never the year, which alone has an offset
            return ((2 << (field.high - field.low)) - 1) << field.low
        bits = 0
        for item in self.items(field, text):
            for value in self.item(field, item):
                bits |= 1 << (value - offset)
        return bits

    def items(self, field: Field, text: str) -> list[str]:
        items = text.split(",")
        if "" in items:
            raise self.error(
                field.name,
                text,
                code="bad-value",
                found="has an empty item",
                fix="drop the comma",
            )
        return items

    def days(
        self, text: str, months: int, *, weekday: str, needs_both: bool
    ) -> DayRule:
        days = before_last = nearest = 0
        last_weekday = False
        for item in self.items(DAY, "*" if text == "?" else text):
            if item == "L":
                before_last |= 1
            elif item == "LW":
                last_weekday = True
            elif match := _BEFORE_LAST.fullmatch(item):
                days_before = self.number(match[1])
                if days_before is None or days_before >= DAY.high:
                    fix = "write L-1 to L-30, that many days before the last one"
                    raise self.error(
                        DAY.name, item, code="bad-value", found="names no day", fix=fix
                    )
                before_last |= 1 << days_before
            elif match := _NEAREST.fullmatch(item):
                nearest |= 1 << self.value(DAY, match[1], item)
            else:
                days |= self.values(DAY, item)
        weekdays, nth, last = self.weekdays(weekday)
        return DayRule(
            months=months,
            days=days,
            days_before_last=before_last,
            weekdays_nearest=nearest,
            last_weekday=last_weekday,
            weekdays=weekdays,
            nth_weekdays=nth,
            last_weekdays=last,
            needs_both=needs_both,
        )

    def weekdays(self, text: str) -> tuple[int, int, int]:
        """Return weekdays of every week, the n-th ones and the last ones of a month."""
        weekdays = nth_weekdays = last_weekdays = 0
        for item in self.items(WEEKDAY, "*" if text == "?" else text):
            name, sharp, nth_text = item.partition("#")
            if sharp:
                weekday = self.value(WEEKDAY, name, item) % 7
                nth = self.number(nth_text)
                if nth is None or not 1 <= nth <= NTH_MAX:
                    asked = ascii(nth_text) if nth is None and nth_text else nth_text
                    fix = f"write #1 to #{NTH_MAX}, or {name}L for the last"
                    raise self.error(
                        WEEKDAY.name,
                        item,
                        code="bad-nth",
                        found=f"asks for number {asked or 'nothing'} of a month",
                        fix=fix,
                    )
                nth_weekdays |= 1 << (7 * (nth - 1) + weekday)
            elif item == "L":
                fix = "write 5L or FRIL for the last Friday of the month, SAT for the "
                fix += "last day of the week"
                raise self.error(
                    WEEKDAY.name,
                    item,
                    code="bad-value",
                    found="names no weekday",
                    fix=fix,
                )
            elif item.endswith("L"):
                last_weekdays |= 1 << self.value(WEEKDAY, item[:-1], item) % 7
            else:
                bits = self.values(WEEKDAY, item)
                weekdays |= bits & 0x7F | bits >> 7  # 7 is Sunday, as 0 is
        return weekdays, nth_weekdays, last_weekdays

    def item(self, field: Field, item: str) -> Iterable[int]:
        """Return the values that one item of a list names."""
        span, slash, step_text = item.partition("/")
        step = self.step(field, step_text, item) if slash else 1
        if span.startswith("H"):
            return self.hashed(field, span, step=step if slash else None, item=item)
        if span == "*":
            return range(field.low, field.high + 1, step)
        first_text, dash, last_text = span.partition("-")
        first = self.value(field, first_text, item)
        if not dash:
            return range(first, field.high + 1, step) if slash else (first,)
        last = self.value(field, last_text, item)
        if first <= last:
            return range(first, last + 1, step)
        if field is YEAR:
            fix = "write the earlier year first"
            raise self.error(
                field.name, item, code="bad-range", found="runs backwards", fix=fix
            )
        around = [*range(first, field.high + 1), *range(field.low, last + 1)]
        if field is WEEKDAY:
            around.remove(7)  # which is the 0 that follows
        return around[::step]

    def step(self, field: Field, text: str, item: str) -> int:
        step = self.number(text)
        if step is None or step == 0:
            fix = "write a number from 1 after the slash"
            raise self.error(
                field.name, item, code="bad-step", found="has no step", fix=fix
            )
        size = 7 if field is WEEKDAY else field.high - field.low + 1
        if step > size:
            fix = "use an interval (every=...) for what is longer, or write the values"
            found = f"steps by {step}, and the field has {size} values"
            raise self.error(field.name, item, code="bad-step", found=found, fix=fix)
        return step

    def hashed(
        self, field: Field, span: str, *, step: int | None, item: str
    ) -> Iterable[int]:
        match = _HASH.fullmatch(span)
        low, high = field.low, field.high
        if field is DAY:
            high = _HASH_DAY_MAX
        if field is WEEKDAY:
            high = 6  # 7 would make Sundays twice as likely
        if match is None or field is YEAR:
            fix = "write H, H(2-5), H/15 or H(0-29)/10; years have no hash"
            raise self.error(
                field.name, item, code="bad-hash", found="is no hash", fix=fix
            )
        if match[1]:
            low = self.value(field, match[1], item)
            high = self.value(field, match[2], item)
        if low > high or (step is not None and step > high - low + 1):
            fix = "write the lower bound first and a step that fits between the bounds"
            raise self.error(
                field.name, item, code="bad-hash", found="leaves no value", fix=fix
            )
        if self.hash_key is None:
            fix = "pass hash_key=, a text that stays the same, such as the job's name"
            raise self.error(
                field.name, item, code="bad-hash", found="has nothing to hash", fix=fix
            )
        number = stable_number(f"{field.name}\0{self.hash_key}")
        if step is None:
            return (low + number % (high - low + 1),)
        return range(low + number % step, high + 1, step)

    def value(self, field: Field, text: str, item: str) -> int:
        named = field.names.get(text)
        value = self.number(text) if named is None else named
        if value is None or not field.low <= value <= field.high:
            fix = f"write {field.bounds}"
            if text in {"?", "R"} or "~" in text:
                fix = "write *, or H for a value that is chosen once and kept"
            elif field.names and text[:3] in field.names:
                fix = f"write {text[:3]}: names have three letters"
            found = f"{'holds ' + ascii(text) + ', which ' if text != item else ''}"
            raise self.error(
                field.name,
                item,
                code="bad-value",
                found=f"{found}is no {field.name}",
                fix=fix,
            )
        return value

    def number(self, text: str) -> int | None:
        return int(text) if _NUMBER.fullmatch(text) else None

    def error(
        self, field: str, piece: str, *, code: str, found: str, fix: str
    ) -> CronError:
        return CronError(
            self.expression, field, piece=piece, code=code, found=found, fix=fix
        )
