"""A worker: runs the jobs of a server; needs `pip install 'timingwheel-engine[client]'`.

`Worker` runs the tasks of this program for a server anywhere; docs/workers.md says how
the two speak, so that a worker may be written in any language.
"""

from timingwheel.worker.worker import Worker

__all__ = ["Worker"]
