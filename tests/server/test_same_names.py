"""One suite for all front doors: here, by URL, and by a directory that another holds.

The two that are awaited are spoken to through `Plain`, which runs each call on a loop of
its own thread; so a test reads the same for all of them.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest

from tests.scheduler import program
from timingwheel.client.asyncio_client import AsyncClient
from timingwheel.client.client import Client
from timingwheel.errors import ArgumentError, CronError, PayloadTooLargeError
from timingwheel.jobs.after import After
from timingwheel.jobs.cron import Cron
from timingwheel.jobs.errors import (
    KeyConflictError,
    NameTakenError,
    RevisionConflictError,
    RunStateError,
    TaskError,
    UnknownCalendarError,
    UnknownJobError,
    UnknownRunError,
    UnknownTaskError,
)
from timingwheel.jobs.intervals import every
from timingwheel.jobs.model import Cap, JobState, RunState
from timingwheel.jobs.store import CancelResult, CatchUp
from timingwheel.jobs.triggers import CronRule, EveryCalendar
from timingwheel.scheduler.asyncio_scheduler import AsyncScheduler
from timingwheel.scheduler.handles import RunFailedError
from timingwheel.scheduler.retrying import Retry
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.tasks import NamedTask
from timingwheel.server.serving import HttpServer

TASKS = program.app.tasks
NEVER = "0 0 1 1 *"


class Plain:
    """Speaks to what is awaited as if it were not."""

    def __init__(self, awaited: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._awaited = awaited
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._awaited, name)
        if not inspect.iscoroutinefunction(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            plain = [one._awaited if isinstance(one, Plain) else one for one in args]
            going = asyncio.run_coroutine_threadsafe(
                found(*plain, **kwargs), self._loop
            )
            made = going.result(60)
            is_handle = type(made).__name__.endswith("Handle")
            return Plain(made, self._loop) if is_handle else made

        return call


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    yield made
    made.call_soon_threadsafe(made.stop)
    thread.join()
    made.close()


@pytest.fixture(
    params=["Scheduler", "AsyncScheduler", "Client", "AsyncClient", "if_held=client"]
)
def app(
    request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> Iterator[Scheduler]:
    program.log.clear()
    if request.param == "if_held=client":
        holder = Scheduler(tmp_path)
        assert holder.jobs() == []  # it holds and does not serve
        with Scheduler(tmp_path, if_held="client", tasks=TASKS, actor="ann") as made:
            yield made
        holder.stop()
        return
    if request.param == "Scheduler":
        with Scheduler(":memory:", tasks=TASKS, actor="ann") as made:
            yield made
        return
    if request.param == "AsyncScheduler":
        plain: Any = Plain(AsyncScheduler(":memory:", tasks=TASKS, actor="ann"), loop)
        plain.start()
        yield plain
        plain.stop()
        return
    with HttpServer(Scheduler(":memory:", tasks=TASKS), port=0) as server:
        if request.param == "Client":
            with Client(server.url, tasks=TASKS, actor="ann") as client:
                yield cast("Scheduler", client)
            return
        plain = Plain(AsyncClient(server.url, tasks=TASKS, actor="ann"), loop)
        yield plain
        plain.close()


def test_a_job_runs_and_returns_its_result(app: Scheduler) -> None:
    job_id = app.schedule(program.note.call("tea"), 0)
    assert app.run(job_id).result(timeout=30) == "TEA"
    ref = app.add(program.note.call("rum"), delay=timedelta(0))
    run = app.run(ref).wait("30s")
    assert (run.state, run.job_id, run.attempts) == (RunState.SUCCEEDED, ref.id, 1)
    assert ref.created
    assert [one.number for one in app.run(run).attempts()] == [1]


def test_a_task_may_be_called_by_its_name_alone(app: Scheduler) -> None:
    ref = app.add(NamedTask(program.note.name).call(what="tea"), delay=0)
    assert app.run(ref).result("30s") == "TEA"


def test_a_job_is_what_was_asked_for(app: Scheduler) -> None:
    ref = app.add(
        program.fail.call(times=2),
        cron=Cron("30 2 * * *", tz="Europe/Berlin", gap="shift", overlap="both"),
        start=datetime(2030, 1, 1, tzinfo=UTC),
        end=datetime(2031, 1, 1, tzinfo=UTC),
        max_runs=7,
        splay="10m",
        jitter=timedelta(seconds=1.5),
        overlap="allow(3)",
        misfire="all(100, 1h)",
        timeout=90,
        start_deadline="1h",
        queue="bulk",
        priority=-3,
        concurrency=Cap("tenant:7", 2),
        tags={"team": "bi"},
        name="nightly",
        key="k",
    )
    job = app.job(ref)
    with Scheduler(":memory:", tasks=TASKS) as here:
        assert here.add(program.fail.call(times=2), trigger=job.trigger).created
    assert job.trigger.when == CronRule(
        expression="30 2 * * *", tz="Europe/Berlin", gap="shift", overlap="both"
    )
    assert (job.trigger.splay_ns, job.trigger.jitter_ns) == (600 * 10**9, 15 * 10**8)
    assert (job.trigger.runs_max, job.policy.overlap.limit) == (7, 3)
    assert job.policy.misfire.window_ns == 3_600 * 10**9
    assert job.policy.timeout_ns == 90 * 10**9
    assert (job.policy.retry.attempts, job.policy.retry.jitter) == (3, 0)
    assert (job.queue, job.priority, job.cap) == ("bulk", -3, Cap("tenant:7", 2))
    assert (job.tags, job.name, job.key) == ({"team": "bi"}, "nightly", "k")
    assert job.payload == program.fail.call(times=2).payload


def test_every_kind_of_moment_arrives(app: Scheduler) -> None:
    note = program.note.call("x")
    week = every(days=7, at="16:00", tz="Europe/Berlin")
    assert app.job(app.add(note, every=week)).trigger.when == week
    assert isinstance(week, EveryCalendar)
    moment = datetime(2030, 5, 1, 12, tzinfo=ZoneInfo("Asia/Tokyo"))
    at = app.add(note, at=moment)
    assert app.next_times(at, 1)[0].utc == moment
    bare = CronRule(expression=NEVER)
    bounded = app.job(app.add(note, trigger=bare, max_runs=2)).trigger
    assert (bounded.when, bounded.runs_max) == (bare, 2)
    assert app.job(app.add(note, trigger=bounded)).trigger == bounded
    any_of = After.any_of(at, app.add(note, delay="1h"), on="any")
    assert app.job(app.add(note, after=any_of)).trigger.when == any_of.rule
    retry = Retry(9, backoff="3s..5m", jitter=0.5)
    policy = app.job(app.add(note, delay="1h", retry=retry)).policy
    assert policy.retry == retry.policy


def test_a_key_and_a_name_find_the_job_that_is_there(app: Scheduler) -> None:
    first = app.add(program.note.call("a"), delay="1h", key="k")
    again = app.add(program.note.call("a"), delay="1h", key="k")
    assert (again.id, again.created) == (first.id, False)
    with pytest.raises(KeyConflictError) as conflict:
        app.add(program.note.call("b"), delay="1h", key="k")
    assert (conflict.value.key, conflict.value.job_id) == ("k", first.id)
    app.add(program.note.call("a"), cron=NEVER, name="n")
    changed = app.add(program.note.call("a"), cron="@daily", name="n")
    assert changed.updated
    with pytest.raises(NameTakenError, match="if_exists"):
        app.add(program.note.call("a"), cron=NEVER, name="n", if_exists="error")


@pytest.mark.parametrize(
    ("add", "kind", "words"),
    [
        (lambda app, call: app.add(call, delay=-1), ArgumentError, "delay"),
        (lambda app, call: app.add(call), ArgumentError, "delay="),
        (lambda app, call: app.add(call, at=datetime(2030, 1, 1)), ArgumentError, "at"),  # noqa: DTZ001 - naive on purpose
        (lambda app, call: app.add(call, cron="61 * * * *"), CronError, "minute field"),
        (lambda app, call: app.add(call, delay=1, wat=2), TypeError, "wat"),
        (lambda app, call: app.add(call, delay=1, tags={"a": 1}), ArgumentError, "tag"),
        (lambda app, call: app.add(call, delay=1, key=""), ArgumentError, "key"),
        (
            lambda app, call: app.add(call, cron=NEVER, calendar="none"),
            UnknownCalendarError,
            "calendar",
        ),
        (lambda app, _: app.add(print, delay=1), TaskError, "call"),
        (lambda app, _: app.schedule(print, 1), TaskError, "job"),
        (lambda app, call: app.schedule(call, None), ArgumentError, "delay"),
        (
            lambda app, call: app.add(call, delay=1, retry=Retry(give_up_on=OSError)),
            ArgumentError,
            "retry_on",
        ),
        (lambda app, _: app.job("nope"), UnknownJobError, "job is 'nope'"),
        (lambda app, _: app.job(""), ArgumentError, "job"),
        (lambda app, _: app.run("a@b@c"), ArgumentError, "run id"),
        (lambda app, _: app.jobs(state="wat"), ArgumentError, "quarantined"),
        (lambda app, _: app.runs(state="wat"), ArgumentError, "retrying"),
        (lambda app, _: app.runs(limit=0), ArgumentError, "limit"),
        (lambda app, _: app.rebind("a:b", "c:d"), UnknownTaskError, "c:d"),
        (lambda app, _: app.load_ahead("1h", step="2h"), ArgumentError, "step"),
        (lambda app, _: app.pause("nope"), UnknownJobError, "nope"),
        (lambda app, _: app.queue("q").set(limit=0), ArgumentError, "limit"),
        (
            lambda app, _: app.calendar("c").set(weekdays="SAT"),
            ArgumentError,
            "weekdays",
        ),
        (lambda app, _: app.why("nope", datetime.now(UTC)), UnknownJobError, "nope"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_the_same_words(
    app: Scheduler,
    add: Callable[[Scheduler, Any], object],
    kind: type[Exception],
    words: str,
) -> None:
    with pytest.raises(kind, match=words):
        add(app, program.note.call("x"))


def test_an_error_has_its_facts(app: Scheduler) -> None:
    with pytest.raises(ArgumentError) as refused:
        app.add(program.note.call("x"), delay="soon")
    found = refused.value
    assert (found.argument, found.found) == ("delay", "soon")
    with pytest.raises(CronError) as cron:
        app.add(program.note.call("x"), cron="61 * * * *")
    assert (cron.value.code, cron.value.piece) == ("bad-value", "61")
    with pytest.raises(PayloadTooLargeError):
        app.add(NamedTask("a:b").call(x="y" * (1 << 20)), delay=1)


def test_cancel_says_what_it_did(app: Scheduler) -> None:
    ref = app.add(program.note.call("x"), delay="1h")
    assert app.cancel(ref) is CancelResult.CANCELLED
    assert app.cancel(ref) is CancelResult.ALREADY
    assert app.cancel("nope") is CancelResult.NOT_FOUND
    assert app.job(ref).state is JobState.CANCELLED
    with pytest.raises(ArgumentError, match="running"):
        app.cancel(ref, running=cast("Any", "wat"))


def test_pause_and_resume(app: Scheduler) -> None:
    ref = app.add(program.note.call("x"), cron=NEVER, name="n")
    assert app.pause("n", note="holiday", until="1h")
    pause = app.job(ref).pause
    assert pause is not None
    assert pause.until_ns is not None
    assert (pause.actor, pause.note) == ("ann", "holiday")
    assert pause.until_ns - pause.since_ns == 3_600 * 10**9
    assert not app.pause("n", actor="bob")
    assert app.resume("n", dry_run=True) == ([], 0, 0)
    assert app.job("n").state is JobState.PAUSED
    catch_up = CatchUp("since", 3_600 * 10**9)
    assert app.resume(ref, catch_up=catch_up) == ([], 0, 0)
    assert app.job("n").state is JobState.ACTIVE


def test_update_changes_only_what_is_said(app: Scheduler) -> None:
    zone = "Europe/Berlin"
    ref = app.add(program.note.call("x"), cron=NEVER, tz=zone, splay="1m", key="k")
    seen = app.update(ref, cron="0 3 * * *", dry_run=True)
    assert app.job(ref).revision == 1
    assert [one.local.hour for one in seen.after] == [3] * 10
    made = app.update(ref, if_revision=1, cron="0 4 * * *", call=program.note.call("y"))
    assert made.job == app.job(ref)
    assert made.job.trigger.splay_ns == 60 * 10**9
    assert made.job.payload == program.note.call("y").payload
    assert [one.local.hour for one in made.after] == [4] * 10
    assert app.update(ref, splay=None).job.trigger.splay_ns == 0
    with pytest.raises(RevisionConflictError) as conflict:
        app.update(ref, if_revision=1, priority=1)
    assert (conflict.value.expected, conflict.value.found) == (1, 3)
    with pytest.raises(ArgumentError, match="changes"):
        app.update(ref)
    with pytest.raises(ArgumentError, match="call"):
        app.update(ref, call=program.fail.call())


def test_trigger_retry_and_discard(app: Scheduler) -> None:
    ref = app.add(program.fail.call(1), cron=NEVER, retry=1)
    handle = app.trigger(ref)
    with pytest.raises(RunFailedError, match=r"the 1\. failure"):
        handle.result("30s")
    assert [run.id for run in app.runs(state="failed", discarded=False)] == [handle.id]
    assert app.retry(handle.id).result("30s") == 2
    with pytest.raises(RunStateError, match="succeeded"):
        app.discard(handle.id)
    with pytest.raises(ArgumentError, match="may have many runs"):
        app.run(ref)
    unknown = f"{ref.id[:-4]}ffff@5"
    with pytest.raises(UnknownRunError):
        app.run(unknown).get()
    with pytest.raises(UnknownRunError):
        app.run(unknown).wait(1)


def test_one_run_is_cancelled_and_its_job_goes_on(app: Scheduler) -> None:
    ref = app.add(program.held.call("on"), cron=NEVER, retry=5)
    door = program.log.door("on")
    handle = app.trigger(ref)
    door.await_somebody()
    assert app.cancel_run(handle.id) is CancelResult.RUNNING
    assert handle.cancel(running="signal") is CancelResult.REQUESTED
    door.open()
    assert handle.result("30s") == "on"  # it returned nevertheless
    assert app.cancel_run(handle.id) is CancelResult.FINISHED
    app.queue("default").pause()
    waiting = app.trigger(ref)
    assert waiting.cancel()
    assert waiting.cancel() is CancelResult.ALREADY
    assert app.cancel_run(f"{ref.id}@5") is CancelResult.NOT_FOUND
    assert app.job(ref).state is JobState.ACTIVE
    with pytest.raises(ArgumentError, match='pass "leave"'):
        app.cancel_run(waiting.id, running="gently")  # type: ignore[arg-type]


def test_a_wait_that_takes_too_long_says_so(app: Scheduler) -> None:
    ref = app.add(program.note.call("x"), delay="1h")
    with pytest.raises(TimeoutError, match="has not ended yet; it goes on"):
        app.run(ref).wait("10ms")


def test_backfill_makes_what_is_missing(app: Scheduler) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    ref = app.add(program.note.call("x"), cron="0 3 * * *")
    end = start + timedelta(days=3)
    plan = app.backfill(ref, start, end, dry_run=True)
    assert plan.runs == []
    assert [one.day for one in plan.nominals] == [1, 2, 3]
    made = app.backfill(ref, start, end)
    assert made.nominals == plan.nominals
    for run in made.runs:
        app.run(run).wait("30s")
    assert app.backfill(ref, start, end).present == 3
    page = app.runs(job=ref, since=start, until=end, limit=2)
    rest = app.runs(job=ref, since=start, until=end, limit=2, cursor=page.cursor)
    assert [run.id for run in [*page, *rest]] == made.runs[::-1]
    assert rest.cursor is None
    for delay in ("1h", "2h"):
        app.add(program.note.call("plain"), delay=delay)
    in_any_order = app.runs(in_order=False)
    assert [run.id for run in in_any_order] != [run.id for run in app.runs()]
    assert sorted(run.id for run in in_any_order) == sorted(r.id for r in app.runs())


def test_next_times_and_words(app: Scheduler) -> None:
    ref = app.add(program.note.call("x"), cron="30 2 * * *", tz="Europe/Berlin")
    times = app.next_times(ref, 400)
    assert len(times) == 400
    assert {one.local.minute for one in times} <= {30, 0}
    assert sum(bool(one.mark.value) for one in times) >= 2
    assert "Europe/Berlin" in app.explain(ref)
    assert "It has not come yet" in app.why(ref, times[0].utc)
    assert app.skips(ref, since=datetime(2026, 1, 1, tzinfo=UTC)) == []
    load = app.load_ahead("2d", step=timedelta(hours=1))
    assert sum(step.nominal for step in load) == 2


def test_jobs_are_found_by_what_they_have(app: Scheduler) -> None:
    refs = [
        app.add(program.note.call("x"), delay="1h", tags={"a:b": str(n % 2), "c": "ü"})
        for n in range(5)
    ]
    app.add(program.note.call("x"), delay="1h", queue="bulk")
    page = app.jobs(tags={"a:b": "0"}, limit=2)
    rest = app.jobs(tags={"a:b": "0"}, limit=2, cursor=page.cursor)
    assert {job.id for job in [*page, *rest]} == {ref.id for ref in refs[::2]}
    assert len(app.jobs(queue="bulk", task=program.note, state="active")) == 1
    assert app.jobs(name="nope") == []


def test_queues_and_calendars(app: Scheduler) -> None:
    queue = app.queue("bulk/ü")
    assert queue.get().limit is None
    queue.set(limit=2, rate=0.5)
    assert queue.set(rate=None).limit == 2
    assert app.pause(queue, note="full")
    pause = queue.get().pause
    assert pause is not None
    assert (pause.actor, pause.note) == ("ann", "full")
    assert not app.pause(queue)
    app.resume(queue)
    assert queue.get().pause is None
    assert not queue.resume()
    assert queue.pause()
    assert not queue.pause(note="still")
    assert queue.resume()
    assert [one.name for one in app.queues()] == ["bulk/ü"]
    calendar = app.calendar("holidays")
    assert calendar.get() is None
    calendar.set(dates=[date(2030, 1, 1)], weekdays=["SUN", "SAT"], tz="Asia/Tokyo")
    calendar.exclude(date(2030, 1, 2))
    made = calendar.include(date(2030, 1, 1))
    assert made == calendar.get() == app.calendars()["holidays"]
    assert made.dates == (date(2030, 1, 2),)


def test_what_is_wrong_is_told_and_a_task_that_is_gone_is_rebound(
    app: Scheduler,
) -> None:
    app.add(NamedTask("mail:gone").call(what="tea"), delay="1h")
    assert [one.kind for one in app.check()] == ["unknown_task"]
    assert {one.name for one in app.known_tasks()} >= {"mail:gone", program.note.name}
    assert app.rebind("mail:gone", program.note) == 1
    assert app.check() == []
    assert app.workers() == []
    assert app.snapshot_metrics().clock_steps == 0


def test_jobs_that_run_after_others_are_found(app: Scheduler) -> None:
    first = app.add(program.note.call("x"), delay="1h", name="first")
    second = app.add(program.note.call("x"), after=After(first))
    third = app.add(program.note.call("x"), after=After.any_of(first, second.id))
    found = {job.id: job.trigger.when for job in app.followers()}
    assert found == {
        second.id: After(first).rule,
        third.id: After.any_of(first, second.id).rule,
    }
    assert len(app.followers(1)) == 1
    with pytest.raises(ArgumentError, match="limit"):
        app.followers(0)
    app.cancel(first)
    assert app.followers() == []


def test_how_the_store_stands_is_told(app: Scheduler) -> None:
    before = app.storage().timers  # leases of other processes are timers as well
    app.add(program.note.call("x"), delay="1h")
    found = app.storage()
    assert (found.path == ":memory:") == (found.log is None)
    assert found.timers == before + 1
    assert sum(wheel.timers for wheel in found.wheels) == found.timers


def public_names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_a_client_has_every_name_of_a_scheduler_but_those_of_its_own_life() -> None:
    of_its_life = {
        *("start", "stop", "run_forever", "task", "clock", "metrics", "desk"),
        *("add_failure_listener", "remove_failure_listener", "add_node_listener"),
        *("holds", "is_serving"),
    }
    names = public_names(Scheduler) - of_its_life
    assert names - public_names(Client) == set()
    assert names - {"actor"} - public_names(AsyncClient) == set()
    assert (
        public_names(AsyncScheduler) - of_its_life - public_names(AsyncClient) == set()
    )
    for name in names:
        there, here = getattr(Scheduler, name), getattr(Client, name)
        if inspect.isfunction(there):
            # A transaction can be joined where the database is, and not by URL.
            joined = [
                one for one in inspect.signature(there).parameters if one != "conn"
            ]
            assert joined == list(inspect.signature(here).parameters), name
