"""Drafts become jobs: the same decisions as everywhere, and the short form of plain ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from timingwheel.jobs.model import Draft, JobId
from timingwheel.jobs.store import IfExists, JobRef
from timingwheel.jobs.triggers import AfterJobs
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.deciding.putting import (
    once_at,
    put_all,
    require_representable,
)
from timingwheel.stores.identity import StoreTag
from timingwheel.stores.postgres.changes import PLAIN, NewPlain
from timingwheel.stores.postgres.lanes import require_names_fit
from timingwheel.stores.postgres.owner import PostgresOwner
from timingwheel.stores.postgres.view import LoadedView, Wanted
from timingwheel.stores.records import PlainJob


def put(
    owner: PostgresOwner,
    decision: Decision,
    drafts: Sequence[Draft],
    *,
    if_exists: IfExists = "update",
) -> list[JobRef]:
    """Make jobs in one group; see JobStore.put."""
    for draft in drafts:
        require_names_fit(draft.queue, draft.task)
    view = decision.view
    assert isinstance(view, LoadedView)
    return put_all(
        decision,
        drafts,
        tag=owner.tag,
        if_exists=if_exists,
        past=view,
        put_plain=partial(_put_plain, owner.tag),
    )


def wanted_by(tag: StoreTag, drafts: Sequence[Draft]) -> Wanted:
    """Return what a put of these drafts will ask for first."""
    wanted = Wanted()
    for draft in drafts:
        if draft.key is not None:
            wanted.jobs.add(tag.keyed(draft.task, draft.key))
        if draft.name is not None:
            wanted.names.add(draft.name)
        if isinstance(draft.trigger.when, AfterJobs):
            wanted.jobs.update(map(JobId, draft.trigger.when.jobs))
    return wanted


def _put_plain(tag: StoreTag, decision: Decision, draft: Draft) -> JobRef:
    now = decision.now
    base, wait_ns, nominal_ns = once_at(draft.trigger.when, now)
    require_representable(nominal_ns, wait_ns)
    number = decision.next_number()
    job_id = tag.unkeyed(number)
    plain = PlainJob(
        draft.task,
        draft.payload.body,
        now.wall_ns,
        nominal_ns,
        v=draft.payload.version,
        q=draft.queue,
        r=draft.priority,
        o=draft.policy,
        k=draft.cap,
    )
    new = NewPlain(job_id, plain, number, wait_ns, base)
    decision.add(PLAIN, new)
    return JobRef(job_id, created=True)
