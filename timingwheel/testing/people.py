"""What people do to jobs in a simulation, and what they are told."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Final

from timingwheel.jobs.errors import RunStateError, UnknownJobError, UnknownRunError
from timingwheel.jobs.model import JobId, JobState, RunState
from timingwheel.jobs.states import FINAL
from timingwheel.jobs.store import CancelResult, Running
from timingwheel.testing.programs import (
    NARROW,
    SECOND_NS,
    random_job,
)
from timingwheel.testing.promises import (
    BrokenPromiseError,
    Wish,
)
from timingwheel.testing.world import World
from wal.errors import RecordTooLargeError

_RUNNING: Final[tuple[Running, ...]] = ("leave", "leave", "signal", "kill")


class People(World):
    """Ask for things at random; each method says what it did."""

    def put(self) -> str:
        """Add a job, or try to."""
        label = f"j{len(self.ledger.wishes)}"
        before = [
            wish
            for wish in self.ledger.wishes.values()
            if wish.id is not None and not wish.recurs and wish.kind != "follow_up"
        ]
        asking = random_job(
            self.rng, label, wall_ns=self.sim.clock.wall_ns(), before=before
        )
        wish = asking.wish
        self.ledger.wishes[label] = wish
        if wish.plan == "add":
            follow = f"{label}f"
            self.ledger.wishes[follow] = Wish(follow, "follow_up")

        def put() -> None:
            wish.due_ns = self.store.now().elapsed_ns + wish.delay_ns
            ref = self.sim.app.add(asking.call, **asking.options)
            wish.id = ref.id
            wish.acknowledged = True
            self.ledger.labels[ref.id] = label

        self.ask(put)
        return f"put {asking}"

    def put_twice(self) -> str:
        """The same name and definition: it is that job."""
        wish = self.any_wish(lambda w: w.acknowledged)
        job = self.store.get(wish.id) if wish is not None and wish.id else None
        if job is None or job.name is None or job.state is not JobState.ACTIVE:
            return "put twice: none"
        found = self.store.find(job.name)
        if found is None or found.id != job.id:
            raise BrokenPromiseError(f"{job.name!r} is not found, and lives: {found}")
        return f"found {job.name!r}"

    def cancel(self) -> str:
        """Cancel a job, whatever it does."""
        wish = self.any_wish(lambda w: w.acknowledged)
        if wish is None or wish.id is None:
            return "cancel: none"
        job_id, before = wish.id, wish.cancelled
        running = self.rng.choice(_RUNNING)
        results: list[CancelResult] = []
        wish.cancelled = before | {True}

        def cancel() -> None:
            result = self.sim.app.cancel(job_id, running=running)
            results.append(result)
            is_done = result in (
                *(CancelResult.CANCELLED, CancelResult.RUNNING),
                CancelResult.REQUESTED,
            )
            wish.cancelled = {True} if is_done else before
            if is_done:
                wish.paused = {False}  # its end ends the pause
            if result is CancelResult.NOT_FOUND:
                raise BrokenPromiseError(f"{wish.label} is not found: job {job_id}")

        self.ask(cancel)
        return f"cancel {wish.label} ({running}): {[r.value for r in results]}"

    def cancel_run(self) -> str:
        """Cancel a run that is not over."""
        run = self.any_run(lambda r: r.state not in FINAL)
        if run is None:
            return "cancel run: none"
        wish = self.ledger.wish_of(run.job_id)
        if not wish.recurs:
            wish.cancelled |= {True}  # with its last run
        self.ask(lambda: self.sim.app.cancel_run(run.id))
        return f"cancel run {run.id} of {wish.label}"

    def pause(self) -> str:
        """Pause a job."""
        wish = self.any_wish(lambda w: w.acknowledged and w.paused == {False})
        if wish is None or wish.id is None:
            return "pause: none"
        return f"pause {wish.label}: {self._hold(wish, wish.id)}"

    def _hold(self, wish: Wish, job_id: JobId) -> bool:
        before = wish.paused

        def pause() -> None:
            try:
                self.sim.app.pause(job_id)
            except UnknownJobError:
                wish.paused = before
            else:
                wish.paused = {True}

        wish.paused = {True, False}
        return self.ask(pause)

    def resume(self) -> str:
        """Resume a job, by any rule."""
        wish = self.any_wish(lambda w: w.acknowledged and True in w.paused)
        if wish is None or wish.id is None:
            return "resume: none"
        rule = self.rng.choice(("skip", "latest", "all", "since(10m)"))
        return f"resume {wish.label} ({rule}): {self.release(wish, wish.id, rule)}"

    def release(self, wish: Wish, job_id: JobId, rule: str) -> bool:
        """Resume one job; return whether the scheduler has answered."""
        wish.resumed = wish.resumed or rule != "skip"

        def resume() -> None:
            try:
                self.sim.app.resume(job_id, catch_up=rule)
            except RecordTooLargeError:  # too many runs for a segment this small
                wish.paused = {True}
            except UnknownJobError:
                wish.paused = {False}
            else:
                wish.paused = {False}

        wish.paused = {True, False}
        return self.ask(resume)

    def update(self) -> str:
        """Change the priority of a job."""
        wish = self.any_wish(lambda w: w.acknowledged)
        if wish is None or wish.id is None:
            return "update: none"
        job_id, before = wish.id, wish.priority
        priority = self.rng.randint(-3, 3)
        wish.priority = before | {priority}

        def update() -> None:
            try:
                self.sim.app.update(job_id, priority=priority)
            except UnknownJobError:
                wish.priority = before
            else:
                wish.priority = {priority}

        self.ask(update)
        return f"update {wish.label}: priority {priority}"

    def reschedule(self) -> str:
        """Change the period of a job."""
        wish = self.any_wish(lambda w: w.acknowledged and w.kind == "every")
        if wish is None or wish.id is None:
            return "reschedule: none"
        job_id, before = wish.id, wish.period_ns
        period_ns = self.rng.choice((7, 30, 120)) * SECOND_NS
        wish.period_ns = before | {period_ns}

        def update() -> None:
            try:
                self.sim.app.update(
                    job_id, every=timedelta(seconds=period_ns // SECOND_NS)
                )
            except UnknownJobError:
                wish.period_ns = before
            else:
                wish.period_ns = {period_ns}

        self.ask(update)
        return f"reschedule {wish.label}: every {period_ns // SECOND_NS} s"

    def trigger(self) -> str:
        """Run a job by hand."""
        wish = self.any_wish(lambda w: w.acknowledged)
        if wish is None or wish.id is None:
            return "trigger: none"
        job_id = wish.id
        wish.by_hand = True

        def trigger() -> None:
            with contextlib.suppress(UnknownJobError):
                self.sim.app.trigger(job_id)

        return f"trigger {wish.label}: {self.ask(trigger)}"

    def retry(self) -> str:
        """Retry a run by hand that failed or was lost."""
        run = self.any_run(lambda r: r.state in (RunState.FAILED, RunState.LOST))
        if run is None:
            return "retry: none"
        wish = self.ledger.wish_of(run.job_id)
        wish.by_hand = True
        wish.cancelled |= {True, False}  # it lives again with its run, or not
        wish.paused |= {True, False}  # the same, if it was over while paused
        self.ledger.reopened(run.id)

        def retry() -> None:
            with contextlib.suppress(UnknownJobError, UnknownRunError, RunStateError):
                self.sim.app.retry(run.id)

        return f"retry {run.id} of {wish.label}: {self.ask(retry)}"

    def pause_queue(self) -> str:
        """Pause the narrow queue, or resume it."""

        def change() -> None:
            queue = self.sim.app.queue(NARROW)
            if queue.get().pause is None:
                self.sim.app.pause(queue)
            else:
                self.sim.app.resume(queue)

        return f"pause or resume {NARROW}: {self.ask(change)}"
