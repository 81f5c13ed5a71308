"""The operations on jobs."""

from __future__ import annotations

import re
from typing import Any, Final, cast

import msgspec

from timingwheel.errors import ArgumentError
from timingwheel.jobs.errors import UnknownJobError
from timingwheel.jobs.model import Job, SkipRange
from timingwheel.jobs.store import CancelResult
from timingwheel.scheduler.secrets import arguments_with_kept_secrets
from timingwheel.server.operations import Asked, Operation, Reply, Role
from timingwheel.server.queries import added_call, tags_of, until_of
from timingwheel.server.run_operations import run_of
from timingwheel.wire.answers import (
    BackfillAnswer,
    CancelAnswer,
    DoneAnswer,
    JobAnswer,
    JobRefAnswer,
    ListAnswer,
    PageAnswer,
    ResumeAnswer,
    RunAnswer,
    TextAnswer,
    TimeAnswer,
    UpdateAnswer,
    backfill_answer,
    job_answer,
    next_answer,
    ref_answer,
    resume_answer,
    update_answer,
)
from timingwheel.wire.bodies import (
    BackfillBody,
    CancelBody,
    CountQuery,
    JobsQuery,
    NominalQuery,
    PauseBody,
    ResumeBody,
    SinceQuery,
)
from timingwheel.wire.options import AddBody, UpdateBody

_TAG: Final = re.compile(r'(?:W/)?"(\d+)"')


def list_jobs(asked: Asked) -> PageAnswer[JobAnswer]:
    """Return jobs."""
    query = asked.the_query(JobsQuery)
    page = asked.scheduler.jobs(
        state=query.state,
        task=query.task,
        queue=query.queue,
        name=query.name,
        search=query.search,
        tags=tags_of(query.tag),
        limit=query.limit,
        cursor=query.cursor,
    )
    return PageAnswer(items=[job_answer(job) for job in page], cursor=page.cursor)


def add_job(asked: Asked) -> Reply:
    """Make a job; 201 if this request has made it, 200 if it was there."""
    body = asked.the_body(AddBody)
    options = body.options()
    for name in ("name", "key", "if_exists"):
        if (value := getattr(body, name)) is not None:
            options[name] = value
    key = asked.headers.get("idempotency-key")
    if key:
        if body.key is not None and body.key != key:
            raise ArgumentError(
                "key", body.key, "it differs from the header Idempotency-Key"
            )
        options["key"] = key
    call = added_call(asked, body.task, body)
    ref = asked.scheduler.add(call, **cast("Any", options))
    return Reply(
        ref_answer(ref),
        {"location": f"/api/v1/jobs/{ref.id}"},
        201 if ref.created else 200,
    )


def get_job(asked: Asked) -> Reply:
    """Return a job."""
    return _with_tag(job_answer(_job(asked)))


def update_job(asked: Asked) -> Reply:
    """Change a job; past runs keep what they had."""
    body = asked.the_body(UpdateBody)
    changes = body.options()
    job = _job(asked)
    if body.payload is not None or body.args is not None:
        if body.args is not None:
            kept = arguments_with_kept_secrets(body.args, job.payload)
            body = msgspec.structs.replace(body, args=kept)
        changes["call"] = added_call(asked, body.task or job.task, body)
    made = asked.scheduler.update(
        job.id,
        if_revision=_if_match(asked, job),
        dry_run=body.dry_run,
        **cast("Any", changes),
    )
    return _with_tag(update_answer(made), made.job.revision)


def cancel_job(asked: Asked) -> CancelAnswer:
    """End a job: none of its runs starts any more."""
    body = asked.the_body(CancelBody)
    result = asked.scheduler.cancel(
        asked.path["job"], running=body.running, actor=asked.actor(body.actor)
    )
    if result is CancelResult.NOT_FOUND:
        raise UnknownJobError(
            "job",
            asked.path["job"],
            "there is no such job; `jobs` lists those that are there",
        )
    return CancelAnswer(result=result, prevented=bool(result))


def pause_job(asked: Asked) -> DoneAnswer:
    """Start no more runs of a job; survives a restart."""
    body = asked.the_body(PauseBody)
    changed = asked.scheduler.pause(
        asked.path["job"],
        note=body.note,
        until=until_of(body),
        running=body.running,
        actor=asked.actor(body.actor),
    )
    return DoneAnswer(changed)


def resume_job(asked: Asked) -> ResumeAnswer:
    """Let a paused job go on."""
    body = asked.the_body(ResumeBody)
    made = asked.scheduler.resume(
        asked.path["job"], catch_up=body.catch_up, dry_run=body.dry_run
    )
    return resume_answer(made)


def trigger_job(asked: Asked) -> RunAnswer:
    """Run a job now, once more and apart from its trigger."""
    handle = asked.scheduler.trigger(asked.path["job"])
    return run_of(asked, handle.get())


def backfill_job(asked: Asked) -> BackfillAnswer:
    """Make runs for occurrences of the past."""
    body = asked.the_body(BackfillBody)
    made = asked.scheduler.backfill(
        asked.path["job"],
        body.start,
        body.end,
        mode=body.mode,
        again=body.again,
        dry_run=body.dry_run,
    )
    return backfill_answer(made)


def job_next_times(asked: Asked) -> ListAnswer[TimeAnswer]:
    """Return when a job runs next."""
    times = asked.scheduler.next_times(asked.path["job"], asked.the_query(CountQuery).n)
    return ListAnswer([next_answer(one) for one in times])


def explain_job(asked: Asked) -> TextAnswer:
    """Return in words when a job runs, how it is treated, and where it stands."""
    return TextAnswer(asked.scheduler.explain(asked.path["job"]))


def only_run(asked: Asked) -> TextAnswer:
    """Return the id of the only run of a job that runs once; it may be still to come."""
    return TextAnswer(asked.scheduler.run(_job(asked).id).id)


def why(asked: Asked) -> TextAnswer:
    """Return why an occurrence ran, did not run, or waits."""
    nominal = asked.the_query(NominalQuery).nominal
    return TextAnswer(asked.scheduler.why(asked.path["job"], nominal))


def list_skips(asked: Asked) -> ListAnswer[SkipRange]:
    """Return which occurrences of a job did not run, and why; oldest first."""
    since = asked.the_query(SinceQuery).since
    return ListAnswer(asked.scheduler.skips(asked.path["job"], since=since))


def _job(asked: Asked) -> Job:
    return asked.scheduler.job(asked.path["job"])


def _if_match(asked: Asked, job: Job) -> int | None:
    """Return the revision that the caller wants to change."""
    wanted = asked.headers.get("if-match")
    if wanted is None or wanted.strip() == "*":
        return None
    tags = [_TAG.fullmatch(part.strip()) for part in wanted.split(",")]
    revisions = [int(tag[1]) for tag in tags if tag is not None]
    if len(revisions) != len(tags) or not revisions:
        raise ArgumentError(
            "If-Match", wanted, 'pass the ETag of the job, such as "3" in quotes'
        )
    return job.revision if job.revision in revisions else revisions[0]


def _with_tag(answer: JobAnswer | UpdateAnswer, revision: int | None = None) -> Reply:
    if revision is None:
        assert isinstance(answer, JobAnswer)
        revision = answer.revision
    return Reply(answer, {"etag": f'"{revision}"'})


_ONE: Final = "/jobs/{job}"
_REVISION: Final = {
    "ETag": {
        "description": "The revision of the job, for If-Match.",
        "pattern": r'^"[0-9]+"$',
    }
}
OPERATE: Final = Role.OPERATE
JOB_OPERATIONS: Final = (
    Operation(
        "GET",
        "/jobs",
        list_jobs,
        PageAnswer[JobAnswer],
        "List jobs, live ones first",
        query=JobsQuery,
    ),
    Operation(
        "POST",
        "/jobs",
        add_job,
        JobRefAnswer,
        "Make a job, or find the one of that key or name",
        body=AddBody,
        role=OPERATE,
        status=201,
        headers={
            "Idempotency-Key": {
                "description": "As `key` in the body.",
            }
        },
        sends={"Location": {"description": "The path of the job."}},
        example={
            "task": "mail:send",
            "args": {"to": "ada@example.org"},
            "cron": "30 2 * * *",
            "tz": "Europe/Berlin",
            "splay": "10m",
            "retry": {"attempts": 5, "backoff": "1s..10m"},
            "tags": {"team": "bi"},
        },
    ),
    Operation("GET", _ONE, get_job, JobAnswer, "Show a job", sends=_REVISION),
    Operation(
        "PATCH",
        _ONE,
        update_job,
        UpdateAnswer,
        "Change a job; with If-Match only a revision",
        body=UpdateBody,
        role=OPERATE,
        headers={
            "If-Match": {
                "description": "Change only this revision: the ETag of the job.",
                "pattern": r'^(\*|(W/)?"[0-9]{1,9}")$',
            }
        },
        sends=_REVISION,
        example={"cron": "0 3 * * *", "priority": 5, "dry_run": True},
    ),
    Operation(
        "POST",
        f"{_ONE}/cancel",
        cancel_job,
        CancelAnswer,
        "End a job",
        body=CancelBody,
        role=OPERATE,
        needs_body=False,
    ),
    Operation(
        "POST",
        f"{_ONE}/pause",
        pause_job,
        DoneAnswer,
        "Start no more runs of a job",
        body=PauseBody,
        role=OPERATE,
        needs_body=False,
        example={"note": "the bank is closed", "duration": "2h"},
    ),
    Operation(
        "POST",
        f"{_ONE}/resume",
        resume_job,
        ResumeAnswer,
        "Let a paused job go on, or say what would start",
        body=ResumeBody,
        role=OPERATE,
        needs_body=False,
        example={"catch_up": "latest", "dry_run": True},
    ),
    Operation(
        "POST",
        f"{_ONE}/trigger",
        trigger_job,
        RunAnswer,
        "Run a job now, once more",
        role=OPERATE,
        status=201,
    ),
    Operation(
        "POST",
        f"{_ONE}/backfill",
        backfill_job,
        BackfillAnswer,
        "Make runs for occurrences of the past",
        body=BackfillBody,
        role=OPERATE,
        example={
            "start": "2026-01-01T00:00:00Z",
            "end": "2026-01-08T00:00:00Z",
            "dry_run": True,
        },
    ),
    Operation(
        "GET",
        f"{_ONE}/next-times",
        job_next_times,
        ListAnswer[TimeAnswer],
        "When a job runs next",
        query=CountQuery,
    ),
    Operation("GET", f"{_ONE}/explanation", explain_job, TextAnswer, "A job in words"),
    Operation(
        "GET",
        f"{_ONE}/only-run",
        only_run,
        TextAnswer,
        "The id of the only run of a job that runs once",
    ),
    Operation(
        "GET",
        f"{_ONE}/why",
        why,
        TextAnswer,
        "Why an occurrence ran, did not run, or waits",
        query=NominalQuery,
    ),
    Operation(
        "GET",
        f"{_ONE}/skips",
        list_skips,
        ListAnswer[SkipRange],
        "Which occurrences did not run, and why",
        query=SinceQuery,
    ),
)
