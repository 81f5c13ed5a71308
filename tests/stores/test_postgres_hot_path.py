"""The short ways of the store on PostgreSQL: fewer messages, and the same results."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

import msgspec
import psycopg
import pytest

from tests.postgres import Postgres
from tests.stores.postgres_stage import PostgresStage
from tests.stores.stage import (
    NO_RETRY,
    ONCE,
    SECOND,
    STEADY,
    TASK,
    WORKER,
    after,
    draft,
    end_of,
)
from timingwheel.errors import ArgumentError
from timingwheel.jobs.model import (
    Cap,
    JobId,
    Outcome,
    Queue,
    RetryPolicy,
    Run,
    RunId,
)
from timingwheel.jobs.store import Change, Verdict
from timingwheel.jobs.triggers import At, Delay
from timingwheel.stores.history_entries import decode_run
from timingwheel.stores.postgres.connections import Connections, Rows, Statement, Texts
from timingwheel.stores.postgres.looking import _LOOK
from timingwheel.stores.postgres.taking import HOLD_NS, TAKE, Took

replace = msgspec.structs.replace


class CountedConnections(Connections):
    """Connections that note each message, as the first words of its statements."""

    messages: list[list[str]]

    def all(
        self, statements: Sequence[Statement], *, binary: bool = False
    ) -> list[Rows]:
        self.messages.append([sql for sql, _ in statements])
        return super().all(statements, binary=binary)


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


# -- ends -------------------------------------------------------------------------------------

_PAST = """
SELECT day, version, plain, state, task, queue, created_ns, ended_ns, discarded, tags, tries,
body FROM timingwheel_past WHERE job_id = %s
"""


@pytest.mark.parametrize("result", [None, b"r", bytes.fromhex("7FEDCBA987654321")])
def test_a_plain_success_leaves_the_same_row_by_the_short_way_and_the_long(
    stage: PostgresStage, messages: list[list[str]], result: bytes | None
) -> None:
    """The third result looks like the mark that keeps a place: it goes the long way."""
    jobs = [stage.put(0, queue="q", priority=2) for _ in range(2)]
    claims = {claim.run.job_id: claim for claim in stage.start_due()}
    stage.advance(3)
    messages.clear()
    told = [stage.end(claims[jobs[0]], result=result, log="l")]
    assert (len(messages) == 1) == (result is None or len(result) < 8)
    stage.store._owner.plain_ends.forget(())
    told.append(stage.end(claims[jobs[1]], result=result, log="l"))
    assert told == [Verdict.ACCEPTED] * 2
    rows = []
    for job in jobs:
        [row] = stage.sql(_PAST, [job])
        value = decode_run(row[-1])
        assert value.attempt is not None
        assert value.run.ended_ns == value.attempt.ended_ns == stage.now_ns == row[7]
        attempt = replace(value.attempt, run_id=RunId(""), token=0)
        run = replace(value.run, job_id=JobId(""), nominal_ns=0, due_ns=0)
        assert value.run.due_ns == value.run.nominal_ns
        rows.append((*row[:-1], replace(value, run=run, attempt=attempt)))
    assert rows[0] == rows[1]
    assert stage.sql(
        "SELECT count(*) FROM timingwheel_run WHERE state <> 'planned'"
    ) == [(0,)]


def test_who_hears_of_a_short_end_hears_when_it_was(stage: PostgresStage) -> None:
    told: list[Run] = []
    stage.store.add_listener(told.extend)
    job = stage.put(0)
    stage.end(stage.start_one())
    assert told == [stage.run(job)]
    assert told[0].ended_ns == stage.now_ns


def test_a_plain_job_that_another_comes_after_ends_the_long_way(
    stage: PostgresStage,
) -> None:
    before = stage.put(0)
    claim = stage.start_one()
    behind = stage.put(after(before))
    assert stage.end(claim) is Verdict.ACCEPTED
    assert stage.states(behind) == ["ready"]


@pytest.mark.parametrize(
    "change",
    [
        "token = token + 1",
        "inc = inc + 1",
        "job_id = job_id || 'x'",
        "attempts = 2",
        "state = 'ready'",
        "plain = false",
    ],
)
def test_a_short_end_takes_no_other_run_that_stands_where_its_own_stood(
    stage: PostgresStage, change: str
) -> None:
    stage.put(0)
    claim = stage.start_one()
    ends = stage.store._owner.plain_ends
    stage.sql(f"UPDATE timingwheel_run SET {change}")
    [(at,)] = stage.store._connections.rows(
        "SELECT ctid FROM timingwheel_run", binary=True
    )
    given = ends._given[claim.token]
    ends._given[claim.token] = replace(given, place=replace(given.place, at=at))
    assert ends.end([end_of(claim)]) == {}
    gone = stage.sql("DELETE FROM timingwheel_run RETURNING n")  # it is no sound table
    assert gone == [(0,)]


def test_a_short_end_of_an_attempt_that_was_taken_away_is_refused(
    stage: PostgresStage,
) -> None:
    job = stage.put(0)
    claim = stage.start_one()
    stage.sql("UPDATE timingwheel_run SET token = token + 1, version = version + 1")
    assert stage.end(claim) is Verdict.LEASE_LOST
    assert stage.states(job) == ["running"]


def test_a_run_that_stands_elsewhere_by_now_ends_all_the_same(
    stage: PostgresStage,
) -> None:
    job = stage.put(0)
    claim = stage.start_one()
    stage.sql("UPDATE timingwheel_run SET version = version + 1")
    assert stage.store._owner.plain_ends.end([end_of(claim)]) == {}
    assert stage.end(claim) is Verdict.ACCEPTED
    assert stage.states(job) == ["succeeded"]


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.ERROR])
@pytest.mark.parametrize("named", [{}, {"name": "n"}], ids=["plain", "named"])
@pytest.mark.parametrize("retry", [NO_RETRY, STEADY], ids=["over", "again"])
def test_an_end_whose_answer_was_lost_is_accepted_when_it_is_told_again(
    stage: PostgresStage, outcome: Outcome, named: dict[str, str], retry: RetryPolicy
) -> None:
    job = stage.put(0, retry=retry, **named)
    claim = stage.start_one()
    assert stage.end(claim, outcome) is Verdict.ACCEPTED
    states = stage.states(job)
    assert stage.end(claim, outcome) is Verdict.ACCEPTED
    assert stage.end(claim, Outcome.TIMEOUT) is Verdict.LEASE_LOST
    assert stage.states(job) == states


def test_what_was_lost_is_not_accepted_when_it_ends_after_all(
    stage: PostgresStage,
) -> None:
    job = stage.put(0)
    claim = stage.start_one()
    stage.store.leave(WORKER)
    assert stage.states(job) == ["ready"]
    assert stage.end(claim) is Verdict.LEASE_LOST
    assert stage.end(claim, Outcome.LOST) is Verdict.LEASE_LOST


def test_a_sign_of_life_between_a_take_and_what_follows_makes_no_end_longer(
    stage: PostgresStage, messages: list[list[str]]
) -> None:
    stage.put(0)
    claim = stage.start_one()
    ends = stage.store._owner.plain_ends
    ends.forget(set())  # as if it were noted, and not held yet
    messages.clear()
    stage.store.finish([end_of(claim)])
    assert [len(message) for message in messages] == [1]
    ends.forget(set())
    ends.forget(set())
    assert ends._given == {}


# -- taking -----------------------------------------------------------------------------------


def test_a_turn_takes_what_is_due_in_one_look_and_one_statement(
    stage: PostgresStage, messages: list[list[str]]
) -> None:
    stage.fire()
    stage.claim()
    jobs = [stage.put(n / 100) for n in (2, 1, 0)]
    stage.advance(1)
    messages.clear()
    stage.store.fire(100)
    claims = stage.claim(ahead=10)
    assert messages == [[_LOOK], [TAKE]]
    assert [claim.run.job_id for claim in claims] == jobs[::-1]
    states = stage.sql(
        "SELECT state, attempts, wake_ns FROM timingwheel_run WHERE inc > 0"
    )
    assert states == [("running", 1, None)] * 3


def test_what_workers_do_not_come_for_becomes_ready_at_the_next_fire(
    stage: PostgresStage,
) -> None:
    job = stage.put(0)
    stage.claim(0)
    stage.advance(1)
    assert stage.store.fire(100)[0] == 1
    assert stage.states(job) == ["planned"]
    assert stage.store.fire(100)[0] == 1
    assert stage.states(job) == ["ready"]


def test_nothing_is_taken_that_a_better_ready_run_stands_before(
    stage: PostgresStage,
) -> None:
    stage.store.set_queue(Queue(name="q", limit=1))
    first, second = (stage.put(0, queue="q", priority=9) for _ in range(2))
    stage.fire()
    third = stage.put(0)
    stage.advance(1)
    claims = stage.claim(3)
    assert [claim.run.job_id for claim in claims] == [
        first
    ]  # no more than that is known
    stage.fire()
    assert [claim.run.job_id for claim in stage.claim(3)] == [third]
    assert stage.states(second) == ["ready"]


@pytest.mark.parametrize(
    "options",
    [
        {"name": "n"},
        {"cap": Cap("c", 1)},
        {"delivery": ONCE},
        {"queue": "q"},
        {"task": "unknown"},
    ],
    ids=["named", "capped", "once", "set queue", "other task"],
)
def test_what_cannot_be_taken_directly_is_made_ready_at_the_next_fire(
    stage: PostgresStage, options: dict[str, object]
) -> None:
    stage.store.set_queue(Queue(name="q"))
    job, direct = stage.put(0.1, **options), stage.put(0.1)
    stage.advance(1)
    stage.store.fire(100)
    assert [claim.run.job_id for claim in stage.claim()] == [direct]
    stage.store.fire(100)
    assert stage.states(job) == ["ready"]


def test_a_node_takes_nothing_of_shards_that_are_anothers(
    stage: PostgresStage, messages: list[list[str]]
) -> None:
    jobs = [stage.put(0) for _ in range(8)]
    stage.advance(1)
    stage.sql("UPDATE timingwheel_shard SET epoch = epoch + 1")
    stage.store.fire(100)
    assert stage.claim() == []
    assert [TAKE] in messages
    assert [stage.states(job) for job in jobs] == [["planned"]] * 8


def test_a_run_that_another_holds_is_not_waited_for(stage: PostgresStage) -> None:
    job = stage.put(0)
    stage.advance(1)
    with psycopg.connect(stage.where) as rival:
        rival.execute("UPDATE timingwheel_run SET version = version + 1")
        assert stage.claim() == []
    [claim] = stage.claim()
    assert claim.run.job_id == job


def test_a_run_that_has_changed_since_the_statement_began_is_not_taken(
    stage: PostgresStage,
) -> None:
    """It waits for a shard's row; what it has seen of the run is old when it goes on."""
    stage.put(0)
    stage.advance(1)
    found: list[Took] = []
    inc = stage.store._members.inc_of(WORKER)

    def take() -> None:
        taking = stage.store._taking
        found.append(taking.take(WORKER, inc, tasks=Texts([TASK]), count=5))

    with psycopg.connect(stage.where) as rival:
        rival.execute("SELECT 1 FROM timingwheel_shard FOR UPDATE")
        taking = threading.Thread(target=take)
        taking.start()
        while not stage.sql("SELECT 1 FROM pg_locks WHERE NOT granted"):
            pass
        stage.sql("UPDATE timingwheel_run SET version = version + 1")
    taking.join()
    assert [(took.claims, took.missed) for took in found] == [([], 1)]
    assert len(stage.claim()) == 1


def test_due_runs_become_ready_for_others_when_own_workers_have_enough(
    stage: PostgresStage,
) -> None:
    jobs = [stage.put(0) for _ in range(3)]
    with contextlib.closing(stage.node()) as other:
        other.join("o")
        assert other.claim("o", tasks=frozenset({TASK}), count=5)[0] == []
        stage.advance(1)
        stage.store.fire(100)
        assert len(stage.claim(1)) == 1
        stage.store.fire(100)
        assert sorted(state for job in jobs for state in stage.states(job)) == [
            "ready",
            "ready",
            "running",
        ]
        assert len(other.claim("o", tasks=frozenset({TASK}), count=5)[0]) == 2


def test_what_workers_do_not_get_through_goes_by_rank_again(
    stage: PostgresStage,
) -> None:
    jobs = [stage.put(0) for _ in range(3)]
    stage.advance(1)
    for _ in range(2):
        stage.store.fire(100)
        assert len(stage.claim(1)) == 1
        stage.clock.advance(ns=HOLD_NS + 1)
        stage.store.tend()
    stage.store.fire(100)
    states = [state for job in jobs for state in stage.states(job)]
    assert sorted(states) == ["ready", "running", "running"]
