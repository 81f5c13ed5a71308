"""The short ways of the store on PostgreSQL: fewer messages, and the same results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from tests.postgres import Postgres
from tests.stores.postgres_stage import PostgresStage
from tests.stores.stage import SECOND, draft
from timingwheel.errors import ArgumentError
from timingwheel.jobs.model import Cap
from timingwheel.jobs.store import Change
from timingwheel.jobs.triggers import At, Delay
from timingwheel.stores.postgres.connections import Connections, Rows, Statement


class CountedConnections(Connections):
    """Connections that note each message, as the first words of its statements."""

    messages: list[list[str]]

    def all(self, statements: Sequence[Statement]) -> list[Rows]:
        self.messages.append([sql for sql, _ in statements])
        return super().all(statements)


@pytest.fixture
def stage(postgres: Postgres) -> Iterator[PostgresStage]:
    """A node that serves, one worker joined."""
    made = PostgresStage(postgres)
    yield made
    made.end_all()


@pytest.fixture
def messages(stage: PostgresStage) -> list[list[str]]:
    """What the store sends from now on."""
    connections = stage.store._connections
    connections.__class__ = CountedConnections
    assert isinstance(connections, CountedConnections)
    connections.messages = []
    stage.store._owner.put_plain(draft(3600))  # it has numbers for its jobs now
    connections.messages.clear()
    return connections.messages


# -- puts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "when", [Delay(5 * SECOND), At(5 * SECOND)], ids=["delay", "at"]
)
def test_one_plain_job_is_put_in_one_statement(
    stage: PostgresStage, messages: list[list[str]], when: Delay | At
) -> None:
    stage.store.put([draft(when)])
    assert [len(message) for message in messages] == [1]


@pytest.mark.parametrize("step_s", [0, 3600, -3600])
@pytest.mark.parametrize("many", [False, True], ids=["alone", "among others"])
def test_a_plain_job_is_the_same_put_alone_or_among_others(
    stage: PostgresStage, many: bool, step_s: int
) -> None:
    stage.step_wall(step_s)
    made_ns = stage.now_ns
    options = {"priority": 3, "queue": "q", "cap": Cap("c", 2)}
    jobs = []
    for when in (Delay(5 * SECOND), At(made_ns + 7 * SECOND)):
        drafts = [draft(when, **options), *([draft(3600)] if many else [])]
        jobs.append(stage.store.put(drafts)[0].id)
    delayed, planned = (stage.job(job) for job in jobs)
    assert delayed.trigger.when == Delay(5 * SECOND)
    assert planned.trigger.when == At(made_ns + 7 * SECOND)
    assert {job.created_ns for job in (delayed, planned)} == {made_ns}
    assert [stage.run(job).nominal_ns - made_ns for job in jobs] == [
        5 * SECOND,
        7 * SECOND,
    ]
    row = "SELECT rank, due_ns, wake_ns, wake_base, created_ns, cap, queue FROM "
    row += "timingwheel_run WHERE queue = 'q' ORDER BY wake_base"
    first_ns = made_ns + 5 * SECOND
    second_ns = made_ns + 7 * SECOND
    ahead_ns = 180 * SECOND
    wake_ns = first_ns - step_s * SECOND
    assert stage.sql(row) == [
        (first_ns - ahead_ns, first_ns, wake_ns, 0, made_ns, "c", "q"),
        (second_ns - ahead_ns, second_ns, second_ns, 1, made_ns, "c", "q"),
    ]


def test_a_plain_job_that_gets_a_row_of_its_own_keeps_its_times(
    stage: PostgresStage,
) -> None:
    made_ns = stage.now_ns
    job_id = stage.put(60)
    stage.advance(5)
    stage.store.update(job_id, Change(priority=5), if_revision=None)
    job = stage.job(job_id)
    assert (job.priority, job.created_ns, job.since_ns) == (5, made_ns, made_ns)
    assert stage.run(job_id).nominal_ns == made_ns + 60 * SECOND


def test_a_delay_beyond_the_end_of_time_is_refused_by_name(
    stage: PostgresStage,
) -> None:
    with pytest.raises(ArgumentError, match="before the year 2262"):
        stage.store.put([draft(Delay((1 << 63) - 1))])
    assert stage.runs() == []
