"""The program `timingwheel`: where it begins, and how it ends without its libraries.

Nothing here imports click, so that an installation without the extra can say so.
"""

from __future__ import annotations

import importlib.util
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Final

FAILED: Final = 1
_LIBRARIES: Final = ("click", "rich")


def main(
    argv: Sequence[str] | None = None,
    *,
    is_there: Callable[[str], bool] | None = None,
) -> int:
    """Run one command and return its exit code.

    Args:
        argv: the arguments, those of the process by default.
        is_there: whether a library can be imported.

    Returns:
        0 done; 1 it failed, or what was named is not there; 2 a usage error;
        130 after Ctrl-C; 141 if nobody reads what it prints any more, as of a pipe.
    """
    found = _is_installed if is_there is None else is_there
    missing = [name for name in _LIBRARIES if not found(name)]
    if missing:
        sys.stderr.write(
            f"timingwheel: the command line needs {' and '.join(missing)}: "
            "pip install 'timingwheel-engine[cli]'\n"
        )
        return FAILED
    from timingwheel.cli.refusal import PIPE_CLOSED
    from timingwheel.cli.root import root

    code = root.run(sys.argv[1:] if argv is None else argv)
    if code == PIPE_CLOSED:
        # The store is closed by now. As other tools end, and before the interpreter
        # tries once more to write what nobody reads.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.raise_signal(signal.SIGPIPE)
    return code


def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None
