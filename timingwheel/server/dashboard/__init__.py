"""The dashboard: pages in the browser, rendered here, without a build step."""

from timingwheel.server.dashboard.dashboard import dashboard_routes

__all__ = ["dashboard_routes"]
