"""Runs commands: the handler returns an argv, and what becomes of the program counts.

    @app.task(executor="subprocess")
    def back_up(target: str) -> list[str]:
        return ["rsync", "-a", "data/", target]

Exit code 0 is success, any other an error. Standard output and error go, line by line,
to the attempt's log, of which the last lines are kept; their last line also says in the
error what went wrong. Nothing goes through a shell. The program leads a process group of
its own, which gets SIGTERM when the attempt is asked to end and SIGKILL when it is
killed, and on Linux SIGKILL too when this process dies.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO, Any, Final

from timingwheel.jobs.store import Finish
from timingwheel.scheduler.executors.attempt import Attempt
from timingwheel.scheduler.executors.thread import ThreadExecutor

_LINE_BYTES_MAX: Final = 8_192
_TIDY_S: Final = 1.0

# A program cannot be told to die with its parent from outside, and code between fork and
# exec is not safe in a process with threads; so a fresh interpreter does it and becomes
# the program. It takes 15 ms.
_BECOME: Final = """
import os, sys
parent, argv = int(sys.argv[1]), sys.argv[2:]
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, 9)
except Exception:
    pass
if os.getppid() != parent:
    os._exit(1)
try:
    os.execvp(argv[0], argv)
except OSError as error:
    print(f"{argv[0]}: {error.strerror}", file=sys.stderr)
    os._exit(127 if isinstance(error, FileNotFoundError) else 126)
"""


class SubprocessExecutor(ThreadExecutor):
    """At most `slots` programs at once, each watched by a thread.

    Args:
        slots: how many at once, 1 or more.
    """

    def __init__(self, slots: int) -> None:
        super().__init__(slots, name="timingwheel-command")
        self._programs_lock = threading.Lock()
        self._programs: dict[int, subprocess.Popen[bytes]] = {}

    def _execute(self, attempt: Attempt) -> Finish:
        return attempt.run(lambda value: self._run_program(attempt, value))

    def _end_work_outside(self, attempt: Attempt, *, kill: bool) -> bool:
        with self._programs_lock:
            program = self._programs.get(attempt.claim.token)
            if program is not None:
                _signal_group(program, signal.SIGKILL if kill else signal.SIGTERM)
            return program is not None

    def _run_program(self, attempt: Attempt, argv: object) -> None:
        """Run what the handler has returned to its end.

        Raises:
            CommandError: it could not be started, or its exit code was not 0.
        """
        command = _checked_argv(argv)
        attempt.context.check()
        program = subprocess.Popen(  # noqa: S603 - the handler's own words, and no shell
            _wrapped(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        token = attempt.claim.token
        with self._programs_lock:
            self._programs[token] = program
            if attempt.context.asked is not None:  # a moment ago: it missed the signal
                _signal_group(program, signal.SIGTERM)
        assert program.stdout is not None
        output = _Output(program.stdout, attempt)
        try:
            code = program.wait()
        finally:
            with self._programs_lock:
                del self._programs[token]
            output.end()
        if code != 0:
            raise CommandError(command, code, output.last_line)


class CommandError(Exception):
    """A program ended with an exit code that is not 0, or by a signal.

    Attributes:
        argv: the program and its arguments.
        code: its exit code; -9 for signal 9.
        last_line: what it said last.
    """

    def __init__(self, argv: Sequence[str], code: int, last_line: str) -> None:
        super().__init__(argv, code, last_line)
        self.argv = argv
        self.code = code
        self.last_line = last_line

    def __str__(self) -> str:
        said = f": {self.last_line}" if self.last_line else ""
        return f"{self.argv[0]} ended with {exit_words(self.code)}{said}"


class _Output:
    """Reads what a program prints, in a thread, and logs it line by line."""

    def __init__(self, stream: IO[bytes], attempt: Attempt) -> None:
        self.last_line = ""
        self._stream = stream
        self._log = attempt.context.log
        self._thread = threading.Thread(
            target=self._read, name="timingwheel-output", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """Take in what is left. A daemon that keeps the pipe open is not waited for."""
        self._thread.join(_TIDY_S)

    def _read(self) -> None:
        with self._stream as stream:
            # A line without end comes in pieces, so no program fills our memory.
            while line := stream.readline(_LINE_BYTES_MAX):
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                if text.strip():
                    self.last_line = text.strip()
                self._log.log(logging.INFO, "%s", text)


def exit_words(code: int) -> str:
    """Return an exit code in words: `exit code 3`, or `signal SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def _wrapped(command: list[str]) -> list[str]:
    if not sys.platform.startswith("linux") or not sys.executable:
        return command
    become = [sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid())]
    return [*become, *command]


def _checked_argv(argv: Any) -> list[str]:
    is_list = isinstance(argv, list | tuple) and argv
    if not is_list or not all(
        isinstance(part, str) and "\0" not in part for part in argv
    ):
        raise TypeError(
            f"a task of the subprocess executor returns what to run as a list of texts, "
            f'["program", "argument"], and not {argv!r:.200}'
        )
    return list(argv)


def _signal_group(program: subprocess.Popen[bytes], number: int) -> None:
    # Its group has its number, for it leads it; once it is reaped, no signal goes out.
    if program.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(program.pid, number)
