"""Claims that may have come true while nobody heard what they have got.

The line was cut after the statement was sent. A worker of this process lives on under its
number, so nobody else would ever find what it was given; its next claim looks first.
"""

from __future__ import annotations

from collections.abc import Sequence

from timingwheel.jobs.model import run_id
from timingwheel.jobs.store import Claim
from timingwheel.stores.postgres.ends import Ends
from timingwheel.stores.postgres.owner import PostgresOwner


class Unheard:
    """Gives back what the workers of this process do not know that they have.

    Args:
        owner: this process's part of the store.
        ends: takes runs back.
    """

    def __init__(self, owner: PostgresOwner, ends: Ends) -> None:
        self._owner = owner
        self._ends = ends
        self._is_there = False

    def note(self, claims: Sequence[Claim]) -> None:
        """A claim was cut off.

        Args:
            claims: parts of it that were heard of, and go to nobody either.
        """
        for claim in claims:
            self._owner.claimed.pop(claim.token, None)
        self._is_there = True

    def give_back(self, inc: int) -> None:
        """Give back what a worker has without knowing; it has not begun anything of it.

        Args:
            inc: the worker's number.
        """
        if not self._is_there:
            return
        self._ends.give_back(
            (run_id(held.job_id, *held.key), held.token)
            for held in self._ends.held_by(inc)
            if held.token not in self._owner.claimed
        )
        self._is_there = False
