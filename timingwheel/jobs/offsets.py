"""How long after its nominal time a run is due, so that a herd does not start at once.

*Splay* is the job's own share, computed from its id: the same each time, another one for
another job. *Jitter* is drawn anew for each run. Nominal times and the identity of runs
stay as they are, and so does the order of a job's runs: what is added stays below the gap
to the next occurrence.
"""

from __future__ import annotations

from random import Random
from typing import Final

from timingwheel.jobs.stable_hash import stable_number
from timingwheel.jobs.triggers import Trigger

_HASH_BITS: Final = 64


def splay_ns(job_id: str, bound_ns: int) -> int:
    """Return a job's share of a splay: from 0 up to, but not at, the bound.

    It depends on nothing else, so it is the same after a restart and on every node.
    """
    # Multiplied and not divided: a longer splay keeps the order of the jobs.
    return stable_number(f"splay:{job_id}") * bound_ns >> _HASH_BITS


def jitter_ns(random: Random, bound_ns: int) -> int:
    """Return a random offset: from 0 up to, but not at, the bound; 0 for a bound of 0."""
    return random.randrange(bound_ns) if bound_ns else 0


def due_ns(
    trigger: Trigger,
    nominal_ns: int,
    *,
    job_id: str,
    next_ns: int | None,
    random: Random,
) -> int:
    """Return when the run of a nominal time is due.

    Args:
        trigger: with its splay and jitter.
        nominal_ns: the occurrence.
        job_id: whose.
        next_ns: the occurrence after it, None if there is none.
        random: where jitter is drawn from.

    Returns:
        nominal_ns or later, and before next_ns. A change of the clock can bring two
        occurrences closer together than when the trigger was checked: then the offset
        is cut.
    """
    offset_ns = splay_ns(job_id, trigger.splay_ns)
    offset_ns += jitter_ns(random, trigger.jitter_ns)
    if next_ns is not None:
        offset_ns = min(offset_ns, next_ns - nominal_ns - 1)
    return nominal_ns + offset_ns
