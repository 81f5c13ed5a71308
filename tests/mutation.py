"""Tries the mutants of one module after the other: `make mutate`, docs/mutation.md.

Each module has a tree of its own, `mutants/<module>/`: links, and settings that name this
module, its folder's tests and nothing else, so that the type checker reads one module and
not all of the list. `tests/mutants.py` makes its mutants there and tries them. The modules
come in the order of the list, and what was tried stays tried until the module's text
changes.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
TREES = ROOT / "mutants"
LINKS = ("wal", "timingwheel", "tests", "setup.cfg")
STATUS: dict[int | None, str] = {
    None: "not tried",
    0: "lives",
    1: "killed",
    3: "killed",  # an error of pytest itself, which the break brought about
    33: "no test",
    37: "mypy",
    **dict.fromkeys((24, -24, 36, 152, 255), "timeout"),
}
"""What mutmut's numbers mean (mutmut/stats.py); another one is shown as it is."""
COLUMNS = ("mypy", "killed", "timeout", "lives", "no test", "not tried")


def settings_of_all() -> dict[str, list[str]]:
    """Return `[tool.mutmut]` of pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text()
    settings: dict[str, list[str]] = tomllib.loads(text)["tool"]["mutmut"]
    return settings


def settings_for(path: str, settings: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the settings for one module: its path, as the list has it."""
    folder = f"tests/{Path(path).parent.name}/"
    tests = "pytest_add_cli_args_test_selection"
    checker, *options = settings["type_check_command"]
    return settings | {
        "only_mutate": [path],
        tests: [
            word
            for word in settings[tests]
            if word.startswith(folder) or not word.endswith(".py")
        ],
        "type_check_command": [checker, path, *options],
    }


def name_of(path: str) -> str:
    """Return how mutmut calls the module at a path."""
    return path.removesuffix(".py").replace("/", ".")


def is_asked_for(module: str, mutants: Iterable[str]) -> bool:
    """Return whether one of the patterns may name a mutant of the module."""
    return any(
        pattern.startswith(f"{module}.") or fnmatch.fnmatch(f"{module}.", pattern)
        for pattern in mutants
    )


def make_tree(tree: Path, path: str, settings: dict[str, list[str]]) -> None:
    """Lay out what `tests/mutants.py` finds when it runs in `tree`."""
    tree.mkdir(parents=True, exist_ok=True)
    for name in LINKS:
        if not (tree / name).is_symlink():
            (tree / name).symlink_to(ROOT / name)
    text = (ROOT / "pyproject.toml").read_text()
    lines = [  # lists of text and numbers look the same in JSON and in TOML
        f"{key} = {json.dumps(value)}"
        for key, value in settings_for(path, settings).items()
    ]
    before = text.partition("[tool.mutmut]")[0]
    (tree / "pyproject.toml").write_text(
        "\n".join([before, "[tool.mutmut]", *lines, ""])
    )


def outcomes(tree: Path, path: str) -> dict[str, str]:
    """Return how each mutant of a module ended; {} before its first run."""
    try:
        found = json.loads((tree / "mutants" / f"{path}.meta").read_text())
    except FileNotFoundError:
        return {}
    return {
        mutant: STATUS.get(code, f"exit {code}")
        for mutant, code in found["exit_code_by_key"].items()
    }


def run(command: list[str], place: Path, seconds: float) -> bool:
    """Run a command for so long; return False if it failed. It is killed in the end.

    What was tried is written down by then, one by one.
    """
    # A group of its own, as what it forks off would go on when it has ended.
    with subprocess.Popen(command, cwd=place, process_group=0) as process:
        try:
            return process.wait(seconds) == 0
        except BaseException as end:
            with contextlib.suppress(ProcessLookupError):  # it may just have ended
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(end, subprocess.TimeoutExpired):
                return True
            raise


def try_modules(paths: list[str], mutants: list[str], seconds: float) -> Iterator[str]:
    """Try what is untried, or the mutants asked for; yield the modules that failed."""
    settings = settings_of_all()
    ends = time.monotonic() + seconds
    for path in paths:
        module = name_of(path)
        tree = TREES / module
        stamp, text = tree / "tried", (ROOT / path).read_bytes()
        digest = hashlib.sha256(text).hexdigest()
        if mutants:
            if not is_asked_for(module, mutants):
                continue
        elif stamp.exists() and stamp.read_text() == digest:
            continue
        print(f"{module}:", flush=True)
        make_tree(tree, path, settings)
        asked = [each for each in mutants if is_asked_for(module, [each])]
        steps = [(tree, ["make", path]), (tree / "mutants", ["try", path, *asked])]
        for place, words in steps:
            if (left := ends - time.monotonic()) <= 0:
                return
            if not run([sys.executable, "-m", "tests.mutants", *words], place, left):
                yield module
                break
        if "not tried" not in (found := outcomes(tree, path)).values() and found:
            stamp.write_text(digest)


def report(paths: list[str], trees: Path = TREES) -> Iterator[str]:
    """Yield each mutant that lives, or ended in no known way, and then the table."""
    rows: list[tuple[str, Counter[str]]] = []
    for path in paths:
        found = outcomes(trees / name_of(path), path)
        rows.append((path, Counter(found.values())))
        for mutant, status in found.items():
            if status == "lives" or status not in COLUMNS:
                yield f"{mutant}: {status}"
    rows.append(("together", sum((row for _, row in rows), Counter())))
    yield f"{'':32}{'breaks':>10}" + "".join(f"{column:>10}" for column in COLUMNS)
    for path, row in rows:
        if row:
            counts = (row.total(), *(row[column] for column in COLUMNS))
            yield f"{path:32}" + "".join(f"{count:>10,}" for count in counts)
    untouched = [path for path, row in rows if not row]
    if untouched:
        yield f"not begun: {', '.join(untouched)}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("mutants", nargs="*", help="try these, tried before or not")
    parser.add_argument("--seconds", type=float, default=3600)
    asked = parser.parse_args()
    # A shell has its background jobs ignore it, and what they start would, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    paths = settings_of_all()["only_mutate"]
    failed: list[str] = []
    try:
        failed.extend(try_modules(paths, asked.mutants, asked.seconds))
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
    print("\n" + "\n".join(report(paths)))
    if failed:
        sys.exit(f"not tried: {', '.join(failed)}; see above")


if __name__ == "__main__":
    main()
