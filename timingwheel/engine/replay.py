"""Reading a snapshot and the log behind it back into an engine's state."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from timingwheel.engine.dump import load
from timingwheel.engine.state import EngineState
from timingwheel.engine.volatile import VolatileLog
from timingwheel.errors import TimingWheelError
from wal.errors import WalError
from wal.log import JOINED_BYTES, Log


def replay(
    log: Log | VolatileLog, state: EngineState, load_owner: Callable[[bytes], None]
) -> int:
    """Bring a new state to where the log ends.

    Args:
        log: in read mode.
        state: of which nothing is set yet.
        load_owner: takes each blob that the owner dumped.

    Returns:
        The bytes of records that were read behind the snapshot.

    Raises:
        LogCorruptError: the log is damaged.
        TimingWheelError: what was read is whole, and not as this version writes it.
    """
    replayed_bytes = 0
    for block in log.snapshot_blocks():
        with _foreign_refused("a block of its snapshot"):
            blob = load(state, block)
            if blob is not None:
                load_owner(blob)
    for group in log.groups(joined_bytes=JOINED_BYTES):
        replayed_bytes += len(group.body)
        with _foreign_refused(f"a record from LSN {group.first_lsn} on"):
            state.apply_group(group.first_lsn, group.body)
    return replayed_bytes


@contextlib.contextmanager
def _foreign_refused(what: str) -> Iterator[None]:
    """Say of bytes whose sum holds, and which are not as ours, who can read them."""
    try:
        yield
    except (TimingWheelError, WalError, OSError, MemoryError, AssertionError):
        raise
    except Exception as error:
        raise TimingWheelError(
            f"{what} is not as an engine writes it ({error}), though its checksum "
            "holds: open this directory with the program that wrote it"
        ) from error
