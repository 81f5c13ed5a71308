"""A number from a text that is the same on every machine, in every release.

What is derived from it is part of what a stored schedule means, so it may never change;
Python's own hash() differs from one process to the next.
"""

from __future__ import annotations

from hashlib import blake2b


def stable_number(text: str) -> int:
    """Return a number below 2**64 that spreads texts evenly: BLAKE2b, 8 bytes of it."""
    # A lone surrogate is no text, but a key that came from a file name can hold one.
    data = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")
