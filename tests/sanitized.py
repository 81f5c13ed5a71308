"""Fails unless the compiled bodies here are sanitized: `python -m tests.sanitized`.

Without this, a run on bodies that were built elsewhere would pass and prove nothing.
"""

from __future__ import annotations

import ctypes
import importlib
from pathlib import Path

from tests.test_build import ROOT, TWINS

SIGNS = (b"__asan_report_load", b"__ubsan_handle_")


def main() -> None:
    ctypes.CDLL(None).__asan_init  # noqa: B018 - AttributeError where it is not loaded
    for twin in TWINS:
        path = Path(importlib.import_module(twin.replace("/", ".")).__file__ or "")
        assert path.is_relative_to(ROOT), f"{path} is not of {ROOT}"
        missing = [sign for sign in SIGNS if sign not in path.read_bytes()]
        assert not missing, f"{path} was built without {missing}"
    print(f"{len(TWINS)} compiled bodies, with both sanitizers")


if __name__ == "__main__":
    main()
