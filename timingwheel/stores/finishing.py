"""A batch of ends, taken in: plain successes as one group, every other end as its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec

from timingwheel.engine.records import timers_acknowledged
from timingwheel.errors import TimingWheelError
from timingwheel.jobs.model import Attempt, Outcome, RunState
from timingwheel.jobs.store import Finish, Request, Verdict
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.deciding.live import LiveRun
from timingwheel.stores.deciding.outcomes import end_attempt
from timingwheel.stores.deciding.putting import put_all
from timingwheel.stores.entries import Running
from timingwheel.stores.history_entries import HistoryRun
from timingwheel.stores.owner import StoreOwner
from timingwheel.stores.past import KnownPast
from timingwheel.stores.plain import put_plain
from timingwheel.stores.records import Kind, record, records_of
from wal.errors import WalError

replace = msgspec.structs.replace

GROUP_MAX: Final = 64
"""Plain successes that make one group at most: two milliseconds under the lock."""


class Finishing:
    """Takes in the ends of attempts, in order. Used once.

    Args:
        owner: whose state.
        ends: what workers report.

    Attributes:
        verdicts: for each end that was taken in so far.
    """

    def __init__(self, owner: StoreOwner, ends: Sequence[Finish]) -> None:
        self.verdicts: list[Verdict] = []
        self._owner = owner
        self._state = owner.state
        self._ends = ends
        # What follow-ups refer to is looked up before the lock is taken.
        self._pasts: dict[int, KnownPast | Exception] = {
            end.token: self._look_back(end) for end in ends if end.follow_ups
        }
        self._decided: list[Verdict] = []
        self._over: list[int] = []
        self._requests: list[Request] = []

    def decides(self) -> Iterator[Callable[[int], list[bytes]]]:
        """Yield one group after another; goes on when the last one is applied."""
        while len(self.verdicts) < len(self._ends):
            yield self._decide
            self.verdicts.extend(self._decided)
            self._owner.requests.extend(self._requests)
            for token in self._over:
                self._state.stop_running(token)
            if self._state.news or self._owner.requests:
                self._owner.core.wake.notify_all()  # it need not be the node who reports

    def _decide(self, first_lsn: int) -> list[bytes]:
        """Decide the next group; it may be asked again if the disk makes it wait."""
        self._decided, self._over, self._requests = [], [], []
        place = len(self.verdicts)
        events = self._plain_successes(place)
        if events:
            return events
        end = self._ends[place]
        running = self._state.running.get(end.token)
        if running is None or running.run.id != end.run_id:
            self._decided = [Verdict.LEASE_LOST]
            return []
        decision = self._decision(end, running, first_lsn)
        self._decided = [Verdict.ACCEPTED]
        self._requests = decision.requests
        return records_of(decision.changes)

    def _plain_successes(self, place: int) -> list[bytes]:
        """Return the events of the plain successes in a row from a place on."""
        timers: list[int] = []
        ended: list[HistoryRun] = []
        wall_ns = self._owner.core.now().wall_ns
        for end in self._ends[place : place + GROUP_MAX]:
            running = self._state.running.get(end.token)
            if (
                running is None
                or not self._is_plain_success(end, running)
                or end.token in self._over
            ):
                break
            timers.append(running.seq)
            ended.append(_plain_end(end, running, wall_ns))
            self._decided.append(Verdict.ACCEPTED)
            self._over.append(end.token)
        if not ended:
            return []
        self._state.foresee_ends(ended)
        ends = [record(Kind.PLAIN_ENDED, end) for end in ended]
        return [timers_acknowledged(timers), *ends]

    def refuse_follow_ups(self, error: Exception) -> bool:
        """Take the next end in without its follow-ups, which no group can hold.

        Returns:
            False if it is not they that are too large.
        """
        token = self._ends[len(self.verdicts)].token
        if not isinstance(self._pasts.get(token), KnownPast):
            return False
        self._pasts[token] = error
        return True

    def _look_back(self, end: Finish) -> KnownPast | TimingWheelError:
        try:
            return self._owner.past(end.follow_ups)
        except TimingWheelError as error:
            return error  # the history cannot say; the end itself is to be taken in

    def _is_plain_success(self, end: Finish, running: Running) -> bool:
        return (
            running.plain
            and end.outcome is Outcome.OK
            and running.run.id == end.run_id
            and end.snooze_ns is None
            and not end.follow_ups
            and not end.undecodable
            and running.run.job_id not in self._state.dependents
        )

    def _decision(self, end: Finish, running: Running, first_lsn: int) -> Decision:
        """Decide about one end with its follow-ups; refused ones make it an error."""
        owner = self._owner
        decision = Decision(owner.view, owner.core.now(), first_lsn.__add__)
        past = self._pasts.get(end.token)
        if end.outcome is Outcome.OK and past is not None:
            try:
                if isinstance(past, Exception):
                    raise past
                put_all(
                    decision,
                    end.follow_ups,
                    tag=owner.tag,
                    if_exists="update",
                    past=past,
                    put_plain=partial(put_plain, owner.tag),
                )
            except (TimingWheelError, WalError) as error:
                decision = Decision(owner.view, owner.core.now(), first_lsn.__add__)
                end = replace(
                    end,
                    outcome=Outcome.ERROR,
                    result=None,
                    error=f"a follow-up was refused: {error}",
                )
        end_running(owner, decision, end, running)
        return decision


def end_running(
    owner: StoreOwner, decision: Decision, end: Finish, running: Running
) -> None:
    """Decide what the end of a running attempt does to its run and its job."""
    live = promoted(owner, decision, running)
    end_attempt(decision, live, end, policy=running.policy, draw=owner.rng.random())


def promoted(owner: StoreOwner, decision: Decision, running: Running) -> LiveRun:
    """Return a running attempt's run; a plain job's is promoted in this group."""
    if running.plain:
        row = owner.read.plain_row_of(running.seq)
        assert row is not None, "a plain job that runs is in the table"
        return row.promote(decision, worker=running.worker, is_due=True)
    return owner.state.runs[running.seq].live


def _plain_end(end: Finish, running: Running, wall_ns: int) -> HistoryRun:
    run = replace(
        running.run,
        state=RunState.SUCCEEDED,
        started_ns=end.started_ns,
        ended_ns=wall_ns,
        result=end.result,
    )
    attempt = Attempt(
        run_id=end.run_id,
        number=1,
        worker=running.worker,
        token=end.token,
        started_ns=end.started_ns,
        ended_ns=wall_ns,
        outcome=Outcome.OK,
        log=end.log,
    )
    return HistoryRun(
        run=run, payload=running.payload, policy=running.policy, attempt=attempt
    )
