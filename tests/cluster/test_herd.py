"""Midnight: everything comes due at one moment. None is lost, none doubled, others go on.

The rows are made by SQL, as put makes them one by one; a test compares the two.
"""

from __future__ import annotations

import contextlib
import threading
import time
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import psycopg
import pytest

from tests.postgres import FAST, SMALL, Postgres, running_postgres
from tests.stores.postgres_stage import PostgresStage
from tests.stores.stage import DAY, MINUTE, SECOND, TASK, cron, draft, end_of
from timingwheel import Scheduler
from timingwheel.jobs.model import Payload
from timingwheel.stores.postgres.rows import shard_of
from timingwheel.stores.postgres.schema import SHARDS
from timingwheel.stores.postgres.store import PostgresStore
from timingwheel.stores.postgres.window import WINDOW_MIN

BITE: Final = 4_096
PART: Final = 1_000_000
COPIED: Final = 10_000
NODES: Final = 2
MEMORY_BYTES: Final = 16 << 20
"""What firing may take on top at any moment, however much is due."""
STEP_NS: Final = 1_000
DIGITS: Final = 8
FIRST: Final = 1 << 28
"""A number beyond those of the store itself, with room for all of a herd."""
# As put writes a row, but for these.
_OWN_COLUMNS: Final = {
    "shard": "h.shard",
    "job_id": "h.job_id",
    "seq": "h.seq",
    "nominal_ns": "t.nominal_ns + h.later_ns",
    "due_ns": "t.due_ns + h.later_ns",
    "rank": "t.rank + h.later_ns",
    "wake_ns": "t.wake_ns + h.later_ns",
}
_INDEXES: Final = """
SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()
AND tablename = 'timingwheel_run' AND indexname <> 'timingwheel_run_pkey'
"""
_COLUMNS: Final = """
SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema()
AND table_name = 'timingwheel_run' ORDER BY ordinal_position
"""


def ids_of(store: PostgresStore, first: int, count: int) -> Iterator[tuple[str, int]]:
    """Return the ids of the jobs of numbers in a row, and their shards."""
    fixed = store._owner.tag.unkeyed(first)[:-DIGITS]
    so_far = zlib.crc32(fixed.encode())
    for number in range(first, first + count):
        end = f"{number:0{DIGITS}x}"
        yield fixed + end, zlib.crc32(end.encode(), so_far) % store._owner.shards


class Table:
    """The table of runs, seen from outside of the store."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)

    def close(self) -> None:
        self.connection.close()

    def rows(self, sql: str, values: Any = ()) -> list[Any]:
        return self.connection.execute(sql.encode(), values).fetchall()

    def plant(self, store: PostgresStore, count: int) -> None:
        """Add runs like the one that is there, each due STEP_NS after the one before.

        The indexes are made afterwards, as one does with much.
        """
        indexes = self.rows(_INDEXES)
        for name, _ in indexes:
            self.connection.execute(f"DROP INDEX {name}".encode())
        self.connection.execute(
            "CREATE TEMP TABLE herd (job_id text, shard int, seq bigint, later_ns bigint)"
        )
        columns = [name for (name,) in self.rows(_COLUMNS)]
        chosen = ", ".join(_OWN_COLUMNS.get(name, f"t.{name}") for name in columns)
        insert = (
            f"INSERT INTO timingwheel_run ({', '.join(columns)}) SELECT {chosen} "
            "FROM (SELECT * FROM timingwheel_run LIMIT 1) AS t, herd h"
        )
        for start in range(0, count, PART):
            end = min(start + PART, count)
            with self.connection.cursor().copy("COPY herd FROM STDIN") as copy:
                for first in range(start, end, COPIED):
                    ids = ids_of(store, FIRST + first, min(COPIED, end - first))
                    lines = [
                        f"{job_id}\t{shard}\t{FIRST + n}\t{(n + 1) * STEP_NS}\n"
                        for n, (job_id, shard) in enumerate(ids, first)
                    ]
                    copy.write("".join(lines))
            self.connection.execute(insert.encode())
            self.connection.execute("TRUNCATE herd")
        for _, definition in indexes:
            self.connection.execute(definition.encode())
        self.connection.execute("ANALYZE timingwheel_run")


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.new_schema()


def test_rows_made_by_sql_are_those_that_put_makes(url: str) -> None:
    with (
        contextlib.closing(PostgresStore.open(url)) as store,
        contextlib.closing(Table(url)) as table,
    ):
        store.put([draft(1, priority=3)])
        table.plant(store, 3)
        columns = [name for (name,) in table.rows(_COLUMNS)]
        rows = table.rows("SELECT * FROM timingwheel_run ORDER BY seq")
        pattern, *planted = [dict(zip(columns, row, strict=True)) for row in rows]
        assert len(planted) == 3
        for n, row in enumerate(planted, 1):
            assert row["job_id"] == store._owner.tag.unkeyed(row["seq"])
            assert row["shard"] == shard_of(row["job_id"], store._owner.shards)
            times = ("nominal_ns", "due_ns", "rank", "wake_ns")
            later = {name: pattern[name] + n * STEP_NS for name in times}
            own = {name: row[name] for name in ("job_id", "shard", "seq")}
            assert row == pattern | later | own
        assert store.get(planted[0]["job_id"]) is not None


@contextlib.contextmanager
def room_for(count: int, postgres: Postgres) -> Iterator[str]:
    """The URL of a store: on the server of all tests, or on one that has the disk."""
    if count <= PART:
        yield postgres.new_schema()
        return
    with running_postgres(*FAST, *SMALL, in_memory=False) as server:
        yield server.new_schema()


# -- the store ----------------------------------------------------------------------------


class Owners:
    """Nodes that share the shards of a store, each firing on a thread of its own."""

    def __init__(self, url: str) -> None:
        self.stores = [PostgresStore.open(url) for _ in range(NODES)]
        for n, store in enumerate(self.stores):
            store.join(f"worker {n}")
            store.recover()
        while {len(store._members.leases) for store in self.stores} != {
            SHARDS // NODES
        }:
            for store in self.stores:
                store.tend()
        for store in self.stores:
            store.fire(1)  # the turn after a join leaves what is due to the worker

    def fire(self, most: int) -> int:
        """Fire in small bites until each has made so many ready, or no more are due."""
        counts = [0] * NODES

        def drive(n: int) -> None:
            while counts[n] < most and (fired := self.stores[n].fire(BITE)[0]):
                counts[n] += fired

        threads = [threading.Thread(target=drive, args=(n,)) for n in range(NODES)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts)

    def close(self) -> None:
        for store in self.stores:
            store.close()


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(1_000_000, id="a-million"),
        pytest.param(10_000_000, id="ten-million", marks=pytest.mark.long),
    ],
)
@pytest.mark.timeout(7_200)
def test_all_of_a_herd_becomes_ready_once_in_order_while_others_put(
    postgres: Postgres, count: int
) -> None:
    with (
        room_for(count, postgres) as url,
        contextlib.closing(PostgresStore.open(url)) as front,
        contextlib.closing(Table(url)) as table,
    ):
        front.put([draft(0)])
        table.plant(front, count)
        with contextlib.closing(Owners(url)) as owners:
            start = time.perf_counter()
            tracemalloc.start()
            fired = owners.fire(count // 40)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < MEMORY_BYTES
            puts = 0
            for _ in range(4):
                fired += owners.fire(count // 20)
                front.put([draft(3_600)])
                puts += 1
            # Half of it: in each shard what is due first is ready first.
            assert table.rows(_OUT_OF_ORDER) == []
            while more := owners.fire(count // 10):
                fired += more
                front.put([draft(3_600)])
                puts += 1
            seconds = time.perf_counter() - start
            print(f"{fired / seconds:,.0f} runs made ready a second")
            assert fired == count + 1
            # Each was planned once, became ready once, and is there.
            assert table.rows(_BY_STATE) == [
                ("planned", 1, puts),
                ("ready", 2, count + 1),
            ]
            claims, _ = owners.stores[0].claim(
                "worker 0", tasks=frozenset({TASK}), count=500
            )
            ranks = [claim.run.due_ns for claim in claims]
            assert ranks == [ranks[0] + n * STEP_NS for n in range(500)]
            owners.stores[0].finish([end_of(claim) for claim in claims])
            assert table.rows(_BY_STATE)[1] == ("ready", 2, count + 1 - 500)


_OUT_OF_ORDER: Final = """
SELECT shard FROM timingwheel_run GROUP BY shard
HAVING max(rank) FILTER (WHERE state = 'ready')
    > min(rank) FILTER (WHERE state = 'planned')
"""
_BY_STATE: Final = """
SELECT state, version, count(*) FROM timingwheel_run GROUP BY state, version
ORDER BY state, version
"""


# -- a node -------------------------------------------------------------------------------


started: list[int] = []
expected: list[int] = []
done = threading.Event()


def arrive(ctx: Any) -> None:
    """The handler: notes when it was due, us."""
    started.append(round(ctx.due.timestamp() * 1e6))
    if len(started) == expected[-1]:
        done.set()


def test_a_node_works_through_a_herd_in_order_while_others_put(url: str) -> None:
    count, later = 10_000, 20
    app = Scheduler(url, executor="inline")
    work = app.task(arrive)
    started.clear()
    expected.append(count + 1 + later)
    with (
        contextlib.closing(PostgresStore.open(url)) as front,
        contextlib.closing(Table(url)) as table,
    ):
        front.put([draft(0, task=work.name, payload=Payload(b"\x80"))])
        table.plant(front, count)
    start = time.perf_counter()
    with app:
        for _ in range(later):
            app.schedule(work.call(), 0)
        assert done.wait(100)
        print(f"{count / (time.perf_counter() - start):,.0f} runs a second")
    assert len(set(started)) == len(started)
    places = {due: place for place, due in enumerate(sorted(started))}
    early = max(places[due] - place for place, due in enumerate(started))
    # What is ready at one moment is started in order; more is not made ready early.
    assert early <= 2 * WINDOW_MIN


# -- splay --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(400, id="four-hundred"),
        pytest.param(100_000, id="a-hundred-thousand", marks=pytest.mark.long),
    ],
)
def test_jobs_of_one_midnight_are_spread_evenly_and_each_keeps_its_place(
    postgres: Postgres, count: int
) -> None:
    stage = PostgresStage(postgres, shards=SHARDS)
    trigger = cron("0 0 * * *", splay_ns=10 * MINUTE)
    for start in range(0, count, 500):
        stage.store.put([draft(trigger) for _ in range(min(500, count - start))])
    nights: list[dict[str, int]] = []
    for _ in range(2):
        stage.advance((DAY - stage.now_ns % DAY) / SECOND)
        stage.fire()
        offsets = {
            job_id: due_ns - nominal_ns
            for job_id, nominal_ns, due_ns in stage.sql(
                "SELECT job_id, nominal_ns, due_ns FROM timingwheel_run"
                " WHERE nominal_ns = %s",
                [stage.now_ns // DAY * DAY],
            )
        }
        assert len(offsets) == count
        nights.append(offsets)
        stage.advance(15 * 60)
        for _ in range(-(-count // 1_000)):
            stage.step()
    assert nights[0] == nights[1]
    minutes = Counter(offset // MINUTE for offset in nights[0].values())
    assert set(minutes) == set(range(10))
    fair = count / 10
    assert max(abs(n - fair) for n in minutes.values()) < 5 * fair**0.5
    stage.end_all()
