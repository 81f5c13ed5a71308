"""What the history database refuses, or cannot do now."""

from __future__ import annotations

from timingwheel.errors import TimingWheelError
from timingwheel.stores.sqlite_files import NO_ROOM

__all__ = ["HistoryError"]


class HistoryError(TimingWheelError):
    """The history database cannot be used, or not now; no half of a batch is in it.

    What was not written is still in the log, so nothing is lost: do what the message
    says and try again.

    Attributes:
        path: of the database.
        found: what is wrong with it, as a phrase for the message.
        fix: what to do, as a phrase for the message.
    """

    def __init__(self, path: str, found: str, fix: str) -> None:
        super().__init__(path, found, fix)
        self.path = path
        self.found = found
        self.fix = fix

    @property
    def is_no_room(self) -> bool:
        """Whether it is the disk that is full."""
        return self.found.startswith(NO_ROOM)

    def __str__(self) -> str:
        return f"history {self.path} {self.found}: {self.fix}"
