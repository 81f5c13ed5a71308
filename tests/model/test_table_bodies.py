"""Random programs on both bodies of the timer table at once: every answer is the same.

Slots too: both use the free ones again, the last freed first. In between the compiled
body's check() holds that its arena keeps at most twice the live bytes.
"""

from __future__ import annotations

import random
from array import array

import pytest

from tests.engine.table_bodies import CompiledTable, needs_the_compiled_table
from timingwheel.engine.records import timer_scheduled
from timingwheel.engine.table import Row, State, TimerTable
from wal.frame import encode_records

SIZES = (0, 1, 8, 60, 100, 1_000, 16_384, 16_385, 70_000)


class BothBodies:
    """A plain and a compiled table that live through the same."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.plain = TimerTable()
        self.compiled: TimerTable = CompiledTable()
        self.next_id = 1
        self.slots: dict[int, int] = {}
        self.sizes = SIZES[: rng.randrange(2, len(SIZES))]

    def same(self, name: str, *arguments: object, **named: object) -> object:
        plain = getattr(self.plain, name)(*arguments, **named)
        compiled = getattr(self.compiled, name)(*arguments, **named)
        assert compiled == plain, (name, arguments, named)
        assert type(compiled) is type(plain), name
        return plain

    def payload(self) -> bytes:
        return self.rng.randbytes(self.rng.choice(self.sizes))

    def some_slot(self) -> int:
        return self.rng.choice(list(self.slots.values()))

    def insert(self) -> None:
        timer_id = self.next_id
        slot = self.same(
            "insert",
            timer_id,
            last_lsn=timer_id,
            deadline_ns=self.rng.getrandbits(63),
            base=self.rng.randrange(2),
            payload=self.payload(),
            attempt=self.rng.randrange(3),
            state=self.rng.choice([*State]),
        )
        assert isinstance(slot, int)
        self.slots[timer_id] = slot
        self.next_id += self.rng.choice((1, 1, 2, 1 << 20))

    def insert_run(self) -> None:
        rng = self.rng
        body = encode_records(
            timer_scheduled(rng.randrange(2), rng.getrandbits(62), self.payload())
            for _ in range(rng.randrange(1, 60))
        )
        first = max(self.next_id - rng.randrange(5), 1)
        before = set(self.plain.timer_ids())
        self.same("insert_scheduled", first, body, at=0, known_lsn=self.next_id)
        after = {row.timer_id: slot for slot, row in self.rows()}
        self.slots |= {new: after[new] for new in after if new not in before}
        self.next_id = max(after, default=0) + 1

    def rows(self) -> list[tuple[int, Row]]:
        return [
            (slot, row)
            for slot in range(self.plain.slot_count)
            for row in self.plain.walk(slot, slot + 1)
        ]

    def remove(self) -> None:
        many = self.rng.choice((1, 1, 5, len(self.slots)))
        for timer_id in self.rng.sample(list(self.slots), min(many, len(self.slots))):
            self.same("remove", timer_id)
            del self.slots[timer_id]

    def change(self) -> None:
        slot, lsn = self.some_slot(), self.rng.getrandbits(60)
        attempt = self.rng.getrandbits(32)
        self.same("fire", slot, last_lsn=lsn, attempt=attempt)
        if self.rng.random() < 0.5:
            deadline_ns, base = self.rng.getrandbits(63), self.rng.randrange(2)
            self.same(
                "reschedule",
                slot,
                last_lsn=lsn + 1,
                deadline_ns=deadline_ns,
                base=base,
                attempt=attempt,
            )
        self.same("set_handle", slot, self.rng.choice((-4, 7, 1 << 59)))

    def change_many(self) -> None:
        rng = self.rng
        ids = rng.sample(list(self.slots), rng.randrange(1, len(self.slots) + 1))
        self.same("attempts", ids)
        self.same("take_out", rng.sample(ids, rng.randrange(len(ids))))
        ids.insert(rng.randrange(len(ids)), self.next_id + 9)  # that is not there
        self.same("with_handle", ids)
        self.same("unsettled", ids)
        lsn = rng.getrandbits(60)
        self.same("fire_many", ids, last_lsn=lsn, attempt=rng.getrandbits(32))
        some = array("q", ids[: rng.randrange(1, len(ids) + 1)])
        self.same("remove_many", some, last_lsn=lsn + 1)
        self.slots = {each: slot for slot, (each, *_) in self.rows()}

    def ask(self) -> None:
        slot, timer_id = self.some_slot(), self.rng.choice(list(self.slots))
        assert self.same("slot", timer_id) == self.slots[timer_id]
        self.same("slot", self.next_id + self.rng.randrange(-50, 50))
        for name in ("row", "payload", "handle", "attempt", "base", "is_waiting"):
            self.same(name, slot)
        for name in ("timer_id", "last_lsn", "deadline_ns"):
            self.same(name, slot)
        self.same("waiting_handle", slot, self.rng.randrange(2))
        self.same("count_handles", self.rng.choice((-4, 7)))

    def batch(self) -> None:
        state, base = self.rng.choice([*State]), self.rng.randrange(2)
        slots = self.same("slots_in", state)
        self.same("wheel_batch", slots, base, tick_bits=self.rng.choice((0, 16)))
        start, count = self.rng.randrange(99), self.rng.randrange(1, 99)
        if start < self.plain.slot_count:
            self.same("pack_rows", start, count, bytes_max=self.rng.randrange(9_999))

    def step(self) -> None:
        requests = [self.insert, self.insert, self.insert_run]
        if self.slots:
            requests += [self.remove, self.remove, self.change, self.ask, self.batch]
            requests.append(self.change_many)
        self.rng.choice(requests)()

    def check(self) -> None:
        self.plain.check()
        self.compiled.check()
        assert len(self.compiled) == len(self.plain) == len(self.slots)
        assert self.compiled.slot_count == self.plain.slot_count
        assert self.compiled.timer_ids() == self.plain.timer_ids()
        stop = self.plain.slot_count
        assert list(self.compiled.walk(0, stop)) == list(self.plain.walk(0, stop))
        out = [
            body.walk(0, stop, in_wheels=False) for body in (self.plain, self.compiled)
        ]
        assert list(out[0]) == list(out[1])


@needs_the_compiled_table
@pytest.mark.parametrize(
    "steps", [300, pytest.param(30_000, marks=pytest.mark.long, id="long")]
)
def test_both_bodies_give_the_same_answers(rng: random.Random, steps: int) -> None:
    for _ in range(12):
        both = BothBodies(rng)
        for step in range(steps):
            both.step()
            if step % 25 == 0:
                both.check()
        both.check()
