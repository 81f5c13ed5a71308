"""Tasks: what can be one, what it is called, and what its calls refuse."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import pytest

from tests.scheduler import task_functions as functions
from timingwheel.errors import ArgumentError
from timingwheel.jobs.errors import TaskError, UnknownTaskError
from timingwheel.jobs.model import Delivery
from timingwheel.scheduler.retrying import Retry
from timingwheel.scheduler.tasks import Call, Task, TaskRegistry, import_task

MODULE = functions.__name__


def test_a_task_is_known_by_module_and_name_unless_told_otherwise() -> None:
    assert Task(functions.send).name == f"{MODULE}:send"
    assert Task(functions.Sender.send_static).name == f"{MODULE}:Sender.send_static"
    assert Task(functions.decorated).name == f"{MODULE}:decorated"
    task = Task(functions.send, name="mail")
    assert (task.name, task.place) == ("mail", f"{MODULE}:send")


def test_a_task_can_be_called_like_its_function() -> None:
    assert Task(functions.send)("a@x", n=2) == "a@x 2"


def test_a_task_shows_its_functions_name_and_docstring() -> None:
    task: Any = Task(functions.send)
    assert task.__name__ == "send"
    assert task.__wrapped__ is functions.send
    assert repr(task) == f"<Task {MODULE}:send>"


def test_a_coroutine_function_is_told_apart() -> None:
    assert Task(functions.send_async).is_async
    assert not Task(functions.send).is_async


@pytest.mark.parametrize(
    "function",
    [
        functions.send_with_ctx,
        functions.send_with_context,
        functions.send_with_dotted_context,
    ],
)
def test_a_first_parameter_named_ctx_or_annotated_so_gets_the_context(
    function: Any,
) -> None:
    task = Task(function)
    assert task.takes_ctx
    assert task.codec.decode(task.call("a@x").payload).kwargs == {"to": "a@x"}


def test_a_ctx_that_does_not_come_first_is_an_argument() -> None:
    task = Task(functions.send_with_late_ctx)
    assert not task.takes_ctx
    assert task.codec.decode(task.call("a", "b").payload).kwargs == {
        "to": "a",
        "ctx": "b",
    }


def test_the_defaults_of_a_task_are_those_of_the_guarantees() -> None:
    task = Task(functions.send)
    assert task.retry == Retry(5, backoff="1s..10m", jitter=0.2)
    assert task.delivery is Delivery.AT_LEAST_ONCE
    assert (
        task.timeout_ns,
        task.executor,
        task.queue,
        task.priority,
        task.version,
    ) == (
        None,
        None,
        "default",
        0,
        1,
    )


def test_defaults_can_be_given_as_people_write_them() -> None:
    task = Task(functions.send, timeout="5m", delivery="at_most_once", priority=-1)
    assert task.timeout_ns == 300 * 10**9
    assert task.delivery is Delivery.AT_MOST_ONCE


# --------------------------------------------------------------------- what cannot be one


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (functions.anonymous, "a lambda has no name"),
        (functions.nested(), "defined inside a function"),
        (functions.Sender().send, "a bound method"),
        (functions.Sender.send, "a method needs its object"),
        (partial(functions.send, "a"), "made by def"),
        (functions.Sender, "made by def"),
        ("send", "made by def"),
        (None, "made by def"),
        (functions.generate, "return instead of yield"),
        (functions.generate_async, "return instead of yield"),
        (functions.v1, "it is a task already"),
    ],
)
def test_what_cannot_be_found_again_is_no_task(function: Any, words: str) -> None:
    with pytest.raises(TaskError) as caught:
        Task(function)
    assert caught.value.argument == "function"
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("function", "argument", "words"),
    [
        (functions.foreign, "thing", "Foreign: it cannot be stored"),
        (functions.deeply_foreign, "things", "Foreign: it cannot be stored"),
        (functions.unresolvable, "amount", "not only under TYPE_CHECKING"),
    ],
)
def test_a_parameter_that_cannot_be_stored_is_refused_with_the_task(
    function: Any, argument: str, words: str
) -> None:
    with pytest.raises(TaskError) as caught:
        Task(function)
    assert caught.value.argument == argument
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 501}, "name"),
        ({"name": 3}, "name"),
        ({"version": 0}, "version"),
        ({"version": True}, "version"),
        ({"form": "xml"}, "form"),
        ({"upgrade": {1: dict}}, "upgrade"),
        ({"version": 2, "upgrade": {2: dict}}, "upgrade"),
        ({"version": 2, "upgrade": {1: "dict"}}, "upgrade"),
        ({"retry": 3}, "retry"),
        ({"delivery": "exactly_once"}, "delivery"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": "soon"}, "timeout"),
        ({"priority": 1.5}, "priority"),
        ({"priority": 1_000_001}, "priority"),
        ({"executor": "asyncio"}, "executor"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused_by_name(
    options: dict[str, Any], argument: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        Task(functions.send, **options)
    assert caught.value.argument == argument


# ----------------------------------------------------------------------------- its calls


def test_a_call_holds_the_task_and_what_was_passed() -> None:
    task = Task(functions.send)
    call = task.call("a@x", n=2)
    assert call.task is task
    assert task.codec.decode(call.payload).kwargs == {"to": "a@x", "n": 2}


@pytest.mark.parametrize(
    ("args", "kwargs", "argument", "words"),
    [
        ((), {}, "to", "to is missing: pass it"),
        (("a", 1, 2), {}, "argument 3", "one argument too many"),
        (("a",), {"m": 1}, "m", "has no such parameter"),
        (("a",), {"ctx": 1}, "ctx", "ctx is given to it when it runs"),
        ((1,), {}, "to", "Expected `str`, got `int`"),
        (("a",), {"n": "2"}, "n", "pass int"),
        (("a",), {"n": True}, "n", "pass int"),
        (("a",), {"n": 2.5}, "n", "pass int"),
        (("\ud800",), {}, "to", "msgpack cannot hold it"),
        (("a",), {"n": object()}, "n", "cannot hold it"),
        (("a",), {"to": "b"}, "to", "it is passed twice"),
    ],
)
def test_a_call_that_does_not_fit_is_refused_and_names_the_argument(
    args: tuple[Any, ...], kwargs: dict[str, Any], argument: str, words: str
) -> None:
    with pytest.raises(TaskError) as caught:
        Task(functions.send).call(*args, **kwargs)
    assert caught.value.argument == argument
    assert words in str(caught.value)
    assert f"{MODULE}:send(to: str, n: int = 1)" in str(caught.value) or (
        "cannot hold" in words
    )


def test_a_refusal_survives_pickling() -> None:
    with pytest.raises(TaskError) as caught:
        Task(functions.send).call()
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)


# -------------------------------------------------------------------------- the registry


def test_a_registry_finds_tasks_by_name() -> None:
    registry = TaskRegistry()
    task = registry.register(Task(functions.send, name="mail"))
    assert registry.get("mail") is registry.require("mail") is task
    assert registry.names == {"mail"}
    assert registry.tasks() == [task]
    assert registry.get("other") is None


def test_two_functions_cannot_have_one_name() -> None:
    registry = TaskRegistry()
    registry.register(Task(functions.send, name="mail"))
    with pytest.raises(TaskError, match="task_functions:send has it already") as caught:
        registry.register(Task(functions.send_async, name="mail"))
    assert caught.value.argument == "name"


def test_a_function_that_is_defined_anew_replaces_itself() -> None:
    registry = TaskRegistry()
    registry.register(Task(functions.send))
    again = registry.register(Task(functions.send, timeout=5))
    assert registry.tasks() == [again]


def test_an_unknown_task_is_refused_with_those_that_are_known() -> None:
    registry = TaskRegistry()
    registry.register(Task(functions.send, name="mail"))
    with pytest.raises(UnknownTaskError, match=r"known are \['mail'\]"):
        registry.require("male")


def test_an_alias_serves_runs_of_a_task_that_is_gone() -> None:
    registry = TaskRegistry()
    task = registry.register(Task(functions.send, name="new"))
    registry.alias("old", "new")
    assert registry.get("old") is task
    assert registry.names == {"old", "new"}
    assert registry.tasks() == [task]


def test_an_alias_never_hides_a_task() -> None:
    registry = TaskRegistry()
    registry.register(Task(functions.send, name="new"))
    registry.register(Task(functions.send_async, name="old"))
    with pytest.raises(TaskError, match="this task is there"):
        registry.alias("old", "new")
    with pytest.raises(UnknownTaskError):
        registry.alias("older", "newer")


def test_a_task_that_comes_back_takes_its_name_from_the_alias() -> None:
    registry = TaskRegistry()
    registry.register(Task(functions.send, name="new"))
    registry.alias("old", "new")
    old = registry.register(Task(functions.send_async, name="old"))
    assert registry.get("old") is old


# --------------------------------------------------------------- found from other processes


def test_a_task_is_pickled_by_its_place() -> None:
    assert pickle.loads(pickle.dumps(functions.module_task)) is functions.module_task
    call = functions.module_task.call("a")
    copy = pickle.loads(pickle.dumps(call))
    assert isinstance(copy, Call)
    assert copy == call


def test_a_function_that_was_only_registered_is_made_a_task_anew() -> None:
    task = import_task(
        f"{MODULE}:send_async", "elsewhere", lambda: {"version": 3, "form": "json"}
    )
    assert (task.name, task.version, task.codec.form) == ("elsewhere", 3, "json")
    assert task.function is functions.send_async


@pytest.mark.parametrize(
    "place", ["no_such_module:send", f"{MODULE}:no_such_function", f"{MODULE}:Foreign"]
)
def test_what_cannot_be_imported_is_refused(place: str) -> None:
    with pytest.raises(TaskError):
        import_task(place, "task")
