"""A span for each attempt, as the SDK of OpenTelemetry sees it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.scheduler import program
from timingwheel.jobs.model import RunState
from timingwheel.scheduler.context import Context
from timingwheel.scheduler.retrying import Retry
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.tasks import Task, TaskRegistry
from timingwheel.testing import ManualClock, Sim
from timingwheel.tracing import trace

tasks = TaskRegistry()
app_of_module = Scheduler(":memory:", tasks=tasks)


@app_of_module.task
def make_child(what: str) -> str:
    """Make a span of its own."""
    with otel.get_tracer("t", tracer_provider=provider).start_as_current_span(what):
        return what


@app_of_module.task
async def make_child_soon(what: str) -> str:
    """As make_child, on a loop."""
    make_child(what)
    return what


@app_of_module.task(retry=Retry(2, backoff="1s..1s", jitter=0))
def fail_first(ctx: Context) -> None:
    """Fail once."""
    if ctx.attempt == 1:
        raise ValueError("not yet")


@app_of_module.task
def snooze_first(ctx: Context) -> None:
    """Put itself off once; `attempt` says nothing of that."""
    program.log.calls.append(ctx.attempt)
    if len(program.log.calls) == 1:
        ctx.snooze("1s")


@app_of_module.task(timeout="5s", retry=Retry(1))
def too_long(ctx: Context, door: str) -> None:
    """Wait at a door, and end when asked."""
    program.log.doors[door]()
    ctx.check()


exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace(app_of_module, provider=provider)


@pytest.fixture(autouse=True)
def clean() -> None:
    program.log.clear()
    exporter.clear()


def spans() -> list[ReadableSpan]:
    """The finished spans, those of attempts alone."""
    return [
        one for one in exporter.get_finished_spans() if one.kind is SpanKind.CONSUMER
    ]


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


@pytest.mark.parametrize("task", [make_child, make_child_soon], ids=["sync", "async"])
def test_an_attempt_is_a_span_and_the_handlers_own_are_its_children(
    task: Task,
) -> None:
    with Scheduler(":memory:", tasks=tasks) as app:
        run = app.run(app.add(task.call("inner"), delay=0, queue="mail"))
        run.wait(30)
    (span,) = spans()
    assert span.name == f"process {task.name}"
    told = attributes(span)
    assert told["messaging.system"] == "timingwheel"
    assert told["messaging.operation.type"] == "process"
    assert told["messaging.destination.name"] == "mail"
    assert told["messaging.message.id"] == run.id
    assert told["timingwheel.attempt"] == 1
    assert told["timingwheel.outcome"] == "ok"
    assert span.parent is None
    assert span.status.status_code is StatusCode.UNSET
    (child,) = [one for one in exporter.get_finished_spans() if one.name == "inner"]
    assert child.parent is not None
    assert span.context is not None
    assert child.parent.span_id == span.context.span_id


def test_each_attempt_of_a_run_has_its_span_and_a_failure_its_exception() -> None:
    with Sim(tasks=app_of_module) as sim:
        sim.app.add(fail_first.call(), delay=0)
        sim.advance("1m")
    first, second = spans()
    assert attributes(first)["timingwheel.outcome"] == "error"
    assert attributes(first)["error.type"] == "ValueError"
    assert first.status.status_code is StatusCode.ERROR
    (event,) = first.events
    assert event.name == "exception"
    assert dict(event.attributes or {})["exception.message"] == "not yet"
    assert attributes(second)["timingwheel.attempt"] == 2
    assert attributes(second)["timingwheel.outcome"] == "ok"
    ids = {one.context.trace_id for one in (first, second) if one.context is not None}
    assert len(ids) == 2


def test_a_snooze_is_no_error() -> None:
    with Sim(tasks=app_of_module) as sim:
        sim.app.add(snooze_first.call(), delay=0)
        sim.advance("1m")
    told = [attributes(one)["timingwheel.outcome"] for one in spans()]
    assert told == ["snoozed", "ok"]
    assert {one.status.status_code for one in spans()} == {StatusCode.UNSET}


def test_a_timeout_is_told_as_one() -> None:
    clock = ManualClock()
    door = program.log.door("d", clock)
    with Scheduler(":memory:", tasks=tasks, clock=clock) as app:
        job_id = app.schedule(too_long.call("d"), 0)
        clock.advance(0.001)
        door.await_somebody()
        clock.advance(6)
        clock.settle()
        door.open()
        assert app.run(job_id).wait().state is RunState.FAILED
    (span,) = spans()
    assert attributes(span)["timingwheel.outcome"] == "timeout"
    assert span.status.status_code is StatusCode.ERROR


def test_an_observer_that_fails_does_no_harm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        def begun(self, task: object, claim: object) -> Callable[..., None]:
            raise RuntimeError("no exporter")

    registry = TaskRegistry()
    with Scheduler(":memory:", tasks=registry) as app:
        task = app.task(program.plain_function)
        registry.observe(Broken())
        assert app.run(app.add(task.call(), delay=0)).wait(30).state == "succeeded"
    assert "an observer failed" in caplog.text


def test_tasks_declared_before_and_after_are_traced() -> None:
    app = Scheduler(":memory:")
    first = app.task(name="first")(program.plain_function)
    trace(app, provider=provider)
    second = app.task(name="second")(program.plain_function)
    assert first.observer is not None
    assert second.observer is first.observer


def test_without_tracing_opentelemetry_is_not_even_imported() -> None:
    code = (
        "import sys, timingwheel, timingwheel.tracing; "
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
