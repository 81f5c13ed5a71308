"""Python anew, for tests of what is chosen or missing at the first import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from timingwheel.bodies import PURE_VARIABLE

ROOT = Path(__file__).resolve().parent.parent

# A finder that fails as a real one does.
_FINDER = """
import sys
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            raise {error}
sys.meta_path.insert(0, Finder)
"""


def without(module: str, error: str = 'ModuleNotFoundError("no", name=name)') -> str:
    """Return source after which the import of a module raises that error."""
    return _FINDER.format(module=module, error=error)


def run_python(source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run source in a process whose bodies are chosen by `environment` alone."""
    clean = {name: value for name, value in os.environ.items() if name != "COV_CORE"}
    clean.pop(PURE_VARIABLE, None)
    return subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        text=True,
        check=False,
        env={**clean, "PYTHONPATH": str(ROOT), **environment},
    )
