"""What goes wrong with a database. Defined where a client, who needs no driver, finds it."""

from timingwheel.jobs.errors import DatabaseAwayError, NoStoreError

__all__ = ["DatabaseAwayError", "NoStoreError"]
