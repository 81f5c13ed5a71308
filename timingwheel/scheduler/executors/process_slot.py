"""One child process as its executor sees it: started, talked to, signalled, reaped."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Final

from timingwheel.scheduler.executors.messages import Frames, ToChild, ToExecutor, framed

_READ_BYTES: Final = 1 << 16
_BOOT: Final = (
    "import sys; sys.path[:] = {path!r}; sys.argv[:] = {argv!r}; "
    "from timingwheel.scheduler.executors.child import main; main({fd}, {parent})"
)


class ProcessSlot:
    """A fresh interpreter that runs one attempt after the other.

    It is made by exec and not by fork: of this process's files it has standard output,
    standard error, and its end of the socket pair, so never a store or its lock.

    Attributes:
        is_ready: it has started and asked for work.
        is_killed: nothing that it still says counts.
        connection: to it, not blocking; belongs to the thread that made the slot.

    Args:
        on_exit: called once with the slot, from a thread of its own, when the process
            has ended, however it did.
        python: the interpreter.

    Raises:
        OSError: it could not be started.
    """

    def __init__(self, on_exit: Callable[[ProcessSlot], None], python: str) -> None:
        self.is_ready = False
        self.is_killed = False
        ours, theirs = socket.socketpair()
        ours.settimeout(0)
        self.connection = ours
        self._frames = Frames(ToExecutor)
        self._unsent = bytearray()
        try:
            with theirs:
                boot = _BOOT.format(
                    path=[entry or os.getcwd() for entry in sys.path],
                    argv=sys.argv,
                    fd=theirs.fileno(),
                    parent=os.getpid(),
                )
                self._process = subprocess.Popen(  # noqa: S603 - an interpreter with our own words
                    [python, "-c", boot],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    # A group of its own: Ctrl-C does not reach it, and killing it takes
                    # along what its handler has started.
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        self._waiter = threading.Thread(
            target=self._await_exit,
            args=(on_exit,),
            name=f"timingwheel-process-{self._process.pid}",
            daemon=True,
        )
        self._waiter.start()

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Its exit code once it has ended; -9 for signal 9."""
        return self._process.returncode

    @property
    def has_unsent(self) -> bool:
        """Whether `flush` has something to do."""
        return bool(self._unsent)

    def send(self, message: ToChild) -> None:
        """Send a message, or as much of it as it takes now; `flush` sends the rest."""
        self._unsent += framed(message)
        self.flush()

    def flush(self) -> None:
        """Send what is left, as far as it takes it now. A dead child takes all."""
        try:
            sent = self.connection.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            sent = len(self._unsent)  # its end is reported by on_exit
        del self._unsent[:sent]

    def receive(self) -> list[ToExecutor] | None:
        """Return the messages that have come; None when no more can come.

        One piece at a time, so that a child that floods us has to take turns.

        Raises:
            ValueError: what it says makes no sense.
        """
        piece = self._piece()
        if piece is None:
            return []
        return self._frames.feed(piece) if piece else None

    def drain(self) -> list[ToExecutor]:
        """Return what a child that has ended had still said."""
        rest: list[ToExecutor] = []
        with contextlib.suppress(ValueError):
            while piece := self._piece():
                rest += self._frames.feed(piece)
        return rest

    def kill(self) -> None:
        """Kill it and what it has started. It can be called from any thread."""
        self.is_killed = True
        # It leads its group, and while it is not reaped the number is nobody else's.
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self, patience_s: float) -> bool:
        """Let it end, and kill it if it does not in time; return when it is reaped.

        Returns:
            Whether it ended in time.
        """
        self.connection.close()
        self._waiter.join(patience_s)
        if not self._waiter.is_alive():
            return True
        self.kill()
        self._waiter.join()
        return False

    def _piece(self) -> bytes | None:
        """Return what has come; None if nothing has, no bytes if nothing ever will."""
        try:
            return self.connection.recv(_READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _await_exit(self, on_exit: Callable[[ProcessSlot], None]) -> None:
        self._process.wait()
        on_exit(self)
