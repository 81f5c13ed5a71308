"""How a store stands that many processes share: who lives, who fires what, the database.

What `Scheduler.cluster` returns, for people, for a page and for metrics. Pure values, all
as of one moment; lengths of time are on the database's clock.
"""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

import msgspec

READY_COUNTED_MAX: Final = 100_000
"""Ready runs that are looked at for the lag of queues, in the order of their ranks."""


class MemberFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A node, or a worker: of a node, or one that asks by way of servers.

    Attributes:
        name: host, process and a part that is never reused; a remote worker's id.
        inc: the number of this life of it; never given again.
        is_node: it fires the jobs of its shards; else it works on runs.
        ttl_ns: how long it lives after a sign of life.
        left_ns: until its lease is past; 0 or less: it is.
        shards: that it fires.
        running: attempts that it has in hand.
        places: how many runs a worker takes when it has none: its slots, and what it
            claims ahead of them.
        is_far: a worker that asks by way of servers.
        protocol_min: the oldest form of rows that it can read.
        protocol_max: the newest.
    """

    name: str
    inc: int
    is_node: bool
    ttl_ns: int
    left_ns: int
    shards: int
    running: int
    places: int
    is_far: bool
    protocol_min: int
    protocol_max: int

    @property
    def is_alive(self) -> bool:
        """Whether its lease goes on."""
        return self.left_ns > 0


class ShardFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the jobs, fired by one node at a time.

    Attributes:
        shard: its number.
        epoch: grows with each change of its owner.
        owner: the name of the node; None: nobody that lives.
        late_ns: how long ago the oldest job or run of it was due that still waits to be
            made ready; 0: none is due.
    """

    shard: int
    epoch: int
    owner: str | None
    late_ns: int


class QueueLag(msgspec.Struct, frozen=True, kw_only=True):
    """What waits in a queue for a free worker.

    Attributes:
        queue: its name.
        ready: runs that could start; see READY_COUNTED_MAX.
        lag_ns: how long ago the oldest of them was due.
    """

    queue: str
    ready: int
    lag_ns: int


class TableFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A table, as PostgreSQL's statistics have it.

    Attributes:
        name: of the table.
        rows: that live, about.
        dead: rows that are to be vacuumed away, about.
        vacuumed_ns: since the last vacuum; None: never, or not since a reset.
        is_vacuumed: whether autovacuum may touch it.
    """

    name: str
    rows: int
    dead: int
    vacuumed_ns: int | None
    is_vacuumed: bool


class DatabaseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The database that a store is in.

    Attributes:
        version: of the server.
        is_standby: it can only be read: nothing can be done here.
        synchronous_commit: whether a commit waits for the disk, and whose.
        synchronous_standbys: `synchronous_standby_names`; "" if a commit waits for none.
        autovacuum: whether it is on.
        offset_ns: this process's wall clock is this much behind the database's.
        connections: open ones of all clients.
        connections_max: that are possible for roles without privilege.
        xmin_age: transactions since the oldest that holds back the vacuum; 0: none does.
        wraparound_age: transactions since the oldest frozen one of the database.
        transaction_ns: how long the longest open transaction goes on.
        partition_days: days of history for which partitions are made ahead; None: the
            history has none.
        orphans: attempts whose worker does not live, which somebody is to take over.
        tables: the store's, by name.
    """

    version: str
    is_standby: bool
    synchronous_commit: str
    synchronous_standbys: str
    autovacuum: bool
    offset_ns: int
    connections: int
    connections_max: int
    xmin_age: int
    wraparound_age: int
    transaction_ns: int
    partition_days: float | None
    orphans: int
    tables: tuple[TableFacts, ...]


class ClusterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How a shared store stands.

    Attributes:
        store: its uuid.
        schema: the version of its tables.
        schema_known: the newest version that this process knows.
        protocol: the form of rows that is written: the newest that all who live can read.
        members: nodes first, then workers, by name.
        shards: by number.
        queues: those with ready runs, the longest lag first.
        database: what it is in.
    """

    store: str
    schema: int
    schema_known: int
    protocol: int
    members: tuple[MemberFacts, ...]
    shards: tuple[ShardFacts, ...]
    queues: tuple[QueueLag, ...]
    database: DatabaseFacts

    @property
    def nodes(self) -> list[MemberFacts]:
        """The nodes that live."""
        return [one for one in self.members if one.is_node and one.is_alive]

    @property
    def unowned(self) -> int:
        """Shards that nobody fires."""
        return sum(one.owner is None for one in self.shards)


@runtime_checkable
class Overseen(Protocol):
    """A store that many processes share."""

    def cluster(self) -> ClusterFacts:
        """Return how it stands. Cost: some index scans; nothing grows with history."""
