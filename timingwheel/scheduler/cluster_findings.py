"""What needs attention in a store that many processes share: for doctor, page and log.

Only what its figures show; what is wrong with single jobs and runs Scheduler.check finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from timingwheel.jobs.cluster import ClusterFacts, DatabaseFacts

LATE_NS: Final = 60_000_000_000
"""What is due so long ago and not ready tells of nodes that do not keep up."""
TRANSACTION_NS: Final = 600_000_000_000
"""A transaction that is open so long holds back the vacuum of every table."""
XMIN_AGE_MAX: Final = 5_000_000
"""Transactions: at 5,000 a second what a quarter of an hour leaves behind."""
WRAPAROUND_AGE_MAX: Final = 1_500_000_000
"""Of 2^31; PostgreSQL itself begins to warn at about 2,107,000,000."""
DEAD_ROWS_MIN: Final = 100_000
"""Dead rows that are told of once they are more than the live ones."""
CONNECTIONS_LEFT_MIN: Final = 0.1
"""Of those that are possible."""
PARTITION_DAYS_MIN: Final = 1.0
OFFSET_NS: Final = 1_000_000_000
_MILD: Final = frozenset(
    {
        *("no_node", "unowned", "late", "orphans", "clock_offset", "asynchronous"),
        *("dead_rows", "long_transaction", "connections", "old_schema"),
    }
)


class ClusterFinding(NamedTuple):
    """One thing that needs attention.

    Attributes:
        kind: what kind of thing.
        subject: what it is about.
        message: what was found.
        fix: what to do.
    """

    kind: str
    subject: str
    message: str
    fix: str

    @property
    def is_mild(self) -> bool:
        """Whether jobs are safe and go on all the same."""
        return self.kind in _MILD


def cluster_findings(facts: ClusterFacts) -> list[ClusterFinding]:
    """Return what needs attention, the worst first."""
    database = facts.database
    found = [
        *_of_nodes(facts),
        *_of_safety(database),
        *_of_upkeep(facts),
        *_of_room(database),
    ]
    return sorted(found, key=lambda one: one.is_mild)


def _of_nodes(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    if not facts.nodes:
        yield ClusterFinding(
            "no_node",
            "nodes",
            "no node lives, so nothing becomes due",
            "start one: timingwheel serve --store, or Scheduler(url).start()",
        )
    elif facts.unowned:
        yield ClusterFinding(
            "unowned",
            "shards",
            f"{facts.unowned} of {len(facts.shards)} are fired by nobody",
            "none if it passes: nodes take them within seconds; else see their logs",
        )
    late_ns = max((one.late_ns for one in facts.shards), default=0)
    if late_ns > LATE_NS:
        yield ClusterFinding(
            "late",
            "shards",
            f"something has been due for {late_ns / 1e9:,.0f} s and is not ready yet",
            "more nodes, or more of the database: see its load",
        )
    if facts.database.orphans:
        yield ClusterFinding(
            "orphans",
            "runs",
            f"{facts.database.orphans:,} attempts belong to workers that do not live",
            "none: the next turn of a node counts them as lost and tries again",
        )


def _of_safety(database: DatabaseFacts) -> Iterator[ClusterFinding]:
    if database.is_standby:
        yield ClusterFinding(
            "standby",
            "database",
            "it is a standby, where nothing can be written",
            "name all servers, and target_session_attrs=read-write, in the URL",
        )
    if database.synchronous_commit == "off":
        yield ClusterFinding(
            "not_durable",
            "synchronous_commit",
            "it is off: a crash loses jobs that were acknowledged",
            "set it to on, for the role of timingwheel at least",
        )
    elif not database.synchronous_standbys:
        yield ClusterFinding(
            "asynchronous",
            "synchronous_standby_names",
            "it is empty: a commit waits for no other machine, so a fail-over may lose "
            "the last jobs",
            "name a synchronous standby, if one disk is not safe enough",
        )
    if abs(database.offset_ns) > OFFSET_NS:
        yield ClusterFinding(
            "clock_offset",
            "clock",
            f"the database is {database.offset_ns / 1e9:+.1f} s from this machine",
            "see to NTP on both; the database's clock decides",
        )


def _of_upkeep(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    database = facts.database
    unkept = [one.name for one in database.tables if not one.is_vacuumed]
    if not database.autovacuum or unkept:
        where = "the server" if not database.autovacuum else ", ".join(unkept)
        yield ClusterFinding(
            "autovacuum",
            "vacuum",
            f"it is off for {where}: queries get slower and slower",
            "set autovacuum on",
        )
    if database.wraparound_age > WRAPAROUND_AGE_MAX:
        yield ClusterFinding(
            "wraparound",
            "vacuum",
            f"{database.wraparound_age:,} transactions are not frozen",
            "VACUUM FREEZE, before the database refuses to write",
        )
    if database.xmin_age > XMIN_AGE_MAX:
        yield ClusterFinding(
            "xmin_age",
            "vacuum",
            f"something has held it back for {database.xmin_age:,} transactions",
            "end old transactions, prepared ones too, and drop unused replication slots",
        )
    if database.transaction_ns > TRANSACTION_NS:
        yield ClusterFinding(
            "long_transaction",
            "transactions",
            f"one has been open for {database.transaction_ns / 1e9:,.0f} s",
            "end it: pg_stat_activity tells whose it is",
        )
    for table in database.tables:
        if table.dead > max(DEAD_ROWS_MIN, table.rows):
            yield ClusterFinding(
                "dead_rows",
                table.name,
                f"{table.dead:,} dead rows beside {table.rows:,}",
                f"VACUUM {table.name}, or let autovacuum come sooner",
            )
    if facts.schema < facts.schema_known:
        yield ClusterFinding(
            "old_schema",
            "schema",
            f"it is {facts.schema}, and this version knows {facts.schema_known}",
            "timingwheel migrate",
        )


def _of_room(database: DatabaseFacts) -> Iterator[ClusterFinding]:
    left = database.connections_max - database.connections
    if left < database.connections_max * CONNECTIONS_LEFT_MIN:
        yield ClusterFinding(
            "connections",
            "database",
            f"{left} of {database.connections_max} connections are left",
            "raise max_connections, or put a pooler between",
        )
    days = database.partition_days
    if days is not None and days < PARTITION_DAYS_MIN:
        yield ClusterFinding(
            "partitions",
            "history",
            f"there are partitions for {max(days, 0):.1f} days ahead alone",
            "a node makes them: see the logs; until then rows go to the default one",
        )
