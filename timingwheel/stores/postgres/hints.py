"""Hints between processes: "look now", by NOTIFY, so that nobody has to wait for a poll.

    soon S     something of these shards is due soon     their owners look
    ready      there is more to start than is taken      who has free slots looks
    asked      attempts are to be ended                  who has some in hand looks
    want       somebody waits for ends of runs           for a while ends are told
    ended      runs have ended                           who waits for some looks
    foreign    a caller's transaction has put a job      all poll often, for a while

Nothing rests on them: each may be lost, come twice, or come late, and what it would have
told is found by the next poll. They are statements of their own, sent by a thread of their
own, after what they tell of is committed; so no write ever waits for the lock that the
server takes for a NOTIFY, and many within some milliseconds are one.

A listener needs a session of its own, which a pooler in transaction mode does not give. So
it sends itself a hint first; if that does not come back, hints are still sent, and what
others do is found by polling.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import psycopg

from timingwheel.clock import Clock
from timingwheel.errors import TimingWheelError
from timingwheel.stores.postgres.connections import Connections

PAUSE_S: Final = 0.02
"""Between two of a process; what comes meanwhile is told together."""
ECHO_S: Final = 5.0
"""How long a hint to oneself may take; a listener that hears nothing is none."""
TEST_EVERY_S: Final = 30.0
RETRY_S: Final = 5.0
"""Before a listener that was lost is made again."""
DEAF_S: Final = 300.0
"""The same for one that has heard nothing: there is a pooler, most likely."""
STOP_S: Final = 5.0
"""How long an end waits for a connection that does not answer."""
CONNECTING: Final[dict[str, Any]] = {
    "autocommit": True,
    "prepare_threshold": None,
    "connect_timeout": 5,
    # A connection that is cut without a word is noticed in time.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
WANTED_NS: Final = 10_000_000_000
"""How long ends are told after somebody has asked for them; who waits asks again."""
FOREIGN_NS: Final = 3_000_000_000
"""How long a caller's transaction is looked for often."""
_SEND: Final = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)"
# A hint is worth no wait for the disk.

_logger = logging.getLogger("timingwheel")


class Heard(NamedTuple):
    """What another process has hinted at.

    Attributes:
        words: ready, asked, want, ended, foreign; `lost`: some may have been missed.
        shards: where something is due soon.
    """

    words: frozenset[str]
    shards: frozenset[int]


class Hints:
    """Sends hints and hears those of others. Thread-safe.

    Attributes:
        echo_s: see ECHO_S.
        listens_by: the statement that makes a listener.

    Args:
        connections: to send by, where there is no listener.
        store: its uuid; hints of one store are not heard by another.
        where: what a listener connects to; None: there are no hints.
        clock: tells how long ends are wanted.
        hear: called with what others have hinted at, from the thread of the hints.
    """

    echo_s = ECHO_S
    listens_by = "LISTEN {}"

    def __init__(
        self,
        connections: Connections,
        store: uuid.UUID,
        where: str | None,
        clock: Clock,
        hear: Callable[[Heard], None],
    ) -> None:
        self._connections = connections
        self._channel = f"timingwheel_{store.hex}"
        self._is_on = where is not None
        self._where = where
        self._clock = clock
        self._hear = hear
        self._me = uuid.uuid4().hex[:12]
        self._lock = threading.Lock()
        self._words: set[str] = set()
        self._shards: set[int] = set()
        self._wanted_until_ns = self._foreign_until_ns = clock.monotonic_ns()
        self._has_ended = False
        self._listens = self._is_live = self._is_stopped = False
        self._is_to_listen = self._has_complained = False
        self._listener: psycopg.Connection[Any] | None = None
        self._thread: threading.Thread | None = None
        self._bell: socket.socket | None = None

    # -- life ---------------------------------------------------------------------------

    def listen(self) -> None:
        """Hear of others from now on; at first, of whatever may have been missed."""
        if self._is_on and not self._listens:
            self._listens = self._is_to_listen = True
            self._start()
            self._ring()

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None or self._is_stopped:
                return
            bell, rung = socket.socketpair()
            bell.settimeout(0)  # one that rings already is enough
            self._bell = bell
            self._thread = threading.Thread(
                target=self._run, args=(rung,), name="timingwheel-hints", daemon=True
            )
        self._thread.start()

    def stop(self) -> None:
        """Send what is left and hear nothing more. Idempotent."""
        with self._lock:
            self._is_stopped = True
            bell, self._bell = self._bell, None
        if bell is None:
            return
        bell.close()  # which rings, too
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(STOP_S)

    @property
    def is_live(self) -> bool:
        """Whether hints of others arrive, and none are to be expected unheard."""
        return self._is_live and self._clock.monotonic_ns() >= self._foreign_until_ns

    # -- to others ----------------------------------------------------------------------

    def soon(self, shards: Iterable[int]) -> None:
        """Tell that something is due soon in shards that others fire."""
        self._note((), shards)

    def tell(self, word: str) -> None:
        """Tell ready, asked or want."""
        self._note((word,), ())

    def ended(self) -> None:
        """Tell that runs have ended, if somebody wants to know."""
        self._has_ended = True
        if self._clock.monotonic_ns() < self._wanted_until_ns:
            self._note(("ended",), ())

    def foreign(self) -> None:
        """Tell that a transaction has put jobs, and that nobody will say that it ends."""
        self._look_often()
        self._note(("foreign",), ())

    def _note(self, words: Iterable[str], shards: Iterable[int]) -> None:
        with self._lock:
            if self._is_stopped or not self._is_on:
                return
            was_empty = not (self._words or self._shards)
            self._words.update(words)
            self._shards.update(shards)
            rings = was_empty and bool(self._words or self._shards)
        if rings:
            self._start()
            self._ring()

    def _ring(self) -> None:
        bell = self._bell
        if bell is not None:
            with contextlib.suppress(OSError):  # it rings already, or all is over
                bell.send(b"\0")

    # -- the thread ---------------------------------------------------------------------

    def _run(self, rung: socket.socket) -> None:
        with contextlib.closing(rung):
            try:
                while not self._is_stopped:
                    self._serve(rung, self._connect())
            finally:
                self._send_noted()
                self._drop()

    def _connect(self) -> float:
        """Have a listener, if there can be one; return how long to do without."""
        self._is_to_listen = False
        if not self._listens or self._where is None:
            return DEAF_S
        try:
            self._listener = psycopg.connect(self._where, **CONNECTING)
            self._listener.execute(self.listens_by.format(self._channel).encode())
            self._ask_for_echo(self._listener)
        except psycopg.Error as error:
            self._drop()
            _logger.info("no listener for hints: %s", error)
        return RETRY_S

    def _ask_for_echo(self, listener: psycopg.Connection[Any]) -> None:
        listener.execute(_SEND, [self._channel, f"{self._me} echo"])

    def _serve(self, rung: socket.socket, without_s: float) -> None:
        """Send and hear; without a listener for a while."""
        if self._listener is not None:
            try:
                hears = self._serve_until_lost(rung, self._listener)
            except psycopg.Error as error:
                hears = True
                _logger.info("the listener for hints was lost: %s", error)
                if self._is_live:
                    without_s = 0.0  # it worked: it is made again at once
            self._drop()
            if not hears:
                self._complain()
                without_s = DEAF_S
        end_ns = self._clock.monotonic_ns() + round(without_s * 1e9)
        while not self._is_stopped and not self._is_to_listen:
            rings = self._wait_for([rung], without_s)
            if not rings or self._clock.monotonic_ns() >= end_ns:
                return
            self._send_rung(rung)

    def _serve_until_lost(
        self, rung: socket.socket, listener: psycopg.Connection[Any]
    ) -> bool:
        """Send and hear; return only if nothing is heard: whether it ever was."""
        asked_ns: int | None = self._clock.monotonic_ns()
        while not self._is_stopped:
            # First, since some may have come with the answer to a statement.
            told = [one.payload for one in listener.notifies(timeout=0)]
            if f"{self._me} echo" in told:
                asked_ns = None
                if not self._is_live:
                    self._is_live = True
                    told.append("- lost")  # what was told before nobody has heard
            self._take(told)
            rest_s = TEST_EVERY_S if asked_ns is None else self.echo_s
            readable = self._wait_for([rung, listener], rest_s)
            if rung in readable:
                self._send_rung(rung)
            if listener in readable:
                continue
            if asked_ns is not None:
                waited_ns = self._clock.monotonic_ns() - asked_ns
                if not readable or waited_ns >= self.echo_s * 1e9:
                    return self._is_live
            elif not readable:
                self._ask_for_echo(listener)
                asked_ns = self._clock.monotonic_ns()
        return True

    def _wait_for(self, sources: list[Any], rest_s: float) -> list[Any]:
        """Return which of them have something; never soon after the last time."""
        if self._is_stopped:
            return []
        select.select([], [], [], PAUSE_S)
        return select.select(sources, [], [], rest_s)[0]

    def _send_rung(self, rung: socket.socket) -> None:
        rung.recv(4096)
        self._send_noted()

    def _complain(self) -> None:
        if not self._has_complained:
            self._has_complained = True
            _logger.warning(
                "no hints of other processes arrive here (is there a pooler in "
                "transaction mode between?), so they are found by polling, within half "
                'a second: pass hints="postgresql://...", a direct URL, or hints="off"'
            )

    def _drop(self) -> None:
        self._is_live = False
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _send_noted(self) -> None:
        with self._lock:
            words, self._words = self._words, set()
            shards, self._shards = self._shards, set()
        if not (words or shards):
            return
        told = " ".join([self._me, *sorted(words), *map(str, sorted(shards))])
        values = [self._channel, told]
        # By polls it is found anyway, so it is no fault if this cannot be told.
        with contextlib.suppress(psycopg.Error, TimingWheelError):
            if self._listener is not None:
                self._listener.execute(_SEND, values)
            else:
                self._connections.rows(_SEND, values)

    def _take(self, payloads: Iterable[str]) -> None:
        """Pass on what others have told."""
        words: set[str] = set()
        shards: set[int] = set()
        for payload in payloads:
            sender, *parts = payload.split()
            if sender == self._me:
                continue
            for part in parts:
                if part.isdecimal():
                    shards.add(int(part))
                else:
                    words.add(part)
        if "want" in words:
            self._wanted_until_ns = self._clock.monotonic_ns() + WANTED_NS
            if self._has_ended:  # perhaps just now, when nobody had asked yet
                self.ended()
        if "foreign" in words:
            self._look_often()
        if words or shards:
            self._hear(Heard(frozenset(words), frozenset(shards)))

    def _look_often(self) -> None:
        self._foreign_until_ns = self._clock.monotonic_ns() + FOREIGN_NS
