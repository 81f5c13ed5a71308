"""Arguments that are shown to nobody, and arrive all the same."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from timingwheel.jobs.errors import TaskError
from timingwheel.jobs.model import Payload
from timingwheel.scheduler.calling import call_by_name
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.secrets import (
    MASK,
    arguments_with_kept_secrets,
    masked,
    with_kept_secrets,
)
from timingwheel.scheduler.tasks import Call, NamedTask
from timingwheel.testing import Sim

app = Scheduler("never-opened")
came: list[tuple[str, str]] = []
SECRET = "hunter2-and-more"


@app.task(secret=("password",))
def connect(host: str, password: str = "") -> None:
    """Note what arrived."""
    came.append((host, password))


@app.task(secret=["pin"], form="json")
def open_door(pin: int, door: str = "front") -> None:
    """Take a number."""


def fields(payload: Payload) -> dict[str, object]:
    decode = msgspec.json.decode if payload.body[:1] == b"{" else msgspec.msgpack.decode
    found: dict[str, object] = decode(payload.body)
    return found


def test_a_handler_gets_what_nobody_is_shown() -> None:
    came.clear()
    with Sim(tasks=app) as sim:
        job = sim.app.add(connect.call("db", SECRET), delay=0)
        stored = sim.app.job(job).payload
        assert SECRET not in repr(sim.app.job(job))
        assert fields(masked(stored)) == {"host": "db", "password": MASK}
        sim.advance("1m")
    assert came == [("db", SECRET)]


def test_the_marks_outlive_a_restart_and_need_no_task(tmp_path: Path) -> None:
    with Scheduler(tmp_path, tasks=app.tasks) as first:
        job = first.add(connect.call("db", SECRET), delay="1h").id
    with Scheduler(tmp_path) as second:  # knows no task at all
        assert fields(masked(second.job(job).payload))["password"] == MASK


def test_what_was_not_passed_is_not_invented() -> None:
    assert fields(masked(connect.call("db").payload)) == {"host": "db"}


@pytest.mark.parametrize("call", [connect.call("a", SECRET), open_door.call(1234)])
def test_masking_keeps_the_form(call: Call) -> None:
    before = call.payload
    assert masked(before).body[:1] == before.body[:1] or before.body[:1] != b"{"
    assert MASK in fields(masked(before)).values()


def test_a_payload_without_marks_is_itself() -> None:
    payload = NamedTask("any").call(password="shown").payload
    assert masked(payload) is payload


def test_an_edit_keeps_what_was_not_typed_anew() -> None:
    with Sim(tasks=app) as sim:
        job = sim.app.add(connect.call("old", SECRET), delay="1h")
        edited = sim.app.update(job, call=connect.call("new", MASK)).job.payload
        assert fields(edited) == {"host": "new", "password": SECRET}
        changed = sim.app.update(job, call=connect.call("new", "other")).job.payload
        assert fields(changed)["password"] == "other"


def test_an_edit_by_who_does_not_know_the_task_keeps_the_marks() -> None:
    former = connect.call("old", SECRET).payload
    new = NamedTask(connect.name).call(host="new", password=MASK).payload
    kept = with_kept_secrets(new, former)
    assert kept.secret == ("password",)
    assert fields(kept) == {"host": "new", "password": SECRET}


def test_a_secret_of_another_type_is_kept_as_well() -> None:
    former = open_door.call(1234).payload
    assert arguments_with_kept_secrets({"pin": MASK, "door": "back"}, former) == {
        "pin": 1234,
        "door": "back",
    }


def test_a_mask_where_nothing_was_secret_is_a_text_like_any_other() -> None:
    former = NamedTask("any").call(text="before").payload
    assert arguments_with_kept_secrets({"text": MASK}, former) == {"text": MASK}
    new = NamedTask("any").call(text=MASK).payload
    assert with_kept_secrets(new, former) is new


def test_an_error_does_not_show_it() -> None:
    with pytest.raises(TaskError) as wrong_type:
        open_door.call(SECRET)
    with pytest.raises(TaskError) as other_wrong:
        connect.call(3, password=SECRET)
    with pytest.raises(TaskError) as by_name:
        call_by_name(app.tasks, open_door.name, {"pin": SECRET})
    for error in (wrong_type, other_wrong, by_name):
        assert SECRET not in str(error.value)
        assert SECRET not in repr(error.value.found)


def test_no_line_of_the_log_has_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Sim(tasks=app) as sim:
        sim.app.add(connect.call("db", SECRET), delay=0)
        sim.app.add(connect.call("db", SECRET), cron="* * * * *", name="c")
        sim.advance("3m").crash().restart()
    assert SECRET not in caplog.text


def test_marks_are_no_part_of_what_a_key_stands_for() -> None:
    with Sim(tasks=app) as sim:
        call = connect.call("db", SECRET)
        unmarked = call._replace(
            payload=msgspec.structs.replace(call.payload, secret=())
        )
        first = sim.app.add(unmarked, delay="1h", key="k")
        assert sim.app.add(call, delay="1h", key="k").id == first.id


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"secret": "password"}, "names of parameters"),
        ({"secret": ("passwrod",)}, "its parameters are: host, password"),
        ({"secret": ("password",), "pickle": True}, "pickle"),
    ],
)
def test_marks_that_cannot_be_meant_are_refused(options: Any, words: str) -> None:
    with pytest.raises(TaskError, match=words):
        Scheduler("never-opened").task(name="again", **options)(connect.function)
