"""The disk in memory and a real directory answer every call alike, errors too."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from wal.filesystem import FileSystem, Handle
from wal.testing import MemoryFileSystem

Act = Callable[[FileSystem, int], object]

NAMES = st.sampled_from(["a", "b", "c"])
SIZES = st.integers(0, 1500)
PLACES = st.integers(-1, 1500)
BYTES = st.binary(max_size=700)
PICKS = st.integers(0, 100)


class BothFileSystems(RuleBasedStateMachine):
    """Each step goes to both; `act` is told the file system and its side, 0 or 1."""

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp()
        path = os.path.join(self.root, "made", "store")
        self.sides: list[FileSystem] = [FileSystem(path), MemoryFileSystem(path)]
        self.handles: list[list[Handle]] = []

    def teardown(self) -> None:
        for pair in self.handles:
            for files, handle in zip(self.sides, pair, strict=True):
                files.close(handle)
        shutil.rmtree(self.root)

    def both(self, act: Act) -> None:
        real, memory = self.answers(act)
        assert memory == real

    def answers(self, act: Act) -> list[object]:
        return [self.answer(files, side, act) for side, files in enumerate(self.sides)]

    @staticmethod
    def answer(files: FileSystem, side: int, act: Act) -> object:
        try:
            return act(files, side)
        except OSError as error:
            return (type(error), error.errno, error.strerror)

    def opened(self, act: Act) -> None:
        """Both give a handle, or both give the same answer that is none."""
        answers = self.answers(act)
        if all(isinstance(answer, int) for answer in answers):
            self.handles.append([Handle(a) for a in answers if isinstance(a, int)])
        else:
            assert answers[0] == answers[1]

    def at_handle(self, pick: int, act: Callable[[FileSystem, Handle], object]) -> None:
        pair = self.handles[pick % len(self.handles)]
        self.both(lambda files, side: act(files, pair[side]))

    @initialize(made=st.integers(0, 9))
    def begin(self, made: int) -> None:
        """Nine times of ten there is a directory with a file to begin with."""
        if made:
            self.make_directory()
            self.create("a")
            self.open("a", writable=False)

    @rule()
    def make_directory(self) -> None:
        self.both(lambda files, _: files.make_directory())

    @rule(name=NAMES)
    def create(self, name: str) -> None:
        self.opened(lambda files, _: files.create(name))

    @rule(name=NAMES, writable=st.booleans())
    def open(self, name: str, writable: bool) -> None:
        self.opened(lambda files, _: files.open(name, writable=writable))

    @rule(name=NAMES)
    def lock(self, name: str) -> None:
        self.opened(lambda files, _: files.lock(name))

    @rule(old=NAMES, new=NAMES)
    def rename(self, old: str, new: str) -> None:
        self.both(lambda files, _: files.rename(old, new))

    @rule(name=NAMES)
    def unlink(self, name: str) -> None:
        self.both(lambda files, _: files.unlink(name))

    @rule()
    def sync_dir(self) -> None:
        self.both(lambda files, _: files.sync_dir())

    @precondition(lambda self: self.handles)
    @rule(pick=PICKS, data=BYTES, offset=PLACES)
    def pwrite(self, pick: int, data: bytes, offset: int) -> None:
        self.at_handle(pick, lambda files, handle: files.pwrite(handle, data, offset))

    @precondition(lambda self: self.handles)
    @rule(pick=PICKS, size_bytes=SIZES, offset=PLACES)
    def pread(self, pick: int, size_bytes: int, offset: int) -> None:
        self.at_handle(
            pick, lambda files, handle: files.pread(handle, size_bytes, offset)
        )

    @precondition(lambda self: self.handles)
    @rule(pick=PICKS, size_bytes=PLACES)
    def truncate(self, pick: int, size_bytes: int) -> None:
        self.at_handle(pick, lambda files, handle: files.truncate(handle, size_bytes))

    @precondition(lambda self: self.handles)
    @rule(pick=PICKS, whole=st.booleans())
    def sync(self, pick: int, whole: bool) -> None:
        self.at_handle(
            pick, lambda files, h: files.sync(h) if whole else files.datasync(h)
        )

    @precondition(lambda self: self.handles)
    @rule(pick=PICKS)
    def forget_cache(self, pick: int) -> None:
        self.at_handle(pick, lambda files, handle: files.forget_cache(handle))

    @precondition(lambda self: self.handles)
    @rule(pick=PICKS)
    def close(self, pick: int) -> None:
        pair = self.handles.pop(pick % len(self.handles))
        self.both(lambda files, side: files.close(pair[side]))

    @invariant()
    def the_directory_looks_the_same(self) -> None:
        self.both(lambda files, _: files.exists())
        self.both(lambda files, _: files.names())

    @invariant()
    def open_files_look_the_same(self) -> None:
        for pair in self.handles:
            self.both(lambda files, side: files.size_bytes(pair[side]))  # noqa: B023
            self.both(lambda files, side: files.pread(pair[side], 4096, 0))  # noqa: B023


TestBothFileSystems = BothFileSystems.TestCase
TestBothFileSystems.settings = settings(max_examples=60, stateful_step_count=40)
