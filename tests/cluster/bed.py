"""The bed that faults are tested in: a store, nodes as processes, and who keeps account.

Two witnesses that know nothing of the store's rules: the sink, into which handlers write
each start, without a unique key; and triggers that write down every change of runs, shards
and members with the name of the node whose connection made it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.context import ForkServerProcess
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from tests.cluster.node import Fault, Plan, Report, serve
from tests.stores.stage import at, draft, every, overlap
from timingwheel.jobs.model import JobId, JobState, Outcome, Payload, Run, RunState
from timingwheel.jobs.store import JobQuery, RunQuery
from timingwheel.stores.postgres.connections import Connections
from timingwheel.stores.postgres.store import PostgresStore

SECONDS_MAX = 60
"""What takes longer is a failure: it ends a wait, and is no measure."""
SHARDS = 16
PUTTER = "putter"
_LOOK_SECONDS = 0.02
_WORK_SECONDS = 5
_PAYLOAD = Payload(b"\x80")  # no arguments
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.cluster.node"])

_SINK = """
CREATE TABLE sink (
    run_id text, attempt int, token bigint, node text, due_ns bigint, mono_ns bigint,
    at_ns bigint DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint
);
"""
_WITNESS = """
CREATE TABLE witness (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    app text DEFAULT current_setting('application_name'),
    what text, key text, was text, becomes text, of_inc bigint, fault text
);
CREATE FUNCTION see_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO witness (what, key, was, becomes, of_inc) SELECT 'run',
        concat_ws('/', coalesce(NEW.job_id, OLD.job_id),
            coalesce(NEW.nominal_ns, OLD.nominal_ns), coalesce(NEW.n, OLD.n)),
        OLD.state, NEW.state, s.owner_inc
    FROM timingwheel_shard s WHERE s.shard = coalesce(NEW.shard, OLD.shard);
    RETURN NULL;
END $$;
CREATE FUNCTION see_shard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE old_lives boolean; new_lives boolean;
BEGIN
    SELECT EXISTS (SELECT 1 FROM timingwheel_member m WHERE m.inc = OLD.owner_inc
        AND m.until_ns > timingwheel_elapsed()) INTO old_lives;
    SELECT EXISTS (SELECT 1 FROM timingwheel_member m WHERE m.inc = NEW.owner_inc
        AND m.until_ns > timingwheel_elapsed()) INTO new_lives;
    INSERT INTO witness (what, key, was, becomes, of_inc, fault) VALUES (
        'shard', NEW.shard, OLD.epoch, NEW.epoch, NEW.owner_inc,
        CASE
            WHEN NEW.epoch <= OLD.epoch THEN 'the epoch did not grow'
            WHEN NEW.owner_inc IS NOT NULL AND NEW.owner_inc <> OLD.owner_inc
                AND old_lives THEN 'taken from one that lives'
            WHEN NEW.owner_inc IS NOT NULL AND NOT new_lives
                THEN 'given to one that does not live'
        END
    );
    RETURN NULL;
END $$;
CREATE FUNCTION see_member() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO witness (what, key, was, becomes, of_inc, fault) VALUES (
        'member', NEW.name, OLD.inc, NEW.inc, NEW.inc,
        CASE WHEN NEW.inc < OLD.inc THEN 'a number was given again' END
    );
    RETURN NULL;
END $$;
CREATE TRIGGER see AFTER INSERT OR UPDATE OF state OR DELETE ON timingwheel_run
    FOR EACH ROW EXECUTE FUNCTION see_run();
CREATE TRIGGER see AFTER UPDATE ON timingwheel_shard FOR EACH ROW
    WHEN (OLD.owner_inc IS DISTINCT FROM NEW.owner_inc OR OLD.epoch <> NEW.epoch)
    EXECUTE FUNCTION see_shard();
CREATE TRIGGER see AFTER INSERT OR UPDATE OF inc ON timingwheel_member
    FOR EACH ROW EXECUTE FUNCTION see_member();
"""
_WRONG = """
SELECT concat_ws(' ', app, what, key, was, becomes, of_inc, fault)
FROM witness WHERE fault IS NOT NULL ORDER BY seq
"""
_FIRED_BY_STRANGERS = """
SELECT count(*) FROM witness r WHERE r.what = 'run' AND r.was IN ('planned', 'retrying')
AND r.becomes IN ('ready', 'running') AND NOT EXISTS (
    SELECT 1 FROM witness m WHERE m.what = 'member' AND m.of_inc = r.of_inc
    AND m.app = r.app
)
"""
_IN_FLIGHT = """
SELECT count(*) FROM timingwheel_run r WHERE r.state = 'running' AND r.inc IN (
    SELECT m.of_inc FROM witness m WHERE m.what = 'member' AND m.app = %s
)
"""
_OWNED = """
SELECT count(*) FROM timingwheel_shard s JOIN timingwheel_member m
ON m.inc = s.owner_inc AND m.until_ns > timingwheel_elapsed()
AND m.inc IN (SELECT of_inc FROM witness WHERE what = 'member' AND app = ANY(%s))
"""

_LEFT = (
    """
    SELECT 'run', job_id, nominal_ns, n, shard, state, inc, attempts,
        wake_ns - timingwheel_now() FROM timingwheel_run LIMIT 10
    """,
    "SELECT 'shard', shard, owner_inc, epoch FROM timingwheel_shard ORDER BY shard",
    """
    SELECT 'member', inc, name, until_ns - timingwheel_elapsed()
    FROM timingwheel_member ORDER BY inc
    """,
    """
    SELECT 'backend', application_name, state, wait_event_type, wait_event, left(query, 60)
    FROM pg_stat_activity WHERE application_name <> ''
    """,
)
_LIVES = """
SELECT count(*) FROM timingwheel_member m WHERE m.until_ns > timingwheel_elapsed()
AND m.inc IN (SELECT of_inc FROM witness WHERE what = 'member' AND app = %s)
"""


class Account(NamedTuple):
    """What came of it. All but the first and the last three must be 0.

    Attributes:
        runs: how many there are.
        lost: runs that are missing, have not succeeded, or never started.
        done_twice: runs of which two attempts succeeded.
        doubles: starts beside the one that succeeded, of no attempt that is on record
            as lost or failed; and successes that were taken in of one that is.
        strange: runs fired by another than the owner of their shard, and what was wrong
            with changes of shards and members.
        early: starts before their due time.
        started_twice: runs that started more than once.
        refused: ends that the store refused.
        late_s: by how much the latest start was late.
    """

    runs: int
    lost: int = 0
    done_twice: int = 0
    doubles: int = 0
    strange: int = 0
    early: int = 0
    started_twice: int = 0
    refused: int = 0
    late_s: float = 0.0

    @property
    def faults(self) -> dict[str, int]:
        """What must not be there."""
        names = ("lost", "done_twice", "doubles", "strange", "early")
        return {name: getattr(self, name) for name in names if getattr(self, name)}


class NodeError(AssertionError):
    """A node did not do what it was to do; with its last words."""


class Node:
    """A node's process.

    Args:
        plan: how it lives.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.name = plan.name
        self.report = Report()
        ours, theirs = _FORKS.Pipe()
        self._pipe = ours
        self._process: ForkServerProcess = _FORKS.Process(
            target=serve, args=(theirs, plan), daemon=True
        )
        self._process.start()
        theirs.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def tell(self, word: str, value: object = None) -> None:
        self._pipe.send((word, value))

    def hear(self, word: str) -> Any:
        """Wait for the node to say a word; return what comes with it."""
        with contextlib.suppress(EOFError, ConnectionError):
            if self._pipe.poll(SECONDS_MAX):
                said, value = self._pipe.recv()
                if said == word:
                    return value
        raise NodeError(f"{self.name} does not say {word}: {self.words()}")

    def has_struck(self) -> bool:
        """Whether its fault has come to pass, asked while it lives."""
        self.tell("struck?")
        return bool(self.hear("struck"))

    @property
    def has_said(self) -> bool:
        """Whether something can be heard, if only that it is gone."""
        return self.says_within(0)

    def says_within(self, seconds: float) -> bool:
        """Whether something can be heard before so long has passed."""
        return self._pipe.poll(seconds)

    def words(self) -> str:
        """What it has logged."""
        with contextlib.suppress(FileNotFoundError):
            return Path(self.plan.log).read_text()[-4_000:]
        return ""

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def has_stopped(self) -> bool:
        """Whether its process sleeps by SIGSTOP."""
        status = Path(f"/proc/{self.pid}/stat").read_text()
        return status.rpartition(")")[2].split()[0] == "T"

    def has_died(self) -> bool:
        """Wait for its end; whether that was a kill."""
        self._process.join(SECONDS_MAX)
        return self._process.exitcode == -signal.SIGKILL

    def stop(self) -> Report:
        """End it, as an operator does."""
        self.tell("stop")
        self.report = self.hear("report")
        self._process.join(SECONDS_MAX)
        return self.report

    def end(self) -> None:
        """Be sure that it is gone."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join(SECONDS_MAX)
        self._pipe.close()


@dataclass
class Bed:
    """A store with its witnesses.

    Attributes:
        url: of the store.
        sink: of the database with the sink.
        logs: a directory for what nodes say.
        store: opened here, to put and to look.
        jobs: how many runs each of them is to have.
        at_wall_times: those that come due at a time of the day.
        nodes: all that were started.
    """

    url: str
    sink: str
    logs: Path

    def __post_init__(self) -> None:
        self.nodes: list[Node] = []
        self.jobs: dict[JobId, int] = {}
        self.at_wall_times: set[JobId] = set()
        ensure_running()
        # Only to put and to look: nothing is fired here.
        where = _named(self.url, PUTTER)
        self.store = PostgresStore.open(where, shards=SHARDS)
        self._asked = Connections(self.url)
        self._sink = Connections(self.sink)
        for url, tables in ((self.url, _WITNESS), (self.sink, _SINK)):
            with psycopg.connect(url) as connection:
                connection.execute(tables.encode())

    # -- jobs ---------------------------------------------------------------------------

    def put(
        self,
        plain: int = 60,
        named: int = 20,
        recurring: int = 4,
        *,
        times: int = 5,
        period_s: float = 0.2,
        in_s: float = 0.0,
    ) -> None:
        """Put jobs of all kinds: due in `in_s`, and every period so many times."""
        more = {"task": "work", "payload": _PAYLOAD}
        trigger = every(period_s, runs_max=times)
        drafts = [draft(in_s, **more) for _ in range(plain)]
        drafts += [draft(in_s, tags={"n": str(n)}, **more) for n in range(named)]
        once = self.store.put(drafts) if drafts else []
        drafts = [
            draft(trigger, overlap=overlap("allow"), **more) for _ in range(recurring)
        ]
        again = self.store.put(drafts) if drafts else []
        self.jobs.update((ref.id, 1) for ref in once)
        self.jobs.update((ref.id, times) for ref in again)

    def put_at(self, count: int, *, every_s: float) -> None:
        """Put jobs at wall times, by the database's clock, one after the other."""
        more = {"task": "work", "payload": _PAYLOAD}
        now_ns = self.store.now().wall_ns
        step_ns = round(every_s * 1e9)
        refs = self.store.put(
            [draft(at(now_ns + (n + 1) * step_ns), **more) for n in range(count)]
        )
        self.jobs.update((ref.id, 1) for ref in refs)
        self.at_wall_times.update(ref.id for ref in refs)

    def is_done(self) -> bool:
        """Whether all jobs have ended."""
        return not self.store.jobs(JobQuery(state=JobState.ACTIVE, limit=1)).jobs

    # -- nodes --------------------------------------------------------------------------

    def start(self, *plans: str | tuple[str, dict[str, Any]]) -> list[Node]:
        """Start nodes, each by its name, or with more of its Plan; they begin together."""
        nodes = [self._node(plan) for plan in plans]
        for node in nodes:
            node.hear("ready")
        for node in nodes:
            node.tell("go")
        return nodes

    def _node(self, plan: str | tuple[str, dict[str, Any]]) -> Node:
        name, more = (plan, {}) if isinstance(plan, str) else plan
        number = len(self.nodes)
        log = self.logs / f"{number}-{name}.log"
        whole = Plan(url=self.url, sink=self.sink, name=name, log=str(log))
        whole = replace(whole, **more)
        whole = replace(whole, url=_named(whole.url, name))
        node = Node(whole)
        self.nodes.append(node)
        return node

    def finish(self, *nodes: Node) -> None:
        """Wait until all is done, and stop nodes."""
        self.wait_until(self.is_done, *nodes)
        for node in nodes:
            node.stop()

    def wait_until(self, condition: Callable[[], bool], *nodes: Node) -> None:
        """Look until it is so; a node that says something meanwhile has failed."""
        end = time.monotonic() + SECONDS_MAX
        pause = threading.Event()  # that nobody sets
        while not condition():
            for node in nodes:
                if node.has_said:
                    raise NodeError(f"{node.name} ends by itself: {node.words()}")
            if time.monotonic() > end:
                words = "\n".join(f"{node.name}: {node.words()}" for node in self.nodes)
                raise NodeError(f"it does not come to that: {words}\n{self.left()}")
            pause.wait(_LOOK_SECONDS)

    def hear_struck(self, node: Node) -> None:
        """Wait for a node to say that its fault has come to pass.

        There is work for it as long as that takes: on a busy machine others may do all.
        """
        for _ in range(SECONDS_MAX // _WORK_SECONDS):
            if node.says_within(_WORK_SECONDS):
                break
            self.put(plain=12, named=0, recurring=0)
        node.hear("struck")

    def outlive(self, node: Node, *others: Node) -> int:
        """Wait until a node's lease is past and others have all that it had.

        Returns:
            How many attempts it had in hand.
        """
        in_flight = self.in_flight(node.name)
        names = [other.name for other in others]
        self.wait_until(lambda: not self.lives(node.name), *others)
        self.wait_until(lambda: self.are_owned_by(*names), *others)
        self.wait_until(lambda: not self.in_flight(node.name), *others)
        return in_flight

    def comes_back(self, node: Node, since: int) -> int:
        """Wait until a node has a new number; return which change that was."""
        self.wait_until(
            lambda: self.first_change_by(node.name, "member", since) > 0, node
        )
        return self.first_change_by(node.name, "member", since)

    def close(self) -> None:
        for node in self.nodes:
            node.end()
        self.store.close()
        self._asked.close()
        self._sink.close()

    # -- looking ------------------------------------------------------------------------

    def ask(self, sql: str, values: Sequence[object] = ()) -> Any:
        """Return the first value of the first row."""
        return self._asked.rows(sql, values)[0][0]

    def ask_sink(self, sql: str, values: Sequence[object] = ()) -> Any:
        """Return the first value of the first row, from the sink's database."""
        return self._sink.rows(sql, values)[0][0]

    def left(self) -> str:
        """What has not ended, who owns and who lives, in the rows' own words."""
        rows = [row for sql in _LEFT for row in self._asked.rows(sql)]
        return "\n".join(" ".join(map(str, row)) for row in rows)

    def in_flight(self, node: str) -> int:
        """How many attempts a node, or a dead one still, has in hand."""
        return int(self.ask(_IN_FLIGHT, [node]))

    def shards_of(self, *nodes: str) -> int:
        """How many shards nodes own that live."""
        return int(self.ask(_OWNED, [list(nodes)]))

    def refused(self, *nodes: Node) -> int:
        """How many ends of nodes were refused: a slow machine, too, can cost a lease."""
        return sum(node.report.verdicts["LEASE_LOST"] for node in nodes)

    def lives(self, node: str) -> bool:
        """Whether a lease of the node, or of its workers, is not past."""
        return bool(self.ask(_LIVES, [node]))

    def are_owned_by(self, *nodes: str) -> bool:
        """Whether these nodes own all shards."""
        return self.shards_of(*nodes) == SHARDS

    def last_change(self) -> int:
        """The number of what the witness has seen last."""
        return int(self.ask("SELECT coalesce(max(seq), 0) FROM witness"))

    def started(self, *, between: tuple[int, int] = (0, 2**63 - 1)) -> int:
        """How many starts the sink has seen; between two moments, monotonic, if given."""
        sql = "SELECT count(*) FROM sink WHERE mono_ns BETWEEN %s AND %s"
        return int(self.ask_sink(sql, between))

    def starts_by(self, node: str) -> int:
        """How many starts a node has made."""
        return int(self.ask_sink("SELECT count(*) FROM sink WHERE node = %s", [node]))

    def first_delayed_start_ns(self) -> int:
        """When the first run of a job with a delay has started, monotonic."""
        sql = (
            "SELECT min(mono_ns) FROM sink "
            "WHERE NOT split_part(run_id, '@', 1) = ANY(%s)"
        )
        return int(self.ask_sink(sql, [list(self.at_wall_times)]))

    def first_change_by(self, node: str, what: str, since: int) -> int:
        """The number of a node's first change of that kind after another; 0: none."""
        sql = (
            "SELECT coalesce(min(seq), 0) FROM witness WHERE app = %s AND what = %s "
            "AND seq > %s"
        )
        return int(self.ask(sql, [node, what, since]))

    def changes_by(self, node: str, what: str, *, since: int, before: int) -> int:
        """How many changes of runs, shards or members a node made after a change."""
        sql = (
            "SELECT count(*) FROM witness WHERE app = %s AND what = %s "
            "AND seq > %s AND seq < %s"
        )
        return int(self.ask(sql, [node, what, since, before]))

    def account(self, *, clock_was_set: bool = False) -> Account:
        """Compare the store with the sink and the witness.

        Args:
            clock_was_set: so what has a delay has no due time that could be compared.
        """
        rows = self._sink.rows("SELECT run_id, token, due_ns, at_ns FROM sink")
        starts: dict[str, set[int]] = {}
        for run_id, token, _, _ in rows:
            starts.setdefault(run_id, set()).add(token)
        found = self._account_runs(starts)
        wrong = [row[0] for row in self._asked.rows(_WRONG)]
        strangers = int(self.ask(_FIRED_BY_STRANGERS))
        if strangers:
            wrong.append(f"{strangers} runs fired by strangers")
        refused = self.refused(*self.nodes)
        for one in wrong:
            print(one)
        return found._replace(
            strange=len(wrong),
            early=sum(
                at_ns < due_ns
                for run_id, _, due_ns, at_ns in rows
                if not clock_was_set or _job_of(run_id) in self.at_wall_times
            ),
            started_twice=sum(len(tokens) > 1 for tokens in starts.values()),
            refused=refused,
            late_s=max(((at - due) / 1e9 for _, _, due, at in rows), default=0.0),
        )

    def _account_runs(self, starts: dict[str, set[int]]) -> Account:
        lost = done_twice = doubles = 0
        missing = Counter(self.jobs)
        accepted = set[int]().union(*(node.report.accepted for node in self.nodes))
        runs = _all_runs(self.store)
        for run in runs:
            attempts = self.store.attempts(run.id)
            done = [one.token for one in attempts if one.outcome is Outcome.OK]
            void = {one.token for one in attempts if one.outcome is not Outcome.OK}
            started = starts.get(run.id, set())
            is_done = run.state is RunState.SUCCEEDED and bool(started)
            missing[run.job_id] -= is_done
            lost += not is_done
            done_twice += len(done) > 1
            doubles += len(started - void - set(done[:1])) + len(accepted & void)
        lost += sum(count for count in missing.values() if count > 0)
        return Account(len(runs), lost, done_twice, doubles)


def _job_of(run_id: str) -> JobId:
    return JobId(run_id.partition("@")[0])


def _all_runs(store: PostgresStore) -> list[Run]:
    runs: list[Run] = []
    cursor: str | None = None
    while True:
        page = store.runs(RunQuery(cursor=cursor))
        runs += page.runs
        cursor = page.cursor
        if cursor is None:
            return runs


def _named(url: str, name: str) -> str:
    return f"{url}&application_name={name}"


__all__ = ["Account", "Bed", "Fault", "Node", "NodeError"]
