"""A job in words, and its next times."""

from __future__ import annotations

from typing import Final
from zoneinfo import ZoneInfo

from timingwheel.jobs.every import duration_words
from timingwheel.jobs.explaining import NextTime, explain_trigger, next_times
from timingwheel.jobs.model import (
    DEFAULT_QUEUE,
    Delivery,
    Job,
    JobState,
    Misfire,
    MisfirePolicy,
    Overlap,
    OverlapPolicy,
    Policy,
)
from timingwheel.jobs.schedule import instant_datetime, instant_ns
from timingwheel.jobs.scheduling import zone_of
from timingwheel.jobs.triggers import AfterJobs
from timingwheel.scheduler.desk import Desk
from timingwheel.scheduler.moments import by_whom, shown

_ENDED: Final = frozenset({JobState.DONE, JobState.CANCELLED})


def upcoming(desk: Desk, job: Job, n: int) -> list[NextTime]:
    """Return the next n times of a job; none if it has ended or waits for others.

    A paused job shows the times that it would have.
    """
    if job.state in _ENDED or isinstance(job.trigger.when, AfterJobs):
        return []
    if not job.trigger.is_recurring:
        nominal_ns = desk.once_ns(job)
        if nominal_ns is None:
            return []
        utc = instant_datetime(nominal_ns)
        return [NextTime(utc, utc.astimezone(_zone(job)), job.next_mark)]
    # One that is due and was not reached yet is still to come.
    first_ns = desk.now_ns(job) if job.next_ns is None else job.next_ns
    return next_times(
        job.trigger,
        after_ns=first_ns - 1,
        n=n,
        created_ns=job.since_ns,
        job_key=job_key(job),
        runs_made=job.runs_made,
        calendars=desk.store.calendars(),
    )


def explained(desk: Desk, job: Job) -> str:
    """Return in words when a job runs, how it is treated, and where it stands."""
    sentences = [
        explain_trigger(
            job.trigger,
            created_ns=job.since_ns,
            job_key=job_key(job),
            calendars=desk.store.calendars(),
        )
    ]
    if job.trigger.is_recurring:
        sentences.append(_overlap_words(job.policy.overlap))
        sentences.append(_misfire_words(job.policy.misfire))
    sentences += _policy_words(job.policy)
    if job.queue != DEFAULT_QUEUE:
        sentences.append(f"It waits in the queue {job.queue!r}.")
    if job.cap is not None:
        sentences.append(
            f"At most {job.cap.limit:,} runs at once of all that share {job.cap.key!r}."
        )
    sentences.append(_state_words(job, upcoming(desk, job, 1)))
    return " ".join(sentences)


def job_key(job: Job) -> str:
    """Return what `H` in cron fields is computed from; as the stores do."""
    return job.name or job.id


def _zone(job: Job) -> ZoneInfo:
    return ZoneInfo(zone_of(job.trigger))


def _overlap_words(policy: OverlapPolicy) -> str:
    match policy.rule:
        case Overlap.SKIP:
            what = "the new one is skipped"
        case Overlap.BUFFER_ONE:
            what = "one more waits, and others are skipped"
        case Overlap.BUFFER_ALL:
            what = f"up to {policy.limit:,} wait, and others are skipped"
        case Overlap.CANCEL_OTHER:
            what = "that one is asked to end"
        case Overlap.KILL_OTHER:
            what = "that one is ended"
        case Overlap.ALLOW:
            return f"Up to {policy.limit:,} of its runs at once."
    return f"While a previous run is active, {what}."


def _misfire_words(policy: MisfirePolicy) -> str:
    match policy.rule:
        case Misfire.LATEST:
            return "Of times that were missed, the latest runs."
        case Misfire.FIRST:
            return "Of times that were missed, the first runs."
        case Misfire.SKIP:
            return "Times that were missed do not run."
        case Misfire.ALL:
            window = ""
            if policy.window_ns is not None:
                window = f" of the last {duration_words(policy.window_ns)}"
            return f"Times{window} that were missed all run, up to {policy.limit:,}."


def _policy_words(policy: Policy) -> list[str]:
    sentences = []
    if policy.delivery is Delivery.AT_MOST_ONCE:
        sentences.append("It is started at most once: nothing is tried again.")
    elif policy.retry.attempts == 1:
        sentences.append("An error is final.")
    else:
        first, longest = policy.retry.first_ns, policy.retry.max_ns
        sentences.append(
            f"Up to {policy.retry.attempts:,} attempts, {duration_words(first)} to "
            f"{duration_words(longest)} apart."
        )
    if policy.timeout_ns is not None:
        sentences.append(f"An attempt may take {duration_words(policy.timeout_ns)}.")
    if policy.start_deadline_ns is not None:
        length = duration_words(policy.start_deadline_ns)
        sentences.append(f"A run not started {length} after it was due is skipped.")
    return sentences


def _state_words(job: Job, times: list[NextTime]) -> str:
    match job.state:
        case JobState.PAUSED:
            return f"It is paused{by_whom(job.pause)}."
        case JobState.QUARANTINED:
            return f"It is quarantined: {job.fault}."
        case JobState.ACTIVE:
            if not times:
                return "It is active."
            return f"It is active, next at {shown(instant_ns(times[0].utc, 'time'))}."
    return f"It is {job.state.value}."
