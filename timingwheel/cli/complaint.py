"""What one of the doctor's checks finds."""

from __future__ import annotations

from typing import Final, NamedTuple

# Routine matters for people; they do not mean that something is wrong with the store.
_MILD: Final = frozenset({"dead_letter", "unknown_task", "left_running", "torn_tail"})


class Complaint(NamedTuple):
    """One thing that is wrong, or needs attention.

    Attributes:
        check: which of them found it.
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
