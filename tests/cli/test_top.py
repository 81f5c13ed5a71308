"""What `top` shows, where it is no terminal."""

from __future__ import annotations

from tests.cli.stage import Stage


def test_a_directory_that_nobody_serves_is_shown_once(stage: Stage) -> None:
    job_id = stage.add("greet", "to=x", "--delay", "0s")
    stage.clock.advance(ns=10**9)
    stage.served(lambda app: app.run(job_id).wait(timeout=30))
    stage.add("greet", "--delay", "10m")
    stage.ok("queue", "set", "mail", "--limit", "3")
    (view,) = stage.ok("top", "--json").lines
    assert view["is_served"] is False
    assert (view["running"], view["ready"], view["dead"]) == (0, 0, 0)
    assert view["due_within_the_hour"] == 1
    assert [queue["name"] for queue in view["queues"]] == ["mail"]
    assert [run["state"] for run in view["ended_runs"]] == ["succeeded"]
    shown = stage.ok("top").out
    assert "which no scheduler serves" in shown
    assert "1 due within the hour" in shown


def test_an_interval_of_nothing_is_refused(stage: Stage) -> None:
    stage.add("greet", "--delay", "10m")
    done = stage.run("top", "--interval", "0s")
    assert done.code == 2
    assert "--interval" in done.err
