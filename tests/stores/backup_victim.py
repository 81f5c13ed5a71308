"""The process that test_backup.py kills while it takes or restores a backup."""

from __future__ import annotations

import os
import signal
import sys

from timingwheel.stores.backup import backup, restore

TELLING = {
    "open",
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.truncate",
    "sqlite3.connect",
}
"""Events of Python's audit hooks: each is a step with files."""


def act_until_killed(what: str, source: str, to: str, nth: int) -> None:
    """Take or restore a backup, and die by SIGKILL at the nth step with files of `to`."""
    count = 0

    def count_up(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count
        if event not in TELLING or to not in str(arguments[0]):
            return
        count += 1
        if count == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count_up)
    if what == "backup":
        backup(source, to)
    else:
        restore(source, to)
