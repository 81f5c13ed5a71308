"""The page Nodes: of a directory there is one process, of a database any number."""

from __future__ import annotations

import httpx

from tests.postgres import Postgres
from tests.server.dashboard.visitor import Visitor
from tests.server.test_workers import Worker
from tests.worker.test_worker import until
from timingwheel.server.operations import API_PATH
from timingwheel.server.starting import make_server


def test_a_directory_has_one_process(visitor: Visitor) -> None:
    assert "One process serves this store" in visitor.get("/nodes").root.text


def test_nodes_shards_and_the_database_are_shown(postgres: Postgres) -> None:
    where = postgres.new_schema()
    with (
        make_server(where, port=0) as first,
        make_server(where, port=0) as second,
        Visitor(first.url) as visitor,
    ):

        def shares() -> list[int]:
            shown = visitor.get("/nodes").root
            rows = shown.all("tr", data_testid="node")
            return [int(row.all("td")[1].text) for row in rows]

        def are_shared() -> bool:
            found = shares()
            return len(found) == 2 and 0 not in found and sum(found) == 256

        # Not until they are even, which takes a beat for each sixteenth: what one has
        # given up and the other not taken yet is nobody's.
        until(are_shared)
        shown = visitor.get("/nodes").root
        assert "it is off: a crash loses jobs" in shown.text
        titles = [one.text for one in shown.all("title") if "Shard" in one.text]
        assert len(titles) == 256
        with httpx.Client(base_url=second.url + API_PATH) as http:
            worker = Worker(http)
            rows = visitor.get("/workers").root.all("tr", data_testid="worker")
        assert any(worker.id in row.text for row in rows)
        assert len(rows) == 2  # both servers are this process
        log = visitor.get("/log").root.text
        assert "PostgreSQL database" in log
