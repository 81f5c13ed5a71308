"""The pool of segments to come: zero-filled ahead of need, some held in reserve.

A commit must never wait for the disk to find blocks, nor learn halfway through that there
are none. So a thread keeps `reserve + 1` full-size segments ready; a frame is planned only
into blocks that are already owned. Ordinary records may claim a segment while more than
the reserve is ready; urgent ones (cancels, fires, acknowledgements) may use the reserve
up, so a full disk first stops what would add work and only then what removes it.

A segment can be claimed once it is open, so a commit needs no descriptor either: a process
that has none left is refused its next claim, and nothing that it was promised is at stake.

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
from wal.filesystem import (
    NO_DESCRIPTOR,
    NO_ROOM,
    FileSystem,
    Handle,
    opened,
    write_fully,
)
from wal.segment import SEGMENT_HEADER_BYTES

RETRY_SECONDS: Final = 1.0
FILL_STEP_BYTES: Final = 1 << 20
FILL_PAUSE_SECONDS: Final = 0.02
"""Between two steps while nobody waits for the segment: one 16-MiB sync in one go would
hold up every commit behind it."""
OPEN_AHEAD: Final = 2
"""Ready segments that are open before anybody claims them. Not all: small segments make
a large reserve of many files."""
_FILLING: Final = "filling.tmp"
_READY_NAME: Final = re.compile(r"ready-([0-9a-f]{8})\.tmp")


class SegmentPool:
    """Ready segments, claimed first and taken later.

    Invariants: 0 <= claimed <= open <= ready, the oldest first; every ready file is
    `size_bytes` long and zero after its first block.

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
        self._open: deque[Handle] = deque()
        """Of the first of them."""
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
        """Begin; `found` are files of ready segments that an earlier owner left."""
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
                taken = self._ready[0], self._open[0]
                # No call among these: Ctrl-C finds all of them done or none.
                self.in_hand = taken
                del self._ready[0]
                del self._open[0]
                self._claimed -= 1
                self._changed.notify_all()
        return self.in_hand

    def wait(self, *, urgent: bool) -> None:
        """Return when `claim` would succeed.

        Raises:
            DiskFullError: a try begun since this call found no space.
            OSError: likewise no descriptor, or the disk failed otherwise.
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
                    self._prepare_one()
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
        self._claimed = 0  # a rotation that never came
        while self._open:
            self._files.close(self._open.pop())

    def check(self) -> None:
        """Assert the invariants. For tests."""
        with self._lock:
            assert 0 <= self._claimed <= len(self._open) <= len(self._ready)
            for name in self._ready:
                assert self._is_blank(name), name

    def find_blank(self, names: list[str]) -> str | None:
        """Return the first of these files that could serve as a segment, or None."""
        return next((name for name in names if self._is_blank(name)), None)

    # -- inside -----------------------------------------------------------------------

    def _has_room(self, *, urgent: bool) -> bool:
        kept = 0 if urgent else self._reserve
        return self.ready > kept and len(self._open) > self._claimed

    def _unopened(self) -> str | None:
        """Return the segment that is to be opened now, None if enough are open."""
        opened = len(self._open)
        if opened == len(self._ready) or opened >= self._claimed + OPEN_AHEAD:
            return None
        return self._ready[opened]

    def _run(self) -> None:
        with self._lock:
            while not self._stopped:
                if self.ready > self._reserve and self._unopened() is None:
                    self._changed.wait()
                elif self._failure is not None:
                    self._changed.wait(RETRY_SECONDS)
                    self._failure = None
                else:
                    self._prepare_one()

    def _prepare_one(self) -> None:
        """Open a ready segment, or make one; the lock is held on entry and exit."""
        unopened = self._unopened()
        opens, name = unopened is not None, unopened or _FILLING
        self._begun += 1
        failure = None
        self._filling = True
        try:
            self._lock.release()
            if opens:
                handle = self._files.open(name, writable=True)
            else:
                name = self._find_or_make()
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
        if failure is not None:
            if opens and failure.errno == errno.ENOENT:
                self._ready.remove(name)  # somebody did; another takes its place
        elif opens:
            self._open.append(handle)
        else:
            self._ready.append(name)
        self._changed.notify_all()

    def _find_or_make(self) -> str:
        """Return a segment that an earlier owner left, or a new one; not yet ready."""
        self._number += 1
        if self._found:
            found = self._found.pop()
            try:
                if self._is_blank(found):
                    return found
            except OSError as error:
                if error.errno in NO_DESCRIPTOR:
                    self._found.append(found)  # which says nothing of the file
                raise
            self._files.unlink(found)  # of another size: it would stay for ever
        name = f"ready-{self._number:08x}.tmp"
        self._make(name)
        return name

    def _make(self, name: str) -> None:
        files = self._files
        handle = files.create(_FILLING)
        try:
            for _ in zero_fill(files, handle, self._size_bytes):
                files.datasync(handle)
                self._pause()
                if self._stopped:
                    raise InterruptedError("the log closes")  # for nobody to read
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
