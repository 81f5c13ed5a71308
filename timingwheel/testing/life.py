"""One random life of a scheduler: what people, workers, clocks and disks do to it.

Each step is drawn from the seed. After each, the store is held to all that was promised.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from timingwheel.jobs.states import FINAL
from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.testing.invariants import check_fates
from timingwheel.testing.people import People
from timingwheel.testing.programs import (
    NARROW,
    SECOND_NS,
)
from timingwheel.testing.promises import (
    BrokenPromiseError,
    Wish,
)
from timingwheel.testing.remote import RemoteWorker

JOBS_MAX: Final = 60
"""Jobs that one life asks for; more would make each look dear and find no more."""
ENDING_TURNS_MAX: Final = 400
"""Times that an ending life is given to come to rest."""

Step = Callable[[], str]


class Life(People):
    """A scheduler in its world, step by step; `close` it."""

    # -- steps -----------------------------------------------------------------------------

    def step(self) -> str:
        """Do one thing, hold the store to all promises, and say what it was.

        Raises:
            BrokenPromiseError: it did not keep them.
        """
        steps = self._steps_down() if self.sim.is_down else self._steps_up()
        [act] = self.rng.choices([act for act, _ in steps], [odds for _, odds in steps])
        self.doing = act.__name__.strip("_").replace("_", " ")
        self.counts[self.doing] += 1
        self.doing = act()
        return f"{self.doing}{self.look()}"

    def look(self) -> str:
        """Hold the store to all promises; return a note if it is down."""
        with self.sim.crashing():
            if not self.sim.is_down:
                self.view()
        return " [down]" if self.sim.is_down else ""

    def _steps_up(self) -> list[tuple[Step, float]]:
        may_put = len(self.ledger.wishes) < JOBS_MAX
        return [
            (self.put, 16 if may_put else 0),
            (self.put_twice, 1),
            (self.cancel, 4),
            (self.cancel_run, 2),
            (self.pause, 3),
            (self.resume, 4),
            (self.update, 3),
            (self.reschedule, 2),
            (self.trigger, 3),
            (self.retry, 3),
            (self.pause_queue, 1),
            (self._wait, 26),
            (self._wait_long, 2),
            (self._set_clock, 3),
            (self._hire, 3 if len(self.workers) < 4 else 0),
            (self._silence, 3 if self.workers else 0),
            (self._bury, 2 if self.workers else 0),
            (self._dismiss, 1 if self.workers else 0),
            (self._snapshot, 4),
            (self._crash, 2),
            (self._crash_soon, 7),
            (self._kill, 1),
            (self._kill_soon, 3),
            (self._restart, 2),
        ]

    def _steps_down(self) -> list[tuple[Step, float]]:
        return [
            (self._restart, 8),
            (self._wait, 2),
            (self._wait_long, 1),
            (self._set_clock, 1),
            (self._crash_soon, 2),
            (self._kill_soon, 1),
        ]

    # -- time ------------------------------------------------------------------------------

    def _wait(self) -> str:
        seconds = self.rng.choice((0.2, 1, 1, 3, 10, 30, 60))
        self.pass_time(timedelta(seconds=seconds))
        return f"{seconds} s pass"

    def _wait_long(self) -> str:
        minutes = self.rng.choice((5, 10, 30))
        self.pass_time(timedelta(minutes=minutes))
        return f"{minutes} min pass"

    def _set_clock(self) -> str:
        seconds = self.rng.choice((-7_200, -60, -2, 2, 60, 4_000, 90_000))
        self.note_gap()
        now_ns = self.sim.clock.wall_ns()
        self.ledger.wall_max_ns = max(self.ledger.wall_max_ns, now_ns)
        self.sim.step_wall(seconds)
        return f"the clock is set by {seconds} s"

    # -- workers ---------------------------------------------------------------------------

    def _hire(self) -> str:
        self._hired += 1
        worker = RemoteWorker(
            f"worker {self._hired}",
            ttl_ns=self.rng.choice((15, 60, 300)) * SECOND_NS,
            slots=self.rng.choice((1, 3, 10)),
            quickness_ns=self.rng.choice((0, 2, 20, 100)) * SECOND_NS,
        )
        self.workers.append(worker)
        self.have_workers_act()
        return f"{worker.name} joins, ttl {worker.ttl_ns // SECOND_NS} s"

    def _silence(self) -> str:
        worker = self.rng.choice(self.workers)
        span_ns = round(worker.ttl_ns * self.rng.choice((0.3, 0.9, 1.2, 4)))
        worker.silent_until_ns = self.sim.clock.monotonic_ns() + span_ns
        return f"{worker.name} is silent for {span_ns // SECOND_NS} s"

    def _bury(self) -> str:
        worker = self.workers.pop(self.rng.randrange(len(self.workers)))
        return f"{worker.name} dies with {len(worker.held)} attempts"

    def _dismiss(self) -> str:
        worker = self.workers.pop(self.rng.randrange(len(self.workers)))
        self.ask(lambda: worker.leave(self.store, self.ledger))
        return f"{worker.name} leaves"

    # -- disks and processes -----------------------------------------------------------------

    def _snapshot(self) -> str:
        store = self.store
        assert isinstance(store, EmbeddedStore)
        return f"snapshot: {self.ask(store.snapshot)}"

    def _choice(self) -> str:
        return self.rng.choice(
            (
                "none",
                "all",
                "names",
                "bytes",
                *[f"random {self.rng.getrandbits(30)}"] * 6,
            )
        )

    def _crash(self) -> str:
        choice = self._choice()
        self.sim.crash(choice=choice)
        return f"the power fails, {choice!r}"

    def _crash_soon(self) -> str:
        at, choice = self._soon(), self._choice()
        self.sim.crash(at=at, choice=choice)
        return f"the power is to fail at disk call {at}, {choice!r}"

    def _kill(self) -> str:
        self.sim.kill()
        return "the process is killed"

    def _kill_soon(self) -> str:
        at = self._soon()
        self.sim.kill(at=at)
        return f"the process is to be killed at disk call {at}"

    def _soon(self) -> int:
        return self.rng.choice((1, 2, 3, self.rng.randint(1, 40)))

    def _restart(self) -> str:
        verb = "start" if self.sim.is_down else "restart"
        self.sim.restart()
        return f"{verb}, life {self.ledger.life}"

    # -- the end -----------------------------------------------------------------------------

    def end_well(self) -> None:
        """Have no more mishaps, and go on until all is over.

        Raises:
            BrokenPromiseError: something is never over, or ended as it may not.
        """
        self.doing = "end well"
        self.sim.spare()
        self.sim.restart()
        self.view()
        for wish in list(self.ledger.wishes.values()):
            self._conclude(wish)
        self.sim.app.resume(self.sim.app.queue(NARROW))
        self.workers = [
            RemoteWorker("last", 60 * SECOND_NS, slots=50, quickness_ns=SECOND_NS)
        ]
        for _ in range(ENDING_TURNS_MAX):
            view = self.view()
            if all(run.state in FINAL for run in view.runs.values()):
                break
            self.pass_time(timedelta(seconds=60))
        check_fates(view, self.ledger)
        self.sim.restart()
        again = self.view()
        if (again.jobs, again.runs) != (view.jobs, view.runs):
            raise BrokenPromiseError("the store is another after a restart")

    def _conclude(self, wish: Wish) -> None:
        if wish.id is None:
            return
        if True in wish.paused:
            self.release(wish, wish.id, "skip")
        if wish.recurs:
            wish.cancelled = {True, False}
            self.sim.app.cancel(wish.id)
            self.sim.run_until_idle()
