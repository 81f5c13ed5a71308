"""Clocks are wrong or are set; nothing starts early, nothing starts twice.

A node's wall clock does not matter. The database's does: leases and due times follow it,
so a step may make starts late by as much, and never early.
"""

from __future__ import annotations

import time

import psycopg
import pytest

from tests.cluster.bed import Bed
from tests.cluster.conftest import Keep

HOUR = 3_600.0
DELAY_SECONDS = 3.0
_SETTABLE = """
CREATE TABLE clock (ahead_ns bigint);
INSERT INTO clock VALUES (0);
CREATE OR REPLACE FUNCTION timingwheel_now() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT (extract(epoch FROM statement_timestamp()) * 1000000000)::bigint + ahead_ns
    FROM clock
$$;
ALTER TABLE sink ALTER COLUMN at_ns SET DEFAULT timingwheel_now();
"""


@pytest.mark.parametrize(
    "off_s", [HOUR, pytest.param(-HOUR, marks=pytest.mark.long)], ids=["+1 h", "-1 h"]
)
def test_the_wall_clock_of_a_node_does_not_matter(
    bed: Bed, keep: Keep, off_s: float
) -> None:
    bed.put_at(40, every_s=0.1)
    wrong, right = bed.start(("wrong", {"wall_s": off_s}), "right")
    bed.wait_until(lambda: bed.started() >= 5, wrong, right)
    wrong.tell("step", -2 * off_s)
    bed.finish(wrong, right)
    found = bed.account()
    keep("wall clock of a node an hour off, and set", found)
    assert not found.faults
    assert found.started_twice <= found.refused
    assert bed.starts_by("wrong") > 0


@pytest.mark.parametrize("nodes", [3, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "step_s", [5.0, pytest.param(-5.0, marks=pytest.mark.long)], ids=["+5 s", "-5 s"]
)
def test_a_step_of_the_database_clock_starts_nothing_early_or_twice(
    bed: Bed, keep: Keep, step_s: float, nodes: int
) -> None:
    with psycopg.connect(bed.url) as connection:
        connection.execute(_SETTABLE.encode())
    bed.put_at(60, every_s=0.1)
    put_ns = time.monotonic_ns()
    bed.put(plain=20, named=0, recurring=0, in_s=DELAY_SECONDS)
    running = bed.start(*((f"n{n}", {"work_s": 0.02}) for n in range(nodes)))
    bed.wait_until(lambda: bed.started() >= 10, *running)
    in_flight = sum(bed.in_flight(node.name) for node in running)
    with psycopg.connect(bed.url) as connection:
        connection.execute("UPDATE clock SET ahead_ns = %s", [round(step_s * 1e9)])
    bed.finish(*running)
    found = bed.account(clock_was_set=True)
    keep(f"database clock set by {step_s:+.0f} s, nodes: {nodes}", found, in_flight)
    assert not found.faults
    assert found.started_twice <= in_flight + found.refused
    assert bed.first_delayed_start_ns() >= put_ns + round(DELAY_SECONDS * 1e9)
    print(f"latest start: {found.late_s:.3f} s")
