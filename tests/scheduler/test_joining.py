"""A job put within a caller's transaction is there if, and only if, that commits."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg.adapt import Loader
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from tests.postgres import Postgres
from timingwheel import AsyncScheduler, Scheduler
from timingwheel.client import Client
from timingwheel.errors import ArgumentError
from timingwheel.jobs.errors import (
    KeyConflictError,
    NameTakenError,
    UnknownCalendarError,
    UnknownJobError,
)
from timingwheel.jobs.model import JobId
from timingwheel.jobs.store import JobRef

Connection = psycopg.Connection[Any]


def double(n: int) -> int:
    return 2 * n


def add_with_connection(ctx: Any) -> None:
    options: Any = {"conn": object()}
    ctx.add(NAMED.call(), **options)


NAMED = Scheduler(":memory:").task(name="more")(add_with_connection)


class Shop:
    """A scheduler in a schema, and what its users write beside their jobs.

    Attributes:
        app: opened, not started.
        where: how connections find the database; their search path is another.
    """

    def __init__(self, postgres: Postgres) -> None:
        self.url = postgres.new_schema()
        self.where = postgres.where
        self.app = Scheduler(self.url)
        self.task = self.app.task(double)
        self.app.jobs(limit=1)

    def connect(self, **more: Any) -> Connection:
        return psycopg.connect(self.where, **more)

    def is_there(self, job_id: str) -> bool:
        return self.app.desk.store.get(JobId(job_id)) is not None

    def sql(self, sql: str) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(sql.encode()).fetchall()


@pytest.fixture
def shop(postgres: Postgres) -> Iterator[Shop]:
    made = Shop(postgres)
    yield made
    made.app.stop(0)


@pytest.fixture
def conn(shop: Shop) -> Iterator[Connection]:
    """Begins a transaction with its first statement, as psycopg's do."""
    with contextlib.closing(shop.connect()) as connection:
        yield connection


def is_usable(conn: Connection) -> bool:
    return conn.execute("SELECT 1").fetchone() == (1,)


def after_another(shop: Shop, conn: Connection) -> JobRef:
    first = shop.app.add(shop.task.call(1), delay=60, conn=conn)
    return shop.app.add(shop.task.call(2), after=first, conn=conn)


KINDS: dict[str, Callable[[Shop, Connection], JobRef]] = {
    "plain": lambda shop, conn: shop.app.add(shop.task.call(1), delay=60, conn=conn),
    "keyed": lambda shop, conn: shop.app.add(
        shop.task.call(1), delay=60, key="k", conn=conn
    ),
    "named": lambda shop, conn: shop.app.add(
        shop.task.call(1), delay=60, name="n", conn=conn
    ),
    "recurring": lambda shop, conn: shop.app.add(
        shop.task.call(1), cron="0 3 * * *", tz="Europe/Berlin", name="r", conn=conn
    ),
    "after": after_another,
    "tagged": lambda shop, conn: shop.app.add(
        shop.task.call(1), delay=60, tags={"a": "b"}, conn=conn
    ),
    "far": lambda shop, conn: shop.app.add(
        shop.task.call(1), delay=150 * 365 * 86_400, conn=conn
    ),
    "schedule": lambda shop, conn: JobRef(
        JobId(shop.app.schedule(shop.task.call(1), 60, conn=conn)), created=True
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_is_there_if_and_only_if_the_transaction_commits(
    shop: Shop, conn: Connection, kind: str
) -> None:
    ref = KINDS[kind](shop, conn)
    assert ref.created
    assert not shop.is_there(ref.id)
    conn.rollback()
    assert not shop.is_there(ref.id)
    ref = KINDS[kind](shop, conn)
    conn.commit()
    assert shop.is_there(ref.id)


def test_a_job_of_a_transaction_runs(shop: Shop, conn: Connection) -> None:
    with conn.transaction():
        first = shop.app.add(shop.task.call(21), delay=0, conn=conn)
        shop.app.add(shop.task.call(4), after=first, name="last", conn=conn)
    with shop.app:
        assert shop.app.run(first).wait(timeout=30).result == b"\x2a"
        assert shop.app.run("last").wait(timeout=30).result == b"\x08"


def test_a_savepoint_takes_its_jobs_back_and_no_others(
    shop: Shop, conn: Connection
) -> None:
    with conn.transaction():
        kept = shop.app.add(shop.task.call(1), delay=60, key="a", conn=conn)
        with conn.transaction(force_rollback=True):
            gone = shop.app.add(shop.task.call(1), delay=60, key="b", conn=conn)
    assert (shop.is_there(kept.id), shop.is_there(gone.id)) == (True, False)


def test_a_transaction_finds_what_it_has_put_itself(
    shop: Shop, conn: Connection
) -> None:
    for name, value in (("key", "k"), ("name", "n")):
        options: Any = {name: value, "every": "1h", "conn": conn}
        first, second = (shop.app.add(shop.task.call(1), **options) for _ in range(2))
        assert first.id == second.id
        assert (first.created, second.created) == (True, False)
    # What others cannot see may change.
    changed = shop.app.add(shop.task.call(1), name="n", every="2h", conn=conn)
    assert changed.updated
    conn.commit()
    assert "Every 2 hours" in str(shop.app.explain("n"))


# -- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"key": "k"}, KeyConflictError),
        ({"name": "n", "if_exists": "error"}, NameTakenError),
        ({"name": "n"}, ArgumentError),
        ({"every": None, "delay": 240 * 365 * 86_400}, ArgumentError),
        ({"calendar": "none"}, UnknownCalendarError),
        (
            {"every": None, "after": "00000000-0000-4000-8000-000000000000"},
            UnknownJobError,
        ),
    ],
    ids=["key", "name", "another-definition", "far", "calendar", "after"],
)
def test_a_refusal_leaves_the_transaction_as_it_was(
    shop: Shop, conn: Connection, options: dict[str, Any], error: type[Exception]
) -> None:
    shop.app.add(shop.task.call(1), every="1h", key="k")
    shop.app.add(shop.task.call(1), every="1h", name="n")
    before = shop.app.add(shop.task.call(1), delay=60, key="mine", conn=conn)
    with pytest.raises(error):
        shop.app.add(shop.task.call(2), **{"every": "1h", **options}, conn=conn)
    assert is_usable(conn)
    conn.commit()
    assert shop.is_there(before.id)


def test_what_others_see_is_neither_changed_nor_locked(
    shop: Shop, conn: Connection
) -> None:
    """A client may sleep with its transaction open; no node may have to wait for it."""
    live = shop.app.add(shop.task.call(1), delay=3600)
    keyed = shop.app.add(shop.task.call(1), delay=3600, key="there")
    shop.app.add(shop.task.call(1), every="1h", name="there")
    shop.app.start()
    ended = shop.app.add(shop.task.call(1), delay=0, name="e")
    shop.app.run(ended).wait(timeout=30)
    for before in (live, keyed):
        with pytest.raises(ArgumentError, match="conn"):
            shop.app.add(shop.task.call(1), after=before, conn=conn)
    assert not shop.app.add(
        shop.task.call(1), delay=3600, key="there", conn=conn
    ).created
    assert not shop.app.add(
        shop.task.call(1), every="1h", name="there", conn=conn
    ).created
    assert shop.app.add(shop.task.call(1), after=ended, conn=conn).created
    assert all(kind(shop, conn).created for kind in KINDS.values())
    with shop.connect(autocommit=True) as other:
        schema = shop.sql("SELECT current_schema()")[0][0]
        tables = shop.sql(
            "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        )
        for (table,) in tables:
            other.execute(f"SELECT 1 FROM {schema}.{table} FOR UPDATE NOWAIT".encode())
    conn.commit()


def autocommit(conn: Connection) -> None:
    conn.autocommit = True


def failed(conn: Connection) -> None:
    with contextlib.suppress(psycopg.Error):
        conn.execute("SELECT 1 / 0")


def latin1(conn: Connection) -> None:
    conn.execute("SET client_encoding TO latin1")


def read_only(conn: Connection) -> None:
    conn.read_only = True


def set_read_only(conn: Connection) -> None:
    conn.execute("SET TRANSACTION READ ONLY")


@pytest.mark.parametrize(
    ("prepare", "says"),
    [
        (autocommit, "with conn.transaction"),
        (failed, "roll it back"),
        (Connection.close, "closed"),
        (latin1, "UTF8"),
        (read_only, "read-only"),
        (set_read_only, "read-only"),
    ],
    ids=["autocommit", "failed", "closed", "latin1", "read-only", "set-read-only"],
)
def test_a_connection_that_cannot_serve_is_refused(
    shop: Shop, conn: Connection, prepare: Callable[[Connection], None], says: str
) -> None:
    prepare(conn)
    status = conn.info.transaction_status
    with pytest.raises(ArgumentError, match=says):
        shop.app.add(shop.task.call(1), delay=0, conn=conn)
    assert conn.info.transaction_status == status


def test_in_autocommit_mode_an_open_transaction_is_what_counts(shop: Shop) -> None:
    with shop.connect(autocommit=True) as conn:
        with conn.transaction(force_rollback=True):
            gone = shop.app.add(shop.task.call(1), delay=60, conn=conn)
        with conn.transaction():
            kept = shop.app.add(shop.task.call(1), delay=60, conn=conn)
    assert (shop.is_there(kept.id), shop.is_there(gone.id)) == (True, False)


def test_what_wraps_a_connection_is_refused_and_how_to_unwrap_it_is_said(
    shop: Shop,
) -> None:
    for module, says in (
        ("sqlalchemy.orm.session", "driver_connection"),
        ("django.db.backends.postgresql.base", "connection.connection"),
        ("elsewhere", "a psycopg Connection"),
    ):
        wrapper = type("Wrapper", (), {"__module__": module})()
        with pytest.raises(ArgumentError, match=says):
            shop.app.add(shop.task.call(1), delay=0, conn=wrapper)


def test_stores_that_are_in_no_database_say_so() -> None:
    app = Scheduler(":memory:")
    task = app.task(double)
    with pytest.raises(ArgumentError, match="postgresql://"):
        app.add(task.call(1), delay=0, conn=object())
    app.stop()
    options: Any = {"conn": object()}
    with (
        Client("http://127.0.0.1:1") as client,
        pytest.raises(ArgumentError, match="Scheduler on PostgreSQL"),
    ):
        client.add(task.call(1), delay=0, **options)


def test_another_database_is_refused(shop: Shop, conn: Connection) -> None:
    schema = shop.sql("SELECT current_schema()")[0][0]
    with shop.connect(autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE other_{schema}".encode())
    where = f"{shop.where} dbname=other_{schema}"
    with psycopg.connect(where) as elsewhere:
        with pytest.raises(ArgumentError, match=f"schema {schema}"):
            shop.app.add(shop.task.call(1), delay=0, conn=elsewhere)
        assert is_usable(elsewhere)
        elsewhere.execute(f"CREATE SCHEMA {schema}".encode())
        elsewhere.commit()
        store = Scheduler(f"{shop.url.replace('/postgres?', f'/other_{schema}?')}")
        store.jobs(limit=1)
        store.stop()
        with pytest.raises(ArgumentError, match="another store"):
            shop.app.add(shop.task.call(1), delay=0, conn=elsewhere)
        assert is_usable(elsewhere)


def test_a_role_without_the_right_is_refused(shop: Shop) -> None:
    schema = shop.sql("SELECT current_schema()")[0][0]
    with shop.connect(autocommit=True) as admin:
        admin.execute(f"CREATE ROLE guest_{schema} LOGIN".encode())
        with psycopg.connect(f"{shop.where} user=guest_{schema}") as guest:
            with pytest.raises(ArgumentError, match="GRANT"):
                shop.app.add(shop.task.call(1), delay=0, conn=guest)
            assert is_usable(guest)
            guest.rollback()
            tables = "SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA"
            for grant in (f"USAGE ON SCHEMA {schema}", f"{tables} {schema}"):
                admin.execute(f"GRANT {grant} TO guest_{schema}".encode())
            refs = [kind(shop, guest) for kind in KINDS.values()]
            guest.commit()
            assert all(shop.is_there(ref.id) for ref in refs)
        admin.execute(f"DROP OWNED BY guest_{schema}".encode())


# -- connections of every kind ----------------------------------------------------------------


class Loud(Loader):
    """A loader that a user has registered and that is none of ours."""

    def load(self, data: Any) -> str:
        return "loud"


def loud(conn: Connection) -> None:
    for kind in ("int8", "int4", "text", "bytea", "bool", "uuid"):
        conn.adapters.register_loader(kind, Loud)


def dicts(conn: Connection) -> None:
    conn.row_factory = dict_row


def client_cursors(conn: Connection) -> None:
    conn.cursor_factory = psycopg.ClientCursor


def unprepared(conn: Connection) -> None:
    conn.prepare_threshold = None


def all_prepared(conn: Connection) -> None:
    conn.prepare_threshold = 0


def no_path(conn: Connection) -> None:
    conn.execute("SET LOCAL search_path TO ''")


def binary(conn: Connection) -> None:
    conn.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")


@pytest.mark.parametrize(
    "prepare",
    [loud, dicts, client_cursors, unprepared, all_prepared, no_path, binary],
    ids=lambda prepare: prepare.__name__,
)
@pytest.mark.parametrize("pipeline", [False, True], ids=["plain", "pipeline"])
def test_a_connection_works_however_its_owner_has_set_it(
    shop: Shop, conn: Connection, prepare: Callable[[Connection], None], pipeline: bool
) -> None:
    shop.app.add(shop.task.call(1), delay=60, key="there")
    prepare(conn)
    path = "SELECT current_setting('search_path')"
    with conn.pipeline() if pipeline else contextlib.nullcontext():
        before = psycopg.Cursor(conn).execute(path).fetchall()
        refs = [kind(shop, conn) for kind in KINDS.values()]
        again = KINDS["keyed"](shop, conn)
        with pytest.raises(KeyConflictError):
            shop.app.add(shop.task.call(2), delay=60, key="there", conn=conn)
        assert conn.info.transaction_status == TransactionStatus.INTRANS
        assert psycopg.Cursor(conn).execute(path).fetchall() == before
        conn.commit()
    assert not again.created
    assert all(shop.is_there(ref.id) for ref in refs)


def test_in_pipeline_mode_a_transaction_that_is_only_asked_for_counts(
    shop: Shop,
) -> None:
    with shop.connect(autocommit=True) as conn, conn.pipeline():
        with conn.transaction():
            conn.execute("SELECT 1")
            ref = shop.app.add(shop.task.call(1), delay=60, key="k", conn=conn)
        with pytest.raises(ArgumentError, match="autocommit"):
            shop.app.add(shop.task.call(1), delay=60, conn=conn)
    assert shop.is_there(ref.id)


# -- others at once ---------------------------------------------------------------------------


def wait_until_blocked(shop: Shop, by: Connection) -> None:
    """Return when a session waits for a transaction."""
    blocked = f"""
        SELECT count(*) FROM pg_stat_activity
        WHERE {by.info.backend_pid} = ANY(pg_blocking_pids(pid))
    """
    while shop.sql(blocked) == [(0,)]:
        pass  # the test's own time-out ends it


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls-back"])
@pytest.mark.parametrize("within", [True, False], ids=["transaction", "put"])
@pytest.mark.parametrize("options", [{"key": "k"}, {"name": "n"}], ids=["key", "name"])
def test_an_equal_key_in_flight_is_waited_for(
    shop: Shop, conn: Connection, commits: bool, within: bool, options: dict[str, Any]
) -> None:
    found: list[JobRef] = []
    first = shop.app.add(shop.task.call(1), every="1h", **options, conn=conn)
    with shop.connect() as other:
        beside = shop.app.add(shop.task.call(1), delay=60, key="beside", conn=other)

        def add() -> None:
            more: dict[str, Any] = {"conn": other} if within else {}
            found.append(shop.app.add(shop.task.call(1), every="1h", **options, **more))

        adding = threading.Thread(target=add)
        adding.start()
        wait_until_blocked(shop, conn)
        conn.commit() if commits else conn.rollback()
        adding.join()
    [second] = found
    assert second.created is not commits
    assert (second.id == first.id) is (commits or "key" in options)
    assert shop.is_there(second.id)
    assert shop.is_there(beside.id)


def test_a_transaction_that_sees_the_past_is_told_to_begin_anew(
    shop: Shop, conn: Connection
) -> None:
    conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    assert is_usable(conn)  # and has taken its snapshot
    shop.app.add(shop.task.call(1), delay=60, key="k")
    with pytest.raises(psycopg.errors.SerializationFailure) as caught:
        shop.app.add(shop.task.call(1), delay=60, key="k", conn=conn)
    assert caught.value.sqlstate == "40001"
    assert is_usable(conn)
    conn.rollback()
    assert not shop.app.add(shop.task.call(1), delay=60, key="k", conn=conn).created


@pytest.mark.parametrize("before", range(4, 7))
def test_a_refusal_leaves_no_statement_that_only_the_driver_takes_for_prepared(
    shop: Shop, conn: Connection, before: int
) -> None:
    """What stands behind a statement that fails the server skips."""
    conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    assert is_usable(conn)
    shop.app.add(shop.task.call(1), delay=60, key="k")
    for n in range(before):
        shop.app.add(shop.task.call(1), delay=60, key=f"own {n}", conn=conn)
    with pytest.raises(psycopg.errors.SerializationFailure):
        shop.app.add(shop.task.call(1), delay=60, key="k", conn=conn)
    ref = shop.app.add(shop.task.call(1), delay=60, key="last", conn=conn)
    conn.commit()
    assert shop.is_there(ref.id)


def test_a_schema_may_have_any_name(postgres: Postgres) -> None:
    name = '50% of "all" that\'s Ünïque'
    quoted = '"' + name.replace('"', '""') + '"'
    with psycopg.connect(postgres.where, autocommit=True) as admin:
        admin.execute(f"CREATE SCHEMA {quoted}".encode())
    options = quote("-c search_path=" + quoted.replace(" ", "\\ "))
    app = Scheduler(
        f"{postgres.new_schema().partition('&options=')[0]}&options={options}"
    )
    task = app.task(double)
    with psycopg.connect(postgres.where) as conn:
        refs = [
            app.add(task.call(1), delay=60, conn=conn),
            app.add(task.call(1), delay=60, key="k", conn=conn),
        ]
    assert [app.job(ref.id).id for ref in refs] == [ref.id for ref in refs]
    app.stop(0)


# -- on an event loop -------------------------------------------------------------------------


def on_loop(shop: Shop, story: Callable[[AsyncScheduler, Any], Any]) -> Any:
    """Run a story with an AsyncScheduler of the same store and an AsyncConnection."""

    async def run() -> Any:
        app = AsyncScheduler(shop.url, tasks=shop.app.tasks)
        async with await psycopg.AsyncConnection.connect(shop.where) as conn:
            try:
                return await story(app, conn)
            finally:
                await app.stop(0)

    return asyncio.run(run())


def test_on_a_loop_a_job_is_there_if_and_only_if_the_transaction_commits(
    shop: Shop,
) -> None:
    async def story(app: AsyncScheduler, conn: Any) -> None:
        gone = await app.schedule(shop.task.call(1), 60, conn=conn)
        await conn.rollback()
        kept = await app.add(shop.task.call(1), delay=60, key="k", conn=conn)
        with pytest.raises(KeyConflictError):
            await app.add(shop.task.call(2), delay=60, key="k", conn=conn)
        assert not shop.is_there(kept.id)
        async with conn.pipeline():
            more = await app.add(shop.task.call(3), every="1h", name="n", conn=conn)
        await conn.commit()
        assert [shop.is_there(job) for job in (gone, kept.id, more.id)] == [
            *(False, True, True)
        ]

    on_loop(shop, story)


def test_on_a_loop_a_cancelled_put_leaves_the_connection_to_its_owner(
    shop: Shop, conn: Connection
) -> None:
    async def story(app: AsyncScheduler, mine: Any) -> None:
        first = shop.app.add(shop.task.call(1), delay=60, key="k", conn=conn)
        put = asyncio.ensure_future(
            app.add(shop.task.call(1), delay=60, key="k", conn=mine)
        )
        await asyncio.to_thread(wait_until_blocked, shop, conn)
        put.cancel()
        with pytest.raises(asyncio.CancelledError):
            await put
        await mine.rollback()
        conn.rollback()
        cursor = await mine.execute("SELECT 1")
        assert await cursor.fetchone() == (1,)
        await mine.commit()
        assert not shop.is_there(first.id)

    on_loop(shop, story)


def test_a_connection_of_a_loop_needs_an_asynchronous_scheduler(shop: Shop) -> None:
    async def story(app: AsyncScheduler, conn: Any) -> None:
        with pytest.raises(ArgumentError, match="AsyncScheduler"):
            shop.app.add(shop.task.call(1), delay=0, conn=conn)
        with shop.connect() as blocking:
            ref = await app.add(shop.task.call(1), delay=60, conn=blocking)
        assert shop.is_there(ref.id)

    on_loop(shop, story)


def test_a_handlers_own_jobs_take_no_connection() -> None:
    app = Scheduler(":memory:")
    task = app.task(name="more")(add_with_connection)
    with app:
        run = app.run(app.add(task.call(), delay=0, retry=1)).wait(timeout=30)
    assert run.error is not None
    assert "success of its attempt" in run.error
