"""What every executor promises, whatever it runs handlers in."""

from __future__ import annotations

import threading
from collections import deque

import msgspec
import pytest

from tests.scheduler.executors import handlers
from tests.scheduler.executors.conftest import MakeStage, Stage
from tests.scheduler.executors.stage import PATIENCE_S, Door, RecordingHost, work_of
from timingwheel.jobs.model import Outcome, Payload
from timingwheel.jobs.store import Finish
from timingwheel.scheduler.executors.executor import Work
from timingwheel.scheduler.executors.pace import AHEAD_MAX, HELD_UP_NS, SHORT_NS
from timingwheel.scheduler.tasks import Call, Task
from timingwheel.testing import ManualClock

ALL = ("inline", "thread", "asyncio", "process")
PLAIN = ("inline", "thread", "process")  # run plain functions
BESIDE = ("thread", "asyncio", "process")  # run more than one at once

add = dict.fromkeys(PLAIN, handlers.add) | {"asyncio": handlers.add_async}
fail = dict.fromkeys(PLAIN, handlers.fail) | {"asyncio": handlers.fail_async}
tell = dict.fromkeys(PLAIN, handlers.tell) | {"asyncio": handlers.tell_async}
wait = dict.fromkeys(PLAIN, handlers.wait) | {"asyncio": handlers.wait_async}
insist: dict[str, Task] = {
    "inline": handlers.wait_and_return,
    "thread": handlers.wait_and_return,
    "asyncio": handlers.insist_async,
    "process": handlers.wait_and_return,
}


def run(stage: Stage, *works: Work) -> list[Finish]:
    """Run works to their ends, and return these in the order of the works."""
    stage.submit(*works)
    finishes = {finish.token: finish for finish in stage.host.wait_for_ends(len(works))}
    return [finishes[work.claim.token] for work in works]


def run_one(stage: Stage, call: Call) -> Finish:
    (finish,) = run(stage, work_of(call))
    return finish


# ------------------------------------------------------------------------ how it may end


@pytest.mark.parametrize("kind", ALL)
def test_what_the_handler_returns_is_the_result(
    kind: str, make_stage: MakeStage
) -> None:
    work = work_of(add[kind].call(3, b=4))
    (finish,) = run(make_stage(kind), work)
    assert finish.outcome is Outcome.OK
    assert add[kind].codec.decode_result(finish.result) == 7
    assert (finish.run_id, finish.token) == (work.claim.run.id, work.claim.token)
    assert finish.error is None
    assert finish.started_ns > 0


@pytest.mark.parametrize("kind", ALL)
def test_the_handler_is_told_which_attempt_it_is(
    kind: str, make_stage: MakeStage
) -> None:
    work = work_of(tell[kind].call(), attempt=3)
    (finish,) = run(make_stage(kind), work)
    assert tell[kind].codec.decode_result(finish.result) == {
        "run_id": work.claim.run.id,
        "attempt": 3,
        "token": work.claim.token,
        "nominal": "2023-11-14T22:13:20+00:00",
        "due": "2023-11-14T22:14:20+00:00",
        "current": True,
    }


@pytest.mark.parametrize("kind", ALL)
def test_an_error_is_told_with_its_traceback_from_the_handler_on(
    kind: str, make_stage: MakeStage
) -> None:
    finish = run_one(make_stage(kind), fail[kind].call("no such host"))
    assert finish.outcome is Outcome.ERROR
    assert not finish.gives_up
    assert finish.result is None
    assert finish.error is not None
    assert finish.error.endswith("ValueError: no such host")
    assert "handlers.py" in finish.error
    assert "attempt.py" not in finish.error


@pytest.mark.parametrize("kind", PLAIN)
def test_an_error_that_no_retry_mends_gives_up(
    kind: str, make_stage: MakeStage
) -> None:
    finish = run_one(make_stage(kind), handlers.give_up.call())
    assert (finish.outcome, finish.gives_up) == (Outcome.ERROR, True)


@pytest.mark.parametrize("kind", PLAIN)
def test_a_snooze_is_no_end_and_adds_nothing(kind: str, make_stage: MakeStage) -> None:
    finish = run_one(make_stage(kind), handlers.snooze.call())
    assert finish.outcome is Outcome.OK
    assert finish.snooze_ns == 90_000_000_000
    assert finish.follow_ups == ()


@pytest.mark.parametrize("kind", PLAIN)
def test_what_a_success_has_added_comes_with_it(
    kind: str, make_stage: MakeStage
) -> None:
    finish = run_one(make_stage(kind), handlers.follow_up.call(is_fine=True))
    assert finish.outcome is Outcome.OK
    first, second = finish.follow_ups
    assert first.task == second.task == handlers.add.name
    assert handlers.add.codec.decode(second.payload).kwargs == {"a": 2}
    assert msgspec.to_builtins(first.trigger.when)["delay_ns"] == 5_000_000_000


@pytest.mark.parametrize("kind", PLAIN)
def test_what_a_failure_has_added_is_dropped(kind: str, make_stage: MakeStage) -> None:
    finish = run_one(make_stage(kind), handlers.follow_up.call(is_fine=False))
    assert finish.outcome is Outcome.ERROR
    assert finish.follow_ups == ()


@pytest.mark.parametrize("kind", PLAIN)
def test_an_option_of_add_that_cannot_be_meant_is_refused_in_the_handler(
    kind: str, make_stage: MakeStage
) -> None:
    finish = run_one(make_stage(kind), handlers.follow_up_badly.call())
    result = handlers.follow_up_badly.codec.decode_result(finish.result)
    assert isinstance(result, str)
    assert result.startswith("TaskError: options is {'dlay': 5}")


@pytest.mark.parametrize("kind", PLAIN)
def test_a_result_that_cannot_be_kept_is_an_error_that_says_so(
    kind: str, make_stage: MakeStage
) -> None:
    finish = run_one(make_stage(kind), handlers.return_object.call())
    assert (finish.outcome, finish.gives_up) == (Outcome.ERROR, True)
    assert "returned a value of type object that cannot be kept" in (finish.error or "")


@pytest.mark.parametrize("kind", ALL)
def test_a_payload_that_does_not_fit_is_undecodable_and_the_handler_is_not_called(
    kind: str, make_stage: MakeStage
) -> None:
    stage = make_stage(kind)
    call = Call(add[kind], Payload(msgspec.msgpack.encode({"a": "text"})))
    finish = run_one(stage, call)
    assert finish.outcome is Outcome.ERROR
    assert finish.undecodable
    assert finish.gives_up
    assert "does not fit" in (finish.error or "")


@pytest.mark.parametrize("kind", PLAIN)
def test_of_the_log_the_last_100_lines_are_kept(
    kind: str, make_stage: MakeStage
) -> None:
    finish = run_one(make_stage(kind), handlers.say.call(250))
    lines = finish.log.splitlines()
    assert len(lines) == 100
    assert lines[0].endswith("Z INFO line 150")
    assert lines[-1].endswith("Z INFO line 249")


@pytest.mark.parametrize("kind", PLAIN)
def test_what_is_logged_goes_to_the_programs_logging_with_its_ids(
    kind: str, make_stage: MakeStage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "timingwheel.task")
    finish = run_one(make_stage(kind), handlers.say.call(2))
    records = [r for r in caplog.records if r.getMessage() == "line 1"]
    assert len(records) == 1
    assert vars(records[0])["run_id"] == finish.run_id
    assert vars(records[0])["token"] == finish.token
    assert records[0].name == f"timingwheel.task.{handlers.say.name}"


@pytest.mark.parametrize("kind", PLAIN)
def test_a_heartbeat_reaches_the_host(kind: str, make_stage: MakeStage) -> None:
    stage = make_stage(kind)
    finish = run_one(stage, handlers.beat.call())
    assert handlers.beat.codec.decode_result(finish.result) == "alive"
    assert stage.host.beats == [finish.token]


@pytest.mark.parametrize("kind", PLAIN)
def test_a_heartbeat_of_a_run_that_is_somebody_elses_raises_in_the_handler(
    kind: str, make_stage: MakeStage
) -> None:
    stage = make_stage(kind)
    work = work_of(handlers.beat.call())
    stage.host.stolen.add(work.claim.token)
    (finish,) = run(stage, work)
    assert finish.outcome is Outcome.LOST
    assert finish.log.endswith("WARNING lost")


@pytest.mark.parametrize("kind", PLAIN)
def test_a_host_that_fails_at_a_heartbeat_fails_in_the_handler(
    kind: str, make_stage: MakeStage
) -> None:
    stage = make_stage(kind, slots=1)
    stage.host.has_failed = True
    finish = run_one(stage, handlers.beat.call())
    assert finish.outcome is Outcome.ERROR
    assert "EngineFailedError: the disk is gone" in (finish.error or "")
    stage.submit(work_of(add[kind].call(1)))
    assert stage.host.wait_for_ends(2)[1].outcome is Outcome.OK


# -------------------------------------------------------------------- slots and beginning


@pytest.mark.parametrize("kind", ALL)
def test_each_end_is_told_exactly_once(kind: str, make_stage: MakeStage) -> None:
    stage = make_stage(kind, slots=3)
    works = [work_of(add[kind].call(number)) for number in range(200)]
    stage.submit(*works[:100])
    stage.submit(*works[100:])
    finishes = stage.host.wait_for_ends(200)
    tokens = [work.claim.token for work in works]
    assert sorted(finish.token for finish in finishes) == tokens
    assert sorted(stage.host.begun) == tokens
    assert all(finish.outcome is Outcome.OK for finish in finishes)
    assert stage.executor.stop(0) == []
    assert len(stage.host.finishes) == 200


@pytest.mark.parametrize("kind", ALL)
def test_what_may_not_begin_is_dropped_without_a_word(
    kind: str, make_stage: MakeStage
) -> None:
    stage = make_stage(kind, slots=1)
    works = [work_of(add[kind].call(number)) for number in range(3)]
    stage.host.refused.add(works[1].claim.token)
    stage.submit(*works)
    finishes = stage.host.wait_for_ends(2)
    assert [finish.token for finish in finishes] == [
        works[0].claim.token,
        works[2].claim.token,
    ]
    assert stage.executor.free == 1


@pytest.mark.parametrize("kind", ALL)
def test_a_host_that_fails_at_begin_starts_nothing_and_ends_no_thread(
    kind: str, make_stage: MakeStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage = make_stage(kind, slots=1)
    bad, good = work_of(add[kind].call(1)), work_of(add[kind].call(2))

    def fail_at_bad(work: Work) -> None:
        if work is bad:
            raise OSError("the store has failed")

    stage.host.on_begin = fail_at_bad
    stage.submit(bad, good)
    (finish,) = stage.host.wait_for_ends(1)
    assert finish.token == good.claim.token
    assert "did not begin" in caplog.text


@pytest.mark.parametrize("kind", BESIDE)
def test_as_many_run_at_once_as_there_are_slots_and_the_rest_waits(
    kind: str, make_stage: MakeStage, door: Door
) -> None:
    stage = make_stage(kind, slots=2)
    assert stage.executor.free == 2
    works = [work_of(wait[kind].call(door.address)) for _ in range(3)]
    stage.submit(*works[:1])
    door.wait_for_knock()
    assert stage.executor.free == 1
    stage.submit(*works[1:])
    door.wait_for_knock()
    assert stage.executor.free == 0
    assert sorted(stage.host.begun) == [work.claim.token for work in works[:2]]
    door.open()
    door.wait_for_knock()
    door.open()
    assert len(stage.host.wait_for_ends(3)) == 3
    assert stage.executor.free == 2


@pytest.mark.parametrize("kind", ALL)
def test_work_is_taken_ahead_once_handlers_have_proved_short(
    kind: str, make_stage: MakeStage
) -> None:
    stage = make_stage(kind, slots=1, host=RecordingHost(ManualClock()))
    assert stage.executor.ahead == 0
    run_one(stage, add[kind].call(1))
    assert stage.executor.ahead == AHEAD_MAX


@pytest.mark.parametrize("kind", ["inline", "thread"])
def test_no_work_is_taken_ahead_behind_handlers_of_a_millisecond(
    kind: str, make_stage: MakeStage
) -> None:
    stage = make_stage(kind, slots=1, host=RecordingHost(handlers.CLOCK))
    run_one(stage, handlers.take.call(SHORT_NS))
    assert stage.executor.ahead == 0


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_work_that_waits_inside_counts_against_what_is_taken_ahead(
    kind: str, make_stage: MakeStage, door: Door
) -> None:
    stage = make_stage(kind, slots=1, host=RecordingHost(ManualClock()))
    run_one(stage, add[kind].call(1))
    stage.submit(*[work_of(wait[kind].call(door.address)) for _ in range(4)])
    door.wait_for_knock()
    assert stage.executor.free == 0
    assert stage.executor.ahead == AHEAD_MAX - 3


@pytest.mark.parametrize("kind", BESIDE)
def test_work_that_was_taken_ahead_is_taken_back_from_behind_a_handler_that_is_long(
    kind: str, make_stage: MakeStage, door: Door
) -> None:
    clock = ManualClock()
    stage = make_stage(kind, slots=1, host=RecordingHost(clock))
    run_one(stage, add[kind].call(1))
    works = [work_of(wait[kind].call(door.address)) for _ in range(3)]
    stage.submit(*works)
    door.wait_for_knock()
    clock.advance(ns=HELD_UP_NS - 1)
    assert stage.executor.take_back() == []
    clock.advance(ns=1)
    assert stage.executor.ahead == 0
    assert stage.executor.take_back() == works[1:]
    assert stage.executor.take_back() == []
    door.open()
    assert [end.token for end in stage.host.wait_for_ends(2)][1:] == [
        works[0].claim.token
    ]
    assert stage.host.begun[1:] == [works[0].claim.token]


# ------------------------------------------------------------------------------ interrupts


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    "outcome", [Outcome.CANCELLED, Outcome.TIMEOUT, Outcome.SHUTDOWN]
)
def test_an_attempt_that_is_asked_ends_with_the_outcome_it_was_asked_with(
    kind: str, outcome: Outcome, make_stage: MakeStage, door: Door
) -> None:
    stage = make_stage(kind)
    work = work_of(wait[kind].call(door.address))
    stage.submit(work)
    door.wait_for_knock()
    stage.executor.interrupt(work.claim.token, outcome, kill=False)
    if kind in {"inline", "thread"}:  # the others are interrupted where they wait
        door.open()
    (finish,) = stage.host.wait_for_ends(1)
    assert finish.outcome is outcome
    assert finish.error
    assert stage.host.alerts == []


@pytest.mark.parametrize("kind", ["inline", "thread"])
def test_a_handler_that_was_asked_and_returns_has_succeeded(
    kind: str, make_stage: MakeStage, door: Door
) -> None:
    stage = make_stage(kind)
    work = work_of(handlers.wait_and_return.call(door.address))
    stage.submit(work)
    door.wait_for_knock()
    stage.executor.interrupt(work.claim.token, Outcome.CANCELLED, kill=False)
    door.open()
    (finish,) = stage.host.wait_for_ends(1)
    assert finish.outcome is Outcome.OK
    result = handlers.wait_and_return.codec.decode_result(finish.result)
    assert result == "asked, and done"


@pytest.mark.parametrize("kind", ALL)
def test_a_kill_is_told_at_once_and_what_comes_after_it_is_dropped(
    kind: str, make_stage: MakeStage, door: Door
) -> None:
    stage = make_stage(kind, slots=1)
    work = work_of(insist[kind].call(door.address))
    stage.submit(work)
    door.wait_for_knock()
    stage.executor.interrupt(work.claim.token, Outcome.TIMEOUT, kill=True)
    (finish,) = stage.host.wait_for_ends(1)
    assert finish.outcome is Outcome.TIMEOUT
    assert len(stage.host.alerts) == 1
    assert insist[kind].name in stage.host.alerts[0]
    if kind == "inline":
        door.open()  # nothing else can run before
    stage.submit(work_of(add[kind].call(1)))
    after = stage.host.wait_for_ends(2)[1]
    assert after.outcome is Outcome.OK
    door.open()
    stage.submit(work_of(add[kind].call(2)))
    assert [one.outcome for one in stage.host.wait_for_ends(3)] == [
        Outcome.TIMEOUT,
        Outcome.OK,
        Outcome.OK,
    ]
    assert stage.executor.free == 1


@pytest.mark.parametrize("kind", ALL)
def test_an_interrupt_of_an_attempt_that_is_not_there_does_nothing(
    kind: str, make_stage: MakeStage
) -> None:
    stage = make_stage(kind)
    finish = run_one(stage, add[kind].call(1))
    stage.executor.interrupt(finish.token, Outcome.CANCELLED, kill=True)
    stage.executor.interrupt(finish.token + 1_000_000, Outcome.CANCELLED, kill=False)
    run_one_more = work_of(add[kind].call(2))
    stage.submit(run_one_more)
    assert stage.host.wait_for_ends(2)[1].outcome is Outcome.OK
    assert stage.host.alerts == []


@pytest.mark.parametrize("kind", ALL)
def test_a_kill_before_the_beginning_is_told_and_the_handler_never_starts(
    kind: str, make_stage: MakeStage, door: Door
) -> None:
    stage = make_stage(kind, slots=1)
    killed = work_of(wait[kind].call(door.address))
    after = work_of(tell[kind].call())

    def kill(work: Work) -> None:
        if work is killed:
            token = work.claim.token
            stage.executor.interrupt(token, Outcome.CANCELLED, kill=True)

    stage.host.on_begin = kill
    stage.submit(killed, after)
    finishes = stage.host.wait_for_ends(2)
    assert {finish.token: finish.outcome for finish in finishes} == {
        killed.claim.token: Outcome.CANCELLED,
        after.claim.token: Outcome.OK,
    }
    assert len(finishes) == 2
    assert not door.has_knock


# ---------------------------------------------------------------------------------- stop


@pytest.mark.parametrize("kind", ALL)
def test_a_stop_returns_what_never_began_and_lets_the_rest_end(
    kind: str, make_stage: MakeStage, door: Door
) -> None:
    stage = make_stage(kind, slots=1)
    waiting = WatchedDeque()
    stage.executor._waiting = waiting  # type: ignore[attr-defined]
    works = [work_of(wait[kind].call(door.address)) for _ in range(3)]
    stage.submit(*works)
    door.wait_for_knock()
    stopping = Stopping(stage, grace_s=PATIENCE_S)
    assert waiting.cleared.wait(PATIENCE_S)
    assert stage.host.finishes == []
    door.open()
    assert stopping.left() == works[1:]
    (finish,) = stage.host.finishes
    assert (finish.token, finish.outcome) == (works[0].claim.token, Outcome.OK)


@pytest.mark.parametrize("kind", ALL)
def test_what_outlasts_the_grace_is_told_as_shut_down(
    kind: str, make_stage: MakeStage, door: Door
) -> None:
    stage = make_stage(kind, slots=1)
    works = [work_of(insist[kind].call(door.address)) for _ in range(2)]
    stage.submit(*works)
    door.wait_for_knock()
    assert stage.executor.stop(0) == works[1:]
    (finish,) = stage.host.finishes
    assert finish.token == works[0].claim.token
    assert finish.outcome is Outcome.SHUTDOWN
    door.open()


@pytest.mark.parametrize("kind", ["inline", "thread", "asyncio"])
def test_what_heeds_the_stop_is_shut_down_without_an_alert(
    kind: str, make_stage: MakeStage
) -> None:
    stage = make_stage(kind)
    task = handlers.heed_async if kind == "asyncio" else handlers.heed
    work = work_of(task.call())
    stage.submit(work)
    stage.host.wait_until(lambda: stage.host.begun == [work.claim.token])
    assert stage.executor.stop(0) == []
    (finish,) = stage.host.finishes
    assert finish.outcome is Outcome.SHUTDOWN
    assert stage.host.alerts == []


@pytest.mark.parametrize("kind", ALL)
def test_a_stop_does_not_overtake_the_end_of_an_attempt(
    kind: str, make_stage: MakeStage
) -> None:
    """Else the host closes its store, and the end of finished work is lost."""
    stage = make_stage(kind)
    waiting = WatchedDeque()
    stage.executor._waiting = waiting  # type: ignore[attr-defined]
    reached, returned = threading.Event(), threading.Event()
    overtaken: list[bool] = []

    def dawdle(finish: Finish) -> None:
        reached.set()
        assert waiting.cleared.wait(PATIENCE_S)
        overtaken.append(returned.wait(0.2))

    stage.host.on_end = dawdle
    stage.submit(work_of(add[kind].call(1)))
    assert reached.wait(PATIENCE_S)
    assert stage.executor.stop(PATIENCE_S) == []
    returned.set()
    stage.host.wait_for_ends(1)
    assert overtaken == [False]


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("refused", [False, True])
def test_a_stop_is_over_when_the_last_work_is_and_not_with_its_grace(
    kind: str, make_stage: MakeStage, *, refused: bool
) -> None:
    """Whether it has ended, or was refused as it was to begin."""
    stage = make_stage(kind)
    waiting = WatchedDeque()
    stage.executor._waiting = waiting  # type: ignore[attr-defined]
    reached = threading.Event()

    def dawdle(_: object) -> None:
        reached.set()
        assert waiting.cleared.wait(PATIENCE_S)

    work = work_of(add[kind].call(1))
    if refused:
        stage.host.refused.add(work.claim.token)
        stage.host.on_begin = dawdle
    else:
        stage.host.on_end = dawdle
    stage.submit(work)
    assert reached.wait(PATIENCE_S)
    assert Stopping(stage, grace_s=10 * PATIENCE_S).left() == []


@pytest.mark.parametrize("kind", ["inline", "thread", "asyncio"])
def test_a_handler_that_stops_its_own_executor_is_not_waited_for(
    kind: str, make_stage: MakeStage
) -> None:
    stage = make_stage(kind)
    handlers.Executors.own = stage.executor
    task = handlers.stop_own_async if kind == "asyncio" else handlers.stop_own
    stage.submit(work_of(task.call()))
    (finish,) = stage.host.wait_for_ends(1)
    assert finish.outcome is Outcome.SHUTDOWN


@pytest.mark.parametrize("kind", ALL)
def test_after_a_stop_nothing_starts(kind: str, make_stage: MakeStage) -> None:
    stage = make_stage(kind)
    run_one(stage, add[kind].call(1))
    stage.executor.stop(0)
    assert stage.executor.stop(0) == []
    assert len(stage.host.begun) == 1


@pytest.mark.parametrize("kind", ALL)
def test_an_executor_that_never_had_work_stops_at_once(
    kind: str, make_stage: MakeStage
) -> None:
    assert make_stage(kind).executor.stop(30) == []


# --------------------------------------------------------------------------------- poison

POISON = [
    handlers.exit_by_exception.call(3),
    handlers.interrupt_self.call(),
    handlers.fail_hugely.call(),
    handlers.fail_with_lock.call(),
    handlers.fail_unshowably.call(),
    handlers.flood.call(),
]


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("poison", POISON, ids=lambda call: call.task.function.__name__)
def test_a_poisonous_handler_ends_its_attempt_and_hurts_no_neighbour(
    kind: str, poison: Call, make_stage: MakeStage
) -> None:
    stage = make_stage(kind, slots=1)
    before, bad, after = run(
        stage,
        work_of(add[kind].call(1)),
        work_of(poison),
        work_of(add[kind].call(2)),
    )
    assert (before.outcome, after.outcome) == (Outcome.OK, Outcome.OK)
    is_fine = poison.task is handlers.flood
    assert bad.outcome is (Outcome.OK if is_fine else Outcome.ERROR)
    assert len(msgspec.json.encode(bad)) < 250_000
    assert stage.host.alerts == []


class WatchedDeque(deque[Work]):
    """Tells when it is cleared, so that a test knows how far a stop has come."""

    def __init__(self) -> None:
        super().__init__()
        self.cleared = threading.Event()

    def clear(self) -> None:
        super().clear()
        self.cleared.set()


class Stopping:
    """A stop with a grace, in a thread of its own."""

    def __init__(self, stage: Stage, *, grace_s: float) -> None:
        self._stage = stage
        self._left: list[Work] = []
        self._thread = threading.Thread(target=self._stop, args=(grace_s,))
        self._thread.start()

    def left(self) -> list[Work]:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return self._left

    def _stop(self, grace_s: float) -> None:
        self._left = self._stage.executor.stop(grace_s)
