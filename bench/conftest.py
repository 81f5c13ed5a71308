"""What the tests of peers share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory that another user can get through to, as a server's may have to be."""
    for at in (tmp_path, *tmp_path.parents[:3]):
        at.chmod(at.stat().st_mode | 0o011)
    return tmp_path / "store"
