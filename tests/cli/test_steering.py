"""pause, resume, cancel, run, backfill; runs, the dead letter, queues, tasks, calendars."""

from __future__ import annotations

import pytest

from tests.cli.stage import Stage, left_behind
from timingwheel.scheduler.scheduler import Scheduler

HOURLY = ("greet", "to=a@x", "--cron", "0 * * * *", "--name", "hourly")


def ran(stage: Stage, *words: str) -> str:
    """Add a job that runs once, serve until it has ended, and return its run's id."""
    job_id = stage.add(*words, "--delay", "0s")
    stage.clock.advance(
        ns=10**9
    )  # else it is due with the next tick, which never comes
    found: list[str] = []

    def wait(app: Scheduler) -> None:
        found.append(app.run(job_id).wait(timeout=30).id)

    stage.served(wait)
    return found[0]


def test_a_pause_is_kept_with_who_and_why_and_is_resumed(stage: Stage) -> None:
    stage.add(*HOURLY)
    stage.ok(
        "job", "pause", "hourly", "--note", "disk", "--actor", "ada", "--until", "+2h"
    )
    pause = stage.ok("job", "show", "hourly", "--json").json["pause"]
    assert (pause["by"], pause["note"]) == ("ada", "disk")
    assert pause["until"] == "2026-01-01T14:00:00Z"
    assert (
        "by ada since 2026-01-01 12:00:00+00:00"
        in stage.ok("job", "show", "hourly").out
    )
    assert "was paused" in stage.ok("job", "pause", "hourly").out
    dry = stage.ok("job", "resume", "hourly", "--dry-run", "--json").json["jobs"][0]
    assert dry["dry_run"]
    assert stage.ok("job", "list", "--state", "paused", "--json").json["jobs"]
    stage.ok("job", "resume", "hourly")
    assert stage.ok("job", "show", "hourly", "--json").json["state"] == "active"


def test_none_is_paused_if_one_of_them_is_not_there(stage: Stage) -> None:
    stage.add(*HOURLY)
    assert stage.run("job", "pause", "hourly", "nobody").code == 1
    assert stage.ok("job", "show", "hourly", "--json").json["state"] == "active"


def test_a_cancel_says_what_it_did(stage: Stage) -> None:
    job_id = stage.add("greet", "--delay", "1h")
    first = stage.ok("job", "cancel", job_id, "--json").json["jobs"][0]
    assert (first["result"], first["prevented"]) == ("cancelled", True)
    again = stage.ok("job", "cancel", job_id, "--json").json["jobs"][0]
    assert (again["result"], again["prevented"]) == ("already", False)
    missing = stage.run("job", "cancel", "nobody")
    assert missing.code == 1
    assert "nobody" in missing.err


def test_a_job_is_run_by_hand_and_starts_once_it_is_served(stage: Stage) -> None:
    stage.add(*HOURLY)
    done = stage.ok("job", "run", "hourly")
    run_id = done.out.strip()
    assert "@" in run_id
    assert "when a scheduler serves" in done.err
    assert stage.run("job", "run", "hourly", "--wait", "1s").code == 2
    stage.served(lambda app: app.run(run_id).wait(timeout=30))
    shown = stage.ok("run", "show", run_id, "--json").json
    assert (shown["state"], shown["result"]) == ("succeeded", "hello a@x")
    assert shown["reason"] == "manual"


def test_a_backfill_makes_the_missing_runs(stage: Stage) -> None:
    stage.add(*HOURLY)
    words = ("job", "backfill", "hourly", "2026-01-01T06:00", "2026-01-01T09:00")
    dry = stage.ok(*words, "--dry-run", "--json").json
    assert dry["nominals"] == [f"2026-01-01T0{hour}:00:00Z" for hour in (6, 7, 8)]
    assert dry["runs"] == []
    assert len(stage.ok(*words, "--json").json["runs"]) == 3
    again = stage.ok(*words)
    assert "0 runs made; 3 times had one already" in again.err
    future = stage.run("job", "backfill", "hourly", "now", "+1d")
    assert future.code == 2
    assert "--end" in future.err


def test_runs_are_listed_shown_and_their_logs_printed(stage: Stage) -> None:
    run_id = ran(stage, "greet", "to=a@x")
    (found,) = stage.ok("run", "list", "--state", "succeeded", "--json").json["runs"]
    assert found["id"] == run_id
    assert stage.ok("run", "list", "--since", "+1h", "--json").json["runs"] == []
    shown = stage.ok("run", "show", run_id).out
    assert "hello a@x" in shown
    logs = stage.ok("run", "logs", run_id)
    assert "to a@x" in logs.out
    assert "attempt 1" in logs.err
    (line,) = stage.ok("run", "logs", run_id, "--json").lines
    assert line["outcome"] == "ok"
    assert stage.run("run", "logs", run_id, "--attempt", "7").code == 1
    assert stage.run("run", "show", f"{run_id}#7").code == 1
    assert stage.run("run", "show", "a@b").code == 2


def test_the_dead_letter_is_listed_retried_and_discarded(stage: Stage) -> None:
    run_id = ran(stage, "fail", "why=boom", "--retry", "1")
    (found,) = stage.ok("dead", "list", "--json").json["runs"]
    assert found["id"] == run_id
    assert "ValueError: boom" in stage.ok("dead", "list").out
    assert "boom" in stage.ok("dead", "show", run_id).out
    assert stage.ok("dead", "list", "--task", "greet", "--json").json["runs"] == []
    stage.ok("dead", "retry", run_id)
    assert stage.ok("dead", "list", "--json").json["runs"] == []
    stage.served(lambda app: app.run(run_id).wait(timeout=30))
    assert "1 runs discarded" in stage.ok("dead", "discard", "--all").out
    assert stage.ok("dead", "list", "--json").json["runs"] == []
    assert stage.run("dead", "discard", "--all").code == 1
    assert stage.run("run", "retry", run_id).code == 0  # its record is still there


@pytest.mark.parametrize("words", [(), ("RUN", "--all"), ("RUN", "--task", "x")])
def test_which_dead_runs_are_meant_must_be_clear(
    stage: Stage, words: tuple[str, ...]
) -> None:
    stage.add("greet", "--delay", "1h")
    assert stage.run("dead", "retry", *words).code == 2


def test_the_run_of_a_job_that_runs_once_is_cancelled(stage: Stage) -> None:
    job_id = stage.add("greet", "--delay", "1h")
    assert stage.ok("run", "cancel", job_id, "--json").json["result"] == "cancelled"
    again = stage.run("run", "cancel", job_id)
    assert again.code == 1


def test_a_single_run_of_a_recurring_job_is_cancelled_alone(stage: Stage) -> None:
    stage.add(*HOURLY)
    run_id = stage.ok("job", "run", "hourly").out.strip()
    done = stage.ok("run", "cancel", run_id, "--json").json
    assert (done["result"], done["run"]["state"]) == ("cancelled", "cancelled")
    assert stage.ok("job", "show", "hourly", "--json").json["state"] == "active"
    again = stage.run("run", "cancel", run_id)
    assert (again.code, "it has ended" in again.err) == (1, True)


def test_a_queue_is_bounded_paused_and_resumed(stage: Stage) -> None:
    stage.add(*HOURLY)
    stage.ok("queue", "set", "mail", "--limit", "4", "--rate", "0.5")
    stage.ok("queue", "set", "mail", "--rate", "none")
    stage.ok("queue", "pause", "mail", "--note", "relay", "--actor", "ada")
    (found,) = stage.ok("queue", "list", "--json").json["queues"]
    assert (found["limit"], found["rate"]) == (4, None)
    assert found["pause"]["note"] == "relay"
    assert "by ada" in stage.ok("queue", "list").out
    assert "paused" in stage.ok("queue", "show", "mail").out
    stage.ok("queue", "resume", "mail")
    assert stage.ok("queue", "show", "mail", "--json").json["pause"] is None
    assert stage.run("queue", "set", "mail").code == 2
    refused = stage.run("queue", "set", "mail", "--limit", "0")
    assert refused.code == 2
    assert "--limit is '0'" in refused.err


def test_tasks_are_those_of_the_program_and_those_that_jobs_name(stage: Stage) -> None:
    stage.add("gone", "--delay", "1h")
    alone = stage.ok("task", "list", "--json").json["tasks"]
    assert [(one["name"], one["jobs"]) for one in alone] == [("gone", 1)]
    app = ("--app", "tests.cli.program:app")
    both = stage.ok(*app, "task", "list", "--json").json["tasks"]
    assert {one["name"] for one in both} == {"gone", "greet", "fail", "remind"}
    assert stage.run("task", "rebind", "gone", "greet").code == 2
    assert stage.run(*app, "task", "rebind", "gone", "nobody").code == 1
    assert stage.ok(*app, "task", "rebind", "gone", "greet", "--json").json["jobs"] == 1


def test_a_program_that_is_none_is_refused(stage: Stage) -> None:
    for place in (
        "tests.cli.nothing:app",
        "tests.cli.program:greet",
        "tests.cli.program:x",
    ):
        done = stage.run("--app", place, "task", "list")
        assert done.code == 2
        assert "--app is" in done.err


def test_a_calendar_is_set_and_changed(stage: Stage) -> None:
    stage.add(*HOURLY)
    stage.ok("calendar", "set", "holidays", "--weekday", "sun", "--date", "2026-12-25")
    stage.ok("calendar", "exclude", "holidays", "2026-12-26")
    stage.ok("calendar", "include", "holidays", "2026-12-25")
    (found,) = stage.ok("calendar", "list", "--json").json["calendars"]
    assert found == {"name": "holidays", "dates": ["2026-12-26"], "weekdays": ["SUN"]}
    assert "Sunday" in stage.ok("calendar", "show", "holidays").out
    assert stage.run("calendar", "show", "none").code == 1
    assert stage.run("calendar", "exclude", "holidays", "christmas").code == 2


@pytest.mark.parametrize(("named", "worker"), [((), "unknown"), (("--key", "k"), "w1")])
def test_a_worker_that_ended_without_a_word_is_named_and_is_no_fault(
    stage: Stage, named: tuple[str, ...], worker: str
) -> None:
    job_id = stage.add("greet", "to=x", "--delay", "0s", *named)
    assert stage.ok("worker", "list", "--json").json["workers"] == []
    stage.clock.advance(ns=10**9)
    left_behind(stage)
    (found,) = stage.ok("worker", "list", "--json").json["workers"]
    assert (found["name"], found["running"]) == (worker, 1)
    (attempt,) = stage.ok("run", "show", job_id, "--json").json["tries"]
    assert (attempt["attempt"], attempt["outcome"]) == (1, None)
    told = stage.ok("worker", "list")
    assert worker in told.out
    assert "counts these attempts as lost" in told.err
    (finding,) = stage.ok("doctor", "--json").json["findings"]
    assert (finding["kind"], finding["mild"]) == ("left_running", True)
    stage.served(lambda app: app.run(job_id).wait(timeout=30))
    assert stage.ok("run", "show", job_id, "--json").json["state"] == "succeeded"
    assert stage.ok("doctor", "--json").json["findings"] == []
