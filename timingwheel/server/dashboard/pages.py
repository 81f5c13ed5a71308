"""Which pages there are, and the navigation among them."""

from __future__ import annotations

from typing import Final, NamedTuple

from timingwheel.server.dashboard.audit import AUDIT_PAGES
from timingwheel.server.dashboard.dead_letter import DEAD_LETTER_PAGES
from timingwheel.server.dashboard.dependencies import DEPENDENCY_PAGES
from timingwheel.server.dashboard.job import JOB_PAGES
from timingwheel.server.dashboard.job_actions import JOB_ACTIONS
from timingwheel.server.dashboard.job_editing import JOB_FORMS
from timingwheel.server.dashboard.jobs import JOBS_PAGES
from timingwheel.server.dashboard.load_ahead import LOAD_PAGES
from timingwheel.server.dashboard.log import LOG_PAGES
from timingwheel.server.dashboard.nodes import NODE_PAGES
from timingwheel.server.dashboard.overview import OVERVIEW_PAGES
from timingwheel.server.dashboard.queues import QUEUE_PAGES
from timingwheel.server.dashboard.run import RUN_PAGES
from timingwheel.server.dashboard.runs import RUNS_PAGES
from timingwheel.server.dashboard.visitors import VISITOR_PAGES
from timingwheel.server.dashboard.visits import Page
from timingwheel.server.dashboard.workers import WORKER_PAGES

PAGES: Final[tuple[Page, ...]] = (
    *OVERVIEW_PAGES,
    *RUNS_PAGES,
    *RUN_PAGES,
    *QUEUE_PAGES,
    *WORKER_PAGES,
    *NODE_PAGES,
    *DEAD_LETTER_PAGES,
    *DEPENDENCY_PAGES,
    *AUDIT_PAGES,
    *LOG_PAGES,
    *LOAD_PAGES,
    *JOBS_PAGES,
    *JOB_FORMS,
    *JOB_PAGES,
    *JOB_ACTIONS,
    *VISITOR_PAGES,
)
"""All pages and actions."""


class NavEntry(NamedTuple):
    """One entry of the navigation.

    Attributes:
        title: what it is called, and what pages say in `Page.nav`.
        path: where it leads.
        key: the second key of its short cut, after "g".
    """

    title: str
    path: str
    key: str


NAV: Final = (
    (
        NavEntry("Overview", "/", "o"),
        NavEntry("Load ahead", "/load-ahead", "h"),
    ),
    (
        NavEntry("Jobs", "/jobs", "j"),
        NavEntry("Runs", "/runs", "r"),
        NavEntry("Queues", "/queues", "q"),
        NavEntry("Workers", "/workers", "w"),
        NavEntry("Dead letter", "/dead-letter", "d"),
        NavEntry("Dependencies", "/dependencies", "e"),
    ),
    (
        NavEntry("Nodes", "/nodes", "n"),
        NavEntry("Audit", "/audit", "a"),
        NavEntry("Log", "/log", "l"),
    ),
)
"""The navigation, in groups."""
