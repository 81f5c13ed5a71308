"""How the store stands, read in one message: members, shards, queues, the database.

Only what PostgreSQL's own statistics and indexes have is asked, so it may be asked every
few seconds. Of other roles' sessions a role sees no transactions unless it is a member of
`pg_read_all_stats`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Any, Final

from timingwheel.clock import Clock
from timingwheel.jobs.cluster import (
    READY_COUNTED_MAX,
    ClusterFacts,
    DatabaseFacts,
    MemberFacts,
    QueueLag,
    ShardFacts,
    TableFacts,
)
from timingwheel.stores.postgres.connections import Connections, Rows
from timingwheel.stores.postgres.schema import PROTOCOL_MAX, VERSION

_logger = logging.getLogger("timingwheel")
_DAY_NS: Final = 86_400_000_000_000
_META: Final = """
SELECT m.store::text, m.version, timingwheel_now() FROM timingwheel_meta m
"""
_MEMBERS: Final = """
SELECT m.name, m.inc, m.is_node, m.ttl_ns, m.until_ns - timingwheel_elapsed(),
    (SELECT count(*) FROM timingwheel_shard s WHERE s.owner_inc = m.inc),
    (SELECT count(*) FROM timingwheel_run r
        WHERE r.inc = m.inc AND r.state = 'running'),
    m.places, m.is_far, m.protocol_min, m.protocol_max
FROM timingwheel_member m ORDER BY m.is_node DESC, m.name
"""
# A base of 0 counts time that has passed, 1 the wall clock: see timingwheel_elapsed().
_SHARDS: Final = """
SELECT s.shard, s.epoch, m.name, greatest(0,
    timingwheel_elapsed() - least(j0.wake_ns, r0.wake_ns),
    timingwheel_now() - least(j1.wake_ns, r1.wake_ns))
FROM timingwheel_shard s
LEFT JOIN timingwheel_member m
    ON m.inc = s.owner_inc AND m.until_ns > timingwheel_elapsed()
LEFT JOIN LATERAL (SELECT min(wake_ns) AS wake_ns FROM timingwheel_job
    WHERE shard = s.shard AND wake_base = 0 AND wake_ns IS NOT NULL) j0 ON true
LEFT JOIN LATERAL (SELECT min(wake_ns) AS wake_ns FROM timingwheel_job
    WHERE shard = s.shard AND wake_base = 1 AND wake_ns IS NOT NULL) j1 ON true
LEFT JOIN LATERAL (SELECT min(wake_ns) AS wake_ns FROM timingwheel_run
    WHERE shard = s.shard AND wake_base = 0 AND wake_ns IS NOT NULL AND state IN ('planned', 'retrying')) r0 ON true
LEFT JOIN LATERAL (SELECT min(wake_ns) AS wake_ns FROM timingwheel_run
    WHERE shard = s.shard AND wake_base = 1 AND wake_ns IS NOT NULL AND state IN ('planned', 'retrying')) r1 ON true
ORDER BY s.shard
"""
_QUEUES: Final = """
SELECT r.queue, count(*), greatest(0, timingwheel_now() - min(r.due_ns))
FROM (SELECT queue, due_ns FROM timingwheel_run
    WHERE state = 'ready' AND NOT held ORDER BY rank, seq LIMIT %s) r
GROUP BY r.queue ORDER BY 3 DESC, 1
"""
_ORPHANS: Final = """
SELECT count(*) FROM timingwheel_run r WHERE r.state = 'running' AND NOT EXISTS (
    SELECT 1 FROM timingwheel_member m
    WHERE m.inc = r.inc AND m.until_ns > timingwheel_elapsed())
"""
_SERVER: Final = """
SELECT current_setting('server_version'), pg_is_in_recovery(),
    current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
    current_setting('autovacuum') = 'on',
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
    current_setting('max_connections')::int
        - current_setting('superuser_reserved_connections')::int,
    greatest(
        (SELECT max(age(backend_xmin)) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()),
        (SELECT max(age(xmin)) FROM pg_replication_slots),
        (SELECT max(age(transaction)) FROM pg_prepared_xacts
            WHERE database = current_database()), 0),
    (SELECT age(datfrozenxid) FROM pg_database WHERE datname = current_database()),
    coalesce((SELECT max(extract(epoch FROM statement_timestamp() - xact_start))
        FROM pg_stat_activity WHERE datname = current_database()
        AND backend_type = 'client backend' AND pid <> pg_backend_pid()), 0)
"""
_SAFETY: Final = """
SELECT current_setting('synchronous_commit'), current_setting('synchronous_standby_names')
"""
# As pg_stat_user_tables, which would first gather all tables of the database: 2,300 ms
# instead of 2 ms beside five thousand others.
_TABLES: Final = """
SELECT c.relname, pg_stat_get_live_tuples(c.oid), pg_stat_get_dead_tuples(c.oid),
    extract(epoch FROM statement_timestamp() - greatest(
        pg_stat_get_last_vacuum_time(c.oid), pg_stat_get_last_autovacuum_time(c.oid))),
    NOT coalesce('autovacuum_enabled=false' = ANY(c.reloptions), false)
FROM pg_class c WHERE c.relkind IN ('r', 'p') AND c.relname LIKE 'timingwheel%%'
AND c.relnamespace =
    (SELECT relnamespace FROM pg_class WHERE oid = 'timingwheel_meta'::regclass)
ORDER BY c.relname
"""
_PARTITIONS: Final = """
SELECT pg_get_expr(c.relpartbound, c.oid)
FROM pg_partition_tree(to_regclass('timingwheel_past')) p
JOIN pg_class c ON c.oid = p.relid WHERE p.level = 1
"""
_UPPER: Final = re.compile(r"TO \('?(-?\d+)'?\)")


def standing(connections: Connections, clock: Clock) -> ClusterFacts:
    """Return how the store stands.

    Args:
        connections: to its database.
        clock: of this process; it is compared with the database's.
    """
    sent_ns = clock.wall_ns()
    found = connections.all(
        [
            (_META, ()),
            (_MEMBERS, ()),
            (_SHARDS, ()),
            (_QUEUES, [READY_COUNTED_MAX]),
            (_ORPHANS, ()),
            (_SERVER, ()),
            (_TABLES, ()),
            (_PARTITIONS, ()),
        ]
    )
    [meta], members, shards, queues, [orphans], [server], tables, partitions = found
    store, schema, now_ns = meta
    # Half of the way there and back, as far as this process can know.
    offset_ns = now_ns - (sent_ns + clock.wall_ns()) // 2
    told = tuple(_member(row) for row in members)
    return ClusterFacts(
        store=store,
        schema=schema,
        schema_known=VERSION,
        protocol=min(
            (one.protocol_max for one in told if one.is_alive), default=PROTOCOL_MAX
        ),
        members=told,
        shards=tuple(_shard(row) for row in shards),
        queues=tuple(
            QueueLag(queue=queue, ready=ready, lag_ns=lag_ns)
            for queue, ready, lag_ns in queues
        ),
        database=_database(
            server,
            offset_ns=offset_ns,
            orphans=orphans[0],
            tables=tables,
            partition_days=_days_ahead(partitions, now_ns),
        ),
    )


def tell_safety(connections: Connections) -> None:
    """Log what a commit waits for, so that nobody has to guess after a fail-over."""
    [(commit, standbys)] = connections.rows(_SAFETY)
    if commit == "off":
        _logger.warning(
            "synchronous_commit is off: a crash of the database loses jobs that were "
            "acknowledged"
        )
    elif not standbys:
        _logger.info(
            "a commit waits for no standby (synchronous_standby_names is empty): a "
            "fail-over may lose the last jobs"
        )
    else:
        _logger.info("a commit waits for %s (synchronous_commit %s)", standbys, commit)


def _member(row: tuple[Any, ...]) -> MemberFacts:
    name, inc, is_node, ttl_ns, left_ns, shards, running, *rest = row
    places, is_far, oldest, newest = rest
    return MemberFacts(
        name=name,
        inc=inc,
        is_node=is_node,
        ttl_ns=ttl_ns,
        left_ns=left_ns,
        shards=shards,
        running=running,
        places=places,
        is_far=is_far,
        protocol_min=oldest,
        protocol_max=newest,
    )


def _shard(row: tuple[Any, ...]) -> ShardFacts:
    shard, epoch, owner, late_ns = row
    return ShardFacts(shard=shard, epoch=epoch, owner=owner, late_ns=late_ns)


def _database(
    row: tuple[Any, ...],
    *,
    offset_ns: int,
    orphans: int,
    tables: Rows,
    partition_days: float | None,
) -> DatabaseFacts:
    version, is_standby, commit, standbys, autovacuum, *numbers = row
    connections, connections_max, xmin_age, wraparound_age, transaction_s = numbers
    return DatabaseFacts(
        version=version,
        is_standby=is_standby,
        synchronous_commit=commit,
        synchronous_standbys=standbys,
        autovacuum=autovacuum,
        offset_ns=offset_ns,
        connections=connections,
        connections_max=connections_max,
        xmin_age=xmin_age,
        wraparound_age=wraparound_age,
        transaction_ns=int(transaction_s * 1_000_000_000),
        partition_days=partition_days,
        orphans=orphans,
        tables=tuple(
            TableFacts(
                name=name,
                rows=rows,
                dead=dead,
                vacuumed_ns=None if age_s is None else int(age_s * 1_000_000_000),
                is_vacuumed=is_vacuumed,
            )
            for name, rows, dead, age_s, is_vacuumed in tables
        ),
    )


def _days_ahead(bounds: Iterable[tuple[str]], now_ns: int) -> float | None:
    """Return for how many days from now the history has partitions; None: it has none.

    A partition is that of a day, counted from 1970.
    """
    ends = [int(end[1]) for (text,) in bounds if (end := _UPPER.search(text or ""))]
    return max(ends) - now_ns / _DAY_NS if ends else None
