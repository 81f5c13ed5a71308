"""`timingwheel node list` and `shard list`: who shares a database, and who fires what."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import msgspec

from timingwheel.cli.grammar import noun, option, verb
from timingwheel.cli.refusal import RefusedError
from timingwheel.cli.session import Session
from timingwheel.jobs.cluster import ClusterFacts, MemberFacts

node: Final = noun(
    "node",
    "Nodes: the processes that share a database, and their workers.",
    examples=[("timingwheel --store postgresql://jobs@db/jobs node list", "")],
)
shard: Final = noun(
    "shard",
    "Shards: parts of the jobs, each fired by one node at a time.",
    examples=[("timingwheel --store postgresql://jobs@db/jobs shard list", "")],
)


@verb(
    node,
    "list",
    examples=[
        ("timingwheel node list --store postgresql://jobs@db/jobs", ""),
        ("timingwheel node list --all --json", "workers, too"),
    ],
)
@option("--all", "with_workers", is_flag=True, help="Workers as well.")
def list_nodes(session: Session, *, with_workers: bool) -> None:
    """List the nodes of a database, those that died a moment ago as well."""
    facts = _facts(session)
    found = [one for one in facts.members if one.is_node or with_workers]
    printer = session.printer
    if printer.as_json:
        rows = [msgspec.to_builtins(one) for one in found]
        printer.document(
            {
                "schema": facts.schema,
                "protocol": facts.protocol,
                "members": [
                    row | {"alive": one.is_alive}
                    for row, one in zip(rows, found, strict=True)
                ],
            }
        )
        return
    printer.table(
        ("name", "kind", "inc", "shards", "running", "slots", "lease left", "reads"),
        [_row(one) for one in found],
        empty="no node lives: nothing becomes due until one does",
    )


@verb(
    shard,
    "list",
    examples=[
        ("timingwheel shard list --store postgresql://jobs@db/jobs", ""),
        ("timingwheel shard list --late", "those in which something is due"),
    ],
)
@option("--late", is_flag=True, help="Only those in which something is due.")
def list_shards(session: Session, *, late: bool) -> None:
    """List shards: who fires them, how often that has changed, what is due."""
    facts = _facts(session)
    found = [one for one in facts.shards if one.late_ns or not late]
    printer = session.printer
    if printer.as_json:
        printer.document({"shards": [msgspec.to_builtins(one) for one in found]})
        return
    printer.table(
        ("shard", "owner", "epoch", "late"),
        [
            (
                str(one.shard),
                one.owner or "nobody",
                str(one.epoch),
                _seconds(one.late_ns) if one.late_ns else "",
            )
            for one in found
        ],
        empty="nothing is due",
    )
    if not late:
        owners = Counter(one.owner for one in facts.shards)
        printer.hint(
            "; ".join(
                f"{owner or 'nobody'}: {count}" for owner, count in owners.items()
            )
        )


def _row(one: MemberFacts) -> tuple[Any, ...]:
    return (
        one.name,
        "node" if one.is_node else "worker",
        str(one.inc),
        str(one.shards) if one.is_node else "",
        str(one.running),
        "" if one.is_node else str(one.places),
        _seconds(one.left_ns) if one.is_alive else "past",
        f"{one.protocol_min} to {one.protocol_max}",
    )


def _seconds(length_ns: int) -> str:
    return f"{length_ns / 1e9:.1f}s"


def _facts(session: Session) -> ClusterFacts:
    """Return how the store stands.

    Raises:
        RefusedError: it is in a directory.
    """
    with session.connected() as connection:
        facts = connection.app.cluster()
        place = connection.place
    if facts is None:
        raise RefusedError(
            f"{place} is in a directory, which one process serves: name a database with "
            "--store"
        )
    return facts
