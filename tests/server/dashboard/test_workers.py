"""The page Workers."""

from __future__ import annotations

from tests.scheduler import program
from tests.server.dashboard.visitor import Shown, Visitor
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.serving import HttpServer


def rows(shown: Shown) -> list[list[str]]:
    found = shown.root.all("tr", data_testid="worker")
    return [[cell.text for cell in [*row.all("th"), *row.all("td")]] for row in found]


def test_who_works_here_and_from_afar_is_shown(
    server: HttpServer, app: Scheduler, visitor: Visitor
) -> None:
    far = server.hub.join("far", 3_600 * 10**9)
    door = program.log.door("d")
    ref = app.add(program.held.call("d"), delay=0)
    door.await_somebody()
    here, there = rows(visitor.get("/workers"))
    assert here[0].startswith("This server")
    assert here[1:5] == ["here", "active", "1", str(app.slots)]
    assert there[0] == f"far {far}"
    assert there[1:5] == ["over HTTP", "idle", "0", "as it asks"]
    door.open()
    app.run(ref).wait("30s")
    assert rows(visitor.get("/workers"))[0][2:4] == ["idle", "0"]
