"""What goes wrong with a database, told so that a caller knows what to do."""

from __future__ import annotations

from timingwheel.errors import TimingWheelError


class DatabaseAwayError(TimingWheelError, ConnectionError):
    """The database does not answer. Whether the last statement was carried out is unknown.

    Ask again: a put under a key, a cancel and the end of an attempt may be repeated. A
    node goes on by itself when the database is back.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the database does not answer ({self.reason}): try again"
