"""What the crash tests share."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture
def quiet_log(caplog: pytest.LogCaptureFixture) -> None:
    """Keep the log's warnings out of a sweep: thousands of torn tails would be kept."""
    caplog.set_level(logging.CRITICAL, logger="wal")
