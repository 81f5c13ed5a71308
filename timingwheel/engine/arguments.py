"""What callers may pass to an engine, checked before anything changes.

Each check returns the value in the engine's own units or raises an error that names the
argument, what was found, and what to pass instead.
"""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Sequence
from typing import Final, TypeVar

from timingwheel.engine.records import DEADLINE_MAX_NS
from timingwheel.errors import (
    ArgumentError,
    BatchTooLargeError,
    DeadlineError,
    PayloadTooLargeError,
)
from wal.log import SEGMENT_SIZE_BYTES_MAX, SEGMENT_SIZE_BYTES_MIN

PAYLOAD_BYTES_MAX: Final = 1 << 20
BATCH_TIMERS_MAX: Final = 65_536
BATCH_BYTES_MAX: Final = 4 << 20
WORKERS_MAX: Final = 1_024
_NS: Final = 1_000_000_000
# One slash is left of two where a Path was made of it.
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_Handler = TypeVar("_Handler")
_REACH: Final = "deadlines reach the year 2262; pass an earlier one"


def checked_delay_ns(delay: float, argument: str = "delay") -> int:
    """Return a delay in seconds as nanoseconds, rounded up.

    Raises:
        ArgumentError: not a number, NaN or negative.
        DeadlineError: infinite, or far beyond any deadline.
    """
    if type(delay) is not float and type(delay) is not int:
        raise ArgumentError(argument, delay, "pass seconds as a float or an int")
    if math.isnan(delay):
        raise ArgumentError(argument, delay, "pass a number of seconds")
    if delay < 0:
        raise ArgumentError(
            argument, delay, "pass 0 or more seconds; 0 fires as soon as it can"
        )
    if delay > DEADLINE_MAX_NS // _NS:
        raise DeadlineError(argument, delay, _REACH)
    if type(delay) is int:
        return delay * _NS
    return math.ceil(delay * _NS)


def checked_deadline_ns(
    now_ns: int, delay_ns: int, *, found: object, argument: str = "delay"
) -> int:
    """Return the deadline that a delay leads to.

    Raises:
        DeadlineError: it lies beyond what the engine can hold.
    """
    deadline_ns = now_ns + delay_ns
    if deadline_ns > DEADLINE_MAX_NS:
        raise DeadlineError(argument, found, _REACH)
    return deadline_ns


def checked_wall_ns(wall_ns: int) -> int:
    """Return a moment of the wall clock in ns since 1970; the past is allowed.

    Raises:
        ArgumentError: not an int, or before 1970.
        DeadlineError: after 2262.
    """
    if type(wall_ns) is not int or wall_ns < 0:
        raise ArgumentError(
            "wall_ns",
            wall_ns,
            "pass nanoseconds since 1970 as an int, for a datetime d: "
            "int(d.timestamp()) * 1_000_000_000",
        )
    if wall_ns > DEADLINE_MAX_NS:
        raise DeadlineError("wall_ns", wall_ns, _REACH)
    return wall_ns


def checked_payload(payload: bytes, argument: str = "payload") -> bytes:
    """Return a payload as it is.

    Raises:
        ArgumentError: it is not bytes.
        PayloadTooLargeError: it is longer than PAYLOAD_BYTES_MAX.
    """
    if type(payload) is not bytes:
        raise ArgumentError(
            argument, payload, f"pass bytes, not {type(payload).__name__}"
        )
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise PayloadTooLargeError(
            argument,
            payload,
            f"{len(payload):,} bytes, and at most {PAYLOAD_BYTES_MAX:,} fit; keep the "
            "bulk elsewhere and pass its key",
        )
    return payload


def checked_timer_id(timer_id: int) -> int:
    """Return a timer id.

    Raises:
        ArgumentError: nothing that an engine ever returned.
    """
    if type(timer_id) is not int or not 0 < timer_id <= DEADLINE_MAX_NS:
        raise ArgumentError(
            "timer_id", timer_id, "pass an id that this engine's schedule returned"
        )
    return timer_id


def checked_batch(
    delays: Sequence[float], payloads: Sequence[bytes]
) -> tuple[list[int], Sequence[bytes]]:
    """Return the delays in ns and the payloads of one atomic batch.

    Raises:
        ArgumentError: no sequences, unequal lengths, or an element as in the single
            form; the argument is named with its place, as in `delays[7]`.
        BatchTooLargeError: too many timers, or too many bytes.
    """
    for argument, value in (("delays", delays), ("payloads", payloads)):
        if not (hasattr(value, "__len__") and hasattr(value, "__getitem__")):
            raise ArgumentError(argument, value, "pass a sequence, such as a list")
    if len(delays) != len(payloads):
        raise ArgumentError(
            "payloads",
            len(payloads),
            f"pass as many payloads as delays, which are {len(delays)}",
        )
    if len(delays) > BATCH_TIMERS_MAX:
        raise BatchTooLargeError(
            "delays",
            len(delays),
            f"at most {BATCH_TIMERS_MAX:,} timers go in one atomic batch; split it",
        )
    for place, payload in enumerate(payloads):
        if type(payload) is not bytes or len(payload) > PAYLOAD_BYTES_MAX:
            checked_payload(payload, f"payloads[{place}]")
    size = sum(map(len, payloads))
    if size > BATCH_BYTES_MAX:
        raise BatchTooLargeError(
            "payloads",
            size,
            f"at most {BATCH_BYTES_MAX:,} bytes go in one atomic batch; split it",
        )
    return (
        [
            checked_delay_ns(delay, f"delays[{place}]")
            for place, delay in enumerate(delays)
        ],
        payloads,
    )


def checked_workers(workers: int | None) -> int:
    """Return how many workers to run.

    Raises:
        ArgumentError: not 1 to WORKERS_MAX.
    """
    if workers is None:
        return min(32, (os.cpu_count() or 1) + 4)
    if type(workers) is not int or not 1 <= workers <= WORKERS_MAX:
        raise ArgumentError("workers", workers, f"pass 1 to {WORKERS_MAX:,}")
    return workers


def checked_handler(on_fire: _Handler) -> _Handler:
    """Return what a TimerEngine calls when a timer fires.

    Raises:
        ArgumentError: it cannot be called; or calling it would only make a coroutine,
            which nobody awaits, and that would acknowledge the timer.
    """
    if not callable(on_fire):
        raise ArgumentError("on_fire", on_fire, "pass handler(timer_id, payload)")
    if is_coroutine_function(on_fire):
        raise ArgumentError(
            "on_fire", on_fire, "a coroutine function is for AsyncTimerEngine"
        )
    return on_fire


def is_coroutine_function(handler: object) -> bool:
    """Return whether calling it makes a coroutine, as far as can be told before."""
    call = getattr(handler, "__call__", None)  # noqa: B004 - an instance may be async
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


def checked_snapshot_every(size_bytes: int) -> int:
    """Return how much the log grows at least between two snapshots.

    Raises:
        ArgumentError: not 1 or more.
    """
    if type(size_bytes) is not int or size_bytes < 1:
        raise ArgumentError("snapshot_every_bytes", size_bytes, "pass 1 byte or more")
    return size_bytes


def checked_directory(path: str | os.PathLike[str], argument: str) -> str:
    """Return the absolute path of a directory, made or not.

    Absolute, so that a later change of the working directory leads to no other one.

    Raises:
        ArgumentError: it is empty, or a URL or a `~`, which open() would take for the
            name of a directory without a word; a real one of that name has "./" in front.
    """
    place = os.fspath(path)
    if not isinstance(place, str):
        raise ArgumentError(argument, path, "pass a directory as text or as a Path")
    if not place:
        raise ArgumentError(argument, path, "name a directory; '.' is the current one")
    if "\0" in place:
        raise ArgumentError(argument, path, "the name of a directory holds no NUL")
    if _URL.match(place):
        scheme = place.partition(":")[0]  # the rest may hold a password
        raise ArgumentError(argument, f"{scheme}://...", _fix_of(scheme.lower()))
    if place == "~" or place.startswith("~/"):
        raise ArgumentError(
            argument, place, "~ is not expanded here: pass os.path.expanduser(it)"
        )
    return os.path.abspath(place)


def _fix_of(scheme: str) -> str:
    """Return what to pass instead of a URL that names no store."""
    if scheme in ("http", "https"):
        return "a server is asked by timingwheel.Client(url), or by --url in a shell"
    if scheme == "file":
        return "pass the path alone"
    if scheme.startswith("postgres"):
        return 'the database of a Scheduler is written "postgresql://..."'
    return 'pass a directory; the database of a Scheduler is "postgresql://..."'


def check_log_options(
    *,
    durability: str,
    interval_ms: float,
    segment_size_bytes: int,
    reserve_bytes: int,
) -> None:
    """Refuse options that no log can be opened with.

    Raises:
        ArgumentError: naming the one that is out of range.
    """
    if durability not in ("durable", "interval"):
        raise ArgumentError("durability", durability, 'pass "durable" or "interval"')
    if type(interval_ms) not in (int, float) or not 1 <= interval_ms <= 60_000:
        raise ArgumentError("interval_ms", interval_ms, "pass 1 to 60,000")
    if (
        type(segment_size_bytes) is not int
        or not SEGMENT_SIZE_BYTES_MIN <= segment_size_bytes <= SEGMENT_SIZE_BYTES_MAX
        or segment_size_bytes % 512
    ):
        raise ArgumentError(
            "segment_size_bytes",
            segment_size_bytes,
            f"pass a multiple of 512 from {SEGMENT_SIZE_BYTES_MIN:,} to "
            f"{SEGMENT_SIZE_BYTES_MAX:,}",
        )
    if type(reserve_bytes) is not int or reserve_bytes < 0:
        raise ArgumentError("reserve_bytes", reserve_bytes, "pass 0 bytes or more")
