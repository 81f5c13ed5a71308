"""OpenTelemetry: a span for each attempt. Needs the extra `otel`; off until it is asked for.

    from timingwheel.tracing import trace

    app = Scheduler("./data")
    trace(app)

A span lasts from the call of the handler to its end, in the handler's own context: spans
that the handler makes are its children, and so are those of libraries that are traced.
Each attempt is a trace of its own. There is no link to where the job was added: a job may
run for years after that, and a claim brings no room for the context of its caller.

For tasks with executor="process" call `trace(app)` at the top level of the module that
declares them, after the program has set its provider there: the child imports that module
and makes its own spans. What a kill ends, there and then, leaves no span.

Names and attributes follow the semantic conventions for messaging, where there are any:

    name                            process <task>
    kind                            CONSUMER
    messaging.system                timingwheel
    messaging.operation.name, .type process
    messaging.destination.name      the queue
    messaging.message.id            the run id: the same for each attempt
    timingwheel.task, .job_id, .attempt, .token, .reason
    timingwheel.due                 when it was due, RFC 3339
    timingwheel.outcome             ok, error, timeout, cancelled, lost, shutdown, snoozed
    error.type                      the exception's class, or the outcome

An attempt that failed has status ERROR and its exception as an event. Arguments and
results of jobs are never in a span.
"""

from __future__ import annotations

from contextvars import Token
from typing import TYPE_CHECKING, Final, Protocol

from timingwheel.errors import ArgumentError
from timingwheel.jobs.model import Outcome
from timingwheel.jobs.schedule import instant_datetime
from timingwheel.jobs.store import Claim, Finish
from timingwheel.scheduler.observing import Ended
from timingwheel.scheduler.tasks import Task, TaskRegistry

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer, TracerProvider

SYSTEM: Final = "timingwheel"
SNOOZED: Final = "snoozed"


class HasTasks(Protocol):
    """What runs tasks: a Scheduler, an AsyncScheduler, a worker."""

    @property
    def tasks(self) -> TaskRegistry:
        """The tasks."""


def trace(app: HasTasks, *, provider: TracerProvider | None = None) -> None:
    """Make a span for every attempt of the tasks of `app`, from now on. Idempotent.

    Args:
        app: whose tasks, those that are declared later too.
        provider: of OpenTelemetry; by default the program's own, as it is when an
            attempt begins.

    Raises:
        ArgumentError: opentelemetry-api is not installed.
    """
    try:
        from opentelemetry.trace import get_tracer
    except ImportError as error:
        raise ArgumentError(
            "app", app, "tracing needs: pip install 'timingwheel-engine[otel]'"
        ) from error
    app.tasks.observe(_Tracing(get_tracer(SYSTEM, tracer_provider=provider)))


class _Tracing:
    """Makes the spans; see AttemptObserver."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def begun(self, task: Task, claim: Claim) -> Ended:
        """Begin a span and make it the current one."""
        from opentelemetry import context
        from opentelemetry.trace import (
            SpanKind,
            Status,
            StatusCode,
            set_span_in_context,
        )

        run = claim.run
        span = self._tracer.start_span(
            f"process {task.name}",
            kind=SpanKind.CONSUMER,
            attributes={
                "messaging.system": SYSTEM,
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.destination.name": run.queue,
                "messaging.message.id": run.id,
                "timingwheel.task": task.name,
                "timingwheel.job_id": run.job_id,
                "timingwheel.attempt": run.attempts,
                "timingwheel.token": claim.token,
                "timingwheel.reason": str(run.reason),
                "timingwheel.due": instant_datetime(run.due_ns).isoformat(),
            },
        )
        token: Token[context.Context] = context.attach(set_span_in_context(span))

        def ended(finish: Finish, error: BaseException | None) -> None:
            snoozes = finish.snooze_ns is not None
            outcome = SNOOZED if snoozes else str(finish.outcome)
            span.set_attribute("timingwheel.outcome", outcome)
            if finish.outcome is not Outcome.OK:
                kind = outcome if error is None else type(error).__qualname__
                span.set_attribute("error.type", kind)
                if error is not None:
                    span.record_exception(error)
                span.set_status(Status(StatusCode.ERROR, outcome))
            context.detach(token)
            span.end()

        return ended
