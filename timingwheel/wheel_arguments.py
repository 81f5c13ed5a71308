"""What a wheel accepts, and how it refuses the rest: the same words from both bodies.

The plain wheel and the compiled one (PEP 399) share these limits and checks, so neither
can accept, or say, what the other does not.
"""

from __future__ import annotations

import sys
from operator import index
from typing import TYPE_CHECKING

from timingwheel.errors import ArgumentError, DeadlineError, TimingWheelError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

__all__ = [
    "DEADLINE_MAX",
    "GENERATION_BITS",
    "INDEX_BITS",
    "INT64_MIN",
    "TIMERS_MAX",
    "UNLIMITED",
    "as_int",
    "budget",
    "insert_refusal",
    "int64_out",
    "int64_view",
    "length_refusal",
    "present",
    "start",
    "too_many",
]

DEADLINE_MAX = (1 << 63) - 1
INT64_MIN = -(1 << 63)
INDEX_BITS = 32
GENERATION_BITS = 28  # so that a handle stays below 2**60: two digits of a CPython int
TIMERS_MAX = (1 << INDEX_BITS) - 1
UNLIMITED = sys.maxsize


def as_int(name: str, value: int) -> int:
    """Return what any integer type stands for, as an int.

    Raises:
        TypeError: value is not an integer; `name` is told.
    """
    try:
        return index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, not {value!r}") from None


def start(now_tick: int, generation_bits: int, timers_max: int) -> tuple[int, int, int]:
    """Return the arguments of a new wheel as ints, or raise what TimerWheel promises."""
    now_tick = as_int("now_tick", now_tick)
    generation_bits = as_int("generation_bits", generation_bits)
    timers_max = as_int("timers_max", timers_max)
    if not 0 <= now_tick <= DEADLINE_MAX:
        raise DeadlineError("now_tick", now_tick, "pass a tick from 0 to 2**63 - 1")
    if not 1 <= generation_bits <= GENERATION_BITS:
        raise ArgumentError("generation_bits", generation_bits, "pass 1 to 28")
    if not 1 <= timers_max <= TIMERS_MAX:
        raise ArgumentError("timers_max", timers_max, "pass 1 to 2**32 - 1")
    return now_tick, generation_bits, timers_max


def present(now_tick: int) -> int:
    """Return the tick that an advance may go to, or raise what it promises."""
    now_tick = as_int("now_tick", now_tick)
    if now_tick > DEADLINE_MAX:
        raise DeadlineError("now_tick", now_tick, "ticks end at 2**63 - 1")
    return now_tick


def budget(max_fire: int | None) -> int:
    """Return how many timers an advance may fire, or raise what it promises."""
    if max_fire is None:
        return UNLIMITED
    max_fire = as_int("max_fire", max_fire)
    if max_fire < 0:
        raise ArgumentError("max_fire", max_fire, "pass 0 or more, or None for all")
    return min(max_fire, UNLIMITED)


def insert_refusal(deadline_tick: int, key: int) -> Exception:
    """Return the error for an insert whose arguments are not both int64."""
    deadline_tick, key = as_int("deadline_tick", deadline_tick), as_int("key", key)
    if not INT64_MIN <= deadline_tick <= DEADLINE_MAX:
        fix = f"pass a tick from -2**63 to 2**63 - 1 ({DEADLINE_MAX})"
        return DeadlineError("deadline_tick", deadline_tick, fix)
    return ArgumentError("key", key, "pass an int64, -2**63 to 2**63 - 1")


def length_refusal(keys: int, deadlines: int) -> ArgumentError:
    """Return the error for a batch with more keys than deadlines, or fewer."""
    return ArgumentError("len(keys)", keys, f"pass as many as deadlines ({deadlines})")


def too_many(more: int, *, pending: int, made: int, timers_max: int) -> Exception:
    """Return the error for an insert that needs more indexes than there may be.

    Args:
        more: how many indexes are needed and cannot be made.
        pending: live timers.
        made: indexes in use, free or retired.
        timers_max: most that may be made.
    """
    return TimingWheelError(
        f"the wheel is full: {pending} timers are pending, {made} of "
        f"timers_max={timers_max} indexes are made, {more} more are needed; cancel "
        "timers, or open a wheel with a higher timers_max"
    )


def int64_view(name: str, buffer: ReadableBuffer) -> memoryview:
    """Return a view of a buffer that holds int64, or raise and name the argument."""
    try:
        view = memoryview(buffer)
    except TypeError:
        raise TypeError(
            f"{name} must be a buffer of int64, such as array('q', [...]) or a NumPy "
            f"int64 array, not {type(buffer).__name__}"
        ) from None
    native = "@=<" if sys.byteorder == "little" else "@=>"
    # "l" too: it is what NumPy says for int64 where C's long has 8 bytes.
    if view.format.lstrip(native) not in ("q", "l") or view.itemsize != 8:
        fix = "pass signed 64-bit items, such as array('q')"
        raise ArgumentError(f"the item format of {name}", view.format, fix)
    if view.ndim != 1 or not view.contiguous:
        raise ArgumentError(name, buffer, "pass a contiguous one-dimensional buffer")
    return view


def int64_out(name: str, buffer: WriteableBuffer) -> memoryview:
    """Return a view of int64 that can be written to, or raise and name the argument."""
    view = int64_view(name, buffer)
    if view.readonly:
        raise ArgumentError(name, buffer, "pass a buffer that can be written to")
    return view
