"""Random programs of nodes that stop, die and come back as who they were: what always holds.

    I1  a run is born once, and what has ended does not come back
    I2  of one run one attempt has the lease, and one end is accepted
    I3  a lease changes hands only if its holder has let it go, or is past its own lease
    I4  whoever acts by an old session, as a node or a worker, changes nothing

Old sessions are kept for ever and acted on at any time, by a process without any trust of
its own to hold it back; so it is the tables alone that refuse.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.cluster.nodes import TTL, Cluster, ClusterNode
from tests.postgres import Postgres
from tests.stores.stage import ONCE, every, overlap
from timingwheel.jobs.model import JobId, RunId, RunState
from timingwheel.jobs.store import Claim, Verdict
from timingwheel.stores.postgres.guard import Lease

NODES = 3
SHARDS = 4
PERIOD = 2
NODE = st.integers(0, NODES - 1)
# Which of what there is: not drawn from it, since who gets what also depends on the time
# that things take, and a program must be drawn the same when it is led once more.
PLACE = st.integers(0, 99)
ROUNDS_MAX = 40
FINAL = ("succeeded", "failed", "lost", "cancelled", "skipped")


class Session(NamedTuple):
    """What a node believed at some time."""

    inc: int
    leases: dict[int, Lease]


class Given(NamedTuple):
    """A claim, and under which number it was got."""

    claim: Claim
    inc: int


class ClusterMachine(RuleBasedStateMachine):
    """Nodes, and one process that plays any of their former lives."""

    postgres: Postgres

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(self.postgres, shards=SHARDS)
        self.names = itertools.count()
        self.nodes = [self.new_node() for _ in range(NODES)]
        self.zombie = self.cluster.node("zombie")
        self.cluster.nodes.remove(self.zombie)
        self.standing: set[int] = set()
        self.sessions: list[Session] = []
        self.given: dict[int, Given] = {}
        self.in_hand: list[tuple[int, Given]] = []
        self.accepted: dict[RunId, int] = {}
        self.plain: list[JobId] = []
        self.at_most_once: list[JobId] = []
        self.recurring: list[JobId] = []
        self.epochs: dict[int, tuple[int | None, int]] = {}
        self.final: dict[RunId, str] = {}

    def new_node(self) -> ClusterNode:
        return self.cluster.node(f"n{next(self.names)}")

    @initialize()
    def serve(self) -> None:
        for node in self.nodes:
            node.serve()

    # -- work -----------------------------------------------------------------------------

    @rule(delay=st.sampled_from([0, 0, 1, 5]), once=st.booleans())
    def put(self, delay: int, once: bool) -> None:
        more = {"delivery": ONCE} if once else {}
        job = self.cluster.stage.put(delay, **more)
        (self.at_most_once if once else self.plain).append(job)

    @rule(times=st.integers(1, 4))
    def put_recurring(self, times: int) -> None:
        if len(self.recurring) >= 3:
            return
        trigger = every(PERIOD, runs_max=times)
        job = self.cluster.stage.put(trigger, overlap=overlap("allow"))
        self.recurring.append(job)

    @rule(n=NODE)
    def fire(self, n: int) -> None:
        self.nodes[n].store.fire(100)

    @rule(n=NODE, count=st.integers(1, 3))
    def claim(self, n: int, count: int) -> None:
        node = self.nodes[n]
        members = node.store._members
        inc = members._own.get(node.name, 0)
        for claim in node.claim(count):
            self.must_be_free(claim)
            given = Given(claim, inc)
            self.given[claim.token] = given
            self.in_hand.append((n, given))
            assert node.begin(claim)

    def must_be_free(self, claim: Claim) -> None:
        """I3: whoever had the run before is not among the living under that number."""
        former = [
            one.inc
            for one in self.given.values()
            if one.claim.run.id == claim.run.id and one.claim.token < claim.token
        ]
        alive = self.cluster.stage.sql(
            "SELECT inc FROM timingwheel_member WHERE inc = ANY(%s) "
            "AND until_ns > timingwheel_elapsed()",
            [former],
        )
        # A step back, noted because of a machine that stood still, makes dead ones live.
        assert alive == [] or self.cluster.noted_steps_ns() != 0

    @rule(place=PLACE)
    def end(self, place: int) -> None:
        if self.in_hand:
            n, given = self.in_hand.pop(place % len(self.in_hand))
            self.tell(self.nodes[n], given.claim)

    def tell(self, node: ClusterNode, claim: Claim) -> None:
        """I2 and I4: an end counts if, and only if, its token is the run's own now."""
        before = self.holder(claim)
        verdict = node.end(claim)
        if self.accepted.get(claim.run.id) == claim.token:  # told once more
            assert self.holder(claim) == before
            return
        if verdict is Verdict.ACCEPTED:
            assert before == claim.token
            assert claim.run.id not in self.accepted
            self.accepted[claim.run.id] = claim.token
        else:
            assert self.holder(claim) == before

    def holder(self, claim: Claim) -> int:
        """Return the token of a run's present attempt."""
        rows = self.cluster.stage.sql(
            "SELECT token FROM timingwheel_run WHERE job_id = %s AND nominal_ns = %s "
            "AND n = %s AND state = 'running'",
            [claim.run.job_id, claim.run.nominal_ns, claim.run.n],
        )
        return rows[0][0] if rows else 0

    # -- faults -----------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 1, 2, TTL - 1, TTL, 2 * TTL]))
    def advance(self, seconds: int) -> None:
        standing = [self.nodes[n] for n in self.standing]
        self.cluster.advance(seconds, without=standing)

    @rule(n=NODE)
    def beat(self, n: int) -> None:
        self.nodes[n].store.tend()

    @rule()
    def beat_all(self) -> None:
        self.cluster.advance(1, without=[self.nodes[n] for n in self.standing])
        for n, node in enumerate(self.nodes):
            if n not in self.standing:
                node.store.tend()
                node.store.fire(100)

    @rule(n=NODE)
    def stand_still_or_go_on(self, n: int) -> None:
        """As a machine that is frozen: even its monotonic clock stands still."""
        if self.standing <= {n}:  # one at a time: most must know the time
            self.standing ^= {n}

    @rule(n=NODE)
    def kill(self, n: int) -> None:
        node = self.nodes[n]
        node.store.abandon()
        self.cluster.nodes.remove(node)
        self.standing.discard(n)
        self.in_hand = [one for one in self.in_hand if one[0] != n]
        self.nodes[n] = self.new_node().serve()

    @rule(n=NODE)
    def hand_over(self, n: int) -> None:
        self.nodes[n].store.hand_over()

    @rule(n=NODE)
    def serve_again(self, n: int) -> None:
        self.nodes[n].store.recover()

    # -- old sessions -------------------------------------------------------------------------

    @rule(n=NODE)
    def remember(self, n: int) -> None:
        members = self.nodes[n].store._members
        if members.inc:
            self.sessions.append(Session(members.inc, dict(members.leases)))

    @rule(place=PLACE)
    def fire_by_an_old_session(self, place: int) -> None:
        if not self.sessions:
            return
        session = self.sessions[place % len(self.sessions)]
        store = self.zombie.store
        store._trust.begin(store._trust.now_ns(), [session.inc])
        store._members.inc = store._owner.inc = session.inc
        store._members.leases = session.leases
        stale = [
            lease.shard
            for lease in session.leases.values()
            if self.owners()[lease.shard] != (session.inc, lease.epoch)
        ]
        before = self.states(stale)
        store.fire(100)
        assert self.states(stale) == before

    @rule(place=PLACE)
    def end_by_an_old_session(self, place: int) -> None:
        """Told once more, or for the first time; by who has died, or has been replaced."""
        if self.given:
            token = sorted(self.given)[place % len(self.given)]
            self.tell(self.zombie, self.given[token].claim)

    # -- what always holds --------------------------------------------------------------------

    def owners(self) -> dict[int, tuple[int | None, int]]:
        rows = self.cluster.stage.sql(
            "SELECT shard, owner_inc, epoch FROM timingwheel_shard"
        )
        return {shard: (inc, epoch) for shard, inc, epoch in rows}

    def states(self, shards: list[int]) -> list[Any]:
        return self.cluster.stage.sql(
            "SELECT job_id, nominal_ns, n, state, version FROM timingwheel_run "
            "WHERE shard = ANY(%s) ORDER BY 1, 2, 3",
            [shards],
        )

    @invariant()
    def epochs_only_grow(self) -> None:
        now = self.owners()
        for shard, (inc, epoch) in self.epochs.items():
            assert now[shard][1] >= epoch
            if now[shard][1] == epoch:
                assert now[shard][0] == inc
        self.epochs = now

    @invariant()
    def what_has_ended_stays_so(self) -> None:
        """I1."""
        runs = {run.id: run.state.value for run in self.cluster.stage.runs()}
        for run_id, state in self.final.items():
            assert runs[run_id] == state
        self.final = {run_id: state for run_id, state in runs.items() if state in FINAL}

    @invariant()
    def tables_are_whole(self) -> None:
        self.cluster.stage.check()

    def teardown(self) -> None:
        try:
            self.finish_all()
        finally:
            self.cluster.close()

    def finish_all(self) -> None:
        """In the end all that was asked for has been done, and nothing twice."""
        self.standing.clear()
        for n, _ in enumerate(self.nodes):
            self.serve_again(n)
        for _ in range(ROUNDS_MAX):
            for _ in range(TTL):
                self.beat_all()
            for n, _ in enumerate(self.nodes):
                self.claim(n, 20)
            while self.in_hand:
                n, given = self.in_hand.pop()
                self.tell(self.nodes[n], given.claim)
            if self.is_done():
                break
        for job in self.plain:
            assert self.cluster.stage.run(job).state is RunState.SUCCEEDED
        for job in self.at_most_once:
            run = self.cluster.stage.run(job)
            assert run.state in (RunState.SUCCEEDED, RunState.LOST)
            assert run.attempts <= 1
        for job in self.recurring:
            nominals = [run.nominal_ns for run in self.cluster.stage.runs(job)]
            assert len(set(nominals)) == len(nominals)
            assert self.cluster.stage.states(job) == ["succeeded"] * len(nominals)

    def is_done(self) -> bool:
        runs = self.cluster.stage.runs()
        live = self.cluster.stage.sql("SELECT id FROM timingwheel_job WHERE live")
        return not live and all(run.state.value in FINAL for run in runs)


@pytest.fixture
def machine(postgres: Postgres) -> type[ClusterMachine]:
    ClusterMachine.postgres = postgres
    return ClusterMachine


# Without the phase that explains, as in tests/stores/test_store_model.py.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)


@pytest.mark.timeout(500)  # what shrinking a failure may take
def test_random_programs_of_nodes_keep_what_always_holds(
    machine: type[ClusterMachine],
) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(stateful_step_count=30, max_examples=6, phases=PHASES),
    )


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_many_random_programs_of_nodes_keep_what_always_holds(
    machine: type[ClusterMachine],
) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(stateful_step_count=60, max_examples=300, phases=PHASES),
    )
