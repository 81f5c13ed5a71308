"""The world of a simulated scheduler: its Sim, its workers, and the ledger of promises."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from timingwheel.jobs.model import Run
from timingwheel.jobs.store import JobStore, Request
from timingwheel.scheduler.context import Context
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.simulation import Sim
from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.stores.history_retention import Retention
from timingwheel.testing.invariants import View, look, meet
from timingwheel.testing.programs import (
    LISTENER,
    NARROW,
    NARROW_LIMIT,
    PROGRAM,
    SECOND_NS,
)
from timingwheel.testing.promises import (
    BrokenPromiseError,
    Close,
    Ledger,
    Start,
    Wish,
)
from timingwheel.testing.remote import RemoteWorker

SEGMENT_SIZES: Final = (8_192, 16_384, 65_536)
_FOR_EVER: Final = Retention(runs_ns=1 << 62, dead_ns=1 << 62, skips_ns=1 << 62)


class World:
    """A scheduler and its world. One thread; `close` it.

    Args:
        seed: of everything.
        store: the kind of store.

    Attributes:
        counts: how often what was done.
        doing: what is done just now.
        ledger: what was promised.
    """

    def __init__(self, seed: int, *, store: type[EmbeddedStore]) -> None:
        self.rng = random.Random(f"life {seed}")
        self.counts: Counter[str] = Counter()
        self.ledger = Ledger()
        self.doing = "start"
        self.workers: list[RemoteWorker] = []
        self._hired = 0
        self._listener = LISTENER.set(self)
        self.sim = Sim(
            self._setup,
            tasks=PROGRAM,
            seed=seed,
            store=store,
            retention=_FOR_EVER,
            segment_size_bytes=self.rng.choice(SEGMENT_SIZES),
        )

    def close(self) -> None:
        """Let go of everything."""
        self.sim.close()
        LISTENER.reset(self._listener)

    def _setup(self, app: Scheduler) -> None:
        self.ledger.life += 1
        self.note_gap()
        app.desk.store.add_listener(self.ledger.heard)
        app.add_node_listener(self)
        app.queue(NARROW).set(limit=NARROW_LIMIT)

    # -- for handlers and the node ---------------------------------------------------------

    def began(self, ctx: Context) -> None:
        """Note that a handler of `near` starts."""
        try:
            self._note_start(ctx)
        except BrokenPromiseError as broken:  # here it would be the handler's error
            self.ledger.broken.append(str(broken))
        self.counts["starts"] += 1

    def _note_start(self, ctx: Context) -> None:
        store = self.store
        run, job = store.run(ctx.run_id), store.get(ctx.job_id)
        if run is None or job is None:
            raise BrokenPromiseError(f"{ctx.run_id} starts, and is not kept")
        if job.id not in self.ledger.labels:
            meet(store, self.ledger)
        start = Start(ctx.token, self.ledger.life, "")
        self.ledger.began(start, run, job, store.now())

    def ended(self, ctx: Context, how: str) -> None:
        """Note how it ends."""
        closes: dict[str, Close] = {"ok": "ok", "error": "error"}
        self.ledger.close(ctx.run_id, ctx.token, closes.get(how, "snoozed"))

    def turned(self) -> None:
        """Pass over a turn of the node."""

    def asked_to_end(self, request: Request) -> None:
        """Ask the worker that has it."""
        for worker in self.workers:
            if request.token in worker.held:
                worker.held[request.token].asked = True

    # -- asking and looking --------------------------------------------------------------

    @property
    def store(self) -> JobStore:
        """The store of this life."""
        return self.sim.app.desk.store

    def ask(self, act: Callable[[], object]) -> bool:
        """Ask the scheduler; return whether it has answered, by a return or a refusal."""
        answered = False
        with self.sim.crashing():
            act()
            answered = True
            self.sim.run_until_idle()
        return answered

    def view(self) -> View:
        """Hold the store to all promises; return what it shows."""
        view = look(self.store, self.ledger)
        store = self.store
        assert isinstance(store, EmbeddedStore)
        store.check()
        return view

    def any_wish(self, is_fit: Callable[[Wish], bool]) -> Wish | None:
        """Return a job that somebody asked for, drawn from those that fit."""
        fit = [
            wish
            for wish in self.ledger.wishes.values()
            if wish.kind != "follow_up" and is_fit(wish)
        ]
        return self.rng.choice(fit) if fit else None

    def any_run(self, is_fit: Callable[[Run], bool]) -> Run | None:
        """Return a run, drawn from those that fit; None if none does, or all is down."""
        found: list[Run] = []
        with self.sim.crashing():
            found = [run for run in self.view().runs.values() if is_fit(run)]
        found.sort(key=lambda run: run.id)
        return self.rng.choice(found) if found and not self.sim.is_down else None

    # -- time ------------------------------------------------------------------------------

    def pass_time(self, span: timedelta) -> None:
        """Let time pass, and workers act when they would."""
        clock = self.sim.clock
        end_ns = clock.monotonic_ns() + round(span.total_seconds() * SECOND_NS)
        self.have_workers_act()
        while (now_ns := clock.monotonic_ns()) < end_ns:
            nexts = [worker.next_ns() for worker in self.workers]
            if self.sim.is_down:
                nexts = []
            at_ns = min([end_ns, *(max(ns, now_ns + SECOND_NS // 50) for ns in nexts)])
            ahead_us = -(-(at_ns - now_ns) // 1_000)
            self.sim.advance(timedelta(microseconds=ahead_us))
            self.have_workers_act()

    def have_workers_act(self) -> None:
        """Let each worker do what it would do now."""
        for worker in self.workers:
            if self.sim.is_down:
                return
            with self.sim.crashing():
                now_ns = self.sim.clock.monotonic_ns()
                worker.act(self.store, self.ledger, now_ns=now_ns, rng=self.rng)
                self.sim.run_until_idle()

    def note_gap(self) -> None:
        """Something begins after which each job may catch up once."""
        for wish in self.ledger.wishes.values():
            wish.catches_up += 1
