"""The rules of the house that a test can hold, over every file as the house grows."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("timingwheel", "wal")

# ---------------------------------------------------------------- exceptions, each with
# its reason; an entry that is no longer needed fails as well.

MODULE_LINES_MAX = 400
LONG_MODULES = {
    "timingwheel/engine/state.py": "the one place where an engine's state changes",
    "timingwheel/engine/table.py": "one structure, single and batch forms",
    "timingwheel/jobs/model.py": "the words of the scheduler, side by side",
    "timingwheel/jobs/store.py": "one protocol, every call of it and what it takes",
    "timingwheel/stores/embedded.py": "one protocol, every call of it",
    "timingwheel/stores/postgres/store.py": "as stores/embedded.py",
    "timingwheel/stores/shared_store.py": "one protocol, every call of it",
    "timingwheel/stores/state.py": "the one place where a store's state changes",
    "wal/log.py": "the front door, where reading, appending and committing meet",
    "wal/testing/memory.py": "one interface, every call of it",
    "timingwheel/wheel.py": "one structure, single and batch forms and its check()",
}
FUNCTION_LINES_MAX = 60  # without the docstring
LONG_FUNCTIONS: dict[str, str] = {}
INIT_CONSTANTS = {"COMPILED", "__version__"}
WAL_IMPORTS = {"google_crc32c", "crcmod", "wal"}  # beside the standard library
SLEEPING_TESTS: dict[str, str] = {}
TOUCH_FILES = {
    "wal/filesystem.py": "the one place that does",
    "timingwheel/stores/door_socket.py": "a socket has a name among the files",
    "timingwheel/jobs/zone_rules.py": "reads the version of the system's time zones",
    "timingwheel/cli/settings.py": "reads the user's configuration file",
    "timingwheel/stores/sqlite_files.py": "opens SQLite, which has files of its own",
    "timingwheel/stores/sqlite_connections.py": "hands SQLite's connections on",
}

# ---------------------------------------------------------------------------- the rules

ASKS_THE_TIME = {
    "asyncio": {"sleep"},
    "date": {"today"},
    "datetime": {"now", "utcnow", "today"},
    "time": {
        *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter"),
        *("perf_counter_ns", "clock_gettime", "clock_gettime_ns", "sleep"),
        *("localtime", "gmtime", "ctime"),
    },
}
OS_TOUCHES_FILES = {
    *("access", "chmod", "chown", "close", "dup", "fdatasync", "fdopen", "fstat"),
    *("fstatvfs", "fsync", "ftruncate", "link", "listdir", "lseek", "lstat"),
    *("makedirs", "mkdir", "open", "posix_fadvise", "posix_fallocate", "pread"),
    *("preadv", "pwrite", "pwritev", "read", "readlink", "readv", "remove"),
    *("removedirs", "rename", "renames", "replace", "rmdir", "scandir", "sendfile"),
    *("stat", "statvfs", "symlink", "sync", "truncate", "unlink", "utime", "walk"),
    *("write", "writev"),
}
OS_PATH_TOUCHES_FILES = {
    *("exists", "lexists", "isfile", "isdir", "islink", "ismount", "getsize"),
    *("getatime", "getmtime", "getctime", "realpath", "samefile"),
}
FILE_MODULES = {"fcntl", "fileinput", "glob", "io", "mmap", "pathlib", "shutil"}
FILE_MODULES |= {"sqlite3", "tempfile"}
VAGUE_NAMES = {"common", "helper", "helpers", "misc", "shared", "util", "utils"}

# Put together from pieces, so that this file does not hold what it looks for.
PRIVATE_PATH = re.compile(r"(?<![\w.:/-])/(?:work|root|Users|home/\w+)/")
REGISTRY_HOST = re.compile(
    r"\b(?:"
    + "|".join(
        re.escape(".".join(parts))
        for parts in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("npmjs", "org"),
            ("debian", "org"),
            ("golang", "org"),
            ("crates", "io"),
        )
    )
    + r")\b"
)


def modules() -> list[Path]:
    """The modules of the packages."""
    return sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))


def modules_of_tests() -> list[Path]:
    return sorted((ROOT / "tests").rglob("*.py"))


def place(path: Path, node: ast.AST | None = None) -> str:
    relative = path.relative_to(ROOT).as_posix()
    return relative if node is None else f"{relative}:{getattr(node, 'lineno', 0)}"


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def dotted(node: ast.AST) -> str:
    """`a.b.c` of such an expression, else the empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (left := dotted(node.value)):
        return f"{left}.{node.attr}"
    return ""


def imports(tree: ast.Module) -> Iterator[tuple[ast.stmt, str, str, str]]:
    """Each import as (statement, module, name or "", the name it has here)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                here = alias.asname or alias.name.partition(".")[0]
                yield node, alias.name, "", here
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node, node.module or "", alias.name, alias.asname or alias.name


def uses(tree: ast.Module) -> Iterator[tuple[ast.AST, str, str]]:
    """Every `owner.name`, through whatever names the module has imported it by."""
    named = {
        here: f"{module}.{name}"
        if name
        else module
        if here != module.split(".")[0]
        # `import os.path` binds os, and is spelled out at its use.
        else here
        for _, module, name, here in imports(tree)
    }
    yield from ((node, module, name) for node, module, name, _ in imports(tree) if name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (whole := dotted(node)):
            first, _, rest = whole.partition(".")
            owner, _, name = f"{named.get(first, first)}.{rest}".rpartition(".")
            yield node, owner, name


def time_questions(tree: ast.Module) -> list[ast.AST]:
    return [
        node
        for node, owner, name in uses(tree)
        if name in ASKS_THE_TIME.get(owner.rpartition(".")[2], ())
    ]


def file_touches(tree: ast.Module) -> list[ast.AST]:
    found: list[ast.AST] = [
        node
        for node, owner, name in uses(tree)
        if (owner in {"os", "posix"} and name in OS_TOUCHES_FILES)
        or (owner in {"os.path", "posixpath"} and name in OS_PATH_TOUCHES_FILES)
        or (owner.partition(".")[0] in FILE_MODULES)
    ]
    found += [n for n, module, _, _ in imports(tree) if module in FILE_MODULES]
    found += [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and dotted(node.func) == "open"
    ]
    return found


def test_only_the_clock_asks_the_time() -> None:
    assert [
        place(path, node)
        for path in modules()
        if place(path) != "timingwheel/clock.py"
        for node in time_questions(parsed(path))
    ] == []


def test_only_the_file_system_touches_files() -> None:
    assert [
        place(path, node)
        for path in modules()
        if place(path) not in TOUCH_FILES
        for node in file_touches(parsed(path))
    ] == []


def test_no_test_sleeps_and_none_patches_a_module() -> None:
    found = {
        place(path)
        for path in modules_of_tests()
        for _, owner, name in uses(parsed(path))
        if name == "sleep"
        or (owner == "monkeypatch" and name == "setattr")
        or owner.startswith("unittest.mock")
    }
    assert sorted(found) == sorted(SLEEPING_TESTS)


@pytest.mark.parametrize(
    "source",
    [
        "import time; time.monotonic_ns()",
        "import time as t; t.sleep(1)",
        "from time import time_ns",
        "from time import time as now",
        "import datetime; datetime.datetime.now()",
        "from datetime import datetime; datetime.now()",
        "import asyncio; await_ = asyncio.sleep(1)",
    ],
)
def test_the_rule_on_time_sees(source: str) -> None:
    assert time_questions(ast.parse(source))


@pytest.mark.parametrize(
    "source",
    [
        "open('x')",
        "import os; os.pwrite(3, b'', 0)",
        "import os.path; os.path.exists('x')",
        "from os import path; path.isdir('x')",
        "from os import fsync",
        "from pathlib import Path",
        "import pathlib; pathlib.Path('x').unlink()",
        "import io; io.open('x')",
        "import shutil as s; s.rmtree('x')",
    ],
)
def test_the_rule_on_files_sees(source: str) -> None:
    assert file_touches(ast.parse(source))


@pytest.mark.parametrize(
    "source",
    [
        "files.open('x'); files.rename('x', 'y')",
        "import os; os.getpid(); os.fspath(x); os.path.join(a, b)",
        "clock.sleep(1); engine.time(); self.clock.monotonic_ns()",
        "from datetime import datetime; datetime.fromtimestamp(0)",
        "import time; time.thread_time_ns()",
    ],
)
def test_the_rules_on_time_and_files_leave_the_innocent_alone(source: str) -> None:
    assert time_questions(ast.parse(source)) == []
    assert file_touches(ast.parse(source)) == []


def test_the_log_imports_the_standard_library_and_its_checksum_alone() -> None:
    allowed = WAL_IMPORTS | sys.stdlib_module_names
    assert [
        f"{place(path, node)} {module}"
        for path in modules()
        if path.is_relative_to(ROOT / "wal")
        for node, module, _, _ in imports(parsed(path))
        if module.partition(".")[0] not in allowed
    ] == []


def test_inside_the_house_names_come_from_the_module_that_defines_them() -> None:
    assert [
        place(path, node)
        for path in modules()
        for node, module, _, _ in imports(parsed(path))
        if module in PACKAGES
    ] == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    everywhere = [
        *modules(),
        *modules_of_tests(),
        *sorted((ROOT / "bench").rglob("*.py")),
    ]
    assert [
        place(path)
        for path in everywhere
        if VAGUE_NAMES & set(path.relative_to(ROOT).with_suffix("").parts)
    ] == []


def test_package_fronts_only_re_export() -> None:
    def is_re_export(node: ast.stmt) -> bool:
        match node:
            case ast.ImportFrom() | ast.Import() | ast.Expr(ast.Constant(str())):
                return True
            case ast.Assign([ast.Name(name)]) | ast.AnnAssign(ast.Name(name)):
                return name == "__all__" or name in INIT_CONSTANTS
            case ast.Try(body, handlers, orelse, finalbody):  # a compiled twin or not
                handled = [n for handler in handlers for n in handler.body]
                return all(map(is_re_export, [*body, *handled, *orelse, *finalbody]))
        return False

    assert [
        place(path, node)
        for path in modules()
        if path.name == "__init__.py"
        for node in parsed(path).body
        if not is_re_export(node)
    ] == []


def imported(path: Path) -> ModuleType:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return importlib.import_module(".".join(parts).removesuffix(".__init__"))


def public_modules() -> list[Path]:
    return [path for path in modules() if path.name != "__main__.py"]


def undocumented(path: Path) -> Iterator[str]:
    module = imported(path)
    if not (module.__doc__ or "").strip():
        yield f"{place(path)}: the module"
    for name, thing in vars(module).items():
        if name.startswith("_") or getattr(thing, "__module__", "") != module.__name__:
            continue
        if inspect.isroutine(thing) and not inspect.getdoc(thing):
            yield f"{place(path)}: {name}()"
        if inspect.isclass(thing):
            # A dataclass without a docstring is given its signature as one.
            text = thing.__doc__ or ""
            if not text.strip() or text.startswith(f"{name}("):
                yield f"{place(path)}: {name}"
            yield from (f"{place(path)}: {name}.{m}" for m in undocumented_in(thing))


def undocumented_in(cls: type) -> Iterator[str]:
    for name, member in vars(cls).items():
        if isinstance(member, staticmethod | classmethod):
            member = member.__func__  # noqa: PLW2901 - the function is what is documented
        # A property too; getdoc looks at what a method overrides as well.
        is_documentable = inspect.isfunction(member) or isinstance(member, property)
        if name.startswith("_") or not is_documentable:
            continue
        if not inspect.getdoc(getattr(cls, name)):
            yield name


@pytest.mark.parametrize("path", public_modules(), ids=place)
def test_every_public_name_says_what_it_is(path: Path) -> None:
    assert list(undocumented(path)) == []


def test_every_name_that_a_package_lists_is_there() -> None:
    for path in modules():
        module = imported(path) if path.name == "__init__.py" else None
        if module is not None and len(path.read_text()) > 0:
            assert len(module.__all__) == len(set(module.__all__))
            assert [name for name in module.__all__ if not hasattr(module, name)] == []


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = function.body[0]
    has_docstring = (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )
    start = first.end_lineno if has_docstring else function.lineno
    assert function.end_lineno is not None
    assert start is not None
    return function.end_lineno - start


def test_modules_stay_of_a_size_that_one_idea_needs() -> None:
    too_long = {
        place(path)
        for path in modules()
        if len(path.read_text().splitlines()) > MODULE_LINES_MAX
    }
    expected = {name for name in LONG_MODULES if (ROOT / name).exists()}
    assert too_long == expected


def test_functions_stay_of_a_size_that_a_reader_holds_in_mind() -> None:
    too_long = {
        f"{place(path)}:{node.name}"
        for path in modules()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and body_lines(node) > FUNCTION_LINES_MAX
    }
    assert too_long == set(LONG_FUNCTIONS)


def tracked_files() -> list[Path]:
    """What git knows or would take; outside of a checkout, all but what tools leave."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0:
        names = listing.stdout.decode().split("\0")
        return [ROOT / name for name in names if name and (ROOT / name).is_file()]
    tops = [path for path in ROOT.iterdir() if not path.name.startswith(".")]
    return [
        path
        for top in tops
        for path in ([top] if top.is_file() else top.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]


def test_no_file_knows_one_machine_or_one_registry() -> None:
    found = []
    for path in tracked_files():
        text = path.read_bytes().decode(errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            if PRIVATE_PATH.search(line) or REGISTRY_HOST.search(line):
                found.append(f"{place(path)}:{number}: {line.strip()[:80]}")
    assert found == []


def test_the_rule_on_machines_and_registries_sees() -> None:
    assert PRIVATE_PATH.search("in " + "/wo" + "rk/main")
    assert PRIVATE_PATH.search('"' + "/ho" + 'me/ada/data"')
    assert not PRIVATE_PATH.search("https://example.org/wo" + "rk/main, ./work/")
    assert REGISTRY_HOST.search("https://py" + "pi.org/simple")


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def runnable(document: Path) -> str:
    """The blocks marked ```python run, each line where it stands in the document."""
    kept, inside = [], False
    for line in document.read_text().splitlines():
        if inside and line.strip() == "```":
            inside = False
        kept.append(line if inside else "")
        if line.strip() == "```python run":
            inside = True
    return "\n".join(kept)


def run_python(arguments: list[str], directory: Path, *, source: str = "") -> None:
    done = subprocess.run(
        [sys.executable, *arguments],
        input=source,
        text=True,
        capture_output=True,
        cwd=directory,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "TZ": "UTC"},
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "document",
    [d for d in documents() if d.exists() and runnable(d).strip()],
    ids=place,
)
def test_the_python_in_the_documents_runs(document: Path, tmp_path: Path) -> None:
    run_python(["-"], tmp_path, source=runnable(document))


def examples() -> list[Path]:
    return [
        path
        for path in sorted((ROOT / "docs" / "examples").glob("*.py"))
        if "# test: run" in path.read_text().splitlines()[:5]
    ]


@pytest.mark.parametrize("example", examples(), ids=place)
def test_the_examples_run(example: Path, tmp_path: Path) -> None:
    run_python([str(example)], tmp_path)
