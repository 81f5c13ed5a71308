"""Which rules of time zones this process has: the version of its data.

Governments change their minds, and a machine that is updated then computes other times
than one that is not. The version is what the data says of itself, as the IANA names it
("2025b"): the system's files, where zoneinfo looks first, or the `tzdata` package.
"""

from __future__ import annotations

import os
import zoneinfo
from functools import cache
from importlib import import_module

_VERSION_FILES = ("tzdata.zi", "+VERSION")
_MARK = "# version "


@cache
def zone_rules() -> str | None:
    """Return the version of the rules; None: the data does not say.

    Cost: one line of a file, the first time.
    """
    for directory in zoneinfo.TZPATH:
        if not os.path.isdir(directory):
            continue
        for name in _VERSION_FILES:
            try:
                with open(os.path.join(directory, name), encoding="ascii") as file:
                    return file.readline(64).removeprefix(_MARK).strip()
            except (OSError, ValueError):
                continue
        return None
    try:
        version: str = import_module("tzdata").IANA_VERSION
    except (ImportError, AttributeError):
        return None
    return version
