"""A disk in memory that can be crashed, filled, broken and looked at.

`MemoryFileSystem` is the `FileSystem` that a log takes, so code runs on it unchanged, and
it remembers what was made durable and what was not:

    disk = MemoryFileSystem()
    disk.make_directory()
    handle = disk.create("file")
    disk.pwrite(handle, b"lost or not", 0)
    for state in disk.crash_states(limit=100):
        recover(state)  # state.label names the crash: disk.crashed(state.label)

What a crash may leave is told in `wal.testing.disk`, how one state is chosen and named in
`CrashChoice`. The other tools: `crash_at` stops the machine at a call, `fail` makes calls
raise, `capacity_bytes` is the size of the disk, `short_writes` cuts writes, `killed` is
the death of the process alone, and verbs such as `flip_bit` damage what is stored.
"""

from wal.testing.crash import CrashChoice
from wal.testing.machine import Call, SimulatedCrash
from wal.testing.memory import MemoryFileSystem

__all__ = ["Call", "CrashChoice", "MemoryFileSystem", "SimulatedCrash"]
