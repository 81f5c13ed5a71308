from __future__ import annotations

import pytest

from tests.scheduler import program
from timingwheel.jobs.errors import TaskError
from timingwheel.scheduler.calling import call_by_name

TASKS = program.app.tasks


def test_a_known_task_writes_its_arguments_as_it_would_by_itself() -> None:
    call = call_by_name(TASKS, program.note.name, {"what": "tea"})
    assert call == program.note.call("tea")


def test_arguments_that_do_not_fit_a_known_task_are_refused_at_once() -> None:
    with pytest.raises(TaskError, match="wat"):
        call_by_name(TASKS, program.note.name, {"wat": 1})


def test_a_task_that_is_not_known_is_called_by_name_alone() -> None:
    call = call_by_name(TASKS, "mail:send", {"to": "x"}, version=3)
    assert (call.task.name, call.payload.version) == ("mail:send", 3)
    assert call.payload.body == b'{"to":"x"}'
