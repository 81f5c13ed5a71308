"""Plain runs that succeeded at the first attempt end in one statement, nothing is read.

What is left of such a run is known from its claim, but for the moment when it ended, which
the database's clock says: that is written into the body, too, where a mark keeps its place.
The statement takes only what is still this attempt's, and still plain: a job that another
one has come to wait for, or that somebody has paused or changed, is not, and goes the long
way (serving.py), as does every other end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from timingwheel.jobs.model import Attempt, Outcome, Payload, Policy, Run, RunState
from timingwheel.jobs.store import Claim, Finish
from timingwheel.stores.history_entries import (
    HistoryRun,
    decode_attempt,
    decode_run,
    searched,
)
from timingwheel.stores.postgres.connections import Blobs, Connections, Ints, Texts
from timingwheel.stores.postgres.due import SAME_RUN
from timingwheel.stores.postgres.rows import DAY_NS, shard_of, unframed
from timingwheel.stores.records import encode

replace = msgspec.structs.replace

_MARK_NS: Final = 0x7FED_CBA9_8765_4321
"""Stands where the moment of the end will be; in MessagePack as large as that is."""
_MARK: Final = _MARK_NS.to_bytes(8, "big")

# Neither state = 'running' nor plain by itself: there are indices of these, which would be
# read for each end, and no more is said than by the token.
_END: Final = f"""
WITH given AS MATERIALIZED (
    SELECT u.*, 0 AS n FROM unnest(
        %s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::text[],
        %s::text[], %s::bytea[], %s::bigint[], %s::bigint[]
    ) AS u(shard, job_id, nominal_ns, token, inc, task, queue, body, first, second)
),
ended AS (
    DELETE FROM timingwheel_run r USING given u
    WHERE {SAME_RUN.format(of="u")}
    AND r.token = u.token AND r.inc = ANY(ARRAY[u.inc]) AND r.attempts = 1
    AND r.state <> ALL('{{planned,ready,retrying}}') AND r.plain IS NOT FALSE
    RETURNING r.shard, r.job_id, r.nominal_ns, r.n, r.version, r.created_ns, r.token,
        u.task, u.queue, u.body, u.first, u.second
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
_ATTEMPTS: Final = """
SELECT k.token, a.body, p.body, p.tries
FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[])
    AS k(shard, job_id, nominal_ns, n, token)
LEFT JOIN timingwheel_attempt a ON a.shard = k.shard AND a.job_id = k.job_id
    AND a.nominal_ns = k.nominal_ns AND a.n = k.n
LEFT JOIN timingwheel_past p ON p.shard = k.shard AND p.job_id = k.job_id
    AND p.nominal_ns = k.nominal_ns AND p.n = k.n
"""


class Given(NamedTuple):
    """A plain run at its first attempt, as a worker of this process was given it.

    Attributes:
        run: running.
        payload, policy: its job's.
        worker, inc: whose it is.
    """

    run: Run
    payload: Payload
    policy: Policy
    worker: str
    inc: int


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

    def note(self, claim: Claim, policy: Policy, worker: tuple[str, int]) -> None:
        """Note a plain run that is claimed for the first time."""
        given = Given(claim.run, claim.payload, policy, *worker)
        self._given[claim.token] = given

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
        rows: list[tuple[Finish, Given, bytes, int, int]] = []
        for end in ends:
            given = self._given.get(end.token)
            if given is None or not _is_plain_success(end, given):
                continue
            body = encode(_past(end, given))
            first = body.find(_MARK)
            second = body.find(_MARK, first + 8)
            # Bytes of a user's that look like the mark: the long way can tell.
            if second >= 0 and body.find(_MARK, second + 8) < 0:
                rows.append((end, given, body, first + 1, second + 1))
        if not rows:
            return {}
        # In the order of keys, as all steps lock.
        rows.sort(key=lambda row: self._key(row[1].run))
        runs = [given.run for _, given, *_ in rows]
        values: list[object] = [
            Ints(shard_of(run.job_id, self._shards) for run in runs),
            Texts(run.job_id for run in runs),
            Ints(run.nominal_ns for run in runs),
            Ints(row[0].token for row in rows),
            Ints(row[1].inc for row in rows),
            Texts(searched(run.task) for run in runs),
            Texts(searched(run.queue) for run in runs),
            Blobs(row[2] for row in rows),
            Ints(row[3] for row in rows),
            Ints(row[4] for row in rows),
        ]
        found: Mapping[int, int] = dict(self._connections.rows(_END, values))
        return {
            end.token: replace(_past_run(end, given), ended_ns=found[end.token])
            for end, given, *_ in rows
            if end.token in found
        }

    def _key(self, run: Run) -> tuple[int, str, int]:
        return shard_of(run.job_id, self._shards), run.job_id, run.nominal_ns

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


def _past(end: Finish, given: Given) -> HistoryRun:
    attempt = Attempt(
        run_id=end.run_id,
        number=1,
        worker=given.worker,
        token=end.token,
        started_ns=end.started_ns,
        ended_ns=_MARK_NS,
        outcome=end.outcome,
        error=end.error,
        log=end.log,
    )
    return HistoryRun(
        run=_past_run(end, given),
        payload=given.payload,
        policy=given.policy,
        attempt=attempt,
    )
