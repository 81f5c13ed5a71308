"""Questions about jobs and runs, live and ended, as SQL; pages with cursors.

Runs go by (nominal_ns, job id, n) and jobs by (live, created_ns, job id), greatest first;
a cursor names the last row of its page, so whatever changes between two pages, nothing
that stays where it is falls between them.
"""

from __future__ import annotations

from heapq import merge
from typing import Any, Final

from timingwheel.errors import ArgumentError
from timingwheel.jobs.model import (
    Attempt,
    Job,
    JobId,
    JobState,
    Run,
    RunId,
    SkipRange,
    SkipReason,
)
from timingwheel.jobs.storage import Storage
from timingwheel.jobs.store import JobPage, JobQuery, RunPage, RunQuery
from timingwheel.stores.history_entries import (
    decode_run,
    plain_attempt,
    plain_job,
    searched,
)
from timingwheel.stores.history_queries import (
    job_order,
    parse_job_cursor,
    parse_run_cursor,
    run_cursor,
)
from timingwheel.stores.identity import require_run_id
from timingwheel.stores.postgres.connections import Connections, Rows, Statement, Texts
from timingwheel.stores.postgres.pages import IN_ORDER, Wanted, page_of_runs
from timingwheel.stores.postgres.past import day_of
from timingwheel.stores.postgres.rows import (
    SHOWN_LIVE,
    SHOWN_PAST,
    decode_job,
    live_row,
    shard_of,
    unframed,
)

_BOTH: Final = (
    f"SELECT {SHOWN_LIVE}{{live}} FROM timingwheel_run r WHERE {{where}} "
    f"UNION ALL SELECT {SHOWN_PAST}{{past}} FROM timingwheel_past r WHERE {{where}}{{and_}}"
)
"""In one statement, since a run may end meanwhile: it is found once."""
_KEY: Final = "r.shard = %s AND r.job_id = %s AND r.nominal_ns = %s AND r.n = %s"
# A run is kept in the partition of the day on which it ended. Nothing that is known of it
# beforehand says which: it may be cancelled a year early, retried for a week, or kept
# beyond its day. But nearly all end on the day they were due, or on the next; so these two
# are looked at first, with the live ones, and all days if it is in neither.
_NEAR: Final = " AND r.day IN (%s, %s)"
RUN_NEAR: Final = _BOTH.format(where=_KEY, and_=_NEAR, live="", past="")
_RUN: Final = _BOTH.format(where=_KEY, and_="", live="", past="")
_WITH_TRIES: Final = _BOTH.replace("{where}", _KEY).format(
    and_="{and_}",
    past=", r.tries",
    live=""", coalesce((
        SELECT string_agg(int4send(octet_length(a.body)) || a.body, ''::bytea
            ORDER BY a.number)
        FROM timingwheel_attempt a WHERE a.shard = r.shard AND a.job_id = r.job_id
        AND a.nominal_ns = r.nominal_ns AND a.n = r.n
    ), ''::bytea)""",
)
_ATTEMPTS_NEAR: Final = _WITH_TRIES.format(and_=_NEAR)
_ATTEMPTS: Final = _WITH_TRIES.format(and_="")
_JOB: Final = "SELECT body FROM timingwheel_job WHERE shard = %s AND id = %s"
_PLAIN: Final = _BOTH.format(
    where="r.shard = %s AND r.job_id = %s AND r.plain", and_="", live="", past=""
)
_NAMED: Final = """
SELECT j.body FROM timingwheel_name t, timingwheel_job j
WHERE t.shard = %s AND t.name = %s AND j.shard = %s AND j.id = t.job_id AND j.live
"""
_ID_OF_NAME: Final = (
    "SELECT job_id FROM timingwheel_name WHERE shard = %s AND name = %s"
)
_SKIPS: Final = """
SELECT reason, first_ns, last_ns, count FROM timingwheel_skips
WHERE shard = %s AND job_id = %s AND last_ns >= %s ORDER BY first_ns
"""
_PLANNED: Final = """
SELECT nominal_ns, n FROM timingwheel_run WHERE shard = %s AND job_id = %s
UNION ALL SELECT nominal_ns, n FROM timingwheel_past WHERE shard = %s AND job_id = %s
ORDER BY nominal_ns, n
"""
_BY_TASK: Final = """
SELECT id FROM timingwheel_job WHERE live AND task = %s
UNION SELECT job_id FROM timingwheel_run WHERE plain AND task = %s
"""
_FOLLOWERS: Final = """
SELECT j.body FROM timingwheel_job j WHERE j.live AND EXISTS (
    SELECT 1 FROM timingwheel_dependency d WHERE d.job_id = j.id
) ORDER BY j.id LIMIT %s
"""
_STORAGE: Final = """
SELECT (SELECT count(*) FROM timingwheel_run WHERE wake_ns IS NOT NULL)
    + (SELECT count(*) FROM timingwheel_job WHERE wake_ns IS NOT NULL),
    current_database()
"""
_CURSOR_FIX: Final = "pass the one of the page before"


class Listing:
    """Answers questions about a store.

    Args:
        connections: to its database.
        shards: how many it has.
    """

    def __init__(self, connections: Connections, shards: int) -> None:
        self._connections = connections
        self._shards = shards

    # -- one thing ----------------------------------------------------------------------

    def job(self, job_id: JobId) -> Job | None:
        """Return a job that is live or still kept."""
        key = self._key(job_id)
        found, plain = self._connections.all([(_JOB, key), (_PLAIN, key * 2)])
        if found:
            return decode_job(found[0][0])
        return _plain_job(plain[0]) if plain else None

    def named(self, name: str) -> Job | None:
        """Return the live job of a name."""
        key = self._key(name)
        found = self._connections.rows(_ID_OF_NAME, key)
        if not found:
            return None
        shard = shard_of(found[0][0], self._shards)
        rows = self._connections.rows(_NAMED, [*key, shard])
        return decode_job(rows[0][0]) if rows else None

    def run(self, run_id: RunId) -> Run | None:
        """Return a run that is kept.

        Cost: a statement on two partitions; one on all if it ended on no day near.
        """
        rows = self._near_or_anywhere(run_id, RUN_NEAR, _RUN)
        return _run(rows[0]) if rows else None

    def attempts(self, run_id: RunId) -> list[Attempt]:
        """Return the attempts of a run, the one that goes on last. Cost: as `run`."""
        rows = self._near_or_anywhere(run_id, _ATTEMPTS_NEAR, _ATTEMPTS)
        if not rows:
            return []
        *row, is_live, tries = rows[0]
        found = unframed(tries)
        if is_live:
            live = live_row(tuple(row)).live
            numbers = {attempt.number for attempt in found}
            if live.token and live.run.attempts not in numbers:
                found.append(_going_on(run_id, live.run, live.token, live.worker))
        elif row[4]:
            value = decode_run(row[-1])
            found.append(value.attempt or plain_attempt(value.run))
        return found

    def skips(self, job_id: JobId, since_ns: int) -> list[SkipRange]:
        """Return what did not run and why, oldest first."""
        rows = self._connections.rows(_SKIPS, [*self._key(job_id), since_ns])
        return [
            SkipRange(job_id, SkipReason(reason), first_ns, last_ns, count)
            for reason, first_ns, last_ns, count in rows
        ]

    def planned(self, job_id: JobId) -> list[tuple[int, int]]:
        """Return (nominal_ns, n) of every run of a job that is kept."""
        rows = self._connections.rows(_PLANNED, self._key(job_id) * 2)
        return [(nominal_ns, n) for nominal_ns, n in rows]

    def of_task(self, task: str) -> list[JobId]:
        """Return the live jobs of a task."""
        name = searched(task)
        return [JobId(row[0]) for row in self._connections.rows(_BY_TASK, [name, name])]

    def followers(self, limit: int) -> list[Job]:
        """Return live jobs that run after others, at most so many, by id."""
        rows = self._connections.rows(_FOLLOWERS, [limit])
        return [decode_job(body) for (body,) in rows]

    def storage(self) -> Storage:
        """Return how the store stands."""
        timers, database = self._connections.rows(_STORAGE)[0]
        return Storage(
            path=f"PostgreSQL database {database}",
            timers=timers,
            wheels=(),
            history_lsn=0,
            log=None,
        )

    # -- pages --------------------------------------------------------------------------

    def runs(self, query: RunQuery) -> RunPage:
        """Return a page of runs, live and finished, newest nominal time first."""
        wanted = Wanted("r", query.limit)
        if query.job_id is not None:
            wanted.add("r.shard = %s", shard_of(query.job_id, self._shards))
            wanted.add("r.job_id = %s", searched(query.job_id))
        if query.states is not None:
            wanted.add("r.state = ANY(%s)", Texts(sorted(map(str, query.states))))
        wanted.equal("task", query.task)
        wanted.equal("queue", query.queue)
        wanted.tags(query.tags)
        if query.since_ns is not None:
            wanted.add("r.nominal_ns >= %s", query.since_ns)
        if query.until_ns is not None:
            wanted.add("r.nominal_ns < %s", query.until_ns)
        if query.cursor is not None:
            place = parse_run_cursor(query.cursor)
            wanted.add("(r.nominal_ns, r.job_id, r.n) < (%s, %s, %s)", *place)
        live = past = wanted
        if query.discarded is not None:
            past = wanted.and_("r.discarded = %s", query.discarded)
        if query.discarded:
            live = wanted.and_("false")
        order = "nominal_ns DESC, job_id DESC, n DESC"
        of_job = query.job_id is not None
        page = page_of_runs(live, past, order, states=query.states, of_job=of_job)
        rows = self._connections.rows(*page)
        runs = [_run(row) for row in rows[: query.limit]]
        more = len(rows) > query.limit
        return RunPage(runs, run_cursor(runs[-1]) if more else None)

    def jobs(self, query: JobQuery) -> JobPage:
        """Return a page of jobs, live ones first."""
        jobs, plain = Wanted("j", query.limit), Wanted("r", query.limit)
        jobs.equal("state", None if query.state is None else query.state.value)
        for wanted in (jobs, plain):
            wanted.equal("task", query.task)
            wanted.equal("queue", query.queue)
        jobs.add(IN_ORDER.format(table="j"))
        jobs.equal("name", query.name)
        if query.search is not None:
            # By the letters A to Z alone, whatever the database's collation.
            term = 'position(lower(%s COLLATE "C") IN lower(j.name COLLATE "C")) > 0'
            jobs.add(term, searched(query.search))
        jobs.tags(query.tags)
        if query.cursor is not None:
            place = _parse_job_cursor(query.cursor)
            jobs.add("(j.live, j.created_ns, j.id) < (%s, %s, %s)", *place)
        order = "live DESC, created_ns DESC, id DESC"
        sql, values = jobs.page("j.body, j.live", "timingwheel_job j", order)
        rows = self._connections.rows(sql, values)
        found = [(is_live, decode_job(body)) for body, is_live in rows]
        can_be_plain = query.name is None and query.search is None and not query.tags
        if can_be_plain and query.state in (None, JobState.ACTIVE, JobState.DONE):
            rows = self._connections.rows(*_plain_page(plain, query))
            others = [(row[-1], _plain_job(row)) for row in rows]
            found = list(merge(found, others, key=_job_place, reverse=True))
        page = [job for _, job in found[: query.limit]]
        if len(found) <= query.limit:
            return JobPage(page, None)
        is_live, last = found[query.limit - 1]
        phase = "live" if is_live else "over"
        return JobPage(page, f"{phase}:{last.created_ns}@{last.id}")

    def _key(self, text: str) -> list[object]:
        clean = searched(text)
        return [shard_of(clean, self._shards), clean]

    def _near_or_anywhere(self, run_id: RunId, near: str, anywhere: str) -> Rows:
        """Return the row of a run, live or past, if there is one.

        What moves between the two statements is found by the second, which asks for live
        ones, too.
        """
        job_id, nominal_ns, n = require_run_id(run_id)
        key = [*self._key(job_id), nominal_ns, n]
        day = day_of(nominal_ns)
        rows = self._connections.rows(near, [*key, *key, day, day + 1])
        return rows or self._connections.rows(anywhere, key * 2)


def _plain_page(plain: Wanted, query: JobQuery) -> Statement:
    """Return the question for a page of plain jobs: they are runs."""
    live = past = plain.and_("r.plain")
    if query.cursor is not None:
        is_live, *place = _parse_job_cursor(query.cursor)
        rest = "(r.created_ns, r.job_id) < (%s, %s)"
        if is_live:
            live = live.and_(rest, *place)
        else:
            live, past = live.and_("false"), past.and_(rest, *place)
    if query.state is not None:
        is_done = query.state is JobState.DONE
        live, past = (
            (live.and_("false"), past) if is_done else (live, past.and_("false"))
        )
    return page_of_runs(live, past, "live DESC, created_ns DESC, job_id DESC")


def _run(row: tuple[Any, ...]) -> Run:
    *columns, is_live = row
    if is_live:
        return live_row(tuple(columns)).live.run
    return decode_run(columns[-1]).run


def _plain_job(row: tuple[Any, ...]) -> Job:
    *columns, is_live = row
    if is_live:
        job = live_row(tuple(columns)).job
        assert job is not None, "it is plain"
        return job
    return plain_job(decode_run(columns[-1]))


def _going_on(run_id: RunId, run: Run, token: int, worker: str) -> Attempt:
    return Attempt(
        run_id=run_id,
        number=run.attempts,
        worker=worker,
        token=token,
        started_ns=run.started_ns or 0,
    )


def _job_place(found: tuple[bool, Job]) -> tuple[bool, tuple[int, str]]:
    return found[0], job_order(found[1])


def _parse_job_cursor(cursor: str) -> tuple[bool, int, str]:
    phase, colon, rest = cursor.partition(":")
    if not colon or phase not in ("live", "over"):
        raise ArgumentError("cursor", cursor, _CURSOR_FIX)
    created_ns, job_id = parse_job_cursor(rest)
    return phase == "live", created_ns, job_id
