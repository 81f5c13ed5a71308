"""What a look of the doctor's finds."""

from __future__ import annotations

from typing import Final, NamedTuple

# What people see to in the course of things; it does not say that the store is ill.
_MILD: Final = frozenset({"dead_letter", "unknown_task", "left_running", "torn_tail"})


class Complaint(NamedTuple):
    """One thing that is wrong, or to be seen to.

    Attributes:
        check: which look found it.
        kind: what kind of thing.
        subject: what it is about.
        message: what was found.
        fix: what to do.
        is_passing: whether jobs are safe and go on.
    """

    check: str
    kind: str
    subject: str
    message: str
    fix: str
    is_passing: bool = False

    @property
    def is_mild(self) -> bool:
        """Whether the store is well all the same."""
        return self.is_passing or self.kind in _MILD
