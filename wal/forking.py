"""What a forked child leaves to its parent: logs, engines, stores, sockets.

A child has copies of its parent's memory and file handles, and none of its threads. A lock
that another thread held at the moment of the fork stays locked there for good, and a lock
on a file is shared by both. So whatever owns such things is registered while it is open,
and gives up its copy in each child before any other code runs there.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """What is its process's own, and of no use to a child."""

    def leave_to_parent(self) -> None:
        """In a forked child: refuse all calls from now on, and close the handles.

        No other thread runs there. Nothing may be written: it would reach the parent.
        """


_registered: weakref.WeakSet[Forkable] = weakref.WeakSet()


def register_at_fork(owner: Forkable) -> None:
    """Have each child that is forked from now on call `owner.leave_to_parent()`.

    In no order. Held weakly: an owner that is gone needs no unregistering.
    """
    _registered.add(owner)


def unregister_at_fork(owner: Forkable) -> None:
    """Forget an owner that is closed. One that is not registered is no error."""
    _registered.discard(owner)


def _after_fork_in_child() -> None:
    for owner in list(_registered):
        with contextlib.suppress(BaseException):  # else the others would not be told
            owner.leave_to_parent()
    _registered.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
