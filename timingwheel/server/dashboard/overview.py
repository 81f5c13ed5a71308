"""The page Overview: how the scheduler does, at a glance and live."""

from __future__ import annotations

from typing import Final

from timingwheel.server.dashboard.visits import Page, View, Visit


def show_overview(_: Visit) -> View:
    """Show how the scheduler does."""
    return View("overview.html")


OVERVIEW_PAGES: Final = (Page("GET", "/", show_overview, nav="Overview"),)
