"""The store on PostgreSQL on the stage: the database's clock is a row that the test sets."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from typing import Any, Final

import psycopg

from tests.postgres import Postgres
from tests.stores.stage import DAY, SECOND, Stage
from timingwheel.engine.timeline import TICK_NS
from timingwheel.stores.history_retention import Retention
from timingwheel.stores.postgres.making import make_ready
from timingwheel.stores.postgres.store import PostgresStore
from timingwheel.stores.postgres.window import WINDOW_MIN
from timingwheel.testing import ManualClock

SHARDS: Final = 4
LONG_TTL_NS: Final = 36_500 * DAY
"""Of a node: tests let years pass in one step, and nobody could give signs of life."""

CLOCK: Final = """
CREATE TABLE test_clock (wall_ns bigint NOT NULL);
INSERT INTO test_clock VALUES (%s);
CREATE OR REPLACE FUNCTION timingwheel_now() RETURNS bigint LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT wall_ns FROM test_clock;
END;
"""
# What a decision, or a statement, might leave behind that is not whole.
_FAULTS: Final = {
    "a live run without a live job": """
        SELECT r.job_id FROM timingwheel_run r LEFT JOIN timingwheel_job j
        ON j.shard = r.shard AND j.id = r.job_id AND j.live
        WHERE NOT r.plain AND j.id IS NULL
    """,
    "a plain run beside a job": """
        SELECT r.job_id FROM timingwheel_run r JOIN timingwheel_job j
        ON j.shard = r.shard AND j.id = r.job_id WHERE r.plain
        UNION ALL
        SELECT r.job_id FROM timingwheel_past r JOIN timingwheel_job j
        ON j.shard = r.shard AND j.id = r.job_id WHERE r.plain
    """,
    "a lease without a running run, or the other way round": """
        SELECT job_id FROM timingwheel_run
        WHERE (token > 0 AND inc > 0 AND worker <> '') <> (state = 'running')
    """,
    "a run that is live and rests": """
        SELECT job_id FROM timingwheel_run WHERE state IN
        ('succeeded', 'failed', 'cancelled', 'lost', 'skipped')
        UNION ALL
        SELECT job_id FROM timingwheel_past WHERE state NOT IN
        ('succeeded', 'failed', 'cancelled', 'lost', 'skipped')
    """,
    "a run that is there twice": """
        SELECT job_id FROM (
            SELECT job_id, nominal_ns, n FROM timingwheel_run
            UNION ALL SELECT job_id, nominal_ns, n FROM timingwheel_past
        ) AS r GROUP BY job_id, nominal_ns, n HAVING count(*) > 1
    """,
    "an attempt of a run that does not live": """
        SELECT a.job_id FROM timingwheel_attempt a LEFT JOIN timingwheel_run r
        USING (shard, job_id, nominal_ns, n) WHERE r.job_id IS NULL
    """,
    "a past run without a job": """
        SELECT r.job_id FROM timingwheel_past r LEFT JOIN timingwheel_job j
        ON j.shard = r.shard AND j.id = r.job_id WHERE NOT r.plain AND j.id IS NULL
    """,
    "a job that is over and lives": """
        SELECT j.id FROM timingwheel_job j WHERE j.live
        AND j.state IN ('done', 'cancelled') AND NOT EXISTS (
            SELECT 1 FROM timingwheel_run r
            WHERE r.shard = j.shard AND r.job_id = j.id
        )
    """,
    "a name of a job that does not live": """
        SELECT t.job_id FROM timingwheel_name t LEFT JOIN timingwheel_job j
        ON j.id = t.job_id AND j.name = t.name AND j.live WHERE j.id IS NULL
    """,
    "a run that waits for nothing": """
        SELECT job_id FROM timingwheel_run
        WHERE plain AND state = 'planned' AND wake_ns IS NULL
    """,
}


class PostgresStage(Stage):
    """A store in a schema of its own.

    Args:
        postgres: the server.
        options: of every PostgresStore.open.
    """

    grain_ns = TICK_NS
    forgets_late_s = DAY / SECOND  # with the day on which it ended
    store: PostgresStore

    def __init__(self, postgres: Postgres, **options: Any) -> None:
        super().__init__()
        self.where = postgres.new_schema()
        self.clock = ManualClock()
        self._options: dict[str, Any] = {
            "shards": SHARDS,
            "ttl_ns": LONG_TTL_NS,
            "retention": Retention(),
            "window_min": WINDOW_MIN,
            **options,
        }
        self._admin = psycopg.connect(self.where, autocommit=True)
        make_ready(self._admin, shards=self._options["shards"])
        cursor = psycopg.ClientCursor(self._admin)
        cursor.execute(CLOCK, [self.clock.wall_ns()])
        self.is_open = False
        self.start()

    def advance(self, seconds: float) -> None:
        self.set_clock(seconds)
        self.clock.advance(ns=round(seconds * SECOND))

    def set_clock(self, seconds: float) -> None:
        """Set the database's clock, and have nobody know."""
        self._admin.execute(
            "UPDATE test_clock SET wall_ns = wall_ns + %s", [round(seconds * SECOND)]
        )

    def step_wall(self, seconds: float) -> None:
        """Set the clock, and have the store know, as a node does that has noticed."""
        step_ns = round(seconds * SECOND)
        with self._admin.transaction():
            self._admin.execute(
                "UPDATE test_clock SET wall_ns = wall_ns + %s", [step_ns]
            )
            self._admin.execute(
                "UPDATE timingwheel_meta SET steps_ns = steps_ns + %s", [step_ns]
            )

    def snapshot(self) -> None:
        """Nothing: the tables are what it recovers from."""

    def purge(self) -> None:
        self.store.purge()

    def stop(self, *, crash: bool = False) -> None:
        self.check()
        self.is_open = False
        if not crash:
            self.store.close()
            return
        self.store.abandon()
        # Its lease runs out; that takes seconds, and no test is about those.
        self._admin.execute(
            "UPDATE timingwheel_member SET until_ns = timingwheel_elapsed() "
            "WHERE ttl_ns = %s",
            [self._options["ttl_ns"]],
        )

    def open(self) -> None:
        self.store = PostgresStore.open(
            self.where, clock=self.clock, rng=random.Random(0), **self._options
        )
        self.is_open = True

    def node(self, clock: ManualClock | None = None) -> PostgresStore:
        """Open the store once more, as another process; the caller closes it."""
        return PostgresStore.open(
            self.where,
            clock=self.clock if clock is None else clock,
            rng=random.Random(1),
            **self._options,
        )

    def sql(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """Run a statement on the store's tables."""
        cursor = self._admin.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description is not None else []

    def let_die(self, store: PostgresStore) -> None:
        """Have the leases of a node and of its workers run out; it does not know."""
        incs = [store._members.inc, *store._members._own.values()]
        self.sql(
            "UPDATE timingwheel_member SET until_ns = timingwheel_elapsed() "
            "WHERE inc = ANY(%s)",
            [incs],
        )

    def check(self) -> None:
        """Assert what always holds of the tables."""
        for fault, sql in _FAULTS.items():
            found = self._admin.execute(sql.encode()).fetchall()
            assert not found, f"{fault}: {found}"

    def end_all(self) -> None:
        """Check once more and close."""
        with contextlib.closing(self._admin):
            if self.is_open:
                with contextlib.closing(self.store):
                    self.check()
