"""What becomes of attempts: they begin, are given back, end, or are lost.

finish  ends of plain runs are one statement (plain_end.py); of others the runs are read,
        decided, and written, as one step
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from timingwheel.errors import TimingWheelError
from timingwheel.jobs.model import JobId, Outcome, Run, RunId
from timingwheel.jobs.store import Finish, Verdict
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.deciding.live import LiveRun, RunKey
from timingwheel.stores.deciding.outcomes import end_attempt, give_back
from timingwheel.stores.identity import require_run_id
from timingwheel.stores.postgres.owner import Item, PostgresOwner
from timingwheel.stores.postgres.putting import put
from timingwheel.stores.postgres.trust import Trust
from timingwheel.stores.postgres.view import Wanted
from timingwheel.stores.postgres.writing import CONFLICTS

replace = msgspec.structs.replace

_HELD_BY: Final = """
SELECT r.job_id, r.nominal_ns, r.n, r.token FROM timingwheel_run r
WHERE r.state = 'running' AND r.inc = %s
"""
_LOST: Final = "its worker is gone: it died, or its lease ran out"


class Held(NamedTuple):
    """An attempt that a worker has, or had when it was lost."""

    job_id: JobId
    key: RunKey
    token: int


class Ends:
    """One process's part in how attempts end. Thread-safe.

    Args:
        owner: this process's part of the store.
        trust: how long it may act.
    """

    def __init__(self, owner: PostgresOwner, trust: Trust) -> None:
        self._owner = owner
        self._trust = trust

    def begin(self, token: int) -> bool:
        """Note that a handler starts; False if its run was cancelled meanwhile."""
        with self._owner.starting:
            if token not in self._owner.claimed or not self._trust.may_begin(token):
                return False
            self._owner.claimed[token] = True
            return True

    def give_back(self, claims: Iterable[tuple[RunId, int]]) -> None:
        """Return runs that were claimed and never begun."""
        items: list[Item] = []
        for claimed, token in dict.fromkeys(claims):
            job_id, nominal_ns, n = require_run_id(claimed)
            key = nominal_ns, n
            decide = partial(self._decide_return, job_id, key, token)
            items.append(Item(job_id, decide))
        self._owner.steps(items, {})

    def _decide_return(
        self, job_id: JobId, key: RunKey, token: int, decision: Decision
    ) -> None:
        live = _running(decision, job_id, key, token)
        if live is not None:
            give_back(decision, live)

    def finish(self, ends: Sequence[Finish]) -> list[Verdict]:
        """Take in how attempts ended; one that is told again is accepted again."""
        verdicts = [Verdict.LEASE_LOST] * len(ends)
        together: list[Item] = []
        ended = self._end_plain(ends)
        for place, end in enumerate(ends):
            if end.token in ended:
                verdicts[place] = Verdict.ACCEPTED
                continue
            if end.follow_ups:
                self._owner.steps(together, {})
                together = []
                self._finish_with_more(end, verdicts, place)
                continue
            job_id, nominal_ns, n = require_run_id(end.run_id)
            key = nominal_ns, n
            decide = partial(self._decide_end, end, (job_id, key), verdicts, place)
            together.append(Item(job_id, decide))
        self._owner.steps(together, {})
        self._accept_again(ends, verdicts)
        for end in ends:  # also what was not ours any more
            self._owner.claimed.pop(end.token, None)
        return verdicts

    def _end_plain(self, ends: Sequence[Finish]) -> Mapping[int, Run]:
        try:
            ended = self._owner.plain_ends.end(ends)
        except CONFLICTS:
            return {}
        self._owner.tally.ended(ended.values())
        self._owner.tell(list(ended.values()))
        return ended

    def _accept_again(self, ends: Sequence[Finish], verdicts: list[Verdict]) -> None:
        """The answer to an end may be lost: then it comes again, and nothing is wrong."""
        places = [
            place
            for place, verdict in enumerate(verdicts)
            if verdict is Verdict.LEASE_LOST
        ]
        if places:
            refused = [ends[place] for place in places]
            keys = [require_run_id(end.run_id) for end in refused]
            known = self._owner.plain_ends.repeated(refused, keys)
            for place in places:
                if ends[place].token in known:
                    verdicts[place] = Verdict.ACCEPTED

    def _decide_end(
        self,
        end: Finish,
        run: tuple[JobId, RunKey],
        verdicts: list[Verdict],
        place: int,
        decision: Decision,
    ) -> None:
        live = _running(decision, *run, end.token)
        verdicts[place] = Verdict.LEASE_LOST if live is None else Verdict.ACCEPTED
        if live is not None:
            self._end(decision, live, end)

    def _finish_with_more(
        self, end: Finish, verdicts: list[Verdict], place: int
    ) -> None:
        """Take in an end and its follow-ups; one that is refused makes it an error."""
        job_id, nominal_ns, n = require_run_id(end.run_id)
        run = job_id, (nominal_ns, n)

        def decide(decision: Decision) -> None:
            live = _running(decision, *run, end.token)
            if live is not None and end.outcome is Outcome.OK:
                put(self._owner, decision, end.follow_ups)
            self._decide_end(end, run, verdicts, place, decision)

        wanted = Wanted()
        wanted.jobs.add(job_id)
        try:
            self._owner.step(decide, wanted)
        except TimingWheelError as error:
            refused = replace(
                end,
                outcome=Outcome.ERROR,
                result=None,
                error=f"a follow-up was refused: {error}",
                follow_ups=(),
            )
            alone = partial(self._decide_end, refused, run, verdicts, place)
            self._owner.step(alone, wanted)

    # -- lost ---------------------------------------------------------------------------

    def held_by(self, inc: int) -> list[Held]:
        """Return the attempts that a worker of that number has, by the database."""
        rows = self._owner.connections.rows(_HELD_BY, [inc])
        return [Held(row[0], (row[1], row[2]), row[3]) for row in rows]

    def lose(self, lost: Sequence[Held]) -> None:
        """Write down that attempts are lost, and move their runs on."""
        items = [Item(one.job_id, partial(self.decide_lost, one)) for one in lost]
        self._owner.steps(items, {})

    def decide_lost(self, lost: Held, decision: Decision) -> None:
        """Decide that an attempt is lost, if it is under way still."""
        live = _running(decision, lost.job_id, lost.key, lost.token)
        if live is None:
            return
        end = Finish(
            run_id=live.run.id,
            token=lost.token,
            outcome=Outcome.LOST,
            started_ns=live.run.started_ns or live.run.due_ns,
            error=_LOST,
        )
        self._end(decision, live, end)

    def _end(self, decision: Decision, live: LiveRun, end: Finish) -> None:
        job = decision.job(live.run.job_id)
        assert job is not None, "a live run belongs to a live job"
        policy = live.policy or job.policy
        draw = self._owner.rng.random()
        end_attempt(decision, live, end, policy=policy, draw=draw)


def _running(
    decision: Decision, job_id: JobId, key: RunKey, token: int
) -> LiveRun | None:
    """Return a run if this token is that of its present attempt."""
    live = decision.run(job_id, *key)
    return live if live is not None and token and live.token == token else None
