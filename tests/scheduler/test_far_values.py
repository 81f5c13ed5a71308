"""Values that no log can hold are refused by name, before anything has changed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.scheduler import program
from timingwheel.errors import ArgumentError, DeadlineError
from timingwheel.jobs.errors import UnknownTaskError
from timingwheel.jobs.model import Cap
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.simulation import Sim
from timingwheel.scheduler.tasks import NamedTask

FAR = datetime(9999, 1, 1, tzinfo=UTC)
FIRST = datetime(1, 1, 1, tzinfo=UTC)
HUGE = 10**30
CALL = NamedTask("mail:send").call()


def test_no_pause_lasts_beyond_2262(sim: Sim) -> None:
    ref = sim.app.add(CALL, cron="@daily")
    for paused in (ref, sim.app.queue("bulk")):
        for until in (FAR, 9_223_372_036):
            with pytest.raises(DeadlineError) as refused:
                sim.app.pause(paused, until=until)
            assert refused.value.argument == "until"
    assert sim.app.job(ref).pause is None


def test_bounds_of_a_span_may_lie_outside_all_times(sim: Sim) -> None:
    ref = sim.app.add(program.note.call("x"), delay=0)
    sim.advance("1s")
    assert len(sim.app.runs(since=FIRST, until=FAR)) == 1
    assert sim.app.runs(since=FAR) == sim.app.runs(until=FIRST) == []
    assert sim.app.skips(ref, since=FAR) == sim.app.skips(ref, since=FIRST) == []
    for moment in (FAR, FIRST):
        with pytest.raises(ArgumentError, match="between 1970 and 2262"):
            sim.app.why(ref, moment)


def test_counts_have_bounds(sim: Sim) -> None:
    with pytest.raises(ArgumentError, match="limit is"):
        sim.app.queue("bulk").set(limit=HUGE)
    with pytest.raises(ArgumentError, match="retry is"):
        sim.app.add(CALL, delay=1, retry=HUGE)
    with pytest.raises(ArgumentError, match="version is"):
        sim.app.add(NamedTask("mail:send", HUGE).call(), delay=1)
    with pytest.raises(ArgumentError, match="actor is"):
        sim.app.pause(sim.app.queue("bulk"), actor="x" * 5_000)
    assert sim.app.jobs() == []


def test_a_call_by_name_takes_arguments_of_any_name(sim: Sim) -> None:
    call = NamedTask("mail:send").call(self=1, name=2)
    assert sim.app.add(call, delay="1h").created


def test_a_rebind_names_the_task_that_is_not_there(sim: Sim) -> None:
    with pytest.raises(UnknownTaskError) as refused:
        sim.app.rebind("a:b", "c:d")
    assert refused.value.argument == "new"


@pytest.mark.parametrize("text", ["a\udcffb", "a\0b"], ids=["surrogate", "nul"])
def test_a_text_that_not_every_store_can_keep_is_refused_by_name(
    sim: Sim, text: str
) -> None:
    app = sim.app
    job = app.add(CALL, cron="@daily", name="base")
    requests: list[tuple[str, Callable[[], object]]] = [
        ("name", lambda: app.add(CALL, delay=1, name=text)),
        ("key", lambda: app.add(CALL, delay=1, key=text)),
        ("queue", lambda: app.add(CALL, delay=1, queue=text)),
        ("tags", lambda: app.add(CALL, delay=1, tags={text: "x"})),
        ("tags['x']", lambda: app.add(CALL, delay=1, tags={"x": text})),
        ("concurrency.key", lambda: app.add(CALL, delay=1, concurrency=Cap(text, 1))),
        ("job", lambda: app.add(CALL, after=text)),
        ("note", lambda: app.pause(job, note=text)),
        ("actor", lambda: app.pause(job, actor=text)),
        ("note", lambda: app.queue("bulk").pause(note=text)),
        ("name", lambda: app.queue(text)),
        ("name", lambda: app.calendar(text)),
        ("job", lambda: app.cancel(text)),
        ("job", lambda: app.run(text)),
        ("search", lambda: app.jobs(search=text)),
        ("queue", lambda: app.runs(queue=text)),
        ("old", lambda: app.rebind(text, program.note)),
        ("worker", lambda: Scheduler(":memory:", worker=text)),
    ]
    for argument, request in requests:
        with pytest.raises(ArgumentError) as refused:
            request()
        assert refused.value.argument == argument
    assert [found.id for found in app.jobs()] == [job.id]
