"""The same scheduler with its jobs in a database."""

from __future__ import annotations

import threading

import psycopg
import pytest

from tests.postgres import Postgres
from tests.scheduler import program
from tests.scheduler.node_stage import HandExecutor
from tests.stores.postgres_stage import PostgresStage
from timingwheel import Scheduler
from timingwheel.scheduler.crew import Crew
from timingwheel.scheduler.metrics import Metrics
from timingwheel.scheduler.node import NodeLoop


def double(n: int) -> int:
    return 2 * n


def never(n: int) -> int:
    raise AssertionError("the planner starts nothing")


def test_jobs_run_on_a_database_and_results_come_back(postgres: Postgres) -> None:
    app = Scheduler(postgres.new_schema())
    task = app.task(double)
    with app:
        refs = [app.add(task.call(n), delay=0) for n in range(20)]
        runs = [next(iter(app.runs(job=ref.id))) for ref in refs]
        results = [app.run(run.id).wait(timeout=30).result for run in runs]
    assert results == [bytes([2 * n]) for n in range(20)]


def test_what_one_process_has_put_another_runs(postgres: Postgres) -> None:
    where = postgres.new_schema()
    planner, worker = Scheduler(where), Scheduler(where)
    worker.task(name="double")(double)
    job = planner.add(
        planner.task(name="double")(never).call(4), every="1h", name="both"
    )
    with worker:
        run = planner.trigger(job.id)
        assert worker.run(run.id).wait(timeout=30).result == b"\x08"
        again = planner.trigger(job.id)  # and who waits elsewhere is told
        assert planner.run(again.id).wait(timeout=30).result == b"\x08"
    assert [run.state for run in planner.runs(job=job.id)] == ["succeeded"] * 2
    planner.stop()


def test_a_node_goes_on_when_the_database_is_back(postgres: Postgres) -> None:
    """All its connections are cut while it rests; it opens others."""
    where = postgres.new_schema()
    app = Scheduler(where)
    task = app.task(double)
    with app:
        first = app.add(task.call(1), every="0.1s", overlap="allow")
        with psycopg.connect(where, autocommit=True) as connection:
            for _ in range(5):
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE pid <> pg_backend_pid() AND datname = current_database()"
                )
        other = Scheduler(where)  # for this one's first statements meet no such fate
        other.task(double)
        run = other.trigger(first.id)
        assert app.run(run.id).wait(timeout=60).result == b"\x02"
        assert app.is_serving
        other.stop()


# Nobody could foresee it.
BROKEN = """
CREATE FUNCTION test_break() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'this table is broken'; END $$;
CREATE TRIGGER test_break BEFORE INSERT ON timingwheel_past FOR EACH ROW
EXECUTE FUNCTION test_break();
"""


def test_what_a_node_had_that_stopped_for_good_others_do_though_its_process_lives(
    postgres: Postgres,
) -> None:
    where = postgres.new_schema()
    app, other = Scheduler(where), Scheduler(where)
    app.task(name="double")(double)
    task = other.task(name="double")(double)
    failed = threading.Event()
    app.add_failure_listener(lambda _: failed.set())
    with psycopg.connect(where, autocommit=True) as admin, app:
        other.jobs(limit=1)
        admin.execute(BROKEN.encode())
        ref = other.add(task.call(2), delay=0)
        assert failed.wait(30)
        admin.execute("DROP TRIGGER test_break ON timingwheel_past")
        while admin.execute("SELECT 1 FROM timingwheel_member").fetchall():
            pass  # the test's own time-out ends it
        assert not app.is_serving
        with other:
            assert other.run(ref).wait(timeout=30).result == b"\x04"
            outcomes = [one.outcome for one in other.run(ref).attempts()]
            assert outcomes == ["lost", "ok"]


def test_what_waits_behind_a_handler_that_is_long_is_ready_for_others(
    postgres: Postgres,
) -> None:
    stage, executor = PostgresStage(postgres), HandExecutor(slots=1, ahead=5)
    node = NodeLoop(
        stage.store,
        stage.clock,
        worker="w",
        crew=Crew(program.app.tasks, {"hand": lambda: executor}, "hand"),
        metrics=Metrics(),
        on_failed=lambda _: None,
    )
    node.begin_service()
    call = program.note.call("x")
    jobs = [stage.put(0, task=call.task.name, payload=call.payload) for _ in range(4)]
    stage.advance(1)
    node.step()
    assert len(executor.works) == 4
    assert executor.begin()
    executor.ahead, executor.held_up = 0, True
    node.step()
    assert len(executor.works) == 1
    states = sorted(state for job in jobs for state in stage.states(job))
    assert states == ["ready", "ready", "ready", "running"]
    executor.end()
    node.step()
    assert sorted(state for job in jobs for state in stage.states(job)) == [
        *("ready", "ready", "running", "succeeded")
    ]
    stage.end_all()


BEGUN, GOES_ON = threading.Event(), threading.Event()


def hold() -> None:
    BEGUN.set()
    assert GOES_ON.wait(100)


@pytest.mark.long
def test_what_waits_behind_a_handler_that_is_long_another_process_runs(
    postgres: Postgres,
) -> None:
    """One slot; its handlers were short, so more was taken ahead."""
    where = postgres.new_schema()
    app, other = Scheduler(where, slots=1), Scheduler(where, slots=1)
    short = app.task(name="short")(double)
    other.task(name="short")(double)
    long = app.task(hold)
    with app:
        for ref in [app.add(short.call(n), delay=0) for n in range(50)]:
            app.run(ref).wait(timeout=30)
        app.add(long.call(), delay=0)
        assert BEGUN.wait(30)
        behind = [app.add(short.call(n), delay=0) for n in range(20)]
        with other:
            for ref in behind:
                assert app.run(ref).wait(timeout=30).state == "succeeded"
        GOES_ON.set()
