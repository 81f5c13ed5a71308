"""The second act of demonstration.py: a million timers, and a kill in a write.

A child process (demonstration_timers_child.py) keeps a million durable timers, fires
some, cancels some, and kills itself with SIGKILL in the middle of a write. This process
has written down, outside of the child, all that was acknowledged. It then opens the same
directory and looks whether every promise was kept.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from demonstration_page import Bar, Verdict, head, say
from demonstration_timers_child import (
    BATCH,
    CALLERS,
    CANCELLED_EVERY,
    CANCELLERS,
    OVERDUE,
    SOON,
    STUCK,
    payload_of,
)

from timingwheel import TimerEngine

CHILD = Path(__file__).with_name("demonstration_timers_child.py")


@dataclass
class Promises:
    """What the child reported.

    Attributes:
        ids: order number -> the timer's id; 0 if it was never acknowledged.
        cancelled: ids whose cancel was acknowledged.
        cut_off: ids whose cancel was asked for and never answered.
        asked: timers asked for.
        acknowledged: timers acknowledged.
        late_ns: order number -> how late the handler got it.
    """

    ids: array[int] = field(default_factory=lambda: array("q"))
    cancelled: set[int] = field(default_factory=set)
    cut_off: set[int] = field(default_factory=set)
    asked: int = 0
    acknowledged: int = 0
    late_ns: dict[int, int] = field(default_factory=dict)

    def note(self, word: str, numbers: list[int]) -> None:
        match word, numbers:
            case "schedule", [count]:
                self.asked += count
            case "SCHEDULED", [count, order, timer_id]:
                self.acknowledged += count
                self.ids.extend([0] * (order + count - len(self.ids)))
                self.ids[order : order + count] = array(
                    "q", range(timer_id, timer_id + count)
                )
            case "cancel", [timer_id]:
                self.cut_off.add(timer_id)
            case "CANCELLED", [timer_id]:
                self.cut_off.discard(timer_id)
                self.cancelled.add(timer_id)
            case "FIRED", [order, late_ns]:
                self.late_ns[order] = late_ns


class TimersAct:
    """Starts the child, writes down its promises, and holds the directory to them."""

    def __init__(self, directory: Path, timers: int, verdict: Verdict) -> None:
        self._directory = directory
        self._timers = timers
        self._promises = Promises()
        self._verdict = verdict
        self._disk_bytes = 0

    def run(self) -> None:
        self._live_and_die()
        self._come_back()
        say(f"At most {self._disk_bytes >> 20} MB of disk were used.")

    # -- the first life --------------------------------------------------------------

    def _live_and_die(self) -> None:
        out, into = os.pipe()
        arguments = [CHILD, self._directory, into, self._timers]
        child = subprocess.Popen(
            [sys.executable, *map(str, arguments)], pass_fds=[into]
        )
        os.close(into)
        try:
            with open(out, encoding="ascii") as pipe:
                self._listen(pipe)
            ended = child.wait()
        finally:
            child.kill()
            child.wait()
        if ended != -signal.SIGKILL:
            sys.exit(f"the child was to die by SIGKILL, and ended with {ended}")

    def _listen(self, pipe: IO[str]) -> None:
        promises = self._promises
        phase, begun = "", time.monotonic()
        made = cancelled = 0
        bar = Bar(self._timers)
        for line in pipe:
            word, *rest = line.split()
            if word == "phase":
                self._end(phase, time.monotonic() - begun)
                phase, begun = rest[0], time.monotonic()
                made, cancelled = promises.acknowledged, len(promises.cancelled)
                self._begin(phase)
            else:
                promises.note(word, [int(number) for number in rest])
                if phase == "load":
                    bar.show(promises.acknowledged)
        say(
            f"The process is dead. It had acknowledged {promises.acknowledged - made:,} "
            f"more timers and {len(promises.cancelled) - cancelled:,} cancels; "
            f"{promises.asked - promises.acknowledged} timers were asked for and never "
            "acknowledged."
        )

    def _begin(self, phase: str) -> None:
        if phase == "load":
            head(5, f"Load {self._timers:,} timers, {BATCH:,} to a commit")
        elif phase == "fire":
            head(6, f"Fire {SOON:,} more that are due within two seconds")
        elif phase == "cancel":
            head(7, f"Cancel one in {CANCELLED_EVERY}, from {CANCELLERS} threads")
        elif phase == "kill":
            head(8, f"Kill the process while {CALLERS} threads schedule and cancel")
            say(
                f"{OVERDUE:,} timers fall due while nobody is there, and one handler is "
                "still at work. The process sends itself SIGKILL when a part of a write "
                "to the log is done."
            )

    def _end(self, phase: str, seconds: float) -> None:
        self._measure_disk()
        if phase == "load":
            say(
                f"{self._timers:,} acknowledged in {seconds:.1f} s: "
                f"{self._timers / seconds:,.0f} a second, each on the disk before it "
                "was acknowledged."
            )
        elif phase == "fire":
            late = sorted(self._promises.late_ns.values())
            early = sum(late_ns < 0 for late_ns in late)
            self._verdict.add("no timer came early", checked=len(late), broken=early)
            say(
                f"{len(late):,} delivered, {early} of them early; late by "
                f"{late[len(late) // 2] / 1e6:.1f} ms in the median."
            )
        elif phase == "cancel":
            count = len(self._promises.cancelled)
            say(
                f"{count:,} cancelled in {seconds:.1f} s: {count / seconds:,.0f} a "
                "second, each on the disk before its answer; the threads share syncs."
            )

    # -- the second life ---------------------------------------------------------------

    def _come_back(self) -> None:
        head(9, "Open the same directory again")
        comers = Comers()
        begun = time.monotonic()
        # One worker, so that the order of delivery is the order in which timers come.
        with TimerEngine(
            self._directory, on_fire=comers.on_fire, workers=1, autostart=False
        ) as engine:
            seconds = time.monotonic() - begun
            report = engine.report
            assert report is not None
            say(f"{len(engine):,} timers recovered in {seconds:.1f} s.")
            if report.torn_bytes:
                say(
                    f"The last {report.torn_bytes:,} bytes of the log were a torn "
                    "write, which nobody had been promised: cut off, and kept aside "
                    "for a person to look at."
                )
            self._verdict.add(
                "the torn write was found and cut off",
                checked=1,
                broken=int(not report.torn_bytes),
            )
            self._measure_disk()
            head(10, "Look up every timer that was ever acknowledged")
            overdue = self._look_up(engine)
            head(11, "Fire what fell due meanwhile")
            self._fire(engine, comers, overdue)

    def _look_up(self, engine: TimerEngine) -> list[bytes]:
        """Check every promise; return what is overdue, in the order of deadlines."""
        promises = self._promises
        get, cancelled = engine.get, promises.cancelled
        owed = there = lost = wrong = came_back = 0
        overdue: list[tuple[int, bytes]] = []
        first_overdue = self._timers + SOON
        bar = Bar(len(promises.ids))
        for order, timer_id in enumerate(promises.ids):
            bar.show(order + 1)
            if not timer_id:
                continue
            timer = get(timer_id)
            if timer_id in cancelled:
                came_back += timer is not None
            elif order not in promises.late_ns and timer_id not in promises.cut_off:
                owed += 1
                lost += timer is None
            if timer is not None:
                there += 1
                wrong += timer.payload != payload_of(order)
                if first_overdue <= order < first_overdue + OVERDUE:
                    overdue.append((timer.deadline_ns, timer.payload))
        add = self._verdict.add
        add("every acknowledged timer is there", checked=owed, broken=lost)
        add("with the payload that it was given", checked=there, broken=wrong)
        add("no cancelled timer is", checked=len(cancelled), broken=came_back)
        # Calls that the kill cut off may have left timers or not: both are right. And
        # the timer whose handler was at work is there; nobody was told its id.
        may_be_there = there + promises.asked - promises.acknowledged + 1
        strangers = max(len(engine) - may_be_there, 0)
        add("nor any that nobody asked for", checked=len(engine), broken=strangers)
        say(
            f"{there:,} found, {lost:,} lost, {wrong:,} with a wrong payload; of the "
            f"{len(cancelled):,} cancelled {came_back:,} came back."
        )
        return [payload for _, payload in sorted(overdue)]

    def _fire(self, engine: TimerEngine, comers: Comers, overdue: list[bytes]) -> None:
        begun = time.monotonic()
        engine.start()
        comers.wait_for(len(overdue) + 1)
        seconds = time.monotonic() - begun
        came = [payload for payload in comers.payloads if payload != STUCK]
        say(f"{len(came):,} timers delivered in {seconds:.1f} s.")
        if comers.payloads[:1] == [STUCK]:
            say(
                "Before them came the one whose handler was at work when the process "
                "died: it had not returned, so it had not acknowledged the timer."
            )
        misplaced = sum(
            payload != expected
            for payload, expected in itertools.zip_longest(came, overdue)
        )
        self._verdict.add(
            "overdue timers came, in the order of their deadlines",
            checked=len(overdue),
            broken=misplaced,
        )
        self._verdict.add(
            "the timer whose handler was killed came again",
            checked=1,
            broken=int(comers.payloads.count(STUCK) != 1),
        )

    def _measure_disk(self) -> None:
        sizes = [entry.stat().st_size for entry in os.scandir(self._directory)]
        self._disk_bytes = max(self._disk_bytes, sum(sizes))


class Comers:
    """Collects what the handler gets, in order."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self._changed = threading.Condition()

    def on_fire(self, _: int, payload: bytes) -> None:
        with self._changed:
            self.payloads.append(payload)
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self.payloads) >= count, timeout=60)
