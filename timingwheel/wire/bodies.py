"""Bodies and queries of requests, but for those of `add` and `update`, which are in
options.py, and those of workers, in workers.py.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from timingwheel.jobs.store import PAGE_LIMIT, Running
from timingwheel.scheduler.backfilling import BackfillMode
from timingwheel.wire.fields import Bound, Count, Day, Hold, Length, Text, When


class Body(
    msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The base of all of them: fields that are not known are refused."""


class JobsQuery(Body):
    """Which jobs; see Questions.jobs. A tag is `word:value`, given again for more."""

    state: str | None = None
    task: Text | None = None
    queue: Text | None = None
    name: Text | None = None
    search: Text | None = None
    tag: list[str] = []
    limit: Count = PAGE_LIMIT
    cursor: str | None = None


class DeadQuery(Body):
    """Which runs of the dead letter; see Questions.runs."""

    job: Text | None = None
    task: Text | None = None
    queue: Text | None = None
    tag: list[str] = []
    since: When | None = None
    until: When | None = None
    limit: Count = PAGE_LIMIT
    cursor: str | None = None


class RunsQuery(DeadQuery):
    """Which runs; see Questions.runs. A state may be given again for more."""

    state: list[str] = []
    discarded: bool | None = None
    in_order: bool = True


class CountQuery(Body):
    """How many."""

    n: Count = 10


class LimitQuery(Body):
    """How many at most."""

    limit: int = PAGE_LIMIT


class NominalQuery(Body):
    """Which occurrence."""

    nominal: When


class SinceQuery(Body):
    """From when."""

    since: When | None = None


class LoadQuery(Body):
    """How far ahead, and in which steps."""

    span: Length = "24h"
    step: Length = "1m"


class WaitQuery(Body):
    """How long to wait at most, in seconds; the server may answer sooner."""

    timeout: Hold = 20.0


class CancelBody(Body):
    """See Requests.cancel."""

    running: Running = "leave"
    actor: str | None = None


class CancelRunBody(Body):
    """See RunHandle.cancel."""

    running: Running = "leave"


class PauseBody(Body):
    """See Requests.pause. `until` is a moment; `duration` this long from now instead."""

    note: str = ""
    until: When | None = None
    duration: Length | None = None
    running: Running = "leave"
    actor: str | None = None


class ResumeBody(Body):
    """See Requests.resume."""

    catch_up: str = "skip"
    dry_run: bool = False


class BackfillBody(Body):
    """See Requests.backfill."""

    start: When
    end: When
    mode: BackfillMode = "missing"
    again: bool = False
    dry_run: bool = False


class RebindBody(Body):
    """See Requests.rebind."""

    old: Text
    new: Text


class QueueBody(Body):
    """Bounds of a queue; what is left out stays, null takes one away."""

    limit: Bound | UnsetType | None = UNSET
    rate: float | UnsetType | None = UNSET


class CalendarBody(Body):
    """A calendar as a whole; see CalendarHandle.set."""

    dates: list[Day] = []
    weekdays: list[str] = []
    tz: str | None = None


class DaysBody(Body):
    """Days to add to a calendar, or to take off it again."""

    exclude: list[Day] = []
    include: list[Day] = []
