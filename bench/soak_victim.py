"""The process that a soak kills: an engine at a steady load. Started by `bench.soak`.

A turn makes two timers, one that will fire within seconds and one that is cancelled when
some thousands have been made after it, and cancels the oldest such. So at any rate there
are as many fires as cancels, and twice as many puts; and what lives stays the same.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import struct
import sys
import time
from collections import deque
from pathlib import Path
from typing import Final, cast, get_args

from bench.soak_ledger import (
    ACKNOWLEDGED,
    AGAIN,
    ASKED,
    CANCEL_ASKED,
    CANCELLED,
    COUNTERS,
    DELIVERED,
    LIVE,
    TIMERS_MAX,
    WRONG,
    Ledger,
    Meters,
    bucket_of,
)
from timingwheel import AsyncTimerEngine
from wal.log import Durability

STANDING: Final = 10_000
PAYLOAD_BYTES: Final = 100
TASKS: Final = 256
_HANDLERS: Final = 64
_YEAR_S: Final = 365 * 86_400.0
_CANCELLED_WITHIN_S: Final = 600.0
_FIRES_WITHIN_S: Final = (0.1, 5.0)
_CANCELLED_AFTER_S: Final = 1.0
"""At the rate that was asked for."""
_LEFT_BEHIND_S: Final = 1.0
"""Who is further behind the rate does not catch up: that would be a herd."""
_HEAD: Final = struct.Struct("<IIQ")
_FILLER: Final = bytes(range(PAYLOAD_BYTES - _HEAD.size))
_PUTS, _CANCELS, _FIRES, _LATE_MAX, _WAIT_MAX, _EARLY, _TWICE, _AFTER, _OTHER, _GONE = (
    range(len(COUNTERS))
)


def payload_of(life: int, number: int, due_ns: int) -> bytes:
    """Return what a timer carries: all that its handler must know."""
    return _HEAD.pack(life, number, due_ns) + _FILLER


class Victim:
    """One life.

    Args:
        store: the data directory.
        memory: of ledgers and meters.
        life: its number, from 1; the two lives before may have left timers.
        rate: turns a second.
        durability: of the engine.
    """

    def __init__(
        self,
        store: str,
        memory: Path,
        *,
        life: int,
        rate: float,
        durability: Durability,
    ) -> None:
        self._ledgers = {
            one: Ledger(memory, one) for one in {0, *range(max(life - 2, 0), life + 1)}
        }
        self._own = self._ledgers[life]
        self._meters = Meters(memory, life)
        self._life = life
        self._rate = rate
        self._cancels_wait = int(rate * _CANCELLED_AFTER_S)
        self._numbers = itertools.count()
        self._cancels: deque[tuple[int, int, int]] = deque()
        self._seen: set[tuple[int, int]] = set()
        """What earlier lives made and this one has delivered."""
        self._rng = random.Random(life)
        self._engine = AsyncTimerEngine(
            store, self._on_fire, durability=durability, workers=_HANDLERS
        )

    async def run(self) -> None:
        began = time.monotonic()
        async with self._engine:
            opened_s = time.monotonic() - began
            await self._list()
            if self._life == 1 and not self._ledgers[0].marks[0]:
                await self._put_standing()
            report = self._engine.report
            assert report is not None
            facts = {
                "opened_s": round(opened_s, 3),
                "timers": len(self._engine),
                "torn_bytes": report.torn_bytes,
                "doubtful": report.doubtful,
            }
            print(json.dumps(facts), flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            start = time.monotonic()
            await asyncio.gather(*[self._turns(task, start) for task in range(TASKS)])

    async def _list(self) -> None:
        """Mark what the store has; what was to be cancelled is, first of all."""
        for ledger in self._ledgers.values():
            ledger.clear_live()
        for timer in await self._engine.timers(limit=10 * TIMERS_MAX):
            life, number, due_ns = _HEAD.unpack_from(timer.payload)
            ledger = self._ledgers[life]  # else a timer of a life that was judged
            ledger.marks[number] |= LIVE
            if timer.payload != payload_of(life, number, ledger.due_ns[number]):
                self._note(ledger, number, _OTHER)
            if life and due_ns - time.time_ns() > _FIRES_WITHIN_S[1] * 2e9:
                self._cancels.append((life, number, timer.id))

    async def _put_standing(self) -> None:
        ledger = self._ledgers[0]
        due_ns = time.time_ns() + int(_YEAR_S * 1e9)
        for number in range(STANDING):
            ledger.due_ns[number] = due_ns
            ledger.marks[number] = ASKED
        await self._engine.schedule_many(
            [_YEAR_S] * STANDING,
            [payload_of(0, number, due_ns) for number in range(STANDING)],
        )
        for number in range(STANDING):
            ledger.marks[number] |= ACKNOWLEDGED | LIVE

    # -- the load ---------------------------------------------------------------------

    async def _turns(self, task: int, start: float) -> None:
        every = TASKS / self._rate
        at = start + every * task / TASKS
        while True:
            now = time.monotonic()
            if now < at:
                await asyncio.sleep(at - now)
            elif now > at + _LEFT_BEHIND_S:
                at = now
            at += every
            await self._turn()

    async def _turn(self) -> None:
        await self._put(self._rng.uniform(*_FIRES_WITHIN_S))
        number, timer_id = await self._put(_CANCELLED_WITHIN_S)
        self._cancels.append((self._life, number, timer_id))
        while len(self._cancels) > self._cancels_wait:
            await self._cancel(*self._cancels.popleft())

    async def _put(self, delay_s: float) -> tuple[int, int]:
        number = next(self._numbers)
        ledger, counters = self._own, self._meters.counters
        began_ns = time.time_ns()
        due_ns = began_ns + int(delay_s * 1e9)
        ledger.due_ns[number] = due_ns
        ledger.marks[number] |= ASKED
        timer_id = await self._engine.schedule(
            delay_s, payload_of(self._life, number, due_ns)
        )
        ledger.marks[number] |= ACKNOWLEDGED
        wait_ns = max(time.time_ns() - began_ns, 0)
        counters[_PUTS] += 1
        self._meters.wait[bucket_of(wait_ns)] += 1
        counters[_WAIT_MAX] = max(counters[_WAIT_MAX], wait_ns)
        return number, timer_id

    async def _cancel(self, life: int, number: int, timer_id: int) -> None:
        ledger = self._ledgers[life]
        ledger.marks[number] |= CANCEL_ASKED
        done = await self._engine.cancel(timer_id)
        if done:
            ledger.marks[number] |= CANCELLED
            self._meters.counters[_CANCELS] += 1
        elif not ledger.marks[number] & DELIVERED:
            self._note(ledger, number, _GONE)

    async def _on_fire(self, _timer_id: int, payload: bytes) -> None:
        now_ns = time.time_ns()
        life, number, due_ns = _HEAD.unpack_from(payload)
        ledger, counters = self._ledgers[life], self._meters.counters
        marks = ledger.marks[number]
        if marks & DELIVERED:
            # Once more after a kill is what was promised; in one life it is not.
            if life == self._life or (life, number) in self._seen:
                self._note(ledger, number, _TWICE)
            ledger.marks[number] |= AGAIN
        if life != self._life:
            self._seen.add((life, number))
        if marks & CANCELLED:
            self._note(ledger, number, _AFTER)
        if payload != payload_of(life, number, ledger.due_ns[number]):
            self._note(ledger, number, _OTHER)
        if now_ns < due_ns:
            self._note(ledger, number, _EARLY)
        ledger.marks[number] |= DELIVERED
        late_ns = max(now_ns - due_ns, 0)
        counters[_FIRES] += 1
        self._meters.late[bucket_of(late_ns)] += 1
        counters[_LATE_MAX] = max(counters[_LATE_MAX], late_ns)

    def _note(self, ledger: Ledger, number: int, counter: int) -> None:
        ledger.marks[number] |= WRONG
        self._meters.counters[counter] += 1


def main() -> None:
    store, memory, life, rate, durability = sys.argv[1:]
    assert durability in get_args(Durability)
    victim = Victim(
        store,
        Path(memory),
        life=int(life),
        rate=float(rate),
        durability=cast("Durability", durability),
    )
    asyncio.run(victim.run())


if __name__ == "__main__":
    main()
