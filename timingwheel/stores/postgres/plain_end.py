"""Plain runs that succeeded at the first attempt end in one statement, nothing is read.

What is left of such a run is known from its claim, but for the moment when it ended, which
the database's clock says: that is written into the body, too, where a mark keeps its place.
The statement takes only what is still this attempt's, and still plain: a job that another
one has come to wait for, or that somebody has paused or changed, is not, and goes the long
way (serving.py), as does every other end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from timingwheel.jobs.model import Attempt, Outcome, Payload, Policy, Run, RunState
from timingwheel.jobs.store import Claim, Finish
from timingwheel.stores.history_entries import (
    HistoryRun,
    decode_attempt,
    decode_run,
)
from timingwheel.stores.postgres.connections import (
    Blobs,
    Connections,
    Ints,
    Places,
    Texts,
)
from timingwheel.stores.postgres.keys import same_key
from timingwheel.stores.postgres.rows import DAY_NS, shard_of, unframed
from timingwheel.stores.records import encode

replace = msgspec.structs.replace

_MARK_NS: Final = 0x7FED_CBA9_8765_4321
"""Stands where the moment of the end will be; in MessagePack as large as that is."""
_MARK: Final = _MARK_NS.to_bytes(8, "big")

# Where a run stands is only how it is found: it is this attempt's if its token says so, and
# a row that was changed stands elsewhere. It is said with the token alone and not with
# state = 'running' or plain, and of its job not with =: there are indices of these, which
# would be read for each end; some from end to end, by a plan of when the table was small.
_END: Final = f"""
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(
        %s::tid[], %s::text[], %s::bigint[], %s::bigint[], %s::bytea[], %s::bigint[],
        %s::bigint[]
    ) AS u(at, job_id, token, inc, body, first, second)
),
ended AS (
    DELETE FROM timingwheel_run r USING given u
    WHERE r.ctid = u.at AND r.job_id IS NOT DISTINCT FROM u.job_id
    AND r.token = u.token AND r.inc = ANY(ARRAY[u.inc]) AND r.attempts = 1
    AND r.state <> ALL('{{planned,ready,retrying}}') AND r.plain IS NOT FALSE
    RETURNING r.shard, r.job_id, r.nominal_ns, r.n, r.version, r.created_ns, r.token,
        r.task, r.queue, u.body, u.first, u.second
),
clock AS (
    SELECT now_ns, int8send(now_ns) AS stamp FROM (
        SELECT timingwheel_now() AS now_ns OFFSET 0
    ) AS t
),
past AS (
    INSERT INTO timingwheel_past (
        shard, job_id, nominal_ns, n, day, version, plain, state, task, queue,
        created_ns, ended_ns, discarded, tags, body, tries
    ) SELECT e.shard, e.job_id, e.nominal_ns, e.n, c.now_ns / {DAY_NS}, e.version + 1,
        true, '{RunState.SUCCEEDED.value}', e.task, e.queue, e.created_ns, c.now_ns,
        false, NULL, overlay(
            overlay(e.body PLACING c.stamp FROM e.first::int)
            PLACING c.stamp FROM e.second::int
        ), ''::bytea
    FROM ended e, clock c
)
SELECT e.token, c.now_ns FROM ended e, clock c
"""
_ATTEMPTS: Final = f"""
SELECT k.token, a.body, p.body, p.tries
FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[])
    AS k(shard, job_id, nominal_ns, n, token)
LEFT JOIN timingwheel_attempt a ON {same_key("a", "k")}
LEFT JOIN timingwheel_past p ON {same_key("p", "k")}
"""


# Nothing here can be part of a circle, and as thousands of these come and go, a collector of
# circles that goes through them would take a tenth of a node's time.
class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a run is.

    Attributes:
        at: where its row stands, since it was claimed: its tid, in binary.
        shard: of its job.
        worker, inc: whose it is.
    """

    at: bytes
    shard: int
    worker: str
    inc: int


class Given(msgspec.Struct, frozen=True, gc=False):
    """A plain run at its first attempt, as a worker of this process was given it.

    Attributes:
        run: running.
        payload, policy: its job's.
        place: where it is.
    """

    run: Run
    payload: Payload
    policy: Policy
    place: Place


_Row = tuple[Finish, Given, Run, bytes, int, int]
"""An end, whose, the run as it will be, what is kept of it, and where its marks are."""


class PlainEnds:
    """Ends of plain runs. Thread-safe.

    Args:
        connections: to the database.
        shards: of the store.
    """

    def __init__(self, connections: Connections, shards: int) -> None:
        self._connections = connections
        self._shards = shards
        self._given: dict[int, Given] = {}
        self._missed: set[int] = set()

    def note(self, claim: Claim, policy: Policy, place: Place) -> None:
        """Note a plain run that is claimed for the first time."""
        self._given[claim.token] = Given(claim.run, claim.payload, policy, place)

    def forget(self, held: Collection[int]) -> None:
        """Forget what this process had neither now nor at the last call.

        What a take has just noted is not held yet, and comes to be a moment later.
        """
        missing = self._given.keys() - held
        for token in missing & self._missed:
            self._given.pop(token, None)
        self._missed = missing

    def end(self, ends: Sequence[Finish]) -> dict[int, Run]:
        """End those that are plain successes.

        Returns:
            The runs that have ended now, by token; all others have not changed.

        Cost: one statement.
        """
        rows: list[_Row] = []
        for end in ends:
            given = self._given.get(end.token)
            if given is None or not _is_plain_success(end, given):
                continue
            run = _past_run(end, given)
            body = encode(_past(end, given, run))
            first = body.find(_MARK)
            second = body.find(_MARK, first + 8)
            # Bytes of a user's that look like the mark: the long way can tell.
            if second >= 0 and body.find(_MARK, second + 8) < 0:
                rows.append((end, given, run, body, first + 1, second + 1))
        if not rows:
            return {}
        # In the order of keys, as all steps lock.
        rows.sort(key=_key)
        values: list[object] = [
            Places(row[1].place.at for row in rows),
            Texts(row[1].run.job_id for row in rows),
            Ints(row[0].token for row in rows),
            Ints(row[1].place.inc for row in rows),
            Blobs(row[3] for row in rows),
            Ints(row[4] for row in rows),
            Ints(row[5] for row in rows),
        ]
        found: Mapping[int, int] = dict(
            self._connections.rows(_END, values, binary=True)
        )
        ended: dict[int, Run] = {}
        for end, _, run, *_ in rows:
            ended_ns = found.get(end.token)
            if ended_ns is not None:
                ended[end.token] = replace(run, ended_ns=ended_ns)
        return ended

    def repeated(
        self, ends: Sequence[Finish], keys: Sequence[tuple[str, int, int]]
    ) -> set[int]:
        """Return the tokens of ends that were taken in before, and are told again.

        Args:
            ends: whose runs are not theirs any more.
            keys: (job id, nominal, n) of each.

        Cost: one statement.
        """
        values: list[object] = [
            Ints(shard_of(job_id, self._shards) for job_id, _, _ in keys),
            Texts(job_id for job_id, _, _ in keys),
            Ints(nominal_ns for _, nominal_ns, _ in keys),
            Ints(n for _, _, n in keys),
            Ints(end.token for end in ends),
        ]
        known: set[tuple[int, Outcome | None]] = set()
        for _, attempt, past, tries in self._connections.rows(_ATTEMPTS, values):
            found = unframed(tries) if tries else []
            if attempt is not None:
                found.append(decode_attempt(attempt))
            if past is not None and (alone := decode_run(past).attempt) is not None:
                found.append(alone)
            known.update((one.token, one.outcome) for one in found)
        return {
            end.token
            for end in ends
            if end.outcome is not Outcome.LOST and (end.token, end.outcome) in known
        }


def _key(row: _Row) -> tuple[int, str, int]:
    run = row[1].run
    return row[1].place.shard, run.job_id, run.nominal_ns


def _is_plain_success(end: Finish, given: Given) -> bool:
    return (
        end.outcome is Outcome.OK
        and end.run_id == given.run.id
        and not end.follow_ups
        and not end.undecodable
        and end.snooze_ns is None
    )


def _past_run(end: Finish, given: Given) -> Run:
    return replace(
        given.run,
        state=RunState.SUCCEEDED,
        started_ns=end.started_ns,
        error=end.error,
        result=end.result,
        ended_ns=_MARK_NS,
    )


def _past(end: Finish, given: Given, run: Run) -> HistoryRun:
    attempt = Attempt(
        run_id=end.run_id,
        number=1,
        worker=given.place.worker,
        token=end.token,
        started_ns=end.started_ns,
        ended_ns=_MARK_NS,
        outcome=end.outcome,
        error=end.error,
        log=end.log,
    )
    return HistoryRun(
        run=run,
        payload=given.payload,
        policy=given.policy,
        attempt=attempt,
    )
