"""The history database as a file: its tables, its versions, and what is refused.

    progress     reached_lsn: all entries up to it are in the tables, in one commit
    runs         finished runs by identity; the body is a HistoryRun. A plain one stands
                 for its job and its attempt too, which have no rows
    run_tags     a run once for each of its tags, in the order of pages
    revived      runs that were final and are live again
    attempts     by run and number; the body is an Attempt
    jobs         ended jobs; the body is a Job
    skips        skip ranges, wholly in columns

Why these indexes: pages go by nominal time, of all, of one job, of one task, of one tag
and of the dead letter; the purge goes by the time of the end. States and queues are few,
so a page of one is soon found by looking through all. Tables are clustered by what
identifies a row, and every index ends with it, so a page needs no sorting.
"""

from __future__ import annotations

from typing import Final

from timingwheel.stores.history_errors import HistoryError
from timingwheel.stores.sqlite_files import Schema

_SCHEMA_1: Final = """
CREATE TABLE progress (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    reached_lsn INTEGER NOT NULL
);
INSERT INTO progress VALUES (1, 0);

CREATE TABLE runs (
    job_id TEXT NOT NULL,
    nominal_ns INTEGER NOT NULL,
    n INTEGER NOT NULL,
    state TEXT NOT NULL,
    task TEXT NOT NULL,
    queue TEXT NOT NULL,
    created_ns INTEGER NOT NULL,
    ended_ns INTEGER NOT NULL,
    plain INTEGER NOT NULL,
    discarded INTEGER NOT NULL,
    tags TEXT,
    body BLOB NOT NULL,
    PRIMARY KEY (job_id, nominal_ns, n)
) WITHOUT ROWID;
CREATE INDEX runs_by_nominal ON runs (nominal_ns, job_id, n);
CREATE INDEX runs_by_task ON runs (task, nominal_ns, job_id, n);
CREATE INDEX runs_by_end ON runs (ended_ns, job_id, nominal_ns, n);
CREATE INDEX runs_dead ON runs (nominal_ns, job_id, n)
    WHERE state IN ('failed', 'lost');
CREATE INDEX runs_plain ON runs (created_ns, job_id) WHERE plain;

CREATE TABLE run_tags (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    nominal_ns INTEGER NOT NULL,
    job_id TEXT NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (name, value, nominal_ns, job_id, n)
) WITHOUT ROWID;
CREATE TRIGGER runs_untag AFTER DELETE ON runs WHEN old.tags IS NOT NULL BEGIN
    DELETE FROM run_tags WHERE (name, value, nominal_ns, job_id, n) IN (
        SELECT key, value, old.nominal_ns, old.job_id, old.n FROM json_each(old.tags)
    );
END;

CREATE TABLE revived (
    job_id TEXT NOT NULL,
    nominal_ns INTEGER NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (job_id, nominal_ns, n)
) WITHOUT ROWID;

CREATE TABLE attempts (
    run_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (run_id, number)
) WITHOUT ROWID;

CREATE TABLE jobs (
    id TEXT NOT NULL PRIMARY KEY,
    created_ns INTEGER NOT NULL,
    ended_ns INTEGER NOT NULL,
    recurring INTEGER NOT NULL,
    state TEXT NOT NULL,
    task TEXT NOT NULL,
    queue TEXT NOT NULL,
    name TEXT,
    tags TEXT,
    body BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX jobs_by_creation ON jobs (created_ns, id);
CREATE INDEX jobs_by_end ON jobs (ended_ns, id);
CREATE INDEX jobs_by_name ON jobs (name, created_ns, id) WHERE name IS NOT NULL;

CREATE TABLE skips (
    job_id TEXT NOT NULL,
    first_ns INTEGER NOT NULL,
    reason TEXT NOT NULL,
    last_ns INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (job_id, first_ns, reason, last_ns)
) WITHOUT ROWID;
CREATE INDEX skips_by_last ON skips (last_ns, job_id, first_ns);
"""
MIGRATIONS: Final = (_SCHEMA_1,)
"""MIGRATIONS[v] leads from schema v to v + 1; one that is published never changes."""


HISTORY: Final = Schema(
    application_id=0x54574849,  # in ASCII: TWHI
    migrations=MIGRATIONS,
    refuse=HistoryError,
    move_away="restore it from a backup, or move it and its -wal file away: a new one is "
    "begun, without the runs that have left the log",
    unwritten="what is not written is in the log",
)
