"""Which texts every store can keep: a file in UTF-8 and a column of PostgreSQL alike."""

from __future__ import annotations

from timingwheel.errors import ArgumentError


def checked_letters(text: str, argument: str) -> str:
    """Return a text that can be stored.

    Raises:
        ArgumentError: it holds a NUL, or half of a surrogate pair, as a name of a file
            does that is no UTF-8.
    """
    if "\0" in text:
        raise ArgumentError(argument, text, "a NUL cannot be kept: leave it out")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ArgumentError(
            argument,
            text,
            "a lone surrogate has no bytes in UTF-8: if it is the name of a file, "
            'os.fsencode(it).decode(errors="backslashreplace") can be kept',
        ) from None
    return text
