"""Makes the mutants of a module, and tries them: mutmut and pytest, for `make mutate`.

    python -m tests.mutants make PATH               # in the module's tree
    python -m tests.mutants try PATH [MUTANT ...]   # in the mutants/ that it made there

Mutmut writes the module anew with all its mutants in it, each of which can be switched on.
It would try them as well, but takes minutes to learn which tests come through which
function, and imports all anew for each: `tests/mutation_trial.py` is quicker.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from mutmut.__main__ import create_mutants
from mutmut.configuration import config
from mutmut.mutation import trampoline
from mutmut.mutation.file_mutation import filter_mutants_with_type_checker
from mutmut.utils.file_utils import copy_also_copy_files, copy_src_dir

from tests.mutation_trial import REFUSED, Case, Limits, Trial, Verdicts, chosen

EXAMPLES = 25
"""Of a random test that does not say how many."""


def make(path: str) -> None:
    """Have mutmut write the module with its mutants; ask the type checker about new ones."""
    made, digest = Path("made"), hashlib.sha256(Path(path).read_bytes()).hexdigest()
    is_new = not made.exists() or made.read_text() != digest
    if is_new:  # else mutmut would go on with a file whose writing was cut off
        (Path("mutants") / path).unlink(missing_ok=True)
    with contextlib.redirect_stdout(io.StringIO()):  # it names each file of the project
        copy_src_dir()
        copy_also_copy_files()
        create_mutants(1)
    if is_new:
        verdicts = Verdicts(Path("mutants") / f"{path}.meta")
        if config().type_check_command:
            refused = filter_mutants_with_type_checker()
            verdicts.note(dict.fromkeys(refused, REFUSED))
        made.write_text(digest)


class Plugin:
    """Has pytest collect the tests, and the trial run them."""

    def __init__(self, path: str, patterns: list[str]) -> None:
        self._path = path
        self._patterns = patterns
        self.passed = False
        """Whether the tests pass without a break."""
        self._unharmed = False
        self._shown = os.fdopen(os.dup(sys.stderr.fileno()), "w", buffering=1)

    def pytest_collection(self) -> None:
        from hypothesis import Phase, settings  # pytest wants to import it first

        # Before the tests say what they have of their own; a smaller example is for nobody.
        settings.register_profile(
            "mutation",
            max_examples=EXAMPLES,
            phases=[Phase.explicit, Phase.generate],
        )
        settings.load_profile("mutation")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("a file with tests cannot be read: see above")
        items = {item.nodeid: item for item in session.items}

        def run(item: pytest.Item, following: Case | None) -> bool:
            item.config.hook.pytest_runtest_protocol(
                item=item, nextitem=following and items[following.name]
            )
            return not session.testsfailed

        cases = [Case(name, partial(run, item)) for name, item in items.items()]
        verdicts = Verdicts(Path(f"{self._path}.meta"))
        trial = Trial(
            self._path,
            verdicts,
            switch_on=self._switch_on,
            note_calls=self._note_calls,
            notes=Path("mutmut-stats.json"),
            limits=Limits(config().timeout_constant, config().timeout_multiplier),
            say=partial(print, file=self._shown),
        )
        self.passed = trial.run(chosen(verdicts.codes, self._patterns), cases)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self._unharmed:
            print(f"{report.nodeid}\n{report.longreprtext}", file=self._shown)

    def _switch_on(self, mutant: str) -> None:
        """In a fork: have a mutant serve, unheard."""
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        trampoline.set_mutant_under_test(mutant)

    def _note_calls(self) -> Callable[[], set[str]]:
        """In a fork: have each function of the module say that it was called."""
        self._unharmed = True
        called: set[str] = set()
        owner = os.getpid()
        of_forks = os.open("called", os.O_RDWR | os.O_CREAT | os.O_APPEND)

        def note(name: str, caller: str | None = None) -> None:
            if name not in called:
                called.add(name)
                if os.getpid() != owner:  # a test forked, and this set is a copy
                    os.write(of_forks, f"{name}\n".encode())

        def taken() -> set[str]:
            text = os.pread(of_forks, os.fstat(of_forks).st_size, 0)
            os.ftruncate(of_forks, 0)
            names = called | set(text.decode().split())
            called.clear()
            return names

        vars(trampoline)["record_trampoline_hit"] = note
        self._switch_on("stats")
        return taken


def try_mutants(path: str, patterns: list[str]) -> bool:
    """Try mutants with the tests that the settings name; return whether that went well."""
    plugin = Plugin(path, patterns)
    code = pytest.main(
        [
            *config().pytest_add_cli_args_test_selection,
            *config().pytest_add_cli_args,
            *("--quiet", "--quiet", "--no-summary", "--capture=no"),
            f"--basetemp={Path('../tmp').resolve()}",  # each fork empties it
        ],
        plugins=[plugin],
    )
    return code == 0 and plugin.passed


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("what", choices=["make", "try"])
    parser.add_argument("path")
    parser.add_argument("mutants", nargs="*")
    asked = parser.parse_args()
    if asked.what == "make":
        make(asked.path)
    elif not try_mutants(asked.path, asked.mutants):
        sys.exit(1)


if __name__ == "__main__":
    main()
