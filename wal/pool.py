"""The pool of segments to come: zero-filled ahead of need, some held in reserve.

A commit must never wait for the disk to find blocks, nor learn halfway through that there
are none. So a thread keeps `reserve + 1` full-size segments ready; a frame is planned only
into blocks that are already owned. Ordinary records may claim a segment while more than
the reserve is ready; urgent ones (cancels, fires, acknowledgements) may use the reserve
up, so a full disk first stops what would add work and only then what removes it.

Why zero-filled: writing into blocks that the file system has already written costs 1.6
times less per commit than into merely allocated ones, and 1.7 times less than growing
(measured, docs/wal-format.md). Why never recycled: old frames in a reused file cannot be
told from a damaged tail.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
from collections import deque
from collections.abc import Iterator
from typing import Final

from wal.errors import DiskFullError
from wal.filesystem import NO_ROOM, FileSystem, Handle, opened, write_fully
from wal.segment import SEGMENT_HEADER_BYTES

RETRY_SECONDS: Final = 1.0
FILL_STEP_BYTES: Final = 1 << 20
FILL_PAUSE_SECONDS: Final = 0.02
"""Between two steps while nobody waits for the segment: one 16-MiB sync in one go would
hold up every commit behind it."""
_FILLING: Final = "filling.tmp"
_READY_NAME: Final = re.compile(r"ready-([0-9a-f]{8})\.tmp")


class SegmentPool:
    """Ready segments, claimed first and taken later.

    Invariants: 0 <= claimed <= ready; every ready file is `size_bytes` long and zero
    after its first block.

    Args:
        files: the store's directory.
        size_bytes: of a segment.
        reserve: how many ready segments only urgent records may claim.
        background: whether a thread fills them. Without it `wait` does, on the spot.
    """

    def __init__(
        self, files: FileSystem, *, size_bytes: int, reserve: int, background: bool
    ) -> None:
        self._files = files
        self._size_bytes = size_bytes
        self._reserve = reserve
        # A plain lock: `with` on a Condition can be left half entered by Ctrl-C.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self.in_hand: tuple[str, Handle] | None = None
        """What `take` gave last; the taker sets it to None when it has used it."""
        self._ready: deque[str] = deque()
        self._found: list[str] = []
        self._claimed = 0
        self._number = 0
        self._begun = 0
        self._ended = 0
        """Numbers of the last try that began, and of the last that ended."""
        self._failure: OSError | None = None
        self._stopped = False
        self._waiting = 0
        self._filling = False
        """One at a time: without a thread of its own, callers of `wait` fill."""
        self._background = background
        self._thread: threading.Thread | None = None

    def start(self, found: list[str]) -> None:
        """Begin; `found` are files of ready segments that a former owner left."""
        matches = [_READY_NAME.fullmatch(name) for name in found]
        self._number = max((int(m[1], 16) for m in matches if m), default=0)
        self._found = list(found)
        if self._background:
            self._thread = threading.Thread(
                target=self._run, name="wal-pool", daemon=True
            )
            self._thread.start()

    def claim(self, *, urgent: bool) -> bool:
        """Set one ready segment aside for a rotation to come. Never waits."""
        with self._lock:
            if not self._has_room(urgent=urgent):
                return False
            self._claimed += 1
            self._changed.notify_all()
            return True

    def take(self) -> tuple[str, Handle]:
        """Return the name and an open handle of a segment claimed before.

        The same again until it is used, in case Ctrl-C kept it from arriving.
        """
        if self.in_hand is None:
            with self._lock:
                name = self._ready[0]
            taken = name, self._files.open(name, writable=True)
            with self._lock:
                # No call among these: Ctrl-C finds all of them done or none.
                self.in_hand = taken
                del self._ready[0]
                self._claimed -= 1
                self._changed.notify_all()
        return self.in_hand

    def wait(self, *, urgent: bool) -> None:
        """Return when `claim` would succeed.

        Raises:
            DiskFullError: a try begun since this call found no space.
            OSError: the disk failed otherwise.
        """
        with self._lock:
            before = self._begun  # what fails of these may have met a disk of before
            while not self._has_room(urgent=urgent) and not self._stopped:
                failure = self._failure
                if failure is not None and self._ended > before:
                    if failure.errno in NO_ROOM:
                        raise DiskFullError(self._files.path, failure)
                    raise failure
                if not self._background and not self._filling:
                    self._fill_one()
                    continue
                self._failure = None  # ask the thread for a try at once
                self._changed.notify_all()
                self._waiting += 1
                try:
                    self._changed.wait(RETRY_SECONDS)
                finally:
                    self._waiting -= 1

    @property
    def ready(self) -> int:
        """Segments ready and not yet claimed."""
        return len(self._ready) - self._claimed

    @property
    def full(self) -> bool:
        """Whether the last try to make a segment found no space."""
        failure = self._failure
        return failure is not None and failure.errno in NO_ROOM

    def stop(self) -> None:
        """End the thread. Ready segments stay for the next owner."""
        with self._lock:
            self._stopped = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def check(self) -> None:
        """Assert the invariants. For tests."""
        with self._lock:
            assert 0 <= self._claimed <= len(self._ready)
            for name in self._ready:
                assert self._is_blank(name), name

    def find_blank(self, names: list[str]) -> str | None:
        """Return the first of these files that could serve as a segment, or None."""
        return next((name for name in names if self._is_blank(name)), None)

    # -- inside -----------------------------------------------------------------------

    def _has_room(self, *, urgent: bool) -> bool:
        return self.ready > (0 if urgent else self._reserve)

    def _run(self) -> None:
        with self._lock:
            while not self._stopped:
                if self.ready > self._reserve:
                    self._changed.wait()
                elif self._failure is not None:
                    self._changed.wait(RETRY_SECONDS)
                    self._failure = None
                else:
                    self._fill_one()

    def _fill_one(self) -> None:
        """Make one segment ready; the lock is held on entry and exit, not meanwhile."""
        found = self._found.pop() if self._found else None
        self._number += 1
        self._begun += 1
        name = f"ready-{self._number:08x}.tmp"
        failure = None
        self._filling = True
        try:
            self._lock.release()
            if found is not None and not self._is_blank(found):
                self._files.unlink(found)  # of another size: it would stay for ever
                found = None
            if found is not None:
                name = found
            else:
                self._make(name)
        except OSError as error:
            failure = error
        except MemoryError:
            # Else the thread would end, and whoever needs a segment wait for ever.
            failure = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), name)
        finally:
            self._filling = False  # before a call, at which Ctrl-C may come
            self._lock.acquire()
        self._ended = self._begun
        self._failure = failure
        if failure is None:
            self._ready.append(name)
        self._changed.notify_all()

    def _make(self, name: str) -> None:
        files = self._files
        handle = files.create(_FILLING)
        try:
            for _ in zero_fill(files, handle, self._size_bytes):
                files.datasync(handle)
                self._pause()
                if self._stopped:
                    raise InterruptedError(errno.EINTR, "the log closes", _FILLING)
            files.sync(handle)
        except (OSError, MemoryError):
            with contextlib.suppress(OSError):
                files.unlink(_FILLING)
            raise
        finally:
            files.close(handle)
        # No directory sync: a crash that loses this name loses nothing that counts.
        files.rename(_FILLING, name)

    def _pause(self) -> None:
        with self._changed:
            if self._background and not self._waiting and not self._stopped:
                self._changed.wait(FILL_PAUSE_SECONDS)

    def _is_blank(self, name: str) -> bool:
        """Return whether a file is full-size and zero where frames will go."""
        with opened(self._files, name) as handle:
            if self._files.size_bytes(handle) != self._size_bytes:
                return False
            data = self._files.pread(handle, self._size_bytes, 0)
        return not data[SEGMENT_HEADER_BYTES:].strip(b"\0")


def zero_fill(files: FileSystem, handle: Handle, size_bytes: int) -> Iterator[int]:
    """Write zeros over the whole of a new file; yields after each step, un-synced."""
    step = bytes(min(FILL_STEP_BYTES, size_bytes))
    for offset in range(0, size_bytes, len(step)):
        write_fully(files, handle, step[: size_bytes - offset], offset=offset)
        yield offset


def ready_names(files: FileSystem) -> list[str]:
    """Return the files of ready segments in the directory."""
    return [name for name in files.names() if _READY_NAME.fullmatch(name)]
