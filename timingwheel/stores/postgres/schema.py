"""The tables of a job store on PostgreSQL, and how they came to be as they are.

    timingwheel_meta        one row: schema version, the store's uuid, how many shards, and
                            the steps of the wall clock
    timingwheel_job         jobs, live and ended. `version` grows with each change of the
                            job, of the set of its live runs, or of the jobs after it
    timingwheel_run         live runs, each with a `version` of its own. A plain one stands
                            for its job, too, which has no row
    timingwheel_attempt     attempts of live runs that have ended
    timingwheel_past        runs that have ended, with their attempts in `tries`; the version
                            goes on. In partitions by the day of the end: past.py
    timingwheel_skips       occurrences that did not run
    timingwheel_dependency  which job comes after which
    timingwheel_name        the live job of a name
    timingwheel_shard       who fires the jobs of a shard; `epoch` grows with each owner
    timingwheel_planned     under which rules of time zones a shard's jobs were planned
    timingwheel_member      nodes and workers that live. `inc` is never given again
    timingwheel_queue, _cap, _calendar      what is named
    timingwheel_audit       who did what, by way of which server whatever
    timingwheel_access      who may ask the servers

All that belongs to a job has its shard in front of its key, so the tables can be spread
over machines. Bodies are the MessagePack of structs of the jobs layer; columns beside
them are what SQL searches for, or changes by itself: of a live run these win over what
the body says (see rows.py).

An index that has an id behind other columns says WHERE shard >= 0, which is always so: then
only statements go by it that say the same, those that read in its order, and no key is ever
looked for there. Else PostgreSQL would: to a table that it believes small such an index is as
good as the key; it keeps that plan when the table has grown, and each probe reads the index
from end to end (15,000 ends in a table that an ANALYZE had found empty: 28 s, now 1.5 s).

What runs is in no index of pages: each start would write an entry into each. A page reads
all that runs, by timingwheel_run_running, beside what waits and what has ended: 50 ms for
60,000 at once, 1 ms while nothing runs.

Time is `timingwheel_now()`, everywhere and nowhere else, so a test can set it. The
functions mean the tables of their own schema, whatever the search path of who calls them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SHARDS: Final = 256
"""Of a new store. It never changes; enough for 1 to 64 nodes."""

SCHEMA_1: Final = """
CREATE TABLE timingwheel_meta (
    id int PRIMARY KEY CHECK (id = 1),
    version int NOT NULL,
    store uuid NOT NULL,
    shards int NOT NULL,
    steps_ns bigint NOT NULL DEFAULT 0,
    phase text NOT NULL DEFAULT 'done',
    oldest int NOT NULL DEFAULT 1,
    arriving uuid,
    calendars bigint NOT NULL DEFAULT 0
);
CREATE FUNCTION timingwheel_now() RETURNS bigint LANGUAGE sql STABLE
    RETURN (extract(epoch FROM statement_timestamp()) * 1000000000)::bigint;
CREATE FUNCTION timingwheel_elapsed() RETURNS bigint LANGUAGE sql STABLE BEGIN ATOMIC
    SELECT timingwheel_now() - steps_ns FROM timingwheel_meta;
END;
CREATE SEQUENCE timingwheel_number INCREMENT BY 1024 START WITH 1024;
CREATE SEQUENCE timingwheel_token;

CREATE TABLE timingwheel_job (
    shard int NOT NULL,
    id text COLLATE "C" NOT NULL,
    version bigint NOT NULL DEFAULT 1,
    live boolean NOT NULL,
    state text NOT NULL,
    task text NOT NULL,
    queue text NOT NULL,
    name text,
    created_ns bigint NOT NULL,
    ended_ns bigint,
    recurring boolean NOT NULL,
    tags jsonb,
    calendar text,
    wake_ns bigint,
    wake_base int NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (shard, id)
);
CREATE INDEX timingwheel_job_wake ON timingwheel_job (shard, wake_base, wake_ns)
    WHERE wake_ns IS NOT NULL;
CREATE INDEX timingwheel_job_page ON timingwheel_job (live, created_ns, id)
    WHERE shard >= 0;
CREATE INDEX timingwheel_job_task ON timingwheel_job (task) WHERE live;
CREATE INDEX timingwheel_job_name ON timingwheel_job (name) WHERE name IS NOT NULL;
CREATE INDEX timingwheel_job_end ON timingwheel_job (ended_ns, id) WHERE NOT live;

CREATE TABLE timingwheel_run (
    shard int NOT NULL,
    job_id text COLLATE "C" NOT NULL,
    nominal_ns bigint NOT NULL,
    n bigint NOT NULL,
    version bigint NOT NULL,
    plain boolean NOT NULL,
    state text NOT NULL,
    held boolean NOT NULL,
    task text NOT NULL,
    queue text NOT NULL,
    rank bigint NOT NULL,
    seq bigint NOT NULL,
    due_ns bigint NOT NULL,
    expires_ns bigint,
    wake_ns bigint,
    wake_base int NOT NULL,
    cap text,
    alone boolean NOT NULL,
    once boolean NOT NULL,
    attempts int NOT NULL,
    started_ns bigint,
    token bigint NOT NULL,
    worker text NOT NULL,
    inc bigint NOT NULL,
    caps text[],
    asked int NOT NULL DEFAULT 0,
    created_ns bigint NOT NULL,
    tags jsonb,
    body bytea NOT NULL,
    PRIMARY KEY (shard, job_id, nominal_ns, n)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
CREATE INDEX timingwheel_run_wake ON timingwheel_run (shard, wake_base, wake_ns)
    WHERE wake_ns IS NOT NULL;
CREATE INDEX timingwheel_run_lane ON timingwheel_run
    (wake_base, (due_ns - rank), queue, task, shard, wake_ns)
    WHERE state IN ('planned', 'retrying') AND wake_ns IS NOT NULL;
CREATE INDEX timingwheel_run_ready ON timingwheel_run (rank, seq)
    WHERE state = 'ready' AND NOT held;
CREATE INDEX timingwheel_run_late ON timingwheel_run (expires_ns)
    WHERE state = 'ready' AND expires_ns IS NOT NULL;
CREATE INDEX timingwheel_run_running ON timingwheel_run (inc, token)
    WHERE state = 'running';
CREATE INDEX timingwheel_run_asked ON timingwheel_run (inc) WHERE asked > 0;
CREATE INDEX timingwheel_run_page ON timingwheel_run (nominal_ns, job_id, n)
    WHERE shard >= 0 AND state <> 'running';
CREATE INDEX timingwheel_run_plain ON timingwheel_run (created_ns, job_id)
    WHERE plain AND shard >= 0 AND state <> 'running';

CREATE TABLE timingwheel_attempt (
    shard int NOT NULL,
    job_id text COLLATE "C" NOT NULL,
    nominal_ns bigint NOT NULL,
    n bigint NOT NULL,
    number int NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (shard, job_id, nominal_ns, n, number)
);
CREATE TABLE timingwheel_past (
    shard int NOT NULL,
    job_id text COLLATE "C" NOT NULL,
    nominal_ns bigint NOT NULL,
    n bigint NOT NULL,
    day int NOT NULL,
    version bigint NOT NULL,
    plain boolean NOT NULL,
    state text NOT NULL,
    task text NOT NULL,
    queue text NOT NULL,
    created_ns bigint NOT NULL,
    ended_ns bigint NOT NULL,
    discarded boolean NOT NULL,
    tags jsonb,
    body bytea NOT NULL,
    tries bytea NOT NULL,
    PRIMARY KEY (shard, job_id, nominal_ns, n, day)
) PARTITION BY RANGE (day);
CREATE INDEX timingwheel_past_page ON timingwheel_past (nominal_ns, job_id, n)
    WHERE shard >= 0;
CREATE INDEX timingwheel_past_dead ON timingwheel_past (nominal_ns, job_id, n)
    WHERE state IN ('failed', 'lost');
CREATE INDEX timingwheel_past_plain ON timingwheel_past (created_ns, job_id)
    WHERE plain AND shard >= 0;
CREATE TABLE timingwheel_past_kept PARTITION OF timingwheel_past
    FOR VALUES FROM (MINVALUE) TO (1);
CREATE INDEX timingwheel_past_kept_end ON timingwheel_past_kept (ended_ns, job_id)
    WHERE shard >= 0;
CREATE TABLE timingwheel_past_default PARTITION OF timingwheel_past DEFAULT;
CREATE INDEX timingwheel_past_default_end ON timingwheel_past_default
    (ended_ns, job_id) WHERE shard >= 0;
CREATE TABLE timingwheel_skips (
    shard int NOT NULL,
    job_id text COLLATE "C" NOT NULL,
    first_ns bigint NOT NULL,
    reason text NOT NULL,
    last_ns bigint NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (shard, job_id, first_ns, reason, last_ns)
);
CREATE INDEX timingwheel_skips_last ON timingwheel_skips (last_ns);
CREATE TABLE timingwheel_dependency (
    shard int NOT NULL,
    before_id text COLLATE "C" NOT NULL,
    job_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (shard, before_id, job_id)
);
CREATE INDEX timingwheel_dependency_job ON timingwheel_dependency (job_id);
CREATE TABLE timingwheel_name (
    shard int NOT NULL,
    name text COLLATE "C" NOT NULL,
    job_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (shard, name)
);
CREATE TABLE timingwheel_shard (
    shard int PRIMARY KEY,
    owner_inc bigint,
    epoch bigint NOT NULL
);
CREATE TABLE timingwheel_planned (
    shard int PRIMARY KEY,
    zone_rules text NOT NULL
);
CREATE TABLE timingwheel_member (
    inc bigint PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    is_node boolean NOT NULL,
    is_far boolean NOT NULL,
    ttl_ns bigint NOT NULL,
    until_ns bigint NOT NULL,
    beats bigint NOT NULL,
    step_ns bigint NOT NULL,
    places bigint NOT NULL DEFAULT 0,
    idle bigint NOT NULL DEFAULT 0,
    protocol_min int NOT NULL DEFAULT 1,
    protocol_max int NOT NULL DEFAULT 1
);
CREATE UNIQUE INDEX timingwheel_member_far ON timingwheel_member (name) WHERE is_far;
CREATE SEQUENCE timingwheel_inc;
CREATE TABLE timingwheel_queue (
    name text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    next_start_ns bigint NOT NULL,
    body bytea NOT NULL
);
CREATE TABLE timingwheel_cap (
    name text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL
);
CREATE TABLE timingwheel_calendar (
    name text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    body bytea NOT NULL
);
CREATE TABLE timingwheel_audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    time_ns bigint NOT NULL,
    actor text,
    operation text NOT NULL,
    target text NOT NULL,
    outcome text NOT NULL,
    body text NOT NULL
);
CREATE TABLE timingwheel_access (
    name text COLLATE "C" PRIMARY KEY,
    body bytea NOT NULL
);
"""


class Migration(NamedTuple):
    """How one schema becomes the next, while nodes of both versions go on.

    expand    what older versions bear, in one transaction; then indexes, each built
              concurrently
    backfill  rows of the old form become such of the new one, a few at a time
    contract  what only older versions use goes away, once none of them lives

    Attributes:
        expand: statements that take no long lock: new tables, columns with a constant
            default.
        indexes: by name, what stands behind CREATE INDEX name.
        backfill: changes at most %s rows that are of the old form, and returns one row
            for each; "": there are none.
        left: counts rows of the old form; "" if there is no backfill.
        contract: statements; none: nothing goes, and older versions may live on.
    """

    expand: tuple[str, ...] = ()
    indexes: tuple[tuple[str, str], ...] = ()
    backfill: str = ""
    left: str = ""
    contract: tuple[str, ...] = ()


MIGRATIONS: Final[tuple[Migration, ...]] = ()
"""MIGRATIONS[v - 1] leads from schema v to v + 1; one that is published never changes."""
VERSION: Final = 1 + len(MIGRATIONS)
SCHEMA_MIN: Final = 1
"""The oldest schema that this version works with as it is."""
PROTOCOL_MIN: Final = 1
"""The oldest form of rows that this version reads."""
PROTOCOL_MAX: Final = 1
"""The newest."""
