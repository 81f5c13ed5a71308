"""The same scheduler with its jobs in a database."""

from __future__ import annotations

from tests.postgres import Postgres
from timingwheel import Scheduler


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
    job = planner.add(planner.task(name="double")(never).call(4), delay=0, name="both")
    with worker:
        run = next(iter(worker.runs(job=job.id)))
        assert worker.run(run.id).wait(timeout=30).result == b"\x08"
    assert [run.state for run in planner.runs(job=job.id)] == ["succeeded"]
    planner.stop()
