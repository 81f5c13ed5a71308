"""Tasks: named functions with typed arguments, and calls of them that can be stored.

    @app.task(retry=Retry(3))
    def send(ctx, to: str, n: int = 1) -> str: ...

    send("a@x")             runs it here and now, as any function (pass ctx yourself)
    send.call("a@x", n=2)   says what to do, for `schedule` and `add`

A stored job knows its task by name alone, so whatever runs it must find the function
under that name: it has to stand at the top level of a module.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from timingwheel.engine.arguments import PAYLOAD_BYTES_MAX
from timingwheel.errors import ArgumentError, PayloadTooLargeError
from timingwheel.jobs.durations import Duration, duration_ns
from timingwheel.jobs.errors import TaskError, UnknownTaskError
from timingwheel.jobs.model import DEFAULT_QUEUE, Delivery, Payload
from timingwheel.scheduler.observing import AttemptObserver
from timingwheel.scheduler.options import checked_priority, checked_text
from timingwheel.scheduler.payloads import Form, PayloadCodec, Upgrade
from timingwheel.scheduler.places import place_of
from timingwheel.scheduler.retrying import Retry
from timingwheel.scheduler.secrets import MASK
from timingwheel.scheduler.signatures import Signature

NAME_CHARS_MAX: Final = 500


class Call(NamedTuple):
    """A task with arguments that fit it: what to do, but not when.

    Attributes:
        task: whose function.
        payload: the arguments, encoded.
    """

    task: Task | NamedTask
    payload: Payload


class NamedTask(NamedTuple):
    """A task known by name alone, where its function is not: on a command line.

    Nothing of a call is checked but that it can be stored. Arguments that do not fit the
    function quarantine the job once a worker reads them, and nothing is lost.

    Attributes:
        name: of the task, as its program registers it.
        version: of its arguments.
        retry, timeout_ns, delivery, queue, priority: as for Task; the defaults that the
            program gives the task are not known here.
    """

    name: str
    version: int = 1
    retry: Retry = Retry()
    timeout_ns: int | None = None
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    queue: str = DEFAULT_QUEUE
    priority: int = 0

    def call(self, /, **kwargs: object) -> Call:
        """Return a call with these arguments, by name, written as JSON.

        Raises:
            TaskError: one cannot be stored.
            PayloadTooLargeError: they are too long together.
        """
        _checked_name(self.name)
        try:
            body = msgspec.json.encode(kwargs, order="deterministic")
        except (TypeError, ValueError, OverflowError) as error:
            raise TaskError(
                "arguments", kwargs, f"pass what JSON can hold ({error})"
            ) from error
        if len(body) > PAYLOAD_BYTES_MAX:
            raise PayloadTooLargeError(
                f"the call of {self.name}",
                kwargs,
                f"{len(body):,} bytes, and at most {PAYLOAD_BYTES_MAX:,} fit; keep the "
                "bulk elsewhere and pass its key",
            )
        return Call(self, Payload(body, self.version))


class Task:
    """A named function with typed arguments, and what is true of its jobs by default.

    Attributes:
        name: by which stored jobs know it, `module:qualname` unless given.
        function: what to run.
        is_async: whether it is a coroutine function.
        takes_ctx: whether its first argument is the Context.
        codec: of its arguments and its result.
        place: where it can be imported from, `module:qualname`.
        retry, timeout_ns, delivery, executor, queue, priority: defaults for its jobs;
            executor None is the scheduler's.
        observer: hears of every attempt; see TaskRegistry.observe.

    Args:
        function: made by def at the top level of a module.
        name: see above.
        version: of the arguments, 1 or more; see scheduler/payloads.py.
        upgrade: how to make arguments of version n + 1 of those of version n.
        form: how arguments and results are written.
        pickle: write them as pickle instead. Whoever can write to the store can then
            run any code in the worker.
        retry: when an attempt has failed.
        timeout: of an attempt; None for none.
        delivery: at least once, or at most once.
        executor: which of the scheduler's executors runs it.
        queue: where its runs wait.
        priority: higher is sooner.
        secret: names of parameters whose arguments are shown to nobody, `***` instead;
            they are stored as they are.

    Raises:
        TaskError: the function cannot be a task; it names the fix.
        ArgumentError: another argument is invalid.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        version: int = 1,
        upgrade: Mapping[int, Upgrade] | None = None,
        form: Form = "msgpack",
        pickle: bool = False,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        delivery: Delivery | str = Delivery.AT_LEAST_ONCE,
        executor: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        secret: Sequence[str] = (),
    ) -> None:
        if isinstance(function, Task):
            raise TaskError(
                "function",
                function,
                "it is a task already; pass the function, task.function, for a second one",
            )
        self.place: Final = place_of(function)
        self.name: Final = _checked_name(self.place if name is None else name)
        self.function: Final[Callable[..., Any]] = function
        self.is_async: Final = inspect.iscoroutinefunction(function)
        signature = Signature(function, self.name)
        self.takes_ctx: Final = signature.takes_ctx
        self.codec: Final = PayloadCodec(
            signature,
            task=self.name,
            form=form,
            version=version,
            upgrade=upgrade,
            pickled=pickle,
        )
        self.retry: Final = _checked_retry(retry)
        self.timeout_ns: Final = (
            None if timeout is None else duration_ns(timeout, "timeout", zero=False)
        )
        self.delivery: Final = _checked_delivery(delivery)
        self.executor: Final = executor
        if executor == "asyncio" and not self.is_async:
            raise TaskError(
                "executor", executor, "it runs coroutines: make the function async def"
            )
        self.queue: Final = checked_text(queue, "queue")
        self.priority: Final = checked_priority(priority)
        self.secret: Final = _checked_secret(secret, signature, pickled=pickle)
        self.observer: AttemptObserver | None = None
        functools.update_wrapper(self, function)

    @property
    def version(self) -> int:
        """The version of the arguments that it writes."""
        return self.codec.version

    def call(self, /, *args: object, **kwargs: object) -> Call:
        """Return a call with these arguments, checked and encoded; ctx is left out.

        Raises:
            TaskError: an argument is missing, too much, of the wrong type, or cannot be
                stored; it names the argument.
            PayloadTooLargeError: they are too long together.
        """
        if not self.secret:
            return Call(self, self.codec.encode(args, kwargs))
        try:
            payload = self.codec.encode(args, kwargs)
        except ArgumentError as error:
            # Whatever it shows of the arguments may be what nobody is to see.
            raise type(error)(error.argument, MASK, error.fix) from None
        return Call(self, msgspec.structs.replace(payload, secret=self.secret))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function here and now, as if it were no task."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def __reduce__(self) -> tuple[object, ...]:
        # By name, so that a child process has its own task and not a copy of this one.
        return import_task, (self.place, self.name)


class TaskRegistry:
    """The tasks of one scheduler by name. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: dict[str, Task] = {}
        self._aliases: dict[str, str] = {}
        self._observer: AttemptObserver | None = None

    def observe(self, observer: AttemptObserver) -> None:
        """Have an observer hear of every attempt of all tasks, those to come too.

        It takes the place of a former one.
        """
        with self._lock:
            self._observer = observer
            for task in self._tasks.values():
                task.observer = observer

    def register(self, task: Task) -> Task:
        """Add a task; one that was defined anew, by a reload perhaps, replaces it.

        Raises:
            TaskError: another function has that name.
        """
        with self._lock:
            known = self._tasks.get(task.name)
            if known is not None and known.place != task.place:
                raise TaskError(
                    "name",
                    task.name,
                    f"{known.place} has it already; give {task.place} another one "
                    "with name=",
                )
            self._tasks[task.name] = task
            if self._observer is not None:
                task.observer = self._observer
            self._aliases.pop(task.name, None)
        return task

    def alias(self, old: str, new: str) -> None:
        """Have runs of a task that is gone be run by another.

        Raises:
            UnknownTaskError: there is no task `new`.
            TaskError: there is a task `old`.
        """
        task = self.require(new, "new")
        with self._lock:
            if old in self._tasks:
                raise TaskError(
                    "old", old, "this task is there; rebind one that is gone"
                )
            self._aliases[old] = task.name

    def get(self, name: str) -> Task | None:
        """Return the task of a name or an alias."""
        with self._lock:
            return self._tasks.get(self._aliases.get(name, name))

    def require(self, name: str, argument: str = "task") -> Task:
        """Return the task of a name or an alias; messages call it by the argument.

        Raises:
            UnknownTaskError: there is none.
        """
        task = self.get(name)
        if task is None:
            raise UnknownTaskError(
                argument,
                name,
                f"there is no such task here; known are {sorted(self.names)}",
            )
        return task

    @property
    def names(self) -> frozenset[str]:
        """All names that it can run, the aliases too."""
        with self._lock:
            return frozenset(self._tasks) | frozenset(self._aliases)

    def tasks(self) -> list[Task]:
        """Return the tasks, in the order in which they were added."""
        with self._lock:
            return list(self._tasks.values())


def checked_registry(tasks: TaskRegistry | None) -> TaskRegistry:
    """Return a registry of tasks; a new one for None.

    Raises:
        ArgumentError: it is none, such as the scheduler that has it.
    """
    if tasks is None:
        return TaskRegistry()
    if not isinstance(tasks, TaskRegistry):
        raise ArgumentError("tasks", tasks, "pass the tasks of a scheduler, app.tasks")
    return tasks


def import_task(
    place: str, name: str, options: Callable[[], Mapping[str, Any]] = dict
) -> Task:
    """Return the task that stands at a place; one that is only registered is made anew.

    Args:
        place: `module:qualname` of a task or its function.
        name: of the task; a function may serve several.
        options: returns those of the task; called if it has to be made.

    Raises:
        TaskError: there is no such module, or nothing callable of that name in it.
    """
    module_name, _, qualname = place.partition(":")
    try:
        module = importlib.import_module(module_name)
        found: Any = functools.reduce(getattr, qualname.split("."), module)
    except (ImportError, AttributeError) as error:
        raise TaskError(
            "place",
            place,
            f"it cannot be imported ({error}); define it at the top level",
        ) from error
    candidates = [found, *vars(module).values()]
    for candidate in candidates:
        if isinstance(candidate, Task) and (candidate.place, candidate.name) == (
            place,
            name,
        ):
            return candidate
    if isinstance(found, Task):
        found = found.function
    return Task(found, name=name, **options())


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name or len(name) > NAME_CHARS_MAX:
        raise TaskError(
            "name", name, f"pass a text of 1 to {NAME_CHARS_MAX} characters"
        )
    return name


def _checked_retry(retry: object) -> Retry:
    if retry is None:
        return Retry()
    if not isinstance(retry, Retry):
        raise TaskError(
            "retry", retry, 'pass Retry(5, backoff="1s..10m"); Retry(1): never'
        )
    return retry


def _checked_secret(
    secret: object, signature: Signature, *, pickled: bool
) -> tuple[str, ...]:
    if isinstance(secret, str) or not isinstance(secret, Sequence):
        raise TaskError("secret", secret, 'pass names of parameters, ("password",)')
    unknown = [name for name in secret if name not in signature.types]
    if unknown:
        known = ", ".join(signature.types) or "none"
        raise TaskError("secret", unknown[0], f"its parameters are: {known}")
    if secret and pickled:
        raise TaskError(
            "secret", secret, "a pickle has no names: leave out pickle=True"
        )
    return tuple(secret)


def _checked_delivery(delivery: object) -> Delivery:
    try:
        return Delivery(delivery)  # type: ignore[arg-type]
    except ValueError:
        words = " or ".join(f'"{one}"' for one in Delivery)
        raise TaskError("delivery", delivery, f"pass {words}") from None
