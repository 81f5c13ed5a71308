"""Payloads: what goes in comes out, of this version and of others, or is refused."""

from __future__ import annotations

import contextlib
import datetime as dt
import inspect
import math
import os
import subprocess
import sys
import uuid
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scheduler import task_functions as functions
from timingwheel.engine.arguments import PAYLOAD_BYTES_MAX
from timingwheel.errors import PayloadTooLargeError
from timingwheel.jobs.errors import PayloadError, TaskError
from timingwheel.jobs.model import Payload
from timingwheel.scheduler.signatures import Signature
from timingwheel.scheduler.tasks import Task

FORMS = ("msgpack", "json")


def returned(task: Task, payload: Payload) -> Any:
    """Return what the function returns when called with a payload."""
    args, kwargs = task.codec.decode(payload)
    return task.function(*args, **kwargs)


@pytest.mark.parametrize("form", FORMS)
def test_every_kind_of_value_arrives_as_it_was_passed(form: Any) -> None:
    task = Task(functions.everything, form=form)
    values = (
        dt.datetime(2026, 3, 29, 2, 30, tzinfo=dt.UTC),
        uuid.UUID(int=7),
        functions.Colour.RED,
        functions.Point(1, 0.5),
        functions.Address("Main St"),
        "m",
        b"\x00\xff",
        {1, 2},
        (1, "a"),
        None,
    )
    assert returned(task, task.call(*values).payload) == values


@pytest.mark.parametrize("form", FORMS)
def test_arguments_find_their_places_whatever_the_shape(form: Any) -> None:
    task = Task(functions.shaped, form=form)
    call = task.call(1, 2, 4, 5, third=6, a="x", b="y")
    assert returned(task, call.payload) == (1, 2, (4, 5), 6, {"a": "x", "b": "y"})
    assert returned(task, task.call(1, second=2).payload) == (1, 2, (), 3, {})


def test_only_what_was_passed_is_kept() -> None:
    task = Task(functions.send)
    assert msgspec.msgpack.decode(task.call("a").payload.body) == {"to": "a"}


def test_the_same_arguments_make_the_same_bytes_however_they_are_passed() -> None:
    """An idempotency key compares them."""
    task = Task(functions.send_v2)
    bodies = {
        task.call("a", "b", 3).payload.body,
        task.call("a", n=3, subject="b").payload.body,
        task.call(n=3, subject="b", to="a").payload.body,
    }
    assert len(bodies) == 1


@pytest.mark.parametrize("task", [functions.v1, Task(functions.shaped)])
@given(
    args=st.lists(st.just(1), max_size=4),
    names=st.sets(st.sampled_from(["to", "n", "first", "second", "third", "more"])),
)
def test_arguments_are_bound_as_python_binds_them(
    task: Task, args: list[Any], names: set[str]
) -> None:
    signature = Signature(task.function, task.name)
    kwargs: dict[str, Any] = dict.fromkeys(names, 1)
    try:
        expected = inspect.signature(task.function).bind(*args, **kwargs).arguments
    except TypeError:
        with pytest.raises(TaskError):
            signature.bind(tuple(args), kwargs)
    else:
        assert signature.bind(tuple(args), kwargs) == expected


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(x=plain, y=plain)
def test_plain_values_arrive_without_annotations(x: Any, y: Any) -> None:
    task = Task(functions.anything)
    assert returned(task, task.call(x, y).payload) == (x, y)


def test_not_a_number_arrives_as_such_in_messagepack() -> None:
    task = Task(functions.anything)
    x, _ = returned(task, task.call([float("nan")]).payload)
    assert math.isnan(x[0])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        {1, 2},
        uuid.UUID(int=1),
        functions.Point(1),
        functions.Colour.RED,
        {"deep": [uuid.UUID(int=1)]},
        {"deep": [(1, 2)]},
    ],
)
def test_what_would_arrive_as_something_else_is_refused_at_the_call(
    form: Any, value: object
) -> None:
    with pytest.raises(TaskError, match="annotate the parameter") as caught:
        Task(functions.anything, form=form).call(1, value)
    assert caught.value.argument == "y"


def test_text_where_a_date_belongs_is_refused_though_it_would_decode() -> None:
    with pytest.raises(TaskError, match="would arrive as datetime") as caught:
        Task(functions.at).call("2026-01-01T00:00:00Z")
    assert caught.value.argument == "when"


def test_a_payload_over_the_limit_is_refused() -> None:
    with pytest.raises(PayloadTooLargeError, match="pass its key"):
        Task(functions.send).call("x" * PAYLOAD_BYTES_MAX)


@pytest.mark.parametrize("written", FORMS)
@pytest.mark.parametrize("read", FORMS)
def test_a_task_that_changes_its_form_still_reads_the_other(
    written: Any, read: Any
) -> None:
    payload = Task(functions.send, form=written).call("a", 3).payload
    assert returned(Task(functions.send, form=read), payload) == "a 3"


# -------------------------------------------------------------------------- other versions


def test_an_older_payload_fits_when_new_parameters_have_defaults() -> None:
    old = functions.v1.call("a", 2).payload
    assert returned(Task(functions.send_v2, version=2), old) == ("a", "none", 2)


def test_an_older_payload_that_does_not_fit_is_refused_with_what_to_do() -> None:
    old = functions.v1.call("a", 2).payload
    task = Task(functions.send_v3, name="mail", version=3)
    with pytest.raises(PayloadError) as caught:
        task.codec.decode(old)
    assert "payload of version 1 does not fit mail(address: str, subject: str)" in str(
        caught.value
    )
    assert "upgrade={1: ...}" in str(caught.value)


def test_a_newer_payload_that_does_not_fit_asks_for_the_newer_program() -> None:
    new = Task(functions.send_v2, version=2).call("a", subject="s").payload
    with pytest.raises(PayloadError, match="run a program that has version 2"):
        functions.v1.codec.decode(new)


def test_a_newer_payload_that_fits_is_read() -> None:
    new = Task(functions.send_v2, version=2).call("a", n=4).payload
    assert returned(functions.v1, new) == "a 4"


def test_upgrades_lead_from_version_to_version() -> None:
    steps: list[int] = []

    def from_1(old: dict[str, Any]) -> dict[str, Any]:
        steps.append(1)
        return {"to": old["to"], "subject": f"no. {old['n']}"}

    def from_2(old: dict[str, Any]) -> dict[str, Any]:
        steps.append(2)
        return {"address": old["to"], "subject": old["subject"]}

    task = Task(functions.send_v3, version=3, upgrade={1: from_1, 2: from_2})
    assert returned(task, functions.v1.call("a", 2).payload) == ("a", "no. 2")
    version_2 = Task(functions.send_v2, version=2).call("b", subject="s").payload
    assert returned(task, version_2) == ("b", "s")
    assert returned(task, task.call("c", "t").payload) == ("c", "t")
    assert steps == [1, 2, 2]


def test_a_version_without_an_upgrade_of_its_own_passes_unchanged() -> None:
    task = Task(functions.send_v2, version=5, upgrade={3: lambda old: {**old, "n": 9}})
    assert returned(task, functions.v1.call("a").payload) == ("a", "none", 9)


def test_an_upgrade_makes_dates_of_the_text_that_stands_for_them() -> None:
    task = Task(functions.at, version=2, upgrade={1: lambda old: {"when": old["to"]}})
    payload = functions.v1.call("2026-01-01T00:00:00Z").payload
    when = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert returned(task, payload) == when


@pytest.mark.parametrize(
    "step",
    [
        lambda old: old["no such"],
        lambda old: [old],
        lambda old: {**old, "to": object()},
        lambda old: {**old, "to": 7},
    ],
)
def test_an_upgrade_that_fails_is_a_payload_that_does_not_fit(step: Any) -> None:
    task = Task(functions.send_v2, version=2, upgrade={1: step})
    with pytest.raises(PayloadError):
        task.codec.decode(functions.v1.call("a").payload)


@pytest.mark.parametrize("body", [b"", b"\xff", b"{", b"[]", b"\x80", b"\xc1", b"\x93"])
def test_bytes_that_are_no_payload_are_refused(body: bytes) -> None:
    with pytest.raises(PayloadError):
        Task(functions.send).codec.decode(Payload(body))


@given(body=st.binary(max_size=64))
def test_whatever_the_bytes_decoding_raises_nothing_else(body: bytes) -> None:
    task = Task(functions.anything)
    with contextlib.suppress(PayloadError):
        task.codec.decode(Payload(body))


# --------------------------------------------------------------------------------- pickle


def test_a_pickle_is_not_read_unless_the_task_asks_for_it() -> None:
    pickled = Task(functions.anything, pickle=True).call({1, 2}).payload
    with pytest.raises(PayloadError, match="pickle=True if you trust"):
        Task(functions.anything).codec.decode(pickled)


def test_a_task_that_asks_for_pickle_takes_what_pickle_takes() -> None:
    task = Task(functions.anything, pickle=True)
    value = {"deep": [(1, 2), {3}, functions.Point(1)]}
    assert returned(task, task.call(value).payload) == (value, None)
    assert Task(functions.foreign, pickle=True).call(functions.Foreign()).payload.body


def test_a_task_that_turns_to_pickle_still_reads_what_it_wrote_before() -> None:
    old = Task(functions.anything).call([1], "a").payload
    assert returned(Task(functions.anything, pickle=True), old) == ([1], "a")


def test_what_cannot_be_pickled_is_named() -> None:
    with pytest.raises(TaskError, match="cannot be pickled") as caught:
        Task(functions.anything, pickle=True).call(1, functions.Unpicklable())
    assert caught.value.argument == "y"


def test_a_pickle_that_does_not_fit_the_signature_is_refused() -> None:
    payload = Task(functions.anything, pickle=True).call(1).payload
    with pytest.raises(PayloadError, match=r"needs it|no such parameter"):
        Task(functions.send, pickle=True).codec.decode(payload)


# --------------------------------------------------------------------------------- results


@pytest.mark.parametrize("form", FORMS)
def test_a_result_comes_back_as_plain_values(form: Any) -> None:
    codec = Task(functions.send, form=form).codec
    body = codec.encode_result(functions.Point(1, 2.0))
    assert codec.decode_result(body) == {"x": 1, "y": 2.0}
    assert codec.decode_result(codec.encode_result([1, "a"])) == [1, "a"]


def test_no_result_is_no_bytes() -> None:
    codec = Task(functions.send).codec
    assert codec.encode_result(None) is None
    assert codec.decode_result(None) is None


def test_a_pickled_result_keeps_its_type() -> None:
    codec = Task(functions.send, pickle=True).codec
    value = (functions.Point(1), {2})
    assert codec.decode_result(codec.encode_result(value)) == value


@pytest.mark.parametrize("pickle", [False, True])
@pytest.mark.parametrize("value", [functions.Unpicklable(), "x" * 2_000_000])
def test_a_result_that_cannot_be_kept_is_refused(value: object, pickle: bool) -> None:
    with pytest.raises(PayloadError, match=":send returned"):
        Task(functions.send, pickle=pickle).codec.encode_result(value)


WORDS = {"alpha", "beta", "gamma", "delta", "epsilon"}


def test_equal_sets_are_equal_bytes_in_every_process() -> None:
    script = (
        "from tests.scheduler.task_functions import sets; "
        "from tests.scheduler.test_payloads import WORDS; "
        "from timingwheel.scheduler.tasks import Task; "
        "print(Task(sets).call(WORDS).payload.body)"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    ("form", "value", "kept"),
    [
        ("msgpack", {404: 2, 200: 1}, {404: 2, 200: 1}),
        ("json", {404: 2, 200: 1}, {"404": 2, "200": 1}),
        ("msgpack", [{"by": {1.5: {2}}}], [{"by": {1.5: [2]}}]),
    ],
)
def test_a_result_may_have_numbers_as_keys(
    form: Any, value: object, kept: object
) -> None:
    codec = Task(functions.anything, form=form).codec
    assert codec.decode_result(codec.encode_result(value)) == kept


def test_a_coroutine_that_nobody_awaited_is_told_how_it_is_meant() -> None:
    async def forgotten() -> None: ...

    coroutine = forgotten()
    with (
        contextlib.closing(coroutine),
        pytest.raises(PayloadError, match="await it, in"),
    ):
        Task(functions.anything).codec.encode_result(coroutine)


def test_an_argument_with_numbers_as_keys_is_told_what_keys_are() -> None:
    with pytest.raises(TaskError, match="the keys of a dict are text"):
        Task(functions.anything).call({1: "a"})


def test_a_context_that_is_not_the_first_parameter_is_told_where_it_goes() -> None:
    with pytest.raises(TaskError, match=r"context is .*given to the first parameter"):
        Task(functions.send_to_context)
