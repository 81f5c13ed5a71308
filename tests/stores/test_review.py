"""Races of callers, the node and the history, each brought about by hand."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.stores.conftest import MakeStage
from tests.stores.embedded_stage import EmbeddedStage
from tests.stores.stage import (
    NO_RETRY,
    ONCE,
    SECOND,
    STEADY,
    TASK,
    WORKER,
    draft,
    end_of,
    every,
    misfire,
    overlap,
)
from timingwheel import TimerEngine
from timingwheel.errors import ArgumentError, EngineClosedError
from timingwheel.jobs.model import (
    JobId,
    Outcome,
    Pause,
    Payload,
    Queue,
    RunReason,
    RunState,
)
from timingwheel.jobs.store import (
    CancelResult,
    Change,
    JobRef,
    NewRun,
    RunQuery,
    Ticket,
    Verdict,
)
from timingwheel.scheduler.simulated import KeptHistory
from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.stores.history_errors import HistoryError
from timingwheel.stores.state import RECENT_ENDS
from wal.errors import CommitUnknownError


class HookedHistory(KeptHistory):
    """A history in which something happens right after it was asked, once."""

    then: Callable[[], Any] | None = None
    refuses = False
    is_blind = False

    def run(self, run_id: Any) -> Any:
        return self._answered(super().run(run_id))

    def job(self, job_id: JobId) -> Any:
        return self._answered(super().job(job_id))

    def planned(self, job_id: JobId) -> Any:
        return self._answered(super().planned(job_id))

    def write(self, entries: Any, *, now_ns: int = 0) -> None:
        if self.refuses:
            raise HistoryError(self.path, "is refused by the test", "let it")
        super().write(entries, now_ns=now_ns)

    def rows(self, question: str, values: Any) -> list[Any]:
        if self.is_blind:
            raise HistoryError(self.path, "cannot be read by the test", "let it")
        return super().rows(question, values)

    def _answered(self, answer: Any) -> Any:
        then, self.then = self.then, None
        if then is not None:
            then()
        return answer


@pytest.fixture
def stage(make_stage: MakeStage) -> EmbeddedStage:
    return make_stage()


def hooked(stage: EmbeddedStage) -> HookedHistory:
    """Give a stage a history with a hook, from its next life on."""
    stage.stop()
    stage.history.end()
    stage.history = history = HookedHistory(":memory:")
    stage.start()
    return history


# -- what has begun stays begun ---------------------------------------------------------------


@pytest.mark.parametrize("change", ["update", "rebind"])
def test_a_change_does_not_make_a_running_attempt_one_that_never_began(
    stage: EmbeddedStage, change: str
) -> None:
    job = stage.put(0, tags={"a": "b"})
    claim = stage.start_one()
    if change == "update":
        stage.store.update(job, Change(payload=Payload(b"new")), if_revision=None)
    else:
        stage.store.rebind(TASK, "other")
    stage.pause(job)
    stage.resume(job)
    assert stage.start_due(tasks=frozenset({TASK, "other"})) == []
    assert stage.end(claim) is Verdict.ACCEPTED


def test_a_run_that_makes_way_for_another_is_still_known_to_run(
    stage: EmbeddedStage,
) -> None:
    job = stage.put(every(10, runs_max=2), overlap=overlap("cancel_other"))
    stage.advance(10)
    claim = stage.start_one()
    stage.advance(10)
    stage.fire()
    stage.store.requests()
    stage.store.cancel(job, running="signal")
    assert [request.token for request in stage.store.requests()] == [claim.token]
    assert stage.end(claim) is Verdict.ACCEPTED


@pytest.mark.parametrize("more", [{}, {"tags": {"a": "b"}}], ids=["plain", "full"])
def test_a_pause_before_the_service_begins_gives_no_second_start_of_what_ran(
    stage: EmbeddedStage, more: dict[str, Any]
) -> None:
    job = stage.put(0, delivery=ONCE, **more)
    stage.start_one()
    stage.stop(crash=True)
    stage.open()
    stage.pause(job)  # from a command line, say, while no node serves
    stage.resume(job)
    stage.store.join(WORKER)
    stage.store.recover()
    assert stage.step() == []
    assert stage.states(job) == ["lost"]


def test_a_cancel_before_the_service_begins_does_not_claim_to_have_prevented_a_start(
    stage: EmbeddedStage,
) -> None:
    job = stage.put(0)
    stage.start_one()
    stage.stop(crash=True)
    stage.open()
    assert stage.store.cancel(job) is CancelResult.RUNNING
    stage.store.join(WORKER)
    stage.store.recover()
    assert stage.step() == []
    assert stage.states(job) == ["cancelled"]


# -- the node is woken ------------------------------------------------------------------------


def is_awake(stage: EmbeddedStage) -> bool:
    """Return whether the node would look again instead of waiting."""
    until_ns = stage.clock.monotonic_ns()
    before = stage.store._state.news
    with stage.store.changed:
        stage.store.wait(until_ns)
    return before


def quiet(stage: EmbeddedStage) -> None:
    stage.step()
    while is_awake(stage):
        pass


def test_a_claim_for_other_tasks_does_not_take_the_news_away(
    stage: EmbeddedStage,
) -> None:
    quiet(stage)
    job = stage.put(100, tags={"a": "b"})
    stage.trigger(job)
    assert stage.claim(tasks=frozenset({"other"})) == []
    assert is_awake(stage)


def test_an_end_reported_by_another_thread_wakes_the_node(stage: EmbeddedStage) -> None:
    store = stage.store
    job = stage.put(0, tags={"a": "b"})
    claim = stage.start_one()
    quiet(stage)
    woken: list[bool] = []

    def node() -> None:
        with store.changed:
            store.wait()
        woken.append(True)

    thread = threading.Thread(target=node)
    thread.start()
    stage.clock.settle(threads=2)  # it and the history
    store.finish([end_of(claim)])
    thread.join()
    assert woken
    assert job


# -- what was looked up is checked again ------------------------------------------------------


def a_dead_run(stage: EmbeddedStage) -> Any:
    job = stage.put(0, retry=NO_RETRY)
    stage.step(Outcome.ERROR)
    return stage.run(job)


def test_of_two_retries_at_once_one_starts_the_run(stage: EmbeddedStage) -> None:
    history = hooked(stage)
    dead = a_dead_run(stage)

    def other() -> None:
        stage.store.retry(dead.id)
        assert len(stage.step()) == 1

    history.then = other
    with pytest.raises(Exception, match="is succeeded"):
        stage.store.retry(dead.id)
    assert stage.step() == []
    assert stage.states(dead.job_id) == ["succeeded"]


def test_a_discard_beside_a_retry_takes_no_running_run_away(
    stage: EmbeddedStage,
) -> None:
    history = hooked(stage)
    dead = a_dead_run(stage)
    claims: list[Any] = []

    def other() -> None:
        stage.store.retry(dead.id)
        claims.extend(stage.start_due())

    history.then = other
    with pytest.raises(Exception, match="is running"):
        stage.store.discard(dead.id)
    assert stage.end(claims[0]) is Verdict.ACCEPTED
    assert stage.states(dead.job_id) == ["succeeded"]


def test_a_run_by_hand_gets_a_free_n_though_another_ends_meanwhile(
    stage: EmbeddedStage,
) -> None:
    history = hooked(stage)
    job = stage.put(every(1000), overlap=overlap("allow"))
    at_ns = stage.now_ns
    [first] = stage.store.create_runs(job, [NewRun(at_ns, RunReason.BACKFILL)])
    history.then = stage.step
    [second] = stage.store.create_runs(job, [NewRun(at_ns, RunReason.BACKFILL)])
    assert first.id != second.id
    stage.step()
    assert len(stage.runs(job)) == 2


def test_a_run_retried_by_hand_leaves_its_jobs_name_to_the_job_that_has_it(
    stage: EmbeddedStage,
) -> None:
    old = stage.put(every(10, runs_max=1), name="nightly", retry=NO_RETRY)
    stage.work(10, outcome=Outcome.ERROR)
    [dead] = stage.runs(old)
    new = stage.put(every(10), name="nightly")
    stage.store.retry(dead.id)
    assert stage.store.find("nightly").id == new  # type: ignore[union-attr]
    stage.step()
    assert stage.store.find("nightly").id == new  # type: ignore[union-attr]


def test_a_run_retried_by_hand_does_not_stand_for_a_recurring_job_of_its_name(
    stage: EmbeddedStage,
) -> None:
    trigger = every(10, runs_max=1)
    old = stage.put(trigger, name="nightly", retry=NO_RETRY)
    stage.work(10, outcome=Outcome.ERROR)
    [dead] = stage.runs(old)
    stage.store.retry(dead.id)
    [ref] = stage.store.put([draft(trigger, name="nightly", retry=NO_RETRY)])
    assert ref.created


# -- between due and decided ------------------------------------------------------------------


def between(stage: EmbeddedStage, act: Callable[[], Any]) -> None:
    """Do something after the due were taken and before they are decided about."""
    stage.advance(stage.grain_ns / SECOND)
    stage.store._core.take_due(1000)
    act()
    stage.fire()


def test_a_pause_at_the_very_end_of_another_holds(stage: EmbeddedStage) -> None:
    job = stage.put(every(1000))
    stage.pause(job, until_ns=stage.now_ns + 10 * SECOND)
    stage.advance(10)
    between(stage, lambda: stage.pause(job, note="for good"))
    assert stage.job(job).pause is not None


def test_a_pause_of_a_job_ends_though_the_clock_is_set_back_as_it_does(
    stage: EmbeddedStage,
) -> None:
    job = stage.put(every(1000))
    stage.pause(job, until_ns=stage.now_ns + 10 * SECOND)
    stage.advance(10)
    between(stage, lambda: stage.step_wall(-5))
    assert stage.job(job).pause is not None
    stage.advance(6)
    stage.fire()
    assert stage.job(job).pause is None


def test_a_pause_of_a_queue_ends_though_the_clock_is_set_back_as_it_does(
    stage: EmbeddedStage,
) -> None:
    now_ns = stage.now_ns
    pause = Pause(since_ns=now_ns, until_ns=now_ns + 10 * SECOND)
    stage.store.set_queue(Queue(name="q", pause=pause))
    stage.advance(10)
    between(stage, lambda: stage.step_wall(-5))
    stage.advance(6)
    stage.fire()
    assert stage.store.queue("q").pause is None


def test_a_start_deadline_holds_though_the_clock_is_set_back_as_it_passes(
    stage: EmbeddedStage,
) -> None:
    job = stage.put(0, start_deadline_ns=10 * SECOND)
    stage.fire()
    stage.advance(10)
    between(stage, lambda: stage.step_wall(-5))
    stage.advance(6)
    stage.fire()
    assert stage.states(job) == ["skipped"]


def test_a_worker_that_beats_as_its_lease_runs_out_is_kept_or_told(
    stage: EmbeddedStage,
) -> None:
    stage.store.join("far", ttl_ns=10 * SECOND)
    stage.put(0)
    stage.fire()
    [claim] = stage.claim(worker="far")
    told: list[bool] = []
    stage.advance(10)
    between(stage, lambda: told.append(stage.store.beat("far")))
    assert told == [stage.store.beat("far")]
    assert (stage.end(claim) is Verdict.ACCEPTED) == told[0]


# -- what grows -------------------------------------------------------------------------------


def test_a_queue_that_waits_for_its_rate_is_waited_for_once(
    stage: EmbeddedStage,
) -> None:
    stage.store.set_queue(Queue(name="slow", rate=0.001))
    for _ in range(3):
        stage.put(0, queue="slow")
    assert len(stage.start_due()) == 1
    for _ in range(50):
        assert stage.claim() == []
    assert len(stage.store._state.waits) == 1


def test_a_queue_that_is_paused_again_and_again_is_waited_for_once(
    stage: EmbeddedStage,
) -> None:
    for n in range(50):
        pause = Pause(since_ns=0, until_ns=stage.now_ns + (1000 + n) * SECOND)
        stage.store.set_queue(Queue(name="q", pause=pause))
    assert len(stage.store._state.waits) == 1


def test_jobs_cancelled_in_a_paused_queue_leave_nothing_behind(
    stage: EmbeddedStage,
) -> None:
    stage.store.set_queue(Queue(name="q", pause=Pause(since_ns=0)))
    kept = [stage.put(0, queue="q") for _ in range(3)]
    stage.fire()
    for _ in range(3000):
        job = stage.put(0, queue="q")
        stage.fire()
        assert stage.store.cancel(job)
    assert len(stage.store._state.ready) < 2500
    stage.store.set_queue(Queue(name="q"))
    assert [claim.run.job_id for claim in stage.start_due()] == kept


# -- the history ------------------------------------------------------------------------------


def test_a_history_from_before_the_snapshot_is_refused_though_it_lagged_then(
    make_stage: MakeStage,
) -> None:
    stage = make_stage()
    stage.clock.settle(threads=1)  # its first step, a purge, would write at once
    stage.put(0)
    stage.step()
    older = stage.history.fork()
    assert older.reached_lsn == 0, "the writer lingers"
    stage.snapshot()
    stage.stop()
    stage.history.end()
    stage.history = older
    with pytest.raises(HistoryError, match="older"):
        stage.open()


def test_a_history_that_refuses_stops_no_put_after_an_opening(
    stage: EmbeddedStage,
) -> None:
    history = hooked(stage)
    stage.put(0)
    stage.step()
    stage.stop(crash=True)
    stage.history.end()
    stage.history = history = HookedHistory(":memory:")
    history.refuses = True
    stage.start()
    job = stage.put(0)
    assert [run.job_id for run in stage.step()] == [job]
    keyed = stage.put(0, key="k")  # nothing refers to it: that is seen in memory
    assert [run.job_id for run in stage.step()] == [keyed]
    assert stage.store.put([draft(0, key="k")]) == [JobRef(keyed, created=False)]
    history.is_blind = True
    with pytest.raises(HistoryError):
        stage.put(0, key="other")
    history.refuses = history.is_blind = False


def test_a_follow_up_that_the_history_cannot_judge_is_refused_and_not_the_end(
    stage: EmbeddedStage,
) -> None:
    history = hooked(stage)
    stage.put(0)
    stage.step()
    stage.stop(crash=True)
    stage.history.end()
    stage.history = history = HookedHistory(":memory:")
    stage.start()
    job = stage.put(0, retry=STEADY)
    claim = stage.start_one()
    history.is_blind = True
    assert stage.end(claim, follow_ups=(draft(0, key="k"),)) is Verdict.ACCEPTED
    assert stage.store._read.live_runs_of(job)[0].state is RunState.RETRYING
    history.is_blind = False


def test_a_key_that_is_in_use_stays_so_however_much_ends_beside_the_put(
    stage: EmbeddedStage,
) -> None:
    history = hooked(stage)
    job = stage.put(0, key="k")

    def other() -> None:
        for _ in range(3):
            stage.store.put([draft(0) for _ in range(RECENT_ENDS // 2)])
            while stage.step():
                pass
            stage.store.runs(RunQuery(limit=1))  # so that the history has them

    history.then = other
    assert stage.store.put([draft(0, key="k")]) == [JobRef(job, created=False)]
    assert stage.step() == []


def test_reads_beside_a_failed_disk_raise_and_wait_for_no_interval(
    make_stage: MakeStage,
) -> None:
    stage = make_stage(durability="interval", interval_ms=60_000)
    stage.put(0)
    stage.step()
    stage.disk.fail("datasync", errno.EIO)
    with pytest.raises(CommitUnknownError):
        stage.store.runs(RunQuery())
    stage.disk.heal()


def test_a_close_whose_last_sync_fails_says_so_and_lets_go_of_the_directory(
    make_stage: MakeStage,
) -> None:
    """Under an interval a put is told of before it is durable; the close is the last word."""
    stage = make_stage(durability="interval", interval_ms=60_000)
    stage.put(0)
    stage.disk.fail("datasync", errno.EIO)
    with pytest.raises(CommitUnknownError):
        stage.store.close()
    stage.store.close()
    stage.disk.heal()
    stage.open()


def test_an_end_that_anothers_commit_makes_durable_too_early_is_told_and_kept(
    stage: EmbeddedStage,
) -> None:
    told: list[Any] = []
    stage.store.add_listener(told.extend)
    state, core = stage.store._state, stage.store._core
    offer = state.note_history

    def late(entry: Any) -> None:
        core.sync(
            core.log.appended_lsn
        )  # as another thread may, between our append and our apply
        offer(entry)

    state.note_history = late
    job = stage.put(0)
    stage.step()
    assert [run.job_id for run in told] == [job]
    assert stage.history.run(stage.run(job).id) is not None


# -- ids --------------------------------------------------------------------------------------


def test_an_id_in_other_letters_is_no_jobs_id(stage: EmbeddedStage) -> None:
    job = stage.put(100)
    for text in (job.upper(), job.replace("-", ""), f" {job}"):
        if text != job:
            assert stage.store.cancel(JobId(text)) is CancelResult.NOT_FOUND
            assert stage.store.get(JobId(text)) is None
    assert stage.store.cancel(job)


@pytest.mark.parametrize("text", ["", "x", "x@", "@1", "x@y", "x@1#y"])
def test_what_is_no_run_id_is_refused_by_name(stage: EmbeddedStage, text: Any) -> None:
    for ask in (stage.store.run, stage.store.retry, stage.store.discard):
        with pytest.raises(ArgumentError, match=r"run id|id of a run"):
            ask(text)


def test_what_is_given_back_may_be_an_iterator_and_name_a_claim_twice(
    stage: EmbeddedStage,
) -> None:
    job = stage.put(0)
    stage.fire()
    [claim] = stage.claim()
    one = (claim.run.id, claim.token)
    stage.store.commit(stage.store.give_back(iter([one, one])))
    assert [run.job_id for run in stage.step()] == [job]


# -- what is large ----------------------------------------------------------------------------


def test_a_job_with_many_waiting_runs_and_a_large_payload_can_be_cancelled(
    make_stage: MakeStage,
) -> None:
    stage = make_stage(segment_size_bytes=16 << 20)
    trigger, payload = every(1), Payload(b"x" * (1 << 20))
    job = stage.put(trigger, overlap=overlap("allow", 50), payload=payload)
    stage.advance(20)
    stage.fire()
    assert len(stage.store._state.runs) == 20
    assert stage.store.cancel(job)
    assert set(stage.states(job)) == {"cancelled"}


def test_follow_ups_that_no_group_can_hold_are_refused_and_the_node_goes_on(
    stage: EmbeddedStage,
) -> None:
    job = stage.put(0, retry=NO_RETRY)
    claim = stage.start_one()
    more = tuple(draft(0, payload=Payload(b"x" * 100_000)) for _ in range(5))
    assert stage.end(claim, follow_ups=more) is Verdict.ACCEPTED
    assert stage.states(job) == ["failed"]
    assert "follow-up" in (stage.run(job).error or "")
    assert stage.step() == []


def test_a_task_of_more_jobs_than_a_group_holds_is_rebound(
    make_stage: MakeStage,
) -> None:
    stage = make_stage()
    payload = Payload(b"x" * 20_000)
    for start in range(0, 40, 4):
        stage.store.put([draft(100 + start, payload=payload) for _ in range(4)])
    named = stage.put(every(1000), name="n", payload=payload)
    assert stage.store.rebind(TASK, "other") == 41
    assert {job.task for job in stage.all_jobs()} == {"other"}
    assert stage.job(named).revision == 2
    assert stage.store.rebind(TASK, "other") == 0


def test_timers_of_another_owner_are_refused_at_the_opening(tmp_path: Path) -> None:
    with TimerEngine(tmp_path, lambda *_: None) as engine:
        engine.schedule(100, b"payload")
    with pytest.raises(ArgumentError, match="holds timers of another kind"):
        EmbeddedStore.open(tmp_path)
    with TimerEngine(tmp_path, lambda *_: None) as engine:
        assert len(engine) == 1


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_timer_engine_is_not_given_jobs_for_timers(
    tmp_path: Path, *, is_empty: bool
) -> None:
    store = EmbeddedStore.open(tmp_path)
    if not is_empty:
        store.put([draft(100)])
    store.close()
    with pytest.raises(ArgumentError, match="belongs to a scheduler"):
        TimerEngine(tmp_path, lambda *_: None)


# -- what is written down ---------------------------------------------------------------------


def test_a_range_of_overlaps_reaches_over_no_range_of_misfires(
    stage: EmbeddedStage,
) -> None:
    job = stage.put(every(1), overlap=overlap("skip"), misfire=misfire("first"))
    stage.advance(1)
    stage.fire()  # it is ready, and nobody starts it
    stage.restart(down=90)
    stage.advance(1)
    stage.fire()
    skips = stage.store.skips(job)
    for former, skip in itertools.pairwise(skips):
        assert former.last_ns < skip.first_ns, skips


# -- forks ------------------------------------------------------------------------------------


def test_in_a_forked_child_every_call_says_so(tmp_path: Path) -> None:
    stage = EmbeddedStage(tmp_path)
    dead = a_dead_run(stage)
    store, job = stage.store, dead.job_id
    asks: list[Callable[[], Any]] = [
        lambda: stage.put(0, key="k"),
        lambda: store.get(job),
        lambda: store.cancel(job),
        lambda: store.create_runs(job, []),
        lambda: store.planned(job),
        lambda: store.runs(RunQuery()),
        lambda: store.retry(dead.id),
        lambda: store.discard(dead.id),
        lambda: store.rebind("a", "b"),
        lambda: store.fire(1),
        lambda: store.commit(Ticket(1 << 40)),
        stage.claim,
        store.snapshot,
        store.recover,
    ]
    child = os.fork()
    if not child:
        told = 0
        for ask in asks:
            try:
                ask()
            except EngineClosedError as error:
                told += "fork" in str(error)
            except BaseException:  # noqa: BLE001 - it counts as not told
                pass
        os._exit(told)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == len(asks)
    stage.end_all()
