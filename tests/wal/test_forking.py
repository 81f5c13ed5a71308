"""Who is told of a fork, and who is not."""

from __future__ import annotations

import gc
import weakref

from tests.wal.children import forks, in_child
from wal.forking import register_at_fork, unregister_at_fork


class Owner:
    """Notes how often it was told."""

    def __init__(self) -> None:
        self.told = 0

    def leave_to_parent(self) -> None:
        self.told += 1


class FailingOwner(Owner):
    """Cannot give up what it has."""

    def leave_to_parent(self) -> None:
        raise KeyboardInterrupt


@forks
def test_each_owner_is_told_once_in_the_child_and_never_in_the_parent() -> None:
    owners = [Owner(), Owner()]
    for owner in owners:
        register_at_fork(owner)
        register_at_fork(owner)

    def grandchild() -> None:
        assert [owner.told for owner in owners] == [1, 1]

    def child() -> None:
        grandchild()
        assert in_child(grandchild) == 0

    assert in_child(child) == 0
    assert [owner.told for owner in owners] == [0, 0]


@forks
def test_one_that_is_unregistered_is_not_told() -> None:
    owner = Owner()
    register_at_fork(owner)
    unregister_at_fork(owner)
    unregister_at_fork(owner)

    def child() -> None:
        assert owner.told == 0

    assert in_child(child) == 0


@forks
def test_one_that_fails_keeps_nobody_from_being_told() -> None:
    owners = [FailingOwner() for _ in range(8)]  # they are told in no order
    for failing in owners:
        register_at_fork(failing)
    owner = Owner()
    register_at_fork(owner)

    def child() -> None:
        assert owner.told == 1

    assert in_child(child) == 0


def test_whoever_is_registered_is_not_kept_alive() -> None:
    owner = Owner()
    register_at_fork(owner)
    left = weakref.ref(owner)
    del owner
    gc.collect()
    assert left() is None
