"""Tries mutants, each in a fork of a process that has its tests and has run none.

A fork finds the modules imported and the tests collected, which takes longer than most
tests do, and nothing that another test left: `days_of`, which remembers its answers, would
have them from before the break. It stops at the first test that fails.

The tests of the module's own name come first, all of them. Only what they let live meets
the other tests of its folder, and of them those that come through its function. Each test
is run once without a break, which tells what it calls and how long it takes.

Nothing here knows pytest or mutmut; `tests/mutants.py` does.
"""

from __future__ import annotations

import fnmatch
import json
import math
import os
import resource
import select
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path, PurePath
from typing import Final, NoReturn

LIVES: Final = 0
KILLED: Final = 1
CUT_OFF: Final = 3
NO_TEST: Final = 33
TIMEOUT: Final = 36
REFUSED: Final = 37
"""Mutmut's numbers (mutmut/stats.py), so that its own commands can show them."""
MEMORY_BYTES: Final = 4 << 30
"""Of addresses, for one mutant: a list without end must not take the machine along."""
WALL_FACTOR: Final = 2.0
"""Seconds by the wall clock for one of the processor: a thread that nobody wakes uses
none, and beside other work each takes longer."""
UNHARMED_SECONDS: Final = 300.0
"""For a test without a break."""
PROGRESS_SECONDS: Final = 10.0

Step = tuple[float, Callable[[], bool]]
"""How many seconds of the processor it may take, and what returns whether all is well."""


@dataclass(frozen=True, slots=True)
class Case:
    """One test.

    Attributes:
        name: as pytest has it: the path of the file, "::", and the rest.
        run: runs it before another one, or as the last, and returns whether it passed.
    """

    name: str
    run: Callable[[Case | None], bool]


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a test may take with a break: so many seconds, and times what it took."""

    constant_s: float
    multiplier: float

    def of(self, took_s: float) -> float:
        """Return the limit for a test that took so long without."""
        return self.constant_s + self.multiplier * took_s


class Verdicts:
    """How each mutant of a module ended, in mutmut's file; None where it was not tried."""

    def __init__(self, meta: Path) -> None:
        self._meta = meta
        self._found = json.loads(meta.read_text())
        self.codes: dict[str, int | None] = self._found["exit_code_by_key"]

    def note(self, codes: dict[str, int]) -> None:
        """Write some down; whatever ends this process, the file is whole."""
        self.codes.update(codes)
        new = self._meta.with_suffix(".new")
        new.write_text(json.dumps(self._found, indent=4))
        new.replace(self._meta)


def function_of(mutant: str) -> str:
    """Return the name of the function that a mutant is of."""
    return mutant.partition("__mutmut_")[0]


def chosen(codes: dict[str, int | None], patterns: list[str]) -> list[str]:
    """Return the mutants that were not tried, or those asked for; none that is refused."""
    return [
        mutant
        for mutant, code in codes.items()
        if (
            code != REFUSED and any(fnmatch.fnmatch(mutant, each) for each in patterns)
            if patterns
            else code is None
        )
    ]


def is_own(test: str, path: str) -> bool:
    """Return whether a test is in a file of the module's name: test_log_threads of log."""
    file = PurePath(test.partition("::")[0]).stem
    own = f"test_{PurePath(path).stem.strip('_')}"  # test_main of __main__
    return file == own or file.startswith(f"{own}_")


class Trial:
    """Tries the mutants of one module.

    Args:
        path: of the module.
        verdicts: where it is written down how they ended.
        switch_on: has a mutant serve in this process from now on.
        note_calls: has each function say from now on that it was called; what it returns
            gives the names since it was asked last.
        notes: the file for what is learnt of the tests, in mutmut's form.
        limits: for a test that meets a break.
        say: shows the progress.
    """

    def __init__(
        self,
        path: str,
        verdicts: Verdicts,
        *,
        switch_on: Callable[[str], None],
        note_calls: Callable[[], Callable[[], set[str]]],
        notes: Path,
        limits: Limits,
        say: Callable[[str], None],
    ) -> None:
        self._path = path
        self._verdicts = verdicts
        self._switch_on = switch_on
        self._note_calls = note_calls
        self._notes = notes
        self._limits = limits
        self._say = say
        self._took_s: dict[str, float] = {}
        self._tests_of: defaultdict[str, set[str]] = defaultdict(set)

    def run(self, mutants: Sequence[str], cases: Iterable[Case]) -> bool:
        """Try mutants; return False if a test fails without a break."""
        own: list[Case] = []
        others: list[Case] = []
        for case in cases:
            (own if is_own(case.name, self._path) else others).append(case)
        left = list(mutants)
        for whose, chosen in (("its own tests", own), ("the other tests", others)):
            if left and chosen:
                if not self._learn(chosen):
                    return False
                left = list(self._survivors(left, chosen, whose))
        self._verdicts.note(
            {
                mutant: LIVES if self._tests_of[function_of(mutant)] else NO_TEST
                for mutant in left
            }
        )
        return True

    def _survivors(
        self, mutants: list[str], cases: list[Case], whose: str
    ) -> Iterator[str]:
        """Note which mutants these tests kill, and yield the others."""
        live, said_at = 0, time.monotonic()
        for tried, mutant in enumerate(mutants, 1):
            code = self._try(mutant, cases)
            if code == LIVES:
                live += 1
                yield mutant
            else:
                self._verdicts.note({mutant: code})
            now = time.monotonic()
            if tried == len(mutants) or now - said_at > PROGRESS_SECONDS:
                said_at = now
                count = f"{tried} of {len(mutants)}, {live} live"
                self._say(f"{self._path} {count} ({whose})")

    def _try(self, mutant: str, cases: list[Case]) -> int:
        names = self._tests_of[function_of(mutant)]
        # Others of its own, too, in the end: where answers are remembered, a test comes
        # through a function only if it is the first to ask.
        chosen = [
            case
            for case in cases
            if case.name in names or is_own(case.name, self._path)
        ]
        chosen.sort(key=lambda case: (case.name not in names, self._took_s[case.name]))
        steps = [
            (self._limits.of(self._took_s[case.name]), partial(case.run, following))
            for case, following in _with_following(chosen)
        ]
        return run_forked(steps, begin=partial(self._switch_on, mutant))

    def _learn(self, cases: list[Case]) -> bool:
        """Run tests without a break; learn how long each takes, and what it calls."""
        steps: list[Step] = [
            (UNHARMED_SECONDS, partial(self._learn_of, case, following))
            for case, following in _with_following(cases)
        ]
        steps.append((UNHARMED_SECONDS, self._write_notes))
        code = run_forked(steps, begin=self._begin_to_learn)
        if code != LIVES:
            ended = "" if code == KILLED else f": ended with {code}"
            self._say(f"{self._path}: the tests fail by themselves{ended}")
            return False
        notes = json.loads(self._notes.read_text())
        self._took_s = notes["duration_by_test"]
        for function, names in notes["tests_by_mangled_function_name"].items():
            self._tests_of[function] = set(names)
        return True

    def _begin_to_learn(self) -> None:
        self._called = self._note_calls()

    def _learn_of(self, case: Case, following: Case | None) -> bool:
        self._called()  # by what was before
        begun_s = time.monotonic()
        passed = case.run(following)
        self._took_s[case.name] = time.monotonic() - begun_s
        for function in self._called():
            self._tests_of[function].add(case.name)
        return passed

    def _write_notes(self) -> bool:
        notes = {
            "duration_by_test": self._took_s,
            "tests_by_mangled_function_name": {
                function: sorted(names) for function, names in self._tests_of.items()
            },
            "stats_time": sum(self._took_s.values()),
        }
        self._notes.write_text(json.dumps(notes))
        return True


def _with_following(cases: list[Case]) -> Iterator[tuple[Case, Case | None]]:
    return zip_longest(cases, cases[1:])


def run_forked(steps: Sequence[Step], *, begin: Callable[[], None]) -> int:
    """Take steps in a fork until one fails, and return how it ended.

    Args:
        steps: what to do; each has limits of its own.
        begin: called before them, in the fork.

    Returns:
        LIVES if all went well, KILLED if one did not, CUT_OFF if one raised, TIMEOUT if
        one took too long, or the number of the signal that ended the fork, negative.
    """
    receiver, sender = os.pipe()
    pid = os.fork()
    if pid == 0:
        _take(steps, begin, sender)
    os.close(sender)
    try:
        for limit_s, _ in steps:
            if not select.select([receiver], [], [], limit_s * WALL_FACTOR)[0]:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return TIMEOUT
            if not os.read(receiver, 1):
                break
    finally:
        os.close(receiver)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return TIMEOUT if code == -signal.SIGXCPU else code


def _take(steps: Iterable[Step], begin: Callable[[], None], sender: int) -> NoReturn:
    """In the fork: take the steps, with a byte for each that went well, and end."""
    code = CUT_OFF
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        begin()
        for limit_s, step in steps:
            used = resource.getrusage(resource.RUSAGE_SELF)
            ends_s = math.ceil(used.ru_utime + used.ru_stime + limit_s)
            resource.setrlimit(resource.RLIMIT_CPU, (ends_s, resource.RLIM_INFINITY))
            if not step():
                code = KILLED
                break
            os.write(sender, b".")
        else:
            code = LIVES
    finally:
        # Past all that would run at the end of a process: it belongs to the one that forked.
        os._exit(code)
