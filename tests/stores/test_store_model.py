"""Random programs on a store, one step at a time, compared with a naive oracle.

The program is the callers, the node, the handlers and the kernel that kills them all, so
every order of their steps can come up.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.stores.embedded_stage import EmbeddedStage
from tests.stores.stage import (
    ONCE,
    SECOND,
    STEADY,
    at,
    end_of,
    every,
    misfire,
    overlap,
)
from tests.stores.store_oracle import Expected, StoreOracle
from timingwheel.jobs.errors import RunStateError, UnknownJobError
from timingwheel.jobs.model import Cap, Delivery, JobId, Outcome, Queue, RunState
from timingwheel.jobs.states import FINAL
from timingwheel.jobs.store import Claim, Verdict

JOBS_MAX = 25

delays = st.sampled_from([0, 0, 1, 2, 5, 60])
kinds = st.fixed_dictionaries(
    {},
    optional={
        "tags": st.just({"a": "1"}),
        "priority": st.sampled_from([0, 1]),
        "queue": st.sampled_from(["default", "narrow"]),
        "cap": st.sampled_from([Cap("one", 1), Cap("two", 2)]),
        "delivery": st.sampled_from([ONCE, Delivery.AT_LEAST_ONCE]),
        "lost_max": st.sampled_from([1, 2]),
    },
)
overlaps = st.builds(
    overlap,
    st.sampled_from(
        ["skip", "buffer_one", "buffer_all", "allow", "cancel_other", "kill_other"]
    ),
    st.sampled_from([1, 2, 5]),
)
misfires = st.builds(
    misfire,
    st.sampled_from(["latest", "skip", "first", "all"]),
    limit=st.sampled_from([1, 3]),
)
outcomes = st.sampled_from(
    [Outcome.OK, Outcome.OK, Outcome.ERROR, Outcome.TIMEOUT, Outcome.SHUTDOWN]
)
ends = st.sampled_from(["close", "close", "crash", "crash"])


class StoreMachine(RuleBasedStateMachine):
    """The programs."""

    @initialize(seed=st.integers(0, 1000))
    def begin(self, seed: int) -> None:
        self.stage = EmbeddedStage(seed=seed)
        self.oracle = StoreOracle()
        self.claimed: list[Claim] = []
        self.stage.store.set_queue(Queue(name="narrow", limit=1))

    # -- people -----------------------------------------------------------------------------

    @precondition(lambda self: len(self.oracle.jobs) < JOBS_MAX)
    @rule(delay=delays, more=kinds)
    def put_delay(self, delay: float, more: dict[str, Any]) -> None:
        due_ns = self.stage.store.now().elapsed_ns + delay * SECOND
        job = self.stage.put(delay, retry=STEADY, **more)
        self._note(Expected(job, due_ns=int(due_ns)), more)

    @precondition(lambda self: len(self.oracle.jobs) < JOBS_MAX)
    @rule(seconds=st.sampled_from([-60, 0, 1, 5, 3600]), more=kinds)
    def put_at(self, seconds: int, more: dict[str, Any]) -> None:
        due_ns = self.stage.now_ns + seconds * SECOND
        job = self.stage.put(at(due_ns), retry=STEADY, **more)
        self._note(Expected(job, due_ns=due_ns, elapsed=False), more)

    @precondition(lambda self: len(self.oracle.jobs) < JOBS_MAX)
    @rule(
        period=st.sampled_from([1, 5, 30]),
        over=overlaps,
        missed=misfires,
        runs_max=st.sampled_from([None, None, 2, 5]),
        more=kinds,
    )
    def put_every(
        self, period: int, over: Any, missed: Any, runs_max: Any, more: dict[str, Any]
    ) -> None:
        trigger = every(period, runs_max=runs_max)
        policies = {"overlap": over, "misfire": missed, "retry": STEADY}
        job = self.stage.put(trigger, **policies, **more)
        first_ns = self.stage.job(job).next_ns
        expected = Expected(job, first_ns=first_ns, period_ns=period * SECOND)
        self._note(expected, more)

    @precondition(lambda self: self.oracle.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job = self.a_job(data)
        before = self.stage.runs(job)
        was_over = self.stage.job(job).state.value == "done"
        if was_over and self.oracle.jobs[job].recurs:
            assert self.stage.store.cancel(job).value == "finished"
            return
        wanted = self.oracle.cancels(job, before)
        assert self.stage.store.cancel(job) is wanted

    @precondition(lambda self: self.oracle.jobs)
    @rule(data=st.data())
    def cancel_run(self, data: st.DataObject) -> None:
        live = [run for run in self.stage.runs() if run.state not in FINAL]
        if live:
            ids = sorted(run.id for run in live)
            run_id = data.draw(st.sampled_from(ids))
            wanted = self.oracle.cancels_run(run_id, live)
            assert self.stage.store.cancel_run(run_id) is wanted

    @precondition(lambda self: self.oracle.jobs)
    @rule(data=st.data())
    def pause(self, data: st.DataObject) -> None:
        job = self.a_job(data)
        try:
            assert self.stage.pause(job) != self.oracle.jobs[job].paused
        except UnknownJobError:
            assert self.is_over(job)
        else:
            self.oracle.jobs[job].paused = True

    @precondition(lambda self: self.oracle.jobs)
    @rule(data=st.data(), catch_up=st.sampled_from(["skip", "latest", "all"]))
    def resume(self, data: st.DataObject, catch_up: str) -> None:
        job = self.a_job(data)
        try:
            foretold = self.stage.resume(job, catch_up, dry_run=True)
            assert self.stage.resume(job, catch_up) == foretold
        except UnknownJobError:
            assert self.is_over(job)
        else:
            self.oracle.jobs[job].paused = False

    @precondition(lambda self: self.oracle.jobs)
    @rule(data=st.data())
    def trigger(self, data: st.DataObject) -> None:
        job = self.a_job(data)
        try:
            self.oracle.by_hand.add(self.stage.trigger(job).id)
        except UnknownJobError:
            assert self.is_over(job)

    @precondition(lambda self: self.oracle.ended)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        run_id = data.draw(st.sampled_from(sorted(self.oracle.ended)))
        state = self.oracle.ended[run_id]
        job = self.oracle.jobs[JobId(run_id.partition("@")[0])]
        if job.cancelled or job.recurs:
            return  # what becomes of the job is another test's business
        try:
            self.stage.store.retry(run_id)
        except RunStateError:
            assert state not in (RunState.FAILED, RunState.LOST)
        else:
            del self.oracle.ended[run_id]
            del self.oracle.begun[run_id]
            self.oracle.by_hand.add(run_id)

    # -- the node ---------------------------------------------------------------------------

    @rule()
    def fire(self) -> None:
        self.stage.fire()

    @rule(count=st.sampled_from([1, 2, 100]), ahead=st.sampled_from([0, 0, 2]))
    def claim(self, count: int, ahead: int) -> None:
        self.claimed += self.stage.claim(count, ahead=ahead)
        if not ahead:
            self.begin_claimed()

    @rule(seconds=st.sampled_from([0, 1, 5, 40]), count=st.sampled_from([1, 3, 100]))
    def turn(self, seconds: float, count: int) -> None:
        self.stage.advance(seconds)
        self.fire()
        self.claim(count, 0)

    @precondition(lambda self: self.claimed)
    @rule()
    def begin_claimed(self) -> None:
        claimed, self.claimed = self.claimed, []
        now = self.stage.store.now()
        self.oracle.sees_time(now.wall_ns)
        for claim in claimed:
            cancelled = self.oracle.jobs[claim.run.job_id].cancelled
            may = self.stage.begin(claim)
            assert not (may and cancelled), f"{claim.run.id} was cancelled"
            if may:
                self.oracle.starts(claim, elapsed_ns=now.elapsed_ns)

    @precondition(lambda self: self.claimed)
    @rule()
    def give_back(self) -> None:
        claimed, self.claimed = self.claimed, []
        pairs = [(claim.run.id, claim.token) for claim in claimed]
        self.stage.store.commit(self.stage.store.give_back(pairs))

    @precondition(lambda self: self.oracle.running)
    @rule(data=st.data(), outcome=outcomes)
    def finish(self, data: st.DataObject, outcome: Outcome) -> None:
        run_id = data.draw(st.sampled_from(sorted(self.oracle.running)))
        claim = self.oracle.running[run_id]
        assert self.stage.end(claim, outcome) is Verdict.ACCEPTED
        self._note_end(claim)

    @precondition(lambda self: self.oracle.running)
    @rule()
    def finish_all(self) -> None:
        claims = list(self.oracle.running.values())
        ends = [end_of(claim) for claim in claims]
        verdicts, ticket = self.stage.store.finish(ends)
        self.stage.store.commit(ticket)
        assert set(verdicts) == {Verdict.ACCEPTED}
        for claim in claims:
            self._note_end(claim)

    @precondition(lambda self: self.oracle.running)
    @rule(data=st.data())
    def come_too_late(self, data: st.DataObject) -> None:
        run_id = data.draw(st.sampled_from(sorted(self.oracle.running)))
        claim = self.oracle.running[run_id]
        assert self.stage.end(claim, Outcome.LOST) is Verdict.ACCEPTED
        self._note_end(claim)
        assert self.stage.end(claim) is Verdict.LEASE_LOST

    # -- time and lives ---------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.25, 1, 1, 5, 40, 3600]))
    def advance(self, seconds: float) -> None:
        self.stage.advance(seconds)

    @rule(seconds=st.sampled_from([-7200, -60, 0.5, 60, 7200]))
    def step_wall(self, seconds: float) -> None:
        self.stage.step_wall(seconds)
        # Seen at once: of a step that no tick has noted a crash leaves no trace, and
        # the next process takes it for time that has passed.
        self.oracle.sees_time(self.stage.now_ns)
        self.fire()

    @rule()
    def snapshot(self) -> None:
        self.stage.snapshot()

    @rule(end=ends, down=st.sampled_from([0, 1, 90]), snapshots=st.booleans())
    def restart(self, end: str, down: float, snapshots: bool) -> None:
        if snapshots:
            self.stage.snapshot()
        self.stage.restart(crash=end == "crash", down=down)
        self.claimed = []
        self.oracle.process_dies()
        for run in self.stage.runs():
            if run.state in FINAL:
                self.oracle.ended.setdefault(run.id, run.state)

    # -- what always holds ------------------------------------------------------------------

    @invariant()
    def everything_is_as_the_oracle_says(self) -> None:
        if not hasattr(self, "stage"):
            return
        self.stage.store.check()
        self.oracle.sees_time(self.stage.now_ns)
        runs = self.stage.runs()
        for run in runs:
            if run.state in FINAL and run.id not in self.oracle.running:
                self.oracle.ended.setdefault(run.id, run.state)
        claimed = {claim.run.id for claim in self.claimed}
        skips = {job: self.stage.store.skips(job) for job in self.oracle.jobs}
        self.oracle.compare(self.stage.all_jobs(), runs, skips, claimed=claimed)

    def teardown(self) -> None:
        """In the end every run of every job comes to rest."""
        if not hasattr(self, "stage"):
            return
        try:
            self._come_to_rest()
        finally:
            self.stage.end_all()

    def _come_to_rest(self) -> None:
        self.restart("crash", 0, snapshots=False)
        for job_id, job in self.oracle.jobs.items():
            if job.paused and not self.is_over(job_id):
                self.stage.resume(job_id)
            job.paused = False
            if job.recurs and not self.is_over(job_id):
                self.stage.store.cancel(job_id)
                job.cancelled = True
        self.stage.step_wall(10**6)  # what steps back have put off, too
        for _ in range(200):
            self.stage.advance(5)
            self.fire()
            self.claim(100, 0)
            if self.oracle.running:
                self.finish_all()
            elif all(run.state in FINAL for run in self.stage.runs()):
                break
        else:
            raise AssertionError("it never comes to rest")
        self.everything_is_as_the_oracle_says()

    # -- inside -----------------------------------------------------------------------------

    def a_job(self, data: st.DataObject) -> JobId:
        return data.draw(st.sampled_from(sorted(self.oracle.jobs)))

    def is_over(self, job: JobId) -> bool:
        return self.stage.job(job).state.value in ("done", "cancelled")

    def _note(self, expected: Expected, more: dict[str, Any]) -> None:
        expected.once = more.get("delivery") is ONCE
        self.oracle.jobs[expected.job_id] = expected

    def _note_end(self, claim: Claim) -> None:
        run = self.stage.store.run(claim.run.id)
        assert run is not None, f"run {claim.run.id} is gone"
        self.oracle.ends(run)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of torn tails would be logged and kept."""
    caplog.set_level(logging.CRITICAL, logger="wal")


# Without the phase that explains, which traces every line and takes minutes here.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)


@pytest.mark.timeout(500)  # what shrinking a failure may take
def test_random_programs_agree_with_the_oracle() -> None:
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(stateful_step_count=40, max_examples=30, phases=PHASES),
    )


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_many_random_programs_agree_with_the_oracle() -> None:
    run_state_machine_as_test(
        StoreMachine, settings=settings(stateful_step_count=60, phases=PHASES)
    )
