"""A program of the user by its name: `mymodule:app`, whose tasks others are to run."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from typing import Any

from timingwheel.errors import ArgumentError
from timingwheel.scheduler.asyncio_scheduler import AsyncScheduler
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.tasks import TaskRegistry


def program_tasks(place: str, argument: str = "app") -> TaskRegistry:
    """Return the tasks of a program's scheduler.

    Args:
        place: `module:name`; the module is imported, also from the current directory.
        argument: what messages call it.

    Raises:
        ArgumentError: there is no scheduler of that name.
    """
    module_name, _, name = place.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
        found: Any = functools.reduce(getattr, (name or "app").split("."), module)
    except (ImportError, AttributeError, ValueError) as error:
        raise ArgumentError(
            argument,
            place,
            f"{error}; pass module:name of a Scheduler, and run this where that module "
            "can be imported",
        ) from error
    if not isinstance(found, Scheduler | AsyncScheduler):
        raise ArgumentError(
            argument, place, f"it is a {type(found).__name__}: name a Scheduler"
        )
    return found.tasks
