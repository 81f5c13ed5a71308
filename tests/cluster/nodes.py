"""Nodes of a cluster in one process: each has a clock of its own, and the test the lines.

No thread of a node runs, so a test says when it beats and when it looks at the clock; what
is due and whose lease is past, the database's clock says, which the test sets too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.postgres import Postgres
from tests.stores.postgres_stage import PostgresStage
from tests.stores.stage import SECOND, TASK, end_of
from timingwheel.jobs.store import Claim, Verdict
from timingwheel.stores.postgres.connections import Connections, Rows, Statement
from timingwheel.stores.postgres.store import PostgresStore
from timingwheel.testing import ManualClock

TTL: Final = 6
"""Seconds that a node lives after a beat."""
TASKS: Final = frozenset({TASK})


class Line(Connections):
    """Connections on which a test can do something at each statement.

    Attributes:
        before: called with the statement that is sent.
        after: called with the statement that was answered.
    """

    before: Callable[[str], object] | None = None
    after: Callable[[str], object] | None = None

    def all(
        self, statements: Sequence[Statement], *, binary: bool = False
    ) -> list[Rows]:
        for sql, _ in statements:
            if self.before is not None:
                self.before(sql)
        found = super().all(statements, binary=binary)
        for sql, _ in statements:
            if self.after is not None:
                self.after(sql)
        return found


class ClusterNode:
    """A process of the cluster, as far as its store is concerned.

    Attributes:
        clock: its own; the database has another.
        store: opened; it serves after `serve`.
        line: to the database.
        lost: tokens that it was told are lost.
    """

    def __init__(self, stage: PostgresStage, name: str) -> None:
        self.name = name
        self.clock = ManualClock()
        self.store: PostgresStore = stage.node(self.clock)
        self.store._tending.stop()
        self.store._watching.stop()
        self.store._connections.__class__ = Line
        self.line: Line = self.store._connections  # type: ignore[assignment]
        self.lost: list[int] = []
        self.store.add_loss_listener(self.lost.extend)

    @property
    def inc(self) -> int:
        """The node's present number."""
        return self.store._members.inc

    @property
    def shards(self) -> set[int]:
        """Those that it believes to be its own."""
        return set(self.store._members.leases)

    def serve(self) -> ClusterNode:
        """Join a worker and become a node."""
        self.store.join(self.name)
        self.store.recover()
        # The first one waits for a worker to come; from now on what is due becomes ready.
        self.store.fire(1)
        return self

    def claim(self, count: int = 100) -> list[Claim]:
        return self.store.claim(self.name, tasks=TASKS, count=count)[0]

    def begin(self, claim: Claim) -> bool:
        return self.store.begin(claim.run.id, claim.token)

    def start(self, count: int = 100) -> list[Claim]:
        """Fire, claim and begin."""
        self.store.fire(1_000)
        claims = self.claim(count)
        assert all(self.begin(claim) for claim in claims)
        return claims

    def end(self, claim: Claim, **more: Any) -> Verdict:
        return self.store.finish([end_of(claim, **more)])[0][0]


class Cluster:
    """Several nodes on one store, whose database's clock the test sets.

    Args:
        postgres: the server.
        shards: of the store.
    """

    def __init__(self, postgres: Postgres, *, shards: int = 8) -> None:
        self.stage = PostgresStage(postgres, shards=shards, ttl_ns=TTL * SECOND)
        # Its own store only puts and looks.
        self.stage.store.close()
        self.stage.store = self.stage.node()
        self.stage.store._tending.stop()
        self.nodes: list[ClusterNode] = []
        self._ends = contextlib.ExitStack()

    def node(self, name: str) -> ClusterNode:
        """Open the store as one more process, which does not serve yet."""
        made = ClusterNode(self.stage, name)
        self._ends.callback(made.store.close)
        self.nodes.append(made)
        return made

    def serving(self, *names: str) -> list[ClusterNode]:
        """Have nodes serve and share the shards."""
        made = [self.node(name).serve() for name in names]
        self.settle()
        return made

    def settle(self) -> None:
        """Let all nodes beat until nothing moves any more."""
        former: object = None
        while former != (now := [node.shards for node in self.nodes]):
            former = now
            for _ in range(3):
                for node in self.nodes:
                    node.store.tend()

    def advance(self, seconds: float, *, without: Sequence[ClusterNode] = ()) -> None:
        """Let time pass everywhere, but for nodes that stand still."""
        self.stage.set_clock(seconds)
        for node in self.nodes:
            if node not in without:
                node.clock.advance(seconds)

    def beat(self, seconds: float, *nodes: ClusterNode) -> None:
        """Let time pass while only some nodes beat, every second."""
        for _ in range(round(seconds)):
            self.advance(1)
            for node in nodes:
                node.store.tend()

    def owners(self) -> dict[int, int | None]:
        """Return who fires each shard, if it lives, by the tables."""
        return dict(
            self.stage.sql(
                "SELECT s.shard, m.inc FROM timingwheel_shard s "
                "LEFT JOIN timingwheel_member m ON m.inc = s.owner_inc "
                "AND m.is_node AND m.until_ns > timingwheel_elapsed()"
            )
        )

    def noted_steps_ns(self) -> int:
        """Return the sum of the steps of the database's clock, as noted."""
        found: int = self.stage.sql("SELECT steps_ns FROM timingwheel_meta")[0][0]
        return found

    def epochs(self) -> dict[int, int]:
        """Return the epoch of each shard."""
        return dict(self.stage.sql("SELECT shard, epoch FROM timingwheel_shard"))

    def check(self) -> None:
        """Assert what always holds of the tables, and that no node is deceived."""
        self.stage.check()
        owners = self.owners()
        for node in self.nodes:
            if node.store._trust.holds():
                assert all(owners[shard] == node.inc for shard in node.shards)

    def close(self) -> None:
        """Check once more, and close all."""
        with self._ends:
            self.stage.check()
        self.stage.end_all()
