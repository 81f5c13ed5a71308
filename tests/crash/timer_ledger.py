"""What the callers of an engine were told, and what its directory must therefore hold.

The ledger reads the lines of victim.py, which outlive the process that wrote them, and
compares them with what the next process finds. It knows nothing of logs or wheels.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass, field

from tests.crash.victim import payload_of

NEAR_NS = 60_000_000_000
"""Deadlines in these tests are a quarter of a second or whole hours away."""


@dataclass
class Promise:
    """One timer that is known to exist, or to have existed.

    Attributes:
        token: the name that its payload begins with.
        due_ns: on the wall clock; None once a handler raised, since that moves it.
        cancelled: a cancel was answered with True.
        cancelling: a cancel was asked for and not answered yet.
        moving_to_ns: the same of a reschedule.
        returned: its handler returned, so it may be gone at any moment.
        done: the acknowledgement is durable for certain.
        gone: a later life did not find it.
    """

    token: str
    due_ns: int | None
    cancelled: bool = False
    cancelling: bool = False
    moving_to_ns: int | None = None
    returned: bool = False
    done: bool = False
    gone: bool = False


@dataclass
class Ask:
    """A request for timers that was not answered yet."""

    count: int
    due_ns: int


@dataclass
class Found:
    """A timer that a life found when it opened the directory."""

    due_ns: int
    fired: bool
    token: str
    crc: int


@dataclass
class Ledger:
    """Promises made by all lives so far, and the faults found in keeping them.

    Attributes:
        faults: what was found wrong, kind by kind; empty if every promise was kept.
        examples: the first of each kind, in words.
        counts: made, cancelled, moved, delivered, ...: to see that there was a test.
        reports_since_open: of this life; -1 until it is open.
        open_calls: calls of the file system that this life has begun and not ended.
    """

    faults: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    open_calls: dict[str, str] = field(default_factory=dict)
    reports_since_open: int = -1
    is_halted: bool = False
    timers: dict[int, Promise] = field(default_factory=dict)
    _life: int = 0
    _asks: dict[str, Ask] = field(default_factory=dict)
    _found: dict[int, Found] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether this life has opened the directory and told what it found."""
        return self.reports_since_open >= 0

    def begin(self, life: int) -> None:
        """Turn to the lines of a new life."""
        self._life = life
        self.open_calls = {}
        self.reports_since_open = -1
        self.is_halted = False
        self._found = {}

    def note(self, line: str) -> None:
        """Take one line."""
        self.reports_since_open += self.is_open
        word, *rest = line.split(" ")
        match word:
            case ">":
                self.open_calls[rest[0]] = " ".join(rest[1:])
            case "<":
                del self.open_calls[rest[0]]
            case "ask":
                self._asks[f"{self._life}.{rest[0]}"] = Ask(int(rest[1]), int(rest[2]))
            case "made":
                self._note_made(f"{self._life}.{rest[0]}", int(rest[1]))
            case "fired":
                timer_id, token, crc, now_ns = rest
                self._note_fired(int(timer_id), token, crc=int(crc), now_ns=int(now_ns))
            case "timer":
                timer_id, due_ns, fired, token, crc = rest
                self._found[int(timer_id)] = Found(
                    int(due_ns), fired == "1", token, int(crc)
                )
            case "opened":
                self._judge_what_is_there(int(rest[0]))
                self.counts["openings"] += 1
                self.counts["from a snapshot"] += int(rest[1])
                self.counts["with a torn tail"] += int(rest[2]) > 0
            case "closed":
                self._note_closed(int(rest[0]))
            case "opening" | "closing":
                pass
            case "halted":
                self.is_halted = True
            case "error":
                self._fault("an error", " ".join(rest))
            case _:
                self._note_answer(word, [int(number) for number in rest])

    def summary(self) -> str:
        """Return the counts, and the faults if there are any, in a line."""
        counts = ", ".join(f"{n:,} {what}" for what, n in self.counts.items() if n)
        faults = ", ".join(f"{n:,} {what}" for what, n in self.faults.items())
        return f"{counts}; faults: {faults or 'none'}"

    # -- answers -----------------------------------------------------------------------

    def _note_made(self, op: str, first_id: int) -> None:
        ask = self._asks.pop(op, None)
        if ask is None:  # a handler was faster, and told us already
            if self._promise(first_id, f"made as {op}").token != f"{op}.0":
                self._fault("a wrong id", f"{op} is {first_id}")
            return
        self.counts["made"] += ask.count
        self._adopt(op, ask, first_id)

    def _adopt(self, op: str, ask: Ask, first_id: int) -> None:
        for place in range(ask.count):
            timer_id = first_id + place
            if timer_id in self.timers:
                self._fault("an id given twice", f"{timer_id} to {op}")
            self.timers[timer_id] = Promise(f"{op}.{place}", ask.due_ns)

    def _note_answer(self, word: str, numbers: list[int]) -> None:
        timer_id = numbers[0]
        promise = self._promise(timer_id, word)
        match word, numbers[1:]:
            case "cancel", []:
                promise.cancelling = True
            case "cancelled", [done]:
                promise.cancelling = False
                promise.cancelled |= bool(done)
                self.counts["cancelled"] += done
            case "move", [due_ns]:
                promise.moving_to_ns = due_ns
            case "moved", [done]:
                if done:
                    promise.due_ns = promise.moving_to_ns
                promise.moving_to_ns = None
                self.counts["moved"] += done
            case "returned", []:
                promise.returned = True
            case "raised", []:
                promise.due_ns = None
                self.counts["raised"] += 1
            case "done", []:
                promise.done = True
                self.counts["confirmed"] += 1
            case _:
                self._fault("an unknown line", f"{word} {numbers}")

    def _note_fired(self, timer_id: int, token: str, *, crc: int, now_ns: int) -> None:
        self.counts["delivered"] += 1
        op, _, place = token.rpartition(".")
        if timer_id not in self.timers and op in self._asks:
            # Before schedule has returned, yet never before it is durable.
            ask = self._asks.pop(op)
            self.counts["made"] += ask.count
            self._adopt(op, ask, timer_id - int(place))
        promise = self._promise(timer_id, f"fired as {token}")
        self._check_payload(timer_id, promise, token, crc)
        if promise.cancelled:
            self._fault("a cancelled timer fired", f"{timer_id} ({token})")
        elif promise.done:
            self._fault("a timer fired again after all", f"{timer_id} ({token})")
        elif promise.gone:
            self._fault("a timer that was gone fired", f"{timer_id} ({token})")
        due_ns = promise.due_ns if promise.moving_to_ns is None else None
        if due_ns is not None and now_ns < due_ns - NEAR_NS:
            self._fault("a timer fired early", f"{timer_id} ({token})")

    # -- a new life --------------------------------------------------------------------

    def _judge_what_is_there(self, count: int) -> None:
        self.reports_since_open = 0
        found = dict(self._found)
        if len(found) != count:
            self._fault("a wrong count", f"{count}, and {len(found)} timers")
        for timer_id, promise in self.timers.items():
            there = found.pop(timer_id, None)
            if there is None:
                self._judge_missing(timer_id, promise)
            else:
                self._judge_there(timer_id, promise, there)
        self._settle_asks(found)
        for timer_id, stranger in found.items():
            self._fault("a timer from nowhere", f"{timer_id} ({stranger.token})")

    def _judge_missing(self, timer_id: int, promise: Promise) -> None:
        may_be_gone = promise.cancelled or promise.cancelling or promise.returned
        if not (may_be_gone or promise.gone):
            self._fault("an acknowledged timer lost", f"{timer_id} ({promise.token})")
        promise.gone = True
        promise.cancelling = False
        promise.moving_to_ns = None

    def _judge_there(self, timer_id: int, promise: Promise, there: Found) -> None:
        name = f"{timer_id} ({promise.token})"
        if promise.cancelled:
            self._fault("a cancelled timer is there", name)
        elif promise.done:
            self._fault("a timer is there after its acknowledgement", name)
        elif promise.gone:
            self._fault("a timer that was gone came back", name)
        self._check_payload(timer_id, promise, there.token, there.crc)
        if promise.moving_to_ns is not None:
            # The answer was cut off: the old deadline or the new one, both are right.
            promise.due_ns = there.due_ns
        due_ns = promise.due_ns
        if due_ns is not None and abs(there.due_ns - due_ns) > NEAR_NS:
            self._fault("a deadline lost", name)
        self.counts["to be delivered again"] += there.fired
        promise.moving_to_ns = None
        # It is there, so neither a cancel nor an acknowledgement was kept.
        promise.cancelling = promise.returned = False

    def _settle_asks(self, found: dict[int, Found]) -> None:
        """Take what requests that the kill cut off have left: all of it, or nothing."""
        for op, ask in self._asks.items():
            left = sorted(
                timer_id
                for timer_id, timer in found.items()
                if timer.token.rpartition(".")[0] == op
            )
            if not left:
                continue
            self.counts["kept of what was cut off"] += len(left)
            if left != list(range(left[0], left[0] + ask.count)):
                self._fault("half a batch", f"{len(left)} of {ask.count} of {op}")
            for place, timer_id in enumerate(left):
                promise = Promise(f"{op}.{place}", ask.due_ns)
                self.timers[timer_id] = promise
                self._judge_there(timer_id, promise, found.pop(timer_id))
        self._asks = {}  # whatever else turns up of them comes from nowhere

    def _note_closed(self, count: int) -> None:
        for promise in self.timers.values():
            promise.done |= promise.returned  # closing commits
        expected = sum(
            not (promise.cancelled or promise.done or promise.gone)
            for promise in self.timers.values()
        )
        if count != expected:
            self._fault("a wrong count", f"{count} at the end, and not {expected}")

    # -- inside ------------------------------------------------------------------------

    def _promise(self, timer_id: int, what: str) -> Promise:
        if timer_id not in self.timers:
            self._fault("a timer from nowhere", f"{timer_id}: {what}")
            self.timers[timer_id] = Promise("?", None)
        return self.timers[timer_id]

    def _check_payload(
        self, timer_id: int, promise: Promise, token: str, crc: int
    ) -> None:
        if promise.token == token and zlib.crc32(payload_of(token)) == crc:
            return
        self._fault("a wrong payload", f"{timer_id}: {token}, not {promise.token}")

    def _fault(self, kind: str, example: str) -> None:
        self.faults[kind] += 1
        self.examples.setdefault(kind, f"life {self._life}: {example}")
