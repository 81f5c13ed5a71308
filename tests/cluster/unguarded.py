"""The store without its guards: the control that shows that the harness would see it."""

from __future__ import annotations

from types import ModuleType

from timingwheel.jobs.model import JobId, RunState
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.deciding.live import LiveRun, RunKey
from timingwheel.stores.postgres import claiming, guard, membership, serving

_GUARDS: tuple[tuple[ModuleType, str, str, str], ...] = (
    (claiming, "_CLAIM", "AND r.version = u.version", ""),
    (claiming, "_CLAIM", "AND until_ns > timingwheel_elapsed() FOR SHARE", ""),
    (guard, "_JOBS", "AND j.version = g.version", ""),
    (guard, "_RUNS", "AND r.version = g.version", ""),
    (guard, "_SHARDS", "AND s.epoch = g.epoch AND s.owner_inc = %s", "AND %s > 0"),
    (serving, "READY", "AND s.epoch = g.epoch\n    AND s.owner_inc = %s", "AND %s > 0"),
    (
        membership,
        "_BEAT",
        "AND inc = ANY(%s) AND until_ns > timingwheel_elapsed()",
        "AND (true OR inc = ANY(%s))",
    ),
)


def remove_the_guards() -> None:
    """Believe what was read, whatever has become of it."""
    for module, name, guarded, bare in _GUARDS:
        sql = getattr(module, name)
        assert guarded in sql, f"{module.__name__}.{name} has no {guarded!r}"
        setattr(module, name, sql.replace(guarded, bare))
    serving._running = _whoever_holds_it


def _whoever_holds_it(
    decision: Decision,
    job_id: JobId,
    key: RunKey,
    token: int,
) -> LiveRun | None:
    live = decision.run(job_id, *key)
    return live if live is not None and live.run.state is RunState.RUNNING else None
