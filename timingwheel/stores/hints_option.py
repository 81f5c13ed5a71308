"""How processes of one database learn at once of what others do: an option of a store."""

from __future__ import annotations

from timingwheel.errors import ArgumentError

HintsOption = str
"""Of a store: "auto", "off", or a URL that leads to the server without a pooler."""


def checked_hints(value: object) -> HintsOption:
    """Return how hints come.

    Raises:
        ArgumentError: it is no such thing.
    """
    if value in {"auto", "off"}:
        return str(value)
    if isinstance(value, str) and value.startswith(("postgresql://", "postgres://")):
        return value
    raise ArgumentError(
        "hints", "…", 'pass "auto", "off", or a postgresql:// URL past the pooler'
    )
