"""The wire between a node and the database fails; what was done is not done again.

A connection that breaks leaves a node in doubt whether its last statement was carried out;
one that is silent leaves it waiting, past its lease.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.cluster.bed import Bed, Fault
from tests.cluster.conftest import Keep
from tests.cluster.proxy import Proxy, Way
from tests.postgres import Postgres

POINTS = 60
SAMPLE = {(3, "after"), (5, "before"), (7, "after"), (9, "after"), (16, "after")}


@pytest.fixture
def proxy(postgres: Postgres) -> Iterator[Proxy]:
    made = Proxy(postgres.sockets)
    yield made
    made.close()


def through(proxy: Proxy, bed: Bed) -> dict[str, Any]:
    """Return the part of a plan that leads a node through the proxy."""
    before, after = quote(proxy.server, safe=""), quote(proxy.directory, safe="")
    return {"url": bed.url.replace(before, after)}


def points() -> list[object]:
    """Each message, broken before it is sent and when its reply is on the way."""
    return [
        pytest.param(
            *(message, moment),
            id=f"{moment} message {message}",
            marks=() if (message, moment) in SAMPLE else pytest.mark.long,
        )
        for message in range(1, POINTS + 1)
        for moment in ("before", "after")
    ]


@pytest.mark.parametrize(("message", "moment"), points())
def test_a_node_goes_on_when_its_connection_breaks(
    bed: Bed, keep: Keep, message: int, moment: str
) -> None:
    """It lives on under its number: nobody else would clear up what it has left."""
    bed.put(times=8, period_s=0.1)
    fault = Fault("break", "any", message, moment)  # type: ignore[arg-type]
    nodes = bed.start(("broken", {"fault": fault, "work_s": 0.005}), "a")
    # On a busy machine the other may do most; signs of life are messages, too.
    bed.wait_until(nodes[0].has_struck, *nodes)
    bed.finish(*nodes)
    found = bed.account()
    keep(f"connection broken {moment} a statement", found)
    assert not found.faults
    assert found.started_twice <= found.refused


@pytest.mark.parametrize("message", [1, 2, 3])
def test_an_end_whose_reply_was_lost_counts_once(
    bed: Bed, keep: Keep, message: int
) -> None:
    bed.put(recurring=0)
    fault = Fault("break", "finish", message, "after")
    [node] = bed.start(("broken", {"fault": fault}))
    bed.finish(node)
    assert node.report.has_struck
    found = bed.account()
    keep("reply to an end lost", found)
    assert not found.faults
    assert found.started_twice == 0
    assert found.refused == 0


@pytest.mark.parametrize(
    ("ways", "breaks"),
    [
        (("requests", "replies"), False),
        pytest.param(("requests", "replies"), True, marks=pytest.mark.long),
        (("replies",), False),
        pytest.param(("replies",), True, marks=pytest.mark.long),
        pytest.param(("requests",), False, marks=pytest.mark.long),
        pytest.param(("requests",), True, marks=pytest.mark.long),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else None,
)
def test_a_node_that_is_cut_off_past_its_lease_is_refused(
    bed: Bed, keep: Keep, proxy: Proxy, ways: tuple[Way, ...], breaks: bool
) -> None:
    bed.put(times=25, period_s=0.1)
    plan = {**through(proxy, bed), "work_s": 0.02}
    off, *others = bed.start(("off", plan), "a", "b")
    bed.wait_until(lambda: bed.in_flight("off") > 0, *bed.nodes)
    proxy.cut(*ways)
    in_flight = bed.outlive(off, *others)
    if breaks:
        proxy.break_all()
    cut_off = bed.last_change()
    proxy.mend()
    back = bed.comes_back(off, cut_off)
    bed.finish(off, *others)
    found = bed.account()
    how = "one way" if len(ways) == 1 else "both ways"
    keep(f"cut off past the lease, {how}", found, in_flight)
    assert not found.faults
    assert not bed.changes_by("off", "shard", since=cut_off, before=back)
    assert not bed.changes_by("off", "run", since=cut_off, before=back)


def test_replies_that_come_a_lease_late_start_nothing_twice(
    bed: Bed, keep: Keep, proxy: Proxy
) -> None:
    """Each beat arrives in time and is answered too late to be relied upon."""
    bed.put(times=25, period_s=0.1)
    slow, *others = bed.start(
        ("slow", {**through(proxy, bed), "work_s": 0.02}), "a", "b"
    )
    bed.wait_until(lambda: bed.in_flight("slow") > 0, *bed.nodes)
    proxy.delay_replies(1.0)
    bed.wait_until(bed.is_done, *bed.nodes)
    proxy.mend()
    bed.finish(slow, *others)
    found = bed.account()
    keep("replies late by a lease", found)
    assert not found.faults


@pytest.mark.parametrize("sent_bytes", [1, pytest.param(40, marks=pytest.mark.long)])
def test_a_statement_that_arrives_in_part_is_as_if_it_was_never_sent(
    bed: Bed, keep: Keep, proxy: Proxy, sent_bytes: int
) -> None:
    bed.put(times=12, period_s=0.1)
    torn, *others = bed.start(("torn", {**through(proxy, bed), "work_s": 0.005}), "a")
    bed.wait_until(lambda: bed.first_change_by("torn", "run", 0) > 0, *bed.nodes)
    for _ in range(5):
        proxy.break_next("requests", sent_bytes)
        bed.wait_until(lambda: proxy.has_broken, *bed.nodes)
    bed.finish(torn, *others)
    found = bed.account()
    keep("connection broken within a statement", found)
    assert not found.faults
