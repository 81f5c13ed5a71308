from __future__ import annotations

import pytest

from tests.scheduler import program
from timingwheel.errors import ArgumentError
from timingwheel.scheduler.programs import program_tasks


def test_the_tasks_of_a_program_are_found_by_its_name() -> None:
    assert program_tasks("tests.scheduler.program") is program.app.tasks
    assert program_tasks("tests.scheduler.program:app") is program.app.tasks


@pytest.mark.parametrize(
    "place", ["no_such_module:app", "tests.scheduler.program:nope", "", "json:dumps"]
)
def test_a_program_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(ArgumentError, match="app"):
        program_tasks(place)
