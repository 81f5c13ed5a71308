"""`After`: a trigger that waits for other jobs, as it is written by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from timingwheel.errors import ArgumentError
from timingwheel.jobs.letters import checked_letters
from timingwheel.jobs.store import JobRef
from timingwheel.jobs.triggers import AfterJobs, AfterOn

JOBS_MAX: Final = 1_000
"""Jobs that one job can wait for."""

On = Literal["success", "failure", "any"]


class After:
    """When another job has ended, or all of several, or the first of them.

        After(job_id)                                   when it has succeeded
        After(ref, on="failure")                        when it has failed for good
        After.all_of(a, b)    After.any_of(a, b, on="any")

    Args:
        job: its id, or the JobRef that `add` returned.
        on: which end counts: "success", "failure" or "any".

    Attributes:
        rule: the same as data.

    Raises:
        ArgumentError: the job is neither, or `on` none of the words.
    """

    __slots__ = ("rule",)

    def __init__(self, job: str | JobRef, on: On | AfterOn = "success") -> None:
        self.rule = AfterJobs(jobs=(_id_of(job),), on=_checked_on(on))

    @classmethod
    def all_of(cls, *jobs: str | JobRef, on: On | AfterOn = "success") -> After:
        """Return the trigger that waits until all of the jobs have ended so."""
        return cls._of(jobs, on, need="all")

    @classmethod
    def any_of(cls, *jobs: str | JobRef, on: On | AfterOn = "success") -> After:
        """Return the trigger that waits until one of the jobs has ended so."""
        return cls._of(jobs, on, need="any")

    @classmethod
    def _of(
        cls,
        jobs: Iterable[str | JobRef],
        on: On | AfterOn,
        *,
        need: Literal["all", "any"],
    ) -> After:
        ids = tuple(dict.fromkeys(_id_of(job) for job in jobs))
        if not 1 <= len(ids) <= JOBS_MAX:
            raise ArgumentError("jobs", len(ids), f"pass 1 to {JOBS_MAX:,} jobs")
        after = cls.__new__(cls)
        after.rule = AfterJobs(jobs=ids, on=_checked_on(on), need=need)
        return after

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.rule.jobs))
        form = "" if len(self.rule.jobs) == 1 else f".{self.rule.need}_of"
        return f"After{form}({names}, on={self.rule.on.value!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, After):
            return NotImplemented
        return self.rule == other.rule

    def __hash__(self) -> int:
        return hash(self.rule)


def _id_of(job: object) -> str:
    found = job.id if isinstance(job, JobRef) else job
    if not isinstance(found, str) or not found:
        raise ArgumentError(
            "job", job, "pass a job id, or the JobRef that add returned"
        )
    return checked_letters(found, "job")


def _checked_on(on: object) -> AfterOn:
    try:
        return AfterOn(str(on))
    except ValueError:
        known = ", ".join(f'"{word.value}"' for word in AfterOn)
        raise ArgumentError("on", on, f"pass one of {known}") from None
