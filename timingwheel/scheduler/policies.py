"""Policies as people write them: "skip", "allow(3)", "all(100, 1h)", "since(2h)".

Each option that has a typed form has a short text form too, for call sites, command lines
and configuration files. A text is a word, and in brackets the bounds that the word knows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeVar

from timingwheel.errors import ArgumentError
from timingwheel.jobs.durations import duration_ns
from timingwheel.jobs.model import (
    Delivery,
    Misfire,
    MisfirePolicy,
    Overlap,
    OverlapPolicy,
)
from timingwheel.jobs.store import CatchUp

LIMIT_MAX: Final = 1_000_000
"""The largest bound that a policy may name."""

_FORM: Final = re.compile(r"\s*([a-z_]+)\s*(?:\(([^()]*)\))?\s*")
_OVERLAP_BOUNDS: Final[Mapping[str, int]] = {"allow": 1, "buffer_all": 1}
_MISFIRE_BOUNDS: Final[Mapping[str, int]] = {"all": 2}
_CATCH_UP_BOUNDS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("skip", "latest", "all"), 0),
    "since": 1,
}
_Word = TypeVar("_Word", bound=StrEnum)


def overlap_policy(value: object, argument: str = "overlap") -> OverlapPolicy:
    """Return an overlap policy from its text or typed form.

    Args:
        value: "skip", "buffer_one", "buffer_all(50)", "cancel_other", "kill_other",
            "allow(3)"; an Overlap, or an OverlapPolicy.
        argument: what messages call it.

    Raises:
        ArgumentError: it is none of those.
    """
    if isinstance(value, OverlapPolicy):
        _checked_limit(value.limit, f"{argument}.limit")
        return value
    fix = (
        'pass "skip", "buffer_one", "buffer_all(50)", "cancel_other", "kill_other" or '
        '"allow(3)"'
    )
    word, bounds = _parsed(value, argument, fix=fix)
    rule = _known(Overlap, word, value, argument=argument, fix=fix)
    _require_bounds(bounds, _OVERLAP_BOUNDS.get(word, 0), value, argument=argument)
    if not bounds:
        return OverlapPolicy(rule=rule)
    return OverlapPolicy(rule=rule, limit=_limit(bounds[0], value, argument))


def misfire_policy(value: object, argument: str = "misfire") -> MisfirePolicy:
    """Return a misfire policy from its text or typed form.

    Args:
        value: "latest", "skip", "first", "all", "all(100)" or "all(100, 1h)"; a Misfire,
            or a MisfirePolicy.
        argument: what messages call it.

    Raises:
        ArgumentError: it is none of those.
    """
    if isinstance(value, MisfirePolicy):
        _checked_limit(value.limit, f"{argument}.limit")
        return value
    fix = 'pass "latest", "skip", "first", "all(100)" or "all(100, 1h)"'
    word, bounds = _parsed(value, argument, fix=fix)
    rule = _known(Misfire, word, value, argument=argument, fix=fix)
    _require_bounds(bounds, _MISFIRE_BOUNDS.get(word, 0), value, argument=argument)
    policy = MisfirePolicy(rule=rule)
    if bounds:
        limit = _limit(bounds[0], value, argument)
        window_ns = duration_ns(bounds[1], argument) if len(bounds) > 1 else None
        policy = MisfirePolicy(rule=rule, limit=limit, window_ns=window_ns)
    return policy


def delivery_kind(value: object, argument: str = "delivery") -> Delivery:
    """Return a kind of delivery.

    Raises:
        ArgumentError: it is neither "at_least_once" nor "at_most_once".
    """
    fix = 'pass "at_least_once" or "at_most_once"'
    word, bounds = _parsed(value, argument, fix=fix)
    _require_bounds(bounds, 0, value, argument=argument)
    return _known(Delivery, word, value, argument=argument, fix=fix)


def catch_up_rule(value: object) -> CatchUp:
    """Return what a resume does with what the pause has passed over.

    Args:
        value: "skip", "latest", "all", "since(2h)", or a CatchUp.

    Raises:
        ArgumentError: it is none of those.
    """
    if isinstance(value, CatchUp):
        return value
    argument = "catch_up"
    fix = 'pass "skip", "latest", "all" or "since(2h)"'
    word, bounds = _parsed(value, argument, fix=fix)
    if word not in _CATCH_UP_BOUNDS or (word == "since" and not bounds):
        raise ArgumentError(argument, value, fix)
    _require_bounds(bounds, _CATCH_UP_BOUNDS[word], value, argument=argument)
    if word == "since":
        return CatchUp("since", duration_ns(bounds[0], argument))
    return CatchUp(word)  # type: ignore[arg-type]  # one of the table's words


def check_running(running: object) -> None:
    """Check that it says what becomes of attempts that run.

    Raises:
        ArgumentError: it does not.
    """
    if running not in {"leave", "signal", "kill"}:
        raise ArgumentError("running", running, 'pass "leave", "signal" or "kill"')


def _parsed(value: object, argument: str, *, fix: str) -> tuple[str, list[str]]:
    """Return the word of a text form and the bounds in its brackets."""
    match = _FORM.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ArgumentError(argument, value, fix)
    inside = match[2]
    bounds = [piece.strip() for piece in inside.split(",")] if inside else []
    return match[1], bounds


def _known(
    words: type[_Word], word: str, found: object, *, argument: str, fix: str
) -> _Word:
    try:
        return words(word)
    except ValueError:
        raise ArgumentError(argument, found, fix) from None


def _require_bounds(
    bounds: list[str], most: int, found: object, *, argument: str
) -> None:
    if len(bounds) > most:
        fix = "leave out the brackets" if most == 0 else f"pass at most {most} bounds"
        raise ArgumentError(argument, found, fix)


def _limit(piece: str, found: object, argument: str) -> int:
    if not piece.isascii() or not piece.isdigit():
        raise ArgumentError(argument, found, "write the limit as a whole number")
    return _checked_limit(int(piece), argument)


def _checked_limit(limit: int, argument: str) -> int:
    if type(limit) is not int or not 1 <= limit <= LIMIT_MAX:
        raise ArgumentError(argument, limit, f"pass a limit from 1 to {LIMIT_MAX:,}")
    return limit
