"""What only a store with several nodes must bear: others who are quicker, dead, or back."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator, Sequence

import msgspec
import psycopg
import pytest

from tests.cluster.nodes import Line
from tests.postgres import Postgres
from tests.stores.postgres_stage import SHARDS, PostgresStage
from tests.stores.stage import (
    DAY,
    HOUR,
    NO_RETRY,
    SECOND,
    TASK,
    WORKER,
    after,
    at,
    cron,
    draft,
    end_of,
    every,
    misfire,
)
from timingwheel.errors import ArgumentError
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.errors import UnknownRunError
from timingwheel.jobs.model import (
    Cap,
    JobId,
    Outcome,
    Pause,
    Queue,
    RetryPolicy,
    RunReason,
    RunState,
)
from timingwheel.jobs.schedule import instant_datetime
from timingwheel.jobs.store import (
    CancelResult,
    Change,
    Claim,
    NewRun,
    RunQuery,
    Verdict,
)
from timingwheel.jobs.zone_rules import zone_rules
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.postgres import schema
from timingwheel.stores.postgres.candidates import Candidate
from timingwheel.stores.postgres.claiming import Claiming
from timingwheel.stores.postgres.loading import Loading
from timingwheel.stores.postgres.making import SchemaError, UnfitDatabaseError
from timingwheel.stores.postgres.owner import Item
from timingwheel.stores.postgres.replanning import Replanning
from timingwheel.stores.postgres.store import PostgresStore
from timingwheel.stores.postgres.view import LoadedView, Wanted

replace = msgspec.structs.replace
TASKS = frozenset({TASK})


@pytest.fixture
def stage(postgres: Postgres) -> Iterator[PostgresStage]:
    """A node that serves, one worker joined."""
    made = PostgresStage(postgres)
    yield made
    made.end_all()


@pytest.fixture
def other(stage: PostgresStage) -> Iterator[PostgresStore]:
    """Another node of the same store, which has not joined yet."""
    with contextlib.closing(stage.node()) as store:
        yield store


def start(store: PostgresStore, worker: str) -> list[Claim]:
    """Join, claim all and begin."""
    store.join(worker)
    claims, _ = store.claim(worker, tasks=TASKS, count=100)
    assert all(store.begin(claim.run.id, claim.token) for claim in claims)
    return claims


# -- somebody is quicker ----------------------------------------------------------------------


def test_a_step_whose_job_another_has_changed_is_decided_anew(
    stage: PostgresStage, other: PostgresStore
) -> None:
    job_id = stage.put(every(60))
    seen: list[int] = []

    def decide(decision: Decision) -> None:
        job = decision.job(job_id)
        assert job is not None
        if not seen:
            other.update(job_id, Change(priority=7), if_revision=1)
        seen.append(job.priority)
        decision.save_job(job)

    wanted = Wanted()
    wanted.jobs.add(job_id)
    stage.store._owner.step(decide, wanted)
    assert seen == [0, 7]
    assert stage.job(job_id).priority == 7


def test_of_many_only_what_another_has_changed_is_decided_anew(
    stage: PostgresStage, other: PostgresStore
) -> None:
    jobs = [stage.put(every(60)) for _ in range(8)]
    decided: list[JobId] = []

    def decide(job_id: JobId) -> Item:
        def save(decision: Decision) -> None:
            job = decision.job(job_id)
            assert job is not None
            if job_id == jobs[3] and job_id not in decided:
                other.update(job_id, Change(priority=7), if_revision=1)
            decided.append(job_id)
            decision.save_job(job)

        return Item(job_id, save)

    assert stage.store._owner.steps([decide(job) for job in jobs], {}) == set()
    assert decided == [*jobs, *jobs[:3], *jobs[4:], jobs[3]]
    assert stage.job(jobs[3]).priority == 7


def test_a_job_that_is_put_after_one_that_ends_just_then_is_told(
    stage: PostgresStage, other: PostgresStore
) -> None:
    """The end reads that no job comes after; then one is put; then it would write."""
    before = stage.put(0, name="before")
    claim = stage.start_one()
    put: list[JobId] = []
    ends = stage.store._ends
    real = ends._end

    class Interfering(type(ends)):  # type: ignore[misc]
        def _end(self, *args: object) -> None:
            real(*args)  # type: ignore[arg-type]
            if not put:
                put.append(other.put([draft(after(before))])[0].id)

    ends.__class__ = Interfering
    assert stage.end(claim) is Verdict.ACCEPTED
    assert stage.states(put[0]) == ["ready"]


@pytest.mark.parametrize("named", [{}, {"name": "n"}], ids=["plain", "named"])
def test_of_a_cancel_and_a_claim_at_once_one_comes_true(
    stage: PostgresStage, other: PostgresStore, named: dict
) -> None:
    for _ in range(10):
        job_id = stage.put(0, **named)
        stage.fire()
        other.join("o")
        claims: list[Claim] = []

        def claim_one(into: list[Claim] = claims) -> None:
            into.extend(other.claim("o", tasks=TASKS, count=1)[0])

        claiming = threading.Thread(target=claim_one)
        claiming.start()
        result = stage.store.cancel(job_id)
        claiming.join()
        assert bool(claims) == (result is CancelResult.RUNNING)
        for claim in claims:
            other.finish([end_of(claim)])
            claims.clear()


def test_many_nodes_claim_each_run_once(stage: PostgresStage) -> None:
    stage.store.put([draft(0) for _ in range(300)])
    stage.store.put([draft(0, name=f"n{n}") for n in range(60)])
    stage.fire()
    claimed: list[str] = []
    verdicts: list[Verdict] = []

    def work(name: str) -> None:
        with contextlib.closing(stage.node()) as node:
            node.join(name)
            while claims := node.claim(name, tasks=TASKS, count=7)[0]:
                claimed.extend(claim.run.id for claim in claims)
                verdicts.extend(node.finish([end_of(claim) for claim in claims])[0])

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claimed) == len(set(claimed)) == 360
    assert set(verdicts) == {Verdict.ACCEPTED}
    assert {run.state for run in stage.runs()} == {RunState.SUCCEEDED}


def test_a_name_that_two_nodes_put_at_once_is_one_job(stage: PostgresStage) -> None:
    found: list[JobId] = []
    nodes = [stage.node() for _ in range(4)]

    def put(node: PostgresStore, name: str) -> None:
        found.append(node.put([draft(every(60), name=name)])[0].id)

    for round_ in range(5):
        found.clear()
        threads = [
            threading.Thread(target=put, args=(node, f"n{round_}")) for node in nodes
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 4
        assert len(set(found)) == 1
    for node in nodes:
        node.close()


# -- live and past ----------------------------------------------------------------------------


class InterferedLoading(Loading):
    """Something happens between the first look of a step and what it writes, once."""

    meanwhile: Callable[[], object] | None = None

    def view(self, wanted: Wanted) -> LoadedView:
        found = super().view(wanted)
        if self.meanwhile is not None:
            call, self.meanwhile = self.meanwhile, None
            call()
        return found


def interfere(store: PostgresStore, meanwhile: Callable[[], object]) -> None:
    """Have something happen in the middle of the next step."""
    loading = store._owner.loading
    loading.__class__ = InterferedLoading
    assert isinstance(loading, InterferedLoading)
    loading.meanwhile = meanwhile


def test_a_run_that_was_made_and_has_ended_meanwhile_keeps_its_number(
    stage: PostgresStage, other: PostgresStore
) -> None:
    """Live and past runs are two tables: no key forbids the same run in both."""
    job_id = stage.put(every(60))
    wanted = [NewRun(stage.now_ns, RunReason.MANUAL)]

    def make_and_end_one() -> None:
        other.create_runs(job_id, wanted)
        other.finish([end_of(claim) for claim in start(other, "o")])

    interfere(stage.store, make_and_end_one)
    stage.store.create_runs(job_id, wanted)
    runs = [(run.n, run.state) for run in stage.runs(job_id)]
    assert runs == [(1, RunState.SUCCEEDED), (2, RunState.READY)]


def test_a_run_that_two_people_retry_at_once_is_retried_once(
    stage: PostgresStage, other: PostgresStore
) -> None:
    job_id = stage.put(0, retry=NO_RETRY)
    stage.step(Outcome.ERROR)
    run_id = stage.run(job_id).id
    interfere(stage.store, lambda: other.retry(run_id))
    assert stage.store.retry(run_id).state is RunState.READY
    assert stage.states(job_id) == ["ready"]
    assert len(stage.step()) == 1


@pytest.mark.parametrize("act", ["retry", "discard"])
def test_a_run_that_is_forgotten_meanwhile_is_unknown(
    stage: PostgresStage, act: str
) -> None:
    job_id = stage.put(every(60), retry=NO_RETRY)
    stage.advance(60)
    stage.step(Outcome.ERROR)
    run_id = stage.run(job_id).id
    interfere(stage.store, lambda: stage.sql("DELETE FROM timingwheel_past"))
    with pytest.raises(UnknownRunError):
        getattr(stage.store, act)(run_id)


def test_a_run_takes_its_attempts_with_it_wherever_it_goes(
    stage: PostgresStage,
) -> None:
    job_id = stage.put(0, retry=RetryPolicy(attempts=3))
    for _ in range(3):
        stage.step(Outcome.ERROR)
        stage.advance(HOUR / SECOND)
    run_id = stage.run(job_id).id

    def rows() -> tuple[int, int]:
        [(live,)] = stage.sql("SELECT count(*) FROM timingwheel_attempt")
        [(past,)] = stage.sql(
            "SELECT count(*) FROM timingwheel_past WHERE length(tries) > 0"
        )
        return live, past

    def numbers() -> list[int]:
        return [attempt.number for attempt in stage.store.attempts(run_id)]

    assert (rows(), numbers()) == ((0, 1), [1, 2, 3])
    stage.store.retry(run_id)
    assert (rows(), numbers()) == ((3, 0), [1, 2, 3])
    stage.step()
    assert (rows(), numbers()) == ((0, 1), [1, 2, 3, 4])


def test_a_first_attempt_that_succeeds_writes_no_row_of_an_attempt(
    stage: PostgresStage,
) -> None:
    jobs = [stage.put(0), stage.put(0, name="n")]
    stage.sql("ALTER TABLE timingwheel_attempt ADD CHECK (false)")
    stage.step()
    for job_id in jobs:
        [attempt] = stage.store.attempts(stage.run(job_id).id)
        assert attempt.outcome is Outcome.OK


# -- who owns what ----------------------------------------------------------------------------


def test_nodes_share_the_shards(stage: PostgresStage, other: PostgresStore) -> None:
    other.recover()
    for _ in range(SHARDS):  # they let go of one at a time
        for node in (other, stage.store):
            node.tend()
    shares = [len(node._members.leases) for node in (stage.store, other)]
    assert shares == [SHARDS // 2] * 2
    owners = stage.sql("SELECT owner_inc FROM timingwheel_shard")
    assert len({inc for (inc,) in owners}) == 2


def test_a_node_that_stops_hands_over_at_once(
    stage: PostgresStage, other: PostgresStore
) -> None:
    stage.store.close()
    other.recover()
    assert len(other._members.leases) == SHARDS
    stage.is_open = False


def test_a_node_that_has_lost_its_shards_fires_nothing_of_them(
    stage: PostgresStage, other: PostgresStore
) -> None:
    jobs = [stage.put(every(10)) for _ in range(8)] + [stage.put(10) for _ in range(8)]
    stage.let_die(stage.store)
    other.recover()  # takes over all, and a whole cycle passes
    stage.advance(10)
    other.fire(100)
    before = [stage.states(job) for job in jobs]
    assert before == [["ready"]] * 16
    stage.advance(10)
    stage.store.fire(100)  # by the old epochs
    assert [stage.states(job) for job in jobs] == before
    assert [stage.skipped(job) for job in jobs] == [[]] * 16


def test_a_node_whose_lease_is_past_comes_back_as_another(
    stage: PostgresStage, other: PostgresStore
) -> None:
    """oban-bg/oban#1488: the leader renewed a row by its name after it had lost it."""
    job_id = stage.put(0, retry=NO_RETRY)
    claim = stage.start_one()
    former = stage.store._members.inc
    stage.let_die(stage.store)
    other.recover()
    assert stage.states(job_id) == ["ready"]
    stage.store.tend()
    assert stage.store._members.inc > former
    assert stage.end(claim) is Verdict.LEASE_LOST
    [again] = stage.claim()  # its worker is another, too
    assert again.token > claim.token
    epochs = stage.sql("SELECT owner_inc FROM timingwheel_shard")
    assert former not in {inc for (inc,) in epochs}


def test_workers_of_one_name_are_several(
    stage: PostgresStage, other: PostgresStore
) -> None:
    """A name is for people: who a worker is, its number says."""
    stage.put(0)
    claim = stage.start_one()
    stage.put(0)
    other.join(WORKER)
    stage.fire()
    assert len(start(other, WORKER)) == 1
    stage.store.tend()
    assert stage.end(claim) is Verdict.ACCEPTED


def test_a_run_is_taken_from_a_worker_whose_row_was_pruned(
    stage: PostgresStage, other: PostgresStore
) -> None:
    """procrastinate-org/procrastinate#1518: an orphan for ever."""
    job_id = stage.put(0)
    stage.start_one()
    stage.sql("DELETE FROM timingwheel_member")
    other.recover()
    assert stage.states(job_id) == ["ready"]
    assert stage.run(job_id).lost == 1


def test_what_comes_due_while_shards_are_handed_over_is_late_and_not_missed(
    stage: PostgresStage, other: PostgresStore
) -> None:
    jobs = [stage.put(every(10), misfire=misfire("skip")) for _ in range(8)]
    other.recover()
    stage.advance(10)
    stage.store.close()  # and has not fired
    stage.is_open = False
    other.tend()
    other.fire(100)
    runs = [run for job in jobs for run in other.runs(RunQuery(job_id=job)).runs]
    assert len(runs) == 8
    assert {run.reason for run in runs} == {RunReason.SCHEDULE}


def test_a_request_reaches_the_node_that_works(
    stage: PostgresStage, other: PostgresStore
) -> None:
    job_id = stage.put(0)
    claim = stage.start_one()
    assert other.cancel(job_id, running="kill") is CancelResult.REQUESTED
    assert other.requests() == []
    stage.fire()
    [request] = stage.store.requests()
    assert (request.token, request.kill) == (claim.token, True)
    stage.fire()
    assert stage.store.requests() == []
    assert stage.end(claim, Outcome.CANCELLED) is Verdict.ACCEPTED
    assert stage.states(job_id) == ["cancelled"]


def test_an_end_by_another_node_is_told_to_whoever_waits_here(
    stage: PostgresStage, other: PostgresStore
) -> None:
    told: list[str] = []
    stage.store.add_listener(lambda runs: told.extend(run.id for run in runs))
    waited_for, ignored = (stage.run(stage.put(0)).id for _ in range(2))
    stage.store.expect(waited_for)
    stage.fire()
    other.finish([end_of(claim) for claim in start(other, "o")])
    stage.store.tend()
    assert told == [waited_for]
    stage.store.expect_no_more(waited_for)
    stage.store.tend()
    assert told == [waited_for]
    assert ignored != waited_for


def test_a_run_that_another_node_was_given_counts_as_begun(
    stage: PostgresStage, other: PostgresStore
) -> None:
    job_id = stage.put(0)
    stage.fire()
    [claim] = stage.claim()
    assert other.cancel(job_id) is CancelResult.RUNNING
    assert stage.begin(claim)
    assert stage.end(claim) is Verdict.ACCEPTED


class InterferedClaiming(Claiming):
    """A claim of which another comes true between its look and its end, once."""

    meanwhile: Callable[[], object] | None = None

    def _choose(
        self, candidates: Sequence[Candidate], wanted: int
    ) -> tuple[list[Candidate], bool]:
        chosen = super()._choose(candidates, wanted)
        if self.meanwhile is not None:
            call, self.meanwhile = self.meanwhile, None
            call()
        return chosen


def test_a_run_that_was_retried_meanwhile_is_not_taken_for_what_it_was(
    stage: PostgresStage, other: PostgresStore
) -> None:
    """quartz-scheduler/quartz#107: what has changed twice looked unchanged."""
    job_id = stage.put(every(60), retry=NO_RETRY)
    run_id = stage.trigger(job_id).id  # ready from its birth

    def fail_and_retry() -> None:
        other.finish([end_of(claim, Outcome.ERROR) for claim in start(other, "o")])
        other.retry(run_id)

    claiming = InterferedClaiming(
        stage.store._owner,
        stage.store._members,
        WORKER,
        tasks=TASKS,
        count=1,
        ahead=0,
        queues=None,
    )
    claiming.meanwhile = fail_and_retry
    claiming.run()
    [claim] = claiming.claims
    assert claim.run.attempts == stage.store.run(run_id).attempts == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("bound", ["limit", "rate", "cap"])
def test_bounds_hold_when_two_nodes_claim_at_once(
    stage: PostgresStage, other: PostgresStore, bound: str
) -> None:
    more: dict[str, object] = {"cap": Cap("c", 2)}
    if bound != "cap":
        bounds = {"limit": 2} if bound == "limit" else {"rate": 1.0}
        stage.store.set_queue(Queue(name="q", **bounds))
        more = {"queue": "q"}
    # Of another task each, so that what they take is not the same, but bound together.
    stage.store.put([draft(0, task=task, **more) for task in [TASK, "u"] * 3])
    stage.fire()
    other.join("o")
    claims: list[Claim] = []
    claiming = InterferedClaiming(
        stage.store._owner,
        stage.store._members,
        WORKER,
        tasks=TASKS,
        count=1,
        ahead=0,
        queues=None,
    )
    claiming.meanwhile = lambda: claims.extend(
        other.claim("o", tasks=frozenset({"u"}), count=5)[0]
    )
    claiming.run()
    claims += claiming.claims
    assert len({claim.run.id for claim in claims}) == len(claims)
    assert len(claims) == (1 if bound == "rate" else 2)


def test_a_queue_that_is_paused_while_a_node_claims_lets_nothing_go(
    stage: PostgresStage, other: PostgresStore
) -> None:
    stage.store.set_queue(Queue(name="q"))
    stage.store.put([draft(0, queue="q")])
    stage.fire()
    claiming = InterferedClaiming(
        stage.store._owner,
        stage.store._members,
        WORKER,
        tasks=TASKS,
        count=1,
        ahead=0,
        queues=None,
    )
    pause = Pause(since_ns=stage.now_ns)
    claiming.meanwhile = lambda: other.set_queue(Queue(name="q", pause=pause))
    claiming.run()
    assert claiming.claims == []


def test_a_node_forgets_what_is_old_by_itself_a_little_at_a_time(
    stage: PostgresStage,
) -> None:
    jobs = [stage.put(0) for _ in range(3)]
    stage.step()
    stage.advance(8 * DAY / SECOND)
    stage.store._upkeep._done_ns = stage.clock.monotonic_ns()  # it has looked just now
    stage.store.tend()
    assert [stage.store.get(job) is None for job in jobs] == [False] * 3
    stage.advance(HOUR / SECOND)
    stage.store.tend()
    assert [stage.store.get(job) for job in jobs] == [None] * 3
    assert stage.sql("SELECT count(*) FROM timingwheel_past") == [(0,)]


def test_who_has_been_dead_for_an_hour_is_struck_off(
    stage: PostgresStage, other: PostgresStore
) -> None:
    other.join("o", ttl_ns=30 * SECOND)
    stage.advance(31 + HOUR / SECOND)
    stage.store.tend()
    names = stage.sql("SELECT name FROM timingwheel_member")
    assert len(names) == 2
    assert ("o",) not in names


# -- the tables -------------------------------------------------------------------------------


def test_nodes_that_start_at_once_make_one_store(postgres: Postgres) -> None:
    where = postgres.new_schema()
    found: list[object] = []

    def open_one() -> None:
        with contextlib.closing(PostgresStore.open(where, shards=3)) as store:
            found.append(store._owner.tag.unkeyed(1))

    threads = [threading.Thread(target=open_one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1


def test_newer_tables_are_refused(postgres: Postgres) -> None:
    where = postgres.new_schema()
    PostgresStore.open(where).close()
    with psycopg.connect(where) as connection:
        connection.execute("UPDATE timingwheel_meta SET version = 99, oldest = 99")
    with pytest.raises(SchemaError, match="schema 99"):
        PostgresStore.open(where)


def test_a_role_that_may_make_no_tables_is_told_what_it_needs(
    postgres: Postgres,
) -> None:
    where = postgres.new_schema().replace("search_path%3D", "search_path%3Dno_")
    with pytest.raises(UnfitDatabaseError, match="CREATE SCHEMA jobs AUTHORIZATION"):
        PostgresStore.open(where)


def test_a_database_without_room_for_every_text_is_refused(postgres: Postgres) -> None:
    with psycopg.connect(postgres.where, autocommit=True) as admin:
        admin.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    with pytest.raises(UnfitDatabaseError, match="encoding is LATIN1"):
        PostgresStore.open(f"{postgres.where} dbname=latin")


def test_names_too_long_for_an_index_are_refused_before_a_node_meets_them(
    stage: PostgresStage,
) -> None:
    """Written, such a run would be an error of each fire, of each node."""
    wide = "\N{SNOWMAN}"
    queue, task = wide * 512, wide * 500
    for options in ({}, {"name": "n"}):
        with pytest.raises(ArgumentError, match="3,036 bytes"):
            stage.put(0, queue=queue, task=task, **options)
    job = stage.put(0, queue=queue)
    with pytest.raises(ArgumentError, match="shorten"):
        stage.store.rebind("t", task)
    other = stage.put(0, task=task, name="n")
    with pytest.raises(ArgumentError, match="shorten"):
        stage.store.update(other, Change(queue=queue), if_revision=None)
    stage.step()
    assert stage.states(job) == ["succeeded"]


def test_numbers_that_a_failover_gave_twice_are_found_taken(
    stage: PostgresStage, other: PostgresStore
) -> None:
    """A standby may not have seen that its primary gave a thousand numbers away."""
    first = [stage.put(60) for _ in range(150)]
    stage.sql("SELECT setval('timingwheel_number', 1024, false)")
    more = [other.put([draft(60)])[0].id for _ in range(3)]
    more += [stage.put(60) for _ in range(3)]
    assert len({*first, *more}) == 156


def test_the_database_clock_is_the_stores(postgres: Postgres) -> None:
    where = postgres.new_schema()
    with (
        contextlib.closing(PostgresStore.open(where)) as store,
        psycopg.connect(where) as connection,
    ):
        row = connection.execute("SELECT extract(epoch FROM clock_timestamp())")
        [seconds] = row.fetchone() or [0]
        assert abs(store.now().wall_ns / SECOND - float(seconds)) < 60


def test_what_belongs_to_a_job_has_its_shard_in_front_of_the_key() -> None:
    tables = re.findall(
        r"CREATE TABLE timingwheel_(\w+) \((.*?)\n\)", _all_sql(), re.DOTALL
    )
    assert len(tables) > 10
    named = {"meta", "member", "queue", "cap", "calendar", "audit", "access"}
    for name, body in tables:
        if name in named:
            continue
        key = re.search(r"PRIMARY KEY \((\w+)", body)
        first = key.group(1) if key else body.split()[0]
        assert first == "shard", name


def _all_sql() -> str:
    return schema.SCHEMA_1


# -- plans ------------------------------------------------------------------------------------


def misplan(stage: PostgresStage, job_id: JobId) -> int:
    """Plan a job an hour late, as other rules would have it; return the right time."""
    right_ns = stage.job(job_id).next_ns
    assert right_ns is not None

    def decide(decision: Decision) -> None:
        job = decision.job(job_id)
        assert job is not None
        decision.save_job(replace(job, next_ns=right_ns + HOUR))

    wanted = Wanted()
    wanted.jobs.add(job_id)
    stage.store._owner.step(decide, wanted)
    return right_ns


def test_plans_by_other_rules_of_zones_are_made_anew_by_who_takes_the_shards(
    stage: PostgresStage, other: PostgresStore
) -> None:
    jobs = [stage.put(cron("0 9 * * *", tz="Europe/Berlin")) for _ in range(300)]
    rights = [misplan(stage, job) for job in jobs]
    stage.sql("UPDATE timingwheel_planned SET zone_rules = 'older'")
    stage.let_die(stage.store)
    other.recover()
    assert [stage.job(job).next_ns for job in jobs] == rights
    rules = stage.sql("SELECT DISTINCT zone_rules FROM timingwheel_planned")
    assert rules == [(zone_rules(),)]


def test_plans_by_the_same_rules_are_not_looked_at(
    stage: PostgresStage, other: PostgresStore
) -> None:
    job = stage.put(cron("0 9 * * *", tz="Europe/Berlin"))
    right_ns = misplan(stage, job)
    stage.let_die(stage.store)
    other.recover()
    assert stage.job(job).next_ns == right_ns + HOUR


def test_who_has_lost_a_shard_plans_nothing_of_it_anew(
    stage: PostgresStage, other: PostgresStore
) -> None:
    job = stage.put(cron("0 9 * * *", tz="Europe/Berlin"))
    right_ns = misplan(stage, job)
    replanning = Replanning(stage.store._owner, "newer")
    former = stage.store._members.leases
    replanning.add((lease, "older") for lease in former.values())
    stage.let_die(stage.store)
    other.recover()
    assert not replanning.step(former)
    assert stage.job(job).next_ns == right_ns + HOUR
    rules = stage.sql("SELECT DISTINCT zone_rules FROM timingwheel_planned")
    assert rules == [(zone_rules(),)]


def test_a_job_that_is_put_by_a_calendar_that_is_set_just_then_is_planned_by_the_new_one(
    stage: PostgresStage, other: PostgresStore
) -> None:
    """Whoever sets the calendar cannot find the job yet, nor the job the calendar."""
    stage.store.set_calendar("c", NamedCalendar())
    free = cron("0 9 * * *", calendar="c")
    day = instant_datetime(stage.job(stage.put(free)).next_ns or 0).date()
    set_once = [NamedCalendar(dates=(day,))]

    def set_it(sql: str) -> None:
        if "new_job" in sql and set_once:
            other.set_calendar("c", set_once.pop())

    stage.store._connections.__class__ = Line
    stage.store._connections.before = set_it  # type: ignore[attr-defined]
    job = stage.put(free)
    assert not set_once
    next_ns = stage.job(job).next_ns
    assert next_ns is not None
    assert instant_datetime(next_ns).date() > day


# -- looking seldom ---------------------------------------------------------------------------


def quiet_until_ns(stage: PostgresStage) -> int | None:
    """In how long a quiet node looks again at the latest; 0 if it is not quiet."""
    serving = stage.store._serving
    return serving.next_ns if serving.is_quiet() else 0


def test_a_look_says_when_the_next_thing_is_due(stage: PostgresStage) -> None:
    assert quiet_until_ns(stage) is None
    jobs = [stage.put(when) for when in (10, every(20))]
    assert quiet_until_ns(stage) is None  # later than it sees
    stage.advance(8)
    assert quiet_until_ns(stage) == 2 * SECOND
    stage.advance(2)
    assert quiet_until_ns(stage) == 0
    stage.step()
    stage.advance(9)
    next_ns = quiet_until_ns(stage)
    assert next_ns is not None
    assert SECOND - stage.grain_ns <= next_ns <= SECOND
    stage.advance(1)
    assert quiet_until_ns(stage) == 0
    stage.store.cancel(jobs[1])
    assert quiet_until_ns(stage) is None


def test_a_look_sees_what_is_ready_asked_lost_or_woken(
    stage: PostgresStage, other: PostgresStore
) -> None:
    is_quiet = stage.store._serving.is_quiet
    job_id = stage.put(0, retry=NO_RETRY)
    stage.fire()
    assert not is_quiet()  # ready
    claim = stage.start_one()
    assert is_quiet()
    other.cancel(job_id, running="signal")
    assert not is_quiet()  # asked
    stage.fire()
    stage.end(claim, Outcome.CANCELLED)
    assert is_quiet()
    stage.put(0)
    stage.fire()
    start(other, "o")
    assert is_quiet()
    stage.let_die(other)
    assert not is_quiet()  # lost
    stage.step()
    assert is_quiet()
    pause = Pause(since_ns=stage.now_ns, until_ns=stage.now_ns + SECOND)
    stage.store.set_queue(Queue(name="q", pause=pause))
    assert is_quiet()
    stage.advance(1)
    assert not is_quiet()  # woken
    stage.fire()
    assert is_quiet()


@pytest.mark.parametrize(
    ("in_s", "wakes"), [(0, True), (2.9, True), (3.1, False), (3_600, False)]
)
@pytest.mark.parametrize("is_at", [False, True], ids=["delay", "at"])
def test_a_plain_job_wakes_its_node_only_if_that_would_not_look_in_time(
    stage: PostgresStage, in_s: float, is_at: bool, wakes: bool
) -> None:
    """It is the database's clock that says how soon, whatever this process's says."""
    due_ns = stage.now_ns + round(in_s * SECOND)
    stage.clock.step(-HOUR)
    owner = stage.store._owner
    owner.news = False
    stage.store.put([draft(at(due_ns) if is_at else in_s)])
    assert owner.news is wakes


def test_what_a_slow_transaction_puts_below_what_has_fired_is_fired(
    stage: PostgresStage, other: PostgresStore
) -> None:
    """T3, temporalio/temporal#2498: a read level that had moved on lost timers.

    Nothing here remembers how far it has read, so a row that appears late is found by
    the next look, whatever its time; also by a node that took the shards meanwhile.
    """
    with psycopg.connect(stage.where) as slow:
        for number in range(8):
            stage.store.put_within(slow, [draft(1, key=f"k{number}")])
            stage.store.put_within(slow, [draft(1)])
        later = [stage.put(10) for _ in range(8)]
        stage.advance(10)
        assert {run.job_id for run in stage.step()} == set(later)
        slow.commit()
    assert not stage.store._serving.is_quiet()
    stage.store.close()
    stage.is_open = False
    other.recover()
    other.fire(100)
    assert len(start(other, "o")) == 16
