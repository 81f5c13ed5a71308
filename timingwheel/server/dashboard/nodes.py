"""The page Nodes: who shares the database, who fires what, how the database does."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from timingwheel.jobs.cluster import ClusterFacts, MemberFacts, ShardFacts
from timingwheel.scheduler.cluster_findings import cluster_findings
from timingwheel.server.dashboard.visits import Page, View, Visit

NAV: Final = "Nodes"
TABLES_SHOWN: Final = 8
TONES: Final = ("accent", "busy", "good", "idle")
"""Of owners, in the order of their names; they come again after as many."""
_ACROSS: Final = 32
_CELL: Final = 10


class Cell(NamedTuple):
    """A shard in the drawing.

    Attributes:
        shard: what it is.
        x: from the left.
        y: from the top.
        tone: of its owner; "bad": it has none.
    """

    shard: ShardFacts
    x: int
    y: int
    tone: str


class Owner(NamedTuple):
    """A node, and what it has.

    Attributes:
        member: it.
        tone: of its shards in the drawing.
        shards: that it fires.
    """

    member: MemberFacts
    tone: str
    shards: int


def show_nodes(visit: Visit) -> View:
    """Show the nodes of a database; of a directory, that one process serves it."""
    facts = visit.scheduler.cluster()
    if facts is None:
        return View("nodes.html", {"facts": None, "live": False})
    findings = cluster_findings(facts)
    cells = draw_shards(facts)
    values = {
        "facts": facts,
        "database": facts.database,
        "findings": [(one, "warn" if one.is_mild else "bad") for one in findings],
        "owners": owners_of(facts),
        "workers": [one for one in facts.members if not one.is_node],
        "cells": cells,
        "cell": _CELL - 1,
        "width": _ACROSS * _CELL,
        "height": max((one.y for one in cells), default=0) + _CELL,
        "epochs": sum(one.epoch for one in facts.shards),
        "late_ns": max((one.late_ns for one in facts.shards), default=0),
        "refused": visit.scheduler.snapshot_metrics().lease_losses,
        "tables": sorted(facts.database.tables, key=lambda one: -one.dead)[
            :TABLES_SHOWN
        ],
        "live": True,
    }
    return View("nodes.html", values)


def owners_of(facts: ClusterFacts) -> list[Owner]:
    """Return the nodes by name, those whose lease is past last."""
    tones = _tones(facts)
    counts = Counter(one.owner for one in facts.shards)
    nodes = [one for one in facts.members if one.is_node]
    return [
        Owner(one, tones.get(one.name, "idle"), counts[one.name])
        for one in sorted(nodes, key=lambda one: (not one.is_alive, one.name))
    ]


def draw_shards(facts: ClusterFacts) -> list[Cell]:
    """Return the shards as rows of cells, by number."""
    tones = _tones(facts)
    return [
        Cell(
            one,
            place % _ACROSS * _CELL,
            place // _ACROSS * _CELL,
            "bad" if one.owner is None else tones.get(one.owner, "idle"),
        )
        for place, one in enumerate(facts.shards)
    ]


def _tones(facts: ClusterFacts) -> dict[str, str]:
    names = sorted(one.name for one in facts.nodes)
    return {name: TONES[place % len(TONES)] for place, name in enumerate(names)}


NODE_PAGES: Final = (Page("GET", "/nodes", show_nodes, nav=NAV),)
