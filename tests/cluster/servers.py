"""PostgreSQL servers that a test pauses, kills, starts again, and follows by a standby.

Commits of these are what a crash of processes must keep: each waits until it is written,
though not for the disk.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from bench.peers import program_path
from bench.postgres_server import USER, connect_when_up, make_cluster
from tests.postgres import SMALL, require_server

SETTINGS = ("fsync=off", "full_page_writes=off", *SMALL)
_LOOKS = 2_000
_LOOK_SECONDS = 0.01
_AS = USER if os.geteuid() == 0 else None


class Instance:
    """A server with a directory, and a socket that stays the same over its lives.

    Args:
        directory: of its data and socket; made, with an empty cluster, unless it is there.
        settings: as "name=value".
    """

    def __init__(self, directory: Path, *settings: str) -> None:
        self.data = directory / "data"
        self.sockets = directory / "sockets"
        self._log = directory / "messages"
        self._settings = (*SETTINGS, *settings)
        self._process: subprocess.Popen[bytes] | None = None
        if not directory.exists():
            make_cluster(directory, self.data, _AS)
        self.sockets.mkdir()
        if _AS is not None:
            shutil.chown(self.sockets, _AS)

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@/postgres?host={quote(str(self.sockets), safe='')}"

    def start(self) -> None:
        """Start, or start again, and wait until it answers."""
        settings = [word for one in self._settings for word in ("-c", one)]
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [
                    *(str(program_path("postgres")), "-D", str(self.data)),
                    *("-k", str(self.sockets), "-c", "listen_addresses=", *settings),
                ],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=_AS,
                start_new_session=True,
            )
        connect_when_up(self.url).close()

    def ask(self, sql: str) -> Any:
        """Return the first value of the first row, if there is one."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            row = None if cursor.description is None else cursor.fetchone()
        return None if row is None else row[0]

    def wait_until(self, sql: str) -> None:
        """Ask until the answer is true."""
        _wait_until(lambda: bool(self.ask(sql)))

    def pause(self) -> None:
        """Stop all its processes where they are."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Have them go on."""
        self._signal_all(signal.SIGCONT)

    def crash(self) -> None:
        """Kill all its processes, as when a machine dies."""
        if self._process is None:
            return
        pids = self._signal_all(signal.SIGKILL)
        self._process.wait()
        self._process = None
        _wait_until(lambda: not any(map(_is_alive, pids)))

    def stop_at_once(self) -> None:
        """Have it stop by PostgreSQL's immediate shutdown: it will recover."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()
        self._process = None

    def _signal_all(self, number: signal.Signals) -> list[int]:
        # Its father first: it makes no more, and does not hear of the others.
        assert self._process is not None
        pids = [self._process.pid, *_children(self._process.pid)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return pids


@contextlib.contextmanager
def directory_for_servers() -> Iterator[Path]:
    """A directory that the servers' user may look into; it goes with what is in it."""
    require_server()
    # Not pytest's own directory: the server's user may not look into that.
    directory = Path(tempfile.mkdtemp(prefix="timingwheel-fault-"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def running_instance(*settings: str) -> Iterator[Instance]:
    """A server of one's own."""
    with directory_for_servers() as directory:
        instance = Instance(directory / "one", *settings)
        instance.start()
        try:
            yield instance
        finally:
            instance.crash()


class Pair:
    """A primary and its standby, once they run.

    Args:
        directory: for both.
    """

    def __init__(self, directory: Path) -> None:
        self.primary = Instance(directory / "primary")
        place = directory / "standby"
        place.mkdir()
        if _AS is not None:
            shutil.chown(place, _AS)
        self.standby = Instance(place)

    def start(self) -> None:
        """Start the primary, and a standby for whom its commits wait."""
        self.primary.start()
        self._copy(self.standby.data)
        self.standby.start()
        self.primary.ask("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.primary.ask("SELECT pg_reload_conf()")
        self.primary.wait_until(
            "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
        )

    def _copy(self, data: Path) -> None:
        made = subprocess.run(
            [
                *(str(program_path("pg_basebackup")), "-h", str(self.primary.sockets)),
                *("-U", USER, "-D", str(data), "-R", "-c", "fast", "--no-sync"),
            ],
            cwd="/",
            capture_output=True,
            text=True,
            user=_AS,
            check=False,
        )
        assert not made.returncode, made.stderr

    @property
    def url(self) -> str:
        """Of whichever of them can be written."""
        both = f"{self.primary.sockets},{self.standby.sockets}"
        return (
            f"postgresql://{USER}@/postgres?host={quote(both, safe='')}"
            "&target_session_attrs=read-write"
        )

    def fail_over(self) -> None:
        """Kill the primary and promote the standby."""
        self.primary.crash()
        assert self.standby.ask("SELECT pg_promote(true, 30)")

    def bring_back_stale(self) -> None:
        """Start the old primary as an operator must: to be read from, and no more."""
        signal_file = self.primary.data / "standby.signal"
        signal_file.touch()
        if _AS is not None:
            shutil.chown(signal_file, _AS)
        self.primary.start()

    def close(self) -> None:
        self.standby.crash()
        self.primary.crash()


def _children(pid: int) -> list[int]:
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdecimal()]
    return [one for one in pids if _parent(one) == pid]


def _parent(pid: int) -> int:
    fields = _fields(pid)
    return int(fields[1]) if fields else 0


def _is_alive(pid: int) -> bool:
    fields = _fields(pid)
    return bool(fields) and fields[0] != "Z"


def _fields(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        # The name before them may hold anything, so count from its closing bracket.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def _wait_until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()  # that nobody sets
    for _ in range(_LOOKS):
        if condition():
            return
        pause.wait(_LOOK_SECONDS)
    raise AssertionError("the server does not come to that")
