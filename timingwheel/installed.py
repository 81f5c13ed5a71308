"""Which version of this package is installed, as its metadata says."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "timingwheel-engine"


def installed_version() -> str | None:
    """Return the version; None if the package runs from its source, not installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return None
