"""Group commit: who leads, who waits, and that nobody is left standing."""

from __future__ import annotations

import errno
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from tests.wal.stores import PATIENCE_SECONDS, Signalled, Worker
from wal.commit import GroupCommit, _Caller
from wal.errors import CommitUnknownError
from wal.frame import Lsn


class Ledger:
    """A make-believe log under a real `GroupCommit`.

    Attributes:
        commits: what is tested.
        queue: its waiters; tells when there are enough of them.
        during: done by the flushes to come, one each; may raise.
        flushes: the thread of each flush, and the LSN it was to reach.
    """

    def __init__(self) -> None:
        self.during: list[Callable[[], None]] = []
        self.flushes: list[tuple[int, int]] = []
        self._appended = 0
        self._flushing = False
        self._mutex = threading.Lock()
        self.commits = GroupCommit(
            "the/store", mutex=self._mutex, flush=self._flush, durable_lsn=Lsn(0)
        )
        self.queue = Signalled()
        self.commits._waiters = self.queue

    def append(self) -> int:
        with self._mutex:
            self._appended += 1
            return self._appended

    def commit(self) -> int:
        lsn = self.append()
        self.commits.wait(lsn)
        assert self.commits.durable_lsn >= lsn
        return lsn

    def followers(self, count: int) -> list[Worker]:
        """Start threads that commit, and return when all of them wait."""
        waiting = len(self.queue)
        workers = [Worker(self.commit) for _ in range(count)]
        self.queue.wait_for(waiting + count)
        return workers

    def _flush(self) -> Lsn:
        assert not self._flushing, "two leaders"
        self._flushing = True
        try:
            with self._mutex:
                reach = Lsn(self._appended)
            self.flushes.append((threading.get_ident(), reach))
            if self.during:
                self.during.pop(0)()
            return reach
        finally:
            self._flushing = False


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    ledger = Ledger()
    yield ledger
    ledger.commits.check()
    assert ledger.commits._leader is None
    assert not ledger.queue


def outcomes(workers: list[Worker]) -> list[object]:
    return [worker.outcome() for worker in workers]


# -- leading and following -------------------------------------------------------------


def test_a_lone_caller_flushes_itself_and_at_once(ledger: Ledger) -> None:
    assert ledger.commit() == 1
    assert ledger.flushes == [(threading.get_ident(), 1)]


def test_what_is_durable_costs_nothing(ledger: Ledger) -> None:
    ledger.commit()
    ledger.commits.wait(1)
    ledger.commits.wait(0)
    assert len(ledger.flushes) == 1


def test_who_comes_during_a_flush_is_taken_together_by_the_next(ledger: Ledger) -> None:
    workers: list[Worker] = []
    ledger.during = [lambda: workers.extend(ledger.followers(8))]
    ledger.commit()
    assert sorted(outcomes(workers), key=str) == sorted(range(2, 10), key=str)
    assert [reach for _, reach in ledger.flushes] == [1, 9]


def test_the_leader_leaves_when_its_own_record_is_durable(ledger: Ledger) -> None:
    workers: list[Worker] = []
    ledger.during = [lambda: workers.extend(ledger.followers(2))]
    ledger.commit()
    outcomes(workers)
    first, second = (thread for thread, _ in ledger.flushes)
    assert first == threading.get_ident() != second


def test_who_waits_for_a_record_that_the_flush_has_already_is_released_by_it(
    ledger: Ledger,
) -> None:
    ledger.append()
    workers: list[Worker] = []

    def join() -> None:
        workers.append(Worker(lambda: ledger.commits.wait(1)))
        ledger.queue.wait_for(1)

    ledger.during = [join]
    ledger.commit()
    outcomes(workers)
    assert len(ledger.flushes) == 1


def test_waiters_stand_in_no_order_of_lsn(ledger: Ledger) -> None:
    low, high = ledger.append(), 0
    workers: list[Worker] = []

    def join() -> None:
        nonlocal high
        high = ledger.append()
        workers.append(Worker(lambda: ledger.commits.wait(high)))  # stands first
        ledger.queue.wait_for(1)
        workers.append(Worker(lambda: ledger.commits.wait(low)))
        ledger.queue.wait_for(2)

    ledger.during = [join]
    ledger.commits.wait(low)
    outcomes(workers)
    assert [reach for _, reach in ledger.flushes] == [low, high]


def test_who_leaves_twice_takes_the_lead_from_nobody(ledger: Ledger) -> None:
    def leave_again() -> None:
        leader = ledger.commits._leader
        ledger.commits._leave(_Caller(0))
        assert ledger.commits._leader is leader

    ledger.during = [leave_again]
    ledger.commit()


def test_the_oldest_waiter_leads_next(ledger: Ledger) -> None:
    order: list[int] = []
    workers: list[Worker] = []

    def join() -> None:
        for place in range(3):
            workers.extend(ledger.followers(1))
            order.append(workers[place].ident or 0)

    ledger.during = [join]
    ledger.commit()
    outcomes(workers)
    assert ledger.flushes[1][0] == order[0]


def test_one_leads_on_until_its_own_record_is_covered(ledger: Ledger) -> None:
    # In the durable mode a flush writes one frame of those that wait.
    high = 5
    commits = GroupCommit(
        "the/store",
        mutex=threading.Lock(),
        flush=lambda: Lsn(commits.durable_lsn + 2),
        durable_lsn=Lsn(0),
    )
    commits.wait(high)
    assert commits.durable_lsn == 6


def test_who_is_covered_does_not_wait_for_the_leader_to_be_through() -> None:
    queue = Signalled()
    workers: list[Worker] = []

    def flush() -> Lsn:
        if not workers:
            workers.append(Worker(lambda: commits.wait(1)))
            queue.wait_for(1)
            return Lsn(1)
        workers[0].outcome()  # while the leader is still at work
        return Lsn(2)

    commits = GroupCommit(
        "the/store", mutex=threading.Lock(), flush=flush, durable_lsn=Lsn(0)
    )
    commits._waiters = queue
    commits.wait(2)


def test_listeners_hear_of_each_commit_after_it(ledger: Ledger) -> None:
    heard: list[int] = []
    ledger.commits.listeners.append(lambda: heard.append(ledger.commits.durable_lsn))
    ledger.commit()
    ledger.commit()
    assert heard == [1, 2]


def test_sixteen_threads_all_get_what_they_wait_for(ledger: Ledger) -> None:
    def commit_many() -> None:
        for _ in range(50):
            ledger.commit()

    outcomes([Worker(commit_many) for _ in range(16)])
    assert ledger.commits.durable_lsn == 800
    assert len(ledger.flushes) <= 800
    reached = [reach for _, reach in ledger.flushes]
    assert reached == sorted(reached)


# -- failure is final ------------------------------------------------------------------


def fail() -> None:
    raise OSError(errno.EIO, "broken")


def test_a_failure_reaches_the_leader_and_all_who_wait(ledger: Ledger) -> None:
    workers: list[Worker] = []

    def fail_with_followers() -> None:
        workers.extend(ledger.followers(4))
        fail()

    ledger.commit()
    ledger.during = [fail_with_followers]
    with pytest.raises(CommitUnknownError) as caught:
        ledger.commit()
    assert (caught.value.path, caught.value.lsn) == ("the/store", 2)
    assert "broken" in str(caught.value)
    assert "open it again" in str(caught.value)
    for worker in workers:
        with pytest.raises(CommitUnknownError):
            worker.outcome()
    assert len(ledger.flushes) == 2


def test_nothing_is_flushed_after_a_failure(ledger: Ledger) -> None:
    ledger.commit()
    ledger.during = [fail]
    for _ in range(3):
        with pytest.raises(CommitUnknownError):
            ledger.commit()
    assert len(ledger.flushes) == 2
    assert isinstance(ledger.commits.failure, OSError)
    ledger.commits.wait(1)  # what was durable stays so


def test_listeners_hear_of_a_failure(ledger: Ledger) -> None:
    heard: list[bool] = []
    ledger.commits.listeners.append(
        lambda: heard.append(ledger.commits.failure is not None)
    )
    ledger.during = [fail]
    with pytest.raises(CommitUnknownError):
        ledger.commit()
    assert heard == [True]


def test_what_a_flush_made_durable_before_the_failure_is_acknowledged(
    ledger: Ledger,
) -> None:
    workers: list[Worker] = []
    ledger.during = [lambda: workers.extend(ledger.followers(3)), fail]
    ledger.commit()
    for worker in workers:
        with pytest.raises(CommitUnknownError):
            worker.outcome()
    assert ledger.commits.durable_lsn == 1


# -- interrupted -----------------------------------------------------------------------


def interrupt() -> None:
    raise KeyboardInterrupt


def test_an_interrupted_leader_leaves_the_place_free(ledger: Ledger) -> None:
    ledger.during = [interrupt]
    with pytest.raises(KeyboardInterrupt):
        ledger.commit()
    assert ledger.commits.failure is None
    assert ledger.commit() == 2
    assert [reach for _, reach in ledger.flushes] == [1, 2]


def test_an_interrupted_leader_hands_on_to_who_waits(ledger: Ledger) -> None:
    workers: list[Worker] = []

    def interrupt_with_followers() -> None:
        workers.extend(ledger.followers(4))
        interrupt()

    ledger.during = [interrupt_with_followers]
    with pytest.raises(KeyboardInterrupt):
        ledger.commit()
    assert sorted(outcomes(workers), key=str) == [2, 3, 4, 5]
    assert [reach for _, reach in ledger.flushes] == [1, 5]


def test_an_error_that_is_not_the_disks_is_no_failure_of_the_log(
    ledger: Ledger,
) -> None:
    def run_out() -> None:
        raise MemoryError

    ledger.during = [run_out]
    with pytest.raises(MemoryError):
        ledger.commit()
    assert ledger.commit() == 2


def test_a_raising_listener_strands_nobody(ledger: Ledger) -> None:
    workers: list[Worker] = []
    ledger.during = [lambda: workers.extend(ledger.followers(2))]
    raised: list[bool] = []

    def raise_once() -> None:
        if not raised:
            raised.append(True)
            raise KeyboardInterrupt

    ledger.commits.listeners.append(raise_once)
    with pytest.raises(KeyboardInterrupt):
        ledger.commit()
    outcomes(workers)


class CtrlC:
    """Sends SIGINT to the main thread, which raises KeyboardInterrupt once."""

    def __init__(self) -> None:
        self._main = threading.get_ident()
        self._raised = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        if not self._raised:
            self._raised = True
            raise KeyboardInterrupt

    def send(self) -> None:
        signal.pthread_kill(self._main, signal.SIGINT)

    def send_until(self, event: threading.Event) -> None:
        """Send it again and again: one that comes just before a wait does not end it."""
        for _ in range(1_000):
            self.send()
            if event.wait(PATIENCE_SECONDS / 1_000):
                return
        raise AssertionError("Ctrl-C had no effect")


@pytest.fixture
def ctrl_c() -> Iterator[CtrlC]:
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals reach the main thread only")
    ctrl_c = CtrlC()
    former = signal.signal(signal.SIGINT, ctrl_c.handle)
    yield ctrl_c
    signal.signal(signal.SIGINT, former)


def test_an_interrupted_waiter_leaves_the_queue_and_its_record_in_the_log(
    ledger: Ledger, ctrl_c: CtrlC
) -> None:
    leading, left = threading.Event(), threading.Event()

    def hold() -> None:
        leading.set()
        ledger.queue.wait_for(1)
        ctrl_c.send_until(left)

    ledger.during = [hold]
    leader = Worker(ledger.commit)
    assert leading.wait(PATIENCE_SECONDS)
    lsn = ledger.append()
    with pytest.raises(KeyboardInterrupt):
        ledger.commits.wait(lsn)
    assert not ledger.queue
    left.set()
    assert leader.outcome() == 1
    ledger.commits.wait(lsn)
    assert [reach for _, reach in ledger.flushes] == [1, 2]


def test_a_waiter_called_to_lead_while_it_is_interrupted_hands_on(
    ledger: Ledger, ctrl_c: CtrlC
) -> None:
    # The leader is through and the heir gets Ctrl-C before it has begun.
    leading = threading.Event()
    workers: list[Worker] = []

    def hold() -> None:
        leading.set()
        ledger.queue.wait_for(1)
        workers.extend(ledger.followers(3))  # behind the main thread

    def interrupt_heir() -> None:
        ledger.during = []
        ctrl_c.send()

    ledger.during = [hold, interrupt_heir]
    leader = Worker(ledger.commit)
    assert leading.wait(PATIENCE_SECONDS)
    lsn = ledger.append()
    with pytest.raises(KeyboardInterrupt):
        ledger.commits.wait(lsn)
    leader.outcome()
    outcomes(workers)
    assert ledger.commits.durable_lsn == 5
