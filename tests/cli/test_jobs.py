"""`job add | list | show | next | explain | why | edit`, on a real directory."""

from __future__ import annotations

import pytest

from tests.cli.stage import Stage

NIGHTLY = ("fail", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", "--name", "nightly")


def test_a_job_that_was_added_is_listed_and_shown(stage: Stage) -> None:
    job_id = stage.add("greet", "to=a@x", "n:=2", "--delay", "10m", "--tag", "team=bi")
    (found,) = stage.ok("job", "list", "--json").json["jobs"]
    assert found["id"] == job_id
    assert found["arguments"] == {"n": 2, "to": "a@x"}
    assert found["next"] == "2026-01-01T12:10:00Z"
    assert found["tags"] == {"team": "bi"}
    shown = stage.ok("job", "show", job_id).out
    assert "to=a@x" in shown
    assert "2026-01-01 12:10:00+00:00 (in 10m)" in shown


def test_a_name_is_found_again_and_a_new_definition_updates_it(stage: Stage) -> None:
    first = stage.add(*NIGHTLY)
    again = stage.ok("job", "add", *NIGHTLY, "--json").json
    assert (again["job"]["id"], again["created"], again["updated"]) == (
        first,
        False,
        False,
    )
    other = stage.ok("job", "add", *NIGHTLY, "--priority", "3", "--json").json
    assert (other["job"]["revision"], other["updated"]) == (2, True)
    refused = stage.run("job", "add", *NIGHTLY, "--if-exists", "error")
    assert refused.code == 1
    assert "nightly" in refused.err


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (("--every", "90s"), "every 1 minute 30 seconds"),
        (("--every", "day at 06:00"), "every day at 06:00:00 UTC"),
        (
            ("--every", "2 weeks at 9:30", "--tz", "Asia/Tokyo"),
            "every 2 weeks at 09:30",
        ),
        (("--at", "2026-02-01"), "once, at 2026-02-01T00:00:00Z"),
        (("--at", "+2h"), "once, at 2026-01-01T14:00:00Z"),
        (("--at", "tomorrow"), "once, at 2026-01-02T00:00:00Z"),
        (("--cron", "@daily"), "@daily UTC"),
        (("--rrule", "FREQ=DAILY;COUNT=3"), "FREQ=DAILY;COUNT=3 UTC"),
    ],
)
def test_all_ways_to_say_when(stage: Stage, words: tuple[str, ...], rule: str) -> None:
    stage.add("greet", "to=x", *words)
    (found,) = stage.ok("job", "list", "--json").json["jobs"]
    assert found["when"].startswith(rule)


def test_after_waits_for_all_or_any_of_several(stage: Stage) -> None:
    a = stage.add("greet", "to=a", "--delay", "1h")
    b = stage.add("greet", "to=b", "--delay", "1h")
    c = stage.add(
        "greet", "to=c", "--after", a, "--after", b, "--any-of", "--on", "any"
    )
    when = stage.ok("job", "show", c, "--json").json["trigger"]["when"]
    assert when["jobs"] == [a, b]
    assert (when["on"], when["need"]) == ("any", "any")


def test_policies_and_places_are_kept(stage: Stage) -> None:
    words = (
        "--overlap",
        "allow(3)",
        "--misfire",
        "all(100, 1h)",
        "--retry",
        "3,1s..1m",
    )
    job_id = stage.add(
        *("greet", "to=x", "--every", "1h", *words),
        *("--timeout", "5m", "--delivery", "at_most_once", "--start-deadline", "1h"),
        *("--queue", "q", "--priority", "2", "--concurrency", "tenant:7=2"),
    )
    found = stage.ok("job", "show", job_id, "--json").json
    assert found["policy"]["overlap"] == {"rule": "allow", "limit": 3}
    assert found["policy"]["retry"]["attempts"] == 3
    assert found["policy"]["timeout_ns"] == 300 * 10**9
    assert found["concurrency"] == {"key": "tenant:7", "limit": 2}
    assert (found["queue"], found["priority"]) == ("q", 2)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--delay", "ten"), 2, "--delay is 'ten'"),
        (("--cron", "61 * * * *"), 2, "minute field"),
        ((), 2, "when is 'missing'"),
        (("--delay", "1s", "--on", "any"), 2, "--after"),
        (("--delay", "1s", "--dst-gap", "skip"), 2, "--cron"),
        (("--at", "noon"), 2, "2026-03-29T09:00"),
        (("--delay", "1s", "--tag", "bi"), 2, "team=bi"),
        (("--delay", "1s", "--retry", "many"), 2, "5,1s..10m"),
        (("--delay", "1s", "--concurrency", "x"), 2, "tenant:7=2"),
        (("--every", "1h", "--calendar", "none"), 1, "calendar set"),
        (("--delay", "1s", "--args", "[1]"), 2, "JSON object"),
        (("--delay", "1s", "n:=x"), 2, "n is 'x'"),
        (("--delay", "1s", "novalue"), 2, "name=text"),
    ],
)
def test_what_cannot_be_meant_names_the_argument_and_adds_nothing(
    stage: Stage, words: tuple[str, ...], code: int, told: str
) -> None:
    stage.add("greet", "to=x", "--delay", "1h")
    done = stage.run("job", "add", "greet", *words)
    assert (done.code, done.out) == (code, "")
    assert told in done.err
    assert len(stage.ok("job", "list", "--json").json["jobs"]) == 1


def test_with_the_program_arguments_are_checked_and_defaults_count(
    stage: Stage,
) -> None:
    app = ("--app", "tests.cli.program:app")
    job_id = stage.ok(
        *app, "job", "add", "greet", "to=a", "--delay", "1h", "--create"
    ).out.strip()
    assert stage.ok("job", "show", job_id, "--json").json["queue"] == "mail"
    wrong = stage.run(*app, "job", "add", "greet", "n:=2", "--delay", "1h")
    assert wrong.code == 2
    assert "to" in wrong.err
    text = stage.run(*app, "job", "add", "greet", "to=a", "n=2", "--delay", "1h")
    assert text.code == 2
    assert "got `str` - at `$.n`; name=5 passes a text, name:=5 a number" in text.err
    unknown = stage.run(*app, "job", "add", "nobody", "--delay", "1h")
    assert unknown.code == 1
    assert "greet" in unknown.err
    # A text becomes what the function wants.
    stage.ok(*app, "job", "add", "remind", "at=2026-01-01T00:00:00Z", "--delay", "1h")


def test_next_times_show_what_a_change_of_the_clocks_does(stage: Stage) -> None:
    stage.add(*NIGHTLY)
    times = stage.ok("job", "next", "nightly", "--count", "100", "--json").json["times"]
    shifted = [time for time in times if time["clock_change"]]
    assert [time["local"] for time in shifted] == ["2026-03-29T03:00:00+02:00"]
    assert "shifted" in stage.ok("job", "next", "nightly", "-n", "100").out


def test_a_job_is_explained_and_an_occurrence_too(stage: Stage) -> None:
    stage.add(*NIGHTLY)
    assert "02:30" in stage.ok("job", "explain", "nightly").out
    why = stage.ok("job", "why", "nightly", "2026-01-02 01:30+00:00").out
    assert "has not come yet" in why
    answer = stage.ok("job", "why", "nightly", "2026-01-02 01:31", "--json").json
    assert "names no such time" in answer["why"]


def test_an_edit_shows_the_times_before_and_after(stage: Stage) -> None:
    stage.add(*NIGHTLY)
    dry = stage.ok("job", "edit", "nightly", "--cron", "30 3 * * *", "--dry-run")
    assert "- 2026-01-02 01:30:00+00:00" in dry.out
    assert "+ 2026-01-02 02:30:00+00:00" in dry.out
    assert stage.ok("job", "show", "nightly", "--json").json["revision"] == 1
    done = stage.ok("job", "edit", "nightly", "--cron", "30 3 * * *", "--json").json
    assert done["job"]["revision"] == 2
    stale = stage.run("job", "edit", "nightly", "--priority", "1", "--if-revision", "1")
    assert stale.code == 1
    assert "revision 2" in stale.err


def test_an_edit_replaces_single_arguments_and_clears_bounds(stage: Stage) -> None:
    stage.add("greet", "to=a", "n:=2", *NIGHTLY[1:], "--max-runs", "9")
    stage.ok("job", "edit", "nightly", "to=b", "--clear", "max-runs")
    found = stage.ok("job", "show", "nightly", "--json").json
    assert found["arguments"] == {"to": "b", "n": 2}
    assert "runs_max" not in found["trigger"]
    both = stage.run("job", "edit", "nightly", "--clear", "max-runs", "--max-runs", "2")
    assert both.code == 2


def test_jobs_are_filtered_and_paged(stage: Stage) -> None:
    for number in range(5):
        stage.add("greet", f"n:={number}", "--delay", "1h", "--name", f"job-{number}")
    stage.add("fail", "--delay", "1h")
    assert len(stage.ok("job", "list", "--task", "fail", "--json").json["jobs"]) == 1
    first = stage.ok("job", "list", "--limit", "4", "--json").json
    rest = stage.ok("job", "list", "--cursor", first["cursor"], "--json").json
    assert (len(first["jobs"]), len(rest["jobs"])) == (4, 2)
    assert rest["cursor"] is None
    assert len(stage.ok("job", "list", "--all", "--json").lines) == 6
    table = stage.ok("job", "list", "--limit", "2")
    assert table.out.splitlines()[0].split()[:2] == ["JOB", "STATE"]
    assert "--cursor" in table.err


def test_a_job_that_is_not_there_ends_with_1(stage: Stage) -> None:
    stage.add("greet", "--delay", "1h")
    for words in (("show",), ("next",), ("explain",), ("pause",), ("run",)):
        done = stage.run("job", *words, "nobody")
        assert done.code == 1, done
        assert "JOB is 'nobody'" in done.err


def test_what_others_have_written_cannot_steer_the_terminal(stage: Stage) -> None:
    name = "a\x1b]0;title\x07\nforged  active"
    job = stage.add("greet", "--delay", "1h", "--name", name, "--tag", "team=\x9b2J")
    shown = r"a\x1b]0;title\x07\nforged  active"

    heading, row = stage.ok("job", "list").out.splitlines()
    assert row.startswith(shown), heading
    stage.ok("job", "pause", job, "--note", "\x1b[2J")
    told = stage.ok("job", "show", job).out + stage.ok("job", "explain", job).out
    told += stage.run("job", "show", "no\x1b[2Jname").err
    assert r"\x1b[2J" in told
    assert not set(told) & {"\x1b", "\x07", "\x9b"}
    assert stage.ok("--json", "job", "show", job).json["name"] == name
