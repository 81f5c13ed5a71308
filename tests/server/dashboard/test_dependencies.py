"""The page Dependencies: which jobs are drawn, where, and by which lines."""

from __future__ import annotations

from tests.scheduler import program
from tests.server.dashboard.visitor import Visitor
from timingwheel.jobs.after import After
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.dashboard.dependencies import JOBS_MAX, make_graph

NOTE = program.note.call("x")


def test_a_job_stands_to_the_right_of_all_that_it_waits_for(app: Scheduler) -> None:
    with app:
        a = app.add(NOTE, delay="1h", name="a")
        b = app.add(NOTE, delay="1h", name="b")
        c = app.add(NOTE, after=After(a), name="c")
        d = app.add(NOTE, after=After.all_of(c, b), name="d")
        app.add(NOTE, after=After(d, on="failure"), name="e")
        app.add(NOTE, delay="1h", name="alone")
        graph = make_graph(app, app.followers())
    x = {node.title: node.x for node in graph.nodes}
    assert sorted(x) == ["a", "b", "c", "d", "e"]
    assert x["a"] == x["b"] < x["c"] < x["d"] < x["e"]
    edges = {(edge.before, edge.after, edge.on) for edge in graph.edges}
    assert edges == {
        ("a", "c", "success"),
        ("c", "d", "success"),
        ("b", "d", "success"),
        ("d", "e", "failure"),
    }
    # No two boxes stand on each other, and all are within the drawing.
    assert len({(node.x, node.y) for node in graph.nodes}) == 5
    assert all(0 < node.x < graph.width for node in graph.nodes)
    assert all(0 < node.y < graph.height for node in graph.nodes)


def test_the_graph_is_shown_with_a_way_to_each_job(
    app: Scheduler, visitor: Visitor
) -> None:
    assert "No job waits" in visitor.get("/dependencies").by_id("empty").text
    first = app.add(NOTE, cron="@daily", name="<first>")
    second = app.add(NOTE, after=After(first))
    shown = visitor.get("/dependencies")
    links = {
        node.attributes["href"]: node.text
        for node in shown.root.all("a", data_testid="node")
    }
    assert set(links) == {f"/jobs/{first.id}", f"/jobs/{second.id}"}
    assert "<first>" in links[f"/jobs/{first.id}"]
    assert "after each run" in links[f"/jobs/{second.id}"]
    assert len(shown.root.all("path", class_="edge")) == 1


def test_what_is_drawn_is_bounded(app: Scheduler, visitor: Visitor) -> None:
    first = app.add(NOTE, delay="1h")
    for _ in range(JOBS_MAX + 1):
        app.add(NOTE, after=After(first))
    shown = visitor.get("/dependencies")
    assert len(shown.root.all(data_testid="node")) == JOBS_MAX + 1
    assert "There are more" in shown.root.text
