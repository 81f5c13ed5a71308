"""The line that every change goes: read, decide, write if nothing has changed meanwhile.

What one process must know by itself is here too: which attempts it has claimed, who is to
be told of ends, and what it is to interrupt.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from psycopg import errors

from timingwheel.engine.timeline import Now
from timingwheel.jobs.errors import UnknownJobError
from timingwheel.jobs.model import Draft, Job, JobId, JobState, Run
from timingwheel.jobs.store import JobRef, Request
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.identity import StoreTag
from timingwheel.stores.postgres.changes import RowChanges
from timingwheel.stores.postgres.connections import Connections, Database
from timingwheel.stores.postgres.guard import Guard, Lease, Stale
from timingwheel.stores.postgres.lanes import require_names_fit
from timingwheel.stores.postgres.loading import Loading
from timingwheel.stores.postgres.measuring import Tally
from timingwheel.stores.postgres.plain_end import PlainEnds
from timingwheel.stores.postgres.plain_put import put_plain
from timingwheel.stores.postgres.rows import shard_of
from timingwheel.stores.postgres.view import LoadedView, Missing, Wanted
from timingwheel.stores.postgres.writing import CONFLICTS, write

NUMBERS_A_BLOCK: Final = 1_024
"""As the sequence in the schema counts."""
TRIES_MAX: Final = 100
"""How often others may be quicker than one step, in a row."""


class Item(NamedTuple):
    """One of many things that a step decides.

    Attributes:
        job_id: whom it is about.
        decide: decides; perhaps several times, of which the last counts.
    """

    job_id: JobId
    decide: Callable[[Decision], None]


class Numbers:
    """Numbers that are never given twice, and grow. Thread-safe.

    Args:
        connections: to where they come from.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = threading.Lock()
        self._next = self._end = 0

    def skip(self) -> None:
        """Give no more of the present thousand: others have had some of it, too.

        A standby that takes over may not have seen that it was given.
        """
        with self._lock:
            self._next = self._end

    def take(self) -> int:
        """Return the next number. Cost: a statement for every thousandth."""
        with self._lock:
            if self._next == self._end:
                sql = "SELECT nextval('timingwheel_number')"
                self._next = self._connections.rows(sql)[0][0]
                self._end = self._next + NUMBERS_A_BLOCK
            self._next += 1
            return self._next - 1


class PostgresOwner:
    """One process's part of a store. Thread-safe.

    Attributes:
        connections: to the database.
        loading: reads.
        shards: how many there are.
        tag: makes job ids.
        rng: for jitter and backoff.
        changed: notified when there may be something to do.
        news: whether that has not been looked at yet.
        listeners: called with runs that have ended by what this process did.
        claimed: by token, whether the handler of an attempt that this process was given
            has started; `starting` guards it.
        plain_ends: of attempts that it was given.
        tally: counts what it has written.
        inc: of this node; 0: it fires nothing.
        written: called with what a step has written, and when it was decided.
        put: called with the shard of a plain job that was put, and in how many ns it is
            due; what is due soon it tells `wake`.

    Args:
        connections: see above.
        loading: see above.
        shards: see above.
        tag: see above.
        rng: see above.
    """

    def __init__(
        self,
        connections: Connections,
        loading: Loading,
        *,
        shards: int,
        tag: StoreTag,
        rng: random.Random,
    ) -> None:
        self.connections = connections
        self.loading = loading
        self.shards = shards
        self.tag = tag
        self.rng = rng
        self.changed = threading.Condition()
        self.news = False
        self.listeners: list[Callable[[Sequence[Run]], None]] = []
        self.claimed: dict[int, bool] = {}
        self.plain_ends = PlainEnds(connections, shards)
        self.tally = Tally()
        self.starting = threading.RLock()
        self.inc = 0
        self.written: Callable[[RowChanges, Now], None] = _ignored
        self.put: Callable[[int, int], None] = _ignored
        self._requests: list[Request] = []
        self._told: set[Request] = set()
        self._numbers = Numbers(connections)

    # -- puts ---------------------------------------------------------------------------

    def put_plain(self, draft: Draft, *, on: Database | None = None) -> JobRef | None:
        """Put one job that `is_plain`; None: not by this way, and nothing is written.

        Args:
            draft: what is asked for.
            on: a connection of the caller's; None: one of our own.

        Raises:
            ArgumentError: its names are too long.
        """
        require_names_fit(draft.queue, draft.task)
        database = self.connections if on is None else on
        seq = self._numbers.take()
        job_id = self.tag.unkeyed(seq)
        try:
            in_ns = put_plain(database, draft, job_id, seq=seq, shards=self.shards)
        except errors.UniqueViolation:
            self._numbers.skip()
            if on is not None:
                raise  # its transaction has failed
            return None
        if in_ns is None:
            return None
        if on is None:
            self.put(self.shard(job_id), in_ns)
        return JobRef(job_id, created=True)

    # -- steps --------------------------------------------------------------------------

    def step(self, decide: Callable[[Decision], None], wanted: Wanted) -> None:
        """Decide and write one group.

        Args:
            decide: decides; perhaps several times, of which the last counts.
            wanted: what it will ask for, as far as is known.
        """
        for _ in range(TRIES_MAX):
            if self._try([decide], wanted, ()) is None:
                return
        raise AssertionError("others were quicker too often")

    def steps(self, items: Sequence[Item], leases: dict[int, Lease]) -> set[int]:
        """Decide and write many, in one message if nobody interferes.

        Args:
            items: in the order in which they are decided.
            leases: by shard, of the shards of all items; empty for acts that need none.

        Returns:
            Shards that are not this node's any more: nothing of theirs was done.
        """
        lost: set[int] = set()
        todo = [list(items)] if items else []
        tries = 0
        while todo:
            batch = todo.pop()
            batch = [one for one in batch if self.shard(one.job_id) not in lost]
            if not batch:
                continue
            wanted = Wanted()
            wanted.jobs.update(one.job_id for one in batch)
            owned = (
                sorted({leases[self.shard(one.job_id)] for one in batch})
                if leases
                else ()
            )
            stale = self._try([one.decide for one in batch], wanted, owned)
            if stale is None:
                tries = 0
                continue
            tries += 1
            assert tries < TRIES_MAX, "others were quicker too often"
            lost |= stale.shards
            todo += _parts(batch, stale)
        return lost

    def shard(self, job_id: JobId) -> int:
        """Return the shard of a job."""
        return shard_of(job_id, self.shards)

    def _try(
        self,
        decides: Sequence[Callable[[Decision], None]],
        wanted: Wanted,
        leases: Sequence[Lease],
    ) -> Stale | None:
        """Read, decide and write once; None: it is done."""
        view = self.loading.view(wanted)
        changes, asked = self.decided(view, decides, self.loading)
        if not changes:
            self._take_requests(asked)
            return None
        guard = Guard(view, self.shards, inc=self.inc, leases=leases)
        try:
            stale = write(self.connections, guard, changes)
        except CONFLICTS as error:
            if isinstance(error, errors.UniqueViolation):
                self._numbers.skip()
            return Stale(set(), set())
        if stale is None:
            self._settle(changes, asked)
            self.written(changes, view.now)
        return stale

    def decided(
        self,
        view: LoadedView,
        decides: Sequence[Callable[[Decision], None]],
        loading: Loading,
    ) -> tuple[RowChanges, list[Request]]:
        """Decide on a view, and read what that lacks; nothing is written.

        Returns:
            The rows that change, and attempts of this process that are to be ended.
        """
        numbers: list[int] = []
        while True:
            decision = self._decision(view, numbers)
            is_whole = True
            for decide in decides:
                try:
                    decide(decision)
                except Missing:
                    # Go on, to learn what the others lack; nothing of it is written.
                    is_whole = False
                except Exception:
                    if is_whole:  # else it saw what the one before has left half done
                        raise
            if is_whole:
                try:
                    return self._changes(view, decision)
                except Missing:
                    pass
            loading.add(view)

    def _decision(self, view: LoadedView, numbers: list[int]) -> Decision:
        """Return an empty decision; asked again, it gives the same numbers again."""
        given = 0

        def number(_: int) -> int:
            nonlocal given
            if given == len(numbers):
                numbers.append(self._numbers.take())
            given += 1
            return numbers[given - 1]

        return Decision(view, view.now, number)

    def _changes(
        self, view: LoadedView, decision: Decision
    ) -> tuple[RowChanges, list[Request]]:
        mine = [one for one in decision.requests if one.token in self.claimed]
        # Written in any case: a remote worker that was given its attempt here may beat
        # at another server by now.
        asks = decision.requests
        return RowChanges(view, decision, shards=self.shards, asks=asks), mine

    def _settle(self, changes: RowChanges, asked: Sequence[Request]) -> None:
        """What was written is durable: let go of attempts, and tell of ends."""
        for token in changes.released:
            self.claimed.pop(token, None)
        self._take_requests(asked)
        self.tally.wrote(changes)
        self.tell(changes.ended)
        self.wake()

    def tell(self, ended: Sequence[Run]) -> None:
        """Tell listeners of runs that have ended."""
        if ended:
            for listener in self.listeners:
                listener(ended)

    def wake(self) -> None:
        """Have the node look again."""
        with self.changed:
            self.news = True
            self.changed.notify_all()

    # -- what is to be interrupted ------------------------------------------------------

    def _take_requests(self, asked: Sequence[Request]) -> None:
        if asked:
            with self.changed:
                self._requests += asked
                self._told = {one for one in self._told if one.token in self.claimed}
                self._told.update(asked)
                self.news = True
                self.changed.notify_all()

    def note_asked(self, asked: Sequence[Request]) -> None:
        """Note what other processes ask of this one; what is known already does not count."""
        self._take_requests([one for one in asked if one not in self._told])

    def requests(self) -> list[Request]:
        """Return, once, the attempts of this process that are to be ended."""
        with self.changed:
            found, self._requests = self._requests, []
        return found

    @property
    def has_requests(self) -> bool:
        """Whether there are some."""
        return bool(self._requests)

    # -- jobs ---------------------------------------------------------------------------

    def live_job(self, decision: Decision, job_id: JobId) -> Job:
        """Return a live job.

        Raises:
            UnknownJobError: there is none, or it is cancelled and waits for its last
                attempts to end.
        """
        job = decision.job(job_id)
        if job is None or job.state is JobState.CANCELLED:
            raise UnknownJobError(
                "job", job_id, "pass the id of a job that is not over yet"
            )
        return job


def _ignored(*_: object) -> None:
    """Nobody wants to know."""


def _parts(batch: list[Item], stale: Stale) -> list[list[Item]]:
    """Return a batch in parts: the last of them are tried first."""
    suspects = [one for one in batch if one.job_id in stale.jobs]
    others = [one for one in batch if one.job_id not in stale.jobs]
    if suspects and others:
        return [suspects, others]
    if len(batch) > 1 and not stale.shards:
        middle = len(batch) // 2
        return [batch[middle:], batch[:middle]]
    return [batch]
