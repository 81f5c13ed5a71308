"""Past runs by days: partitions made ahead, dropped as a whole, and what stays beyond."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.cluster.nodes import Line
from tests.postgres import Postgres
from tests.stores.postgres_stage import PostgresStage
from tests.stores.stage import DAY, HOUR, NO_RETRY, SECOND, every
from timingwheel.jobs.model import JobId, Outcome, RunState
from timingwheel.jobs.states import FINAL
from timingwheel.jobs.store import JobQuery, RunQuery
from timingwheel.stores.history_retention import Retention
from timingwheel.stores.postgres.listing import RUN_NEAR
from timingwheel.stores.postgres.past import (
    DAYS_AHEAD,
    Partitions,
    day_of,
    partition_of,
)
from timingwheel.stores.postgres.retention import Purge
from timingwheel.stores.postgres.upkeep import PURGE_NS, Upkeep
from timingwheel.testing import ManualClock

RETENTION = Retention(runs_ns=7 * DAY, runs_min=3, dead_ns=30 * DAY)
KEPT_TABLE = "timingwheel_past_kept"
DEFAULT_TABLE = "timingwheel_past_default"

MakeStage = Callable[[Retention], PostgresStage]


@pytest.fixture
def make_stage(postgres: Postgres) -> Iterator[MakeStage]:
    """A store that forgets as is asked."""
    with contextlib.ExitStack() as stack:

        def make(retention: Retention) -> PostgresStage:
            made = PostgresStage(postgres, retention=retention)
            stack.callback(made.end_all)
            return made

        yield make


@pytest.fixture
def stage(make_stage: MakeStage) -> PostgresStage:
    """A store that keeps dead letters for long."""
    return make_stage(RETENTION)


def pass_days(stage: PostgresStage, days: int) -> None:
    """Let days pass one by one, as nodes see them."""
    for _ in range(days):
        stage.advance(DAY / SECOND)
        stage.store._upkeep.prepare()


def tables(stage: PostgresStage) -> set[str]:
    """The partitions that the database has."""
    return {
        name
        for (name,) in stage.sql(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relispartition "
            "AND relnamespace = current_schema()::regnamespace"
        )
    }


def places(stage: PostgresStage) -> dict[JobId, set[str]]:
    """In which partitions the past runs of each job are."""
    found: dict[JobId, set[str]] = {}
    for job_id, table in stage.sql(
        "SELECT job_id, tableoid::regclass::text FROM timingwheel_past"
    ):
        found.setdefault(job_id, set()).add(table)
    return found


def today(stage: PostgresStage) -> str:
    return partition_of(day_of(stage.now_ns))


def refuse_deletes(stage: PostgresStage, table: str) -> None:
    """Have a row that is deleted from a table be an error."""
    stage.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE 'a row is deleted'; END $$"
    )
    stage.sql(
        f"CREATE TRIGGER refuse BEFORE DELETE ON {table} "
        "FOR EACH ROW EXECUTE FUNCTION refuse()"
    )


def test_partitions_are_made_for_today_and_the_next_days(stage: PostgresStage) -> None:
    first = day_of(stage.now_ns)
    days = list(range(first, first + DAYS_AHEAD + 1))
    assert Partitions(stage.store._connections).days() == days
    stage.advance(DAY / SECOND)
    stage.store.tend()
    days.append(days[-1] + 1)
    assert Partitions(stage.store._connections).days() == days


@pytest.mark.parametrize(
    ("due_s", "end_s", "looks"),
    [(0, 0, 1), (0, DAY // SECOND, 1), (0, 2 * DAY // SECOND, 2), (None, 0, 2)],
    ids=["on its day", "a day later", "two days later", "cancelled a week early"],
)
def test_a_run_is_looked_for_where_it_ends_nearly_always_and_then_anywhere(
    stage: PostgresStage, due_s: int | None, end_s: int, looks: int
) -> None:
    job = stage.put(7 * DAY // SECOND if due_s is None else due_s)
    run = stage.runs(job)[0]
    if due_s is None:
        stage.store.cancel(job)
    else:
        stage.fire()
        claim = stage.start_one()
        stage.advance(end_s)
        stage.store._upkeep.prepare()
        stage.end(claim)
    sent: list[str] = []
    stage.store._connections.__class__ = Line
    line: Line = stage.store._connections  # type: ignore[assignment]
    line.before = sent.append
    found = stage.store.run(run.id)
    assert found is not None
    assert found.state in FINAL
    assert len(sent) == looks
    assert len(stage.store.attempts(run.id)) == (due_s is not None)
    assert len(sent) == 2 * looks


def test_the_first_look_for_a_run_visits_two_days_however_many_there_are(
    stage: PostgresStage,
) -> None:
    pass_days(stage, 6)
    key = [0, "job", stage.now_ns, 0]
    day = day_of(stage.now_ns)
    plan = stage.sql(f"EXPLAIN {RUN_NEAR}", [*key, *key, day, day + 1])
    visited = {
        table for table in tables(stage) if any(table in line for (line,) in plan)
    }
    assert visited == {partition_of(day), partition_of(day + 1)}


def test_what_ends_goes_into_the_partition_of_its_day(stage: PostgresStage) -> None:
    job = stage.put(0)
    stage.step()
    pass_days(stage, 1)
    named = stage.put(0, name="n")
    stage.step()
    first = partition_of(day_of(stage.now_ns) - 1)
    assert places(stage) == {job: {first}, named: {today(stage)}}


def test_what_ends_on_a_day_without_a_partition_is_found_all_the_same(
    stage: PostgresStage,
) -> None:
    stage.advance(10 * DAY / SECOND)
    plain = stage.put(0)
    stage.step()
    named = stage.put(0, name="n", retry=NO_RETRY)
    stage.step(Outcome.ERROR)
    assert places(stage) == {plain: {DEFAULT_TABLE}, named: {DEFAULT_TABLE}}
    for job_id in (plain, named):
        [run] = stage.runs(job_id)
        assert stage.store.run(run.id) == run
        assert len(stage.store.attempts(run.id)) == run.attempts
    found = stage.store.jobs(JobQuery()).jobs
    assert {job.id for job in found} == {plain, named}
    # The day stays in the DEFAULT; those after it have partitions as ever.
    stage.store._upkeep.prepare()
    assert today(stage) not in tables(stage)
    pass_days(stage, 1)
    assert today(stage) in tables(stage)
    pass_days(stage, 31)
    stage.purge()
    assert places(stage) == {}


def test_a_day_that_is_old_is_dropped_and_no_row_of_it_deleted(
    stage: PostgresStage,
) -> None:
    stage.put(0)
    stage.put(0, name="n")
    stage.put(0, tags={"a": "b"})
    stage.step()
    table = today(stage)
    refuse_deletes(stage, table)
    with pytest.raises(psycopg.errors.RaiseException):
        stage.sql(f"DELETE FROM {table}")
    pass_days(stage, 7)
    stage.purge()
    assert table in tables(stage)
    assert len(places(stage)) == 3
    pass_days(stage, 1)
    stage.purge()
    assert table not in tables(stage)
    assert places(stage) == {}
    assert stage.all_jobs() == []


def test_partitions_stand_beside_the_whole_table_whichever_schema_comes_first(
    stage: PostgresStage,
) -> None:
    [(schema,)] = stage.sql("SELECT current_schema()")
    stage.sql(f"CREATE SCHEMA other_{schema}")
    with Partitions(stage.store._connections)._connections.lent() as connection:
        path = f"SET search_path = other_{schema}, {schema}"
        connection.execute(path.encode(), prepare=False)
    pass_days(stage, 1)
    made = partition_of(day_of(stage.now_ns) + DAYS_AHEAD)
    assert made in tables(stage)
    stage.put(0)
    stage.step()
    pass_days(stage, 8)
    stage.purge()
    assert places(stage) == {}


def test_who_may_drop_no_day_says_so_and_forgets_the_rest(
    stage: PostgresStage, caplog: pytest.LogCaptureFixture
) -> None:
    """A role that may read and write is not the owner."""
    [(schema,)] = stage.sql("SELECT current_schema()")
    role = f"guest_{schema}"
    kept = stage.put(0)
    stage.step()
    day = today(stage)
    for _ in range(8):
        stage.advance(DAY / SECOND)
    over = stage.put(0)
    stage.step()  # on a day without a partition
    stage.sql(f"CREATE ROLE {role}")
    stage.sql(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    stage.sql(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}")
    with stage.store._connections.lent() as connection:
        connection.execute(f"SET ROLE {role}".encode(), prepare=False)
    for _ in range(8):
        stage.advance(DAY / SECOND)
    stage.purge()
    assert places(stage) == {kept: {day}}
    assert over not in places(stage)
    assert "serve as the tables' owner" in caplog.text
    with stage.store._connections.lent() as connection:
        connection.execute("RESET ROLE", prepare=False)
    stage.sql(f"DROP OWNED BY {role}")


def test_a_drop_keeps_dead_letters_last_runs_and_what_lives(
    stage: PostgresStage,
) -> None:
    later = stage.put(300 * DAY / SECOND)
    recurring = stage.put(every(HOUR / SECOND))
    over = stage.put(every(HOUR / SECOND, runs_max=5))
    stage.work(3600, times=5)
    stage.pause(recurring)
    dead = stage.put(0, retry=NO_RETRY)
    stage.step(Outcome.ERROR)
    done = stage.put(0, name="n")
    stage.step()
    last = stage.runs(recurring)[-3:]
    letter = stage.run(dead)
    pass_days(stage, 9)
    stage.purge()
    assert places(stage) == {recurring: {KEPT_TABLE}, dead: {KEPT_TABLE}}
    assert stage.runs(recurring) == last
    assert stage.runs(dead) == [letter]
    assert stage.states(later) == ["planned"]
    assert [stage.store.get(job) for job in (over, done)] == [None, None]
    query = RunQuery(states=frozenset({RunState.FAILED}))
    assert stage.store.runs(query).runs == [letter]


def test_what_was_kept_can_be_discarded_and_retried(stage: PostgresStage) -> None:
    jobs = [stage.put(0, retry=NO_RETRY) for _ in range(2)]
    stage.step(Outcome.ERROR)
    pass_days(stage, 9)
    stage.purge()
    assert places(stage) == {key: {KEPT_TABLE} for key in jobs}
    discarded, retried = (stage.run(job).id for job in jobs)
    assert stage.store.discard(discarded).discarded
    stage.store.retry(retried)
    assert places(stage) == {jobs[0]: {KEPT_TABLE}}
    stage.step()
    assert places(stage) == {jobs[0]: {KEPT_TABLE}, jobs[1]: {today(stage)}}
    assert [one.number for one in stage.store.attempts(retried)] == [1, 2]


def test_what_was_kept_goes_at_last(stage: PostgresStage) -> None:
    recurring = stage.put(every(HOUR / SECOND))
    stage.work(3600, times=2)
    stage.put(0, retry=NO_RETRY)
    stage.pause(recurring)
    stage.step(Outcome.ERROR)
    pass_days(stage, 9)
    stage.purge()
    assert len(places(stage)) == 2
    pass_days(stage, 22)
    stage.purge()
    assert places(stage) == {recurring: {KEPT_TABLE}}
    stage.store.cancel(recurring)
    pass_days(stage, 8)
    stage.purge()
    assert places(stage) == {}
    assert stage.all_jobs() == []


def test_dead_letters_may_go_before_their_day_does(make_stage: MakeStage) -> None:
    stage = make_stage(Retention(runs_ns=7 * DAY, dead_ns=DAY))
    done, dead = stage.put(0), stage.put(0, name="n", retry=NO_RETRY)
    stage.fire()
    for claim in stage.claim(2):
        stage.begin(claim)
        is_dead = claim.run.job_id == dead
        stage.end(claim, Outcome.ERROR if is_dead else Outcome.OK)
    pass_days(stage, 2)
    stage.purge()
    assert list(places(stage)) == [done]
    assert stage.store.get(dead) is not None  # as long as any job that is over
    pass_days(stage, 7)
    stage.purge()
    assert stage.all_jobs() == []


def test_two_nodes_may_purge_at_once(stage: PostgresStage) -> None:
    recurring = [stage.put(every(HOUR / SECOND)) for _ in range(3)]
    stage.work(3600, times=5)
    for job in recurring:
        stage.pause(job)
    dead = [stage.put(0, retry=NO_RETRY) for _ in range(3)]
    for _ in dead:
        stage.step(Outcome.ERROR)
    last = {job: stage.runs(job)[-3:] for job in recurring}
    pass_days(stage, 9)
    with contextlib.closing(stage.node()) as other:
        walks = [
            Purge(
                node._connections,
                Partitions(node._connections),
                stage.now_ns,
                RETENTION,
            )
            for node in (stage.store, other)
        ]
        gone = 0
        while not all(walk.is_done for walk in walks):  # in turns
            gone += sum(walk.step() for walk in walks if not walk.is_done)
    assert places(stage) == {key: {KEPT_TABLE} for key in [*recurring, *dead]}
    assert {job: stage.runs(job) for job in recurring} == last
    assert [len(stage.runs(job)) for job in dead] == [1] * 3
    assert gone > 0
    stage.check()


def test_two_nodes_may_make_partitions_at_once(stage: PostgresStage) -> None:
    stage.advance(30 * DAY / SECOND)
    nodes = [stage.node() for _ in range(4)]
    errors: list[BaseException] = []

    def make(partitions: Partitions) -> None:
        try:
            partitions.make_ahead(stage.now_ns)
        except BaseException as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [
        threading.Thread(target=make, args=(Partitions(node._connections),))
        for node in nodes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for node in nodes:
        node.close()
    assert errors == []
    stage.store._upkeep.prepare()  # who waited too long for the others leaves it
    first = day_of(stage.now_ns)
    made = {partition_of(day) for day in range(first, first + DAYS_AHEAD + 1)}
    assert made <= tables(stage)


def test_a_long_read_holds_up_a_drop_and_nobody_else(stage: PostgresStage) -> None:
    stage.put(0)
    stage.step()
    table = today(stage)
    pass_days(stage, 9)
    with psycopg.connect(stage.where) as reader:
        reader.execute("SELECT count(*) FROM timingwheel_past")
        stage.sql("INSERT INTO timingwheel_skips VALUES (0, 'j', 1, 'misfire', 1, 1)")
        stage.purge()
        assert table in tables(stage)
        assert stage.sql("SELECT 1 FROM timingwheel_skips") == []  # the walk went on
        job = stage.put(0)
        stage.step()
        assert stage.states(job) == ["succeeded"]
    stage.purge()
    assert table not in tables(stage)


class SlowUpkeep(Upkeep):
    """On which the clock moves with each step."""

    step_ns = 0

    def _new_purge(self) -> Purge:
        made = super()._new_purge()
        assert isinstance(self._clock, ManualClock)
        advance, step_ns = self._clock.advance, self.step_ns

        class SlowPurge(type(made)):  # type: ignore[misc]
            def step(self) -> int:
                advance(ns=step_ns)
                return super().step()  # type: ignore[no-any-return]

        made.__class__ = SlowPurge
        return made


@pytest.mark.parametrize("step_ns", [0, PURGE_NS])
def test_a_purge_never_keeps_a_node_from_its_signs_of_life(
    stage: PostgresStage, step_ns: int
) -> None:
    """However slow the database: what is left goes between the next two."""
    stage.store._upkeep.__class__ = SlowUpkeep
    stage.store._upkeep.step_ns = step_ns  # type: ignore[attr-defined]
    for _ in range(4):  # four days, so four partitions that go one by one
        stage.put(0)
        stage.step()
        pass_days(stage, 1)
    pass_days(stage, 9)
    stage.clock.advance(ns=HOUR)
    before = len(tables(stage))
    stage.store.tend()
    left = len(tables(stage))
    assert (before - left >= 4) == (step_ns == 0)
    while stage.store._upkeep._purge is not None:
        stage.store.tend()
    assert places(stage) == {}
