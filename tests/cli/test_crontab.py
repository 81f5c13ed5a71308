"""What `import crontab` makes of a crontab, and what it refuses."""

from __future__ import annotations

from tests.cli.stage import Stage
from timingwheel.cli.crontab import read_crontab

CRONTAB = r"""
# a comment
MAILTO=ops@example.org
PATH = "/usr/local/bin:/usr/bin"
30 2 * * 1-5   /usr/bin/rsync -a /srv/data backup:
@daily         date +\%F
CRON_TZ=Europe/Berlin
0 9 * * MON    report --weekly
@reboot        warm-up
5 * * * *      mail -s x ops%hello
61 * * * *     never
* * * * *
"""
WORDS = ("import", "crontab", "-", "--task", "jobs:command", "--create")


def test_a_crontab_is_read_line_by_line() -> None:
    entries = list(read_crontab(CRONTAB.splitlines(), has_user=False))
    assert [entry.line for entry in entries] == [5, 6, 8, 9, 10, 11, 12]
    assert entries[0].argv == [
        "/usr/bin/env",
        "PATH=/usr/local/bin:/usr/bin",
        "/bin/sh",
        "-c",
        "/usr/bin/rsync -a /srv/data backup:",
    ]
    assert (entries[1].expression, entries[1].command) == ("@daily", "date +%F")
    assert "CRON_TZ" not in entries[1].environment
    assert entries[2].environment["CRON_TZ"] == "Europe/Berlin"
    assert [bool(entry.refusal) for entry in entries] == [False] * 3 + [
        True,
        True,
        False,
        True,
    ]


def test_a_system_crontab_has_a_user_before_the_command() -> None:
    (entry,) = read_crontab(["17 * * * * root run-parts /etc"], has_user=True)
    assert entry.command == "run-parts /etc"
    assert entry.argv == ["/bin/sh", "-c", "run-parts /etc"]


def test_each_line_becomes_a_job_and_the_rest_is_told(stage: Stage) -> None:
    done = stage.run(*WORDS, "--tz", "UTC", "--json", text=CRONTAB)
    assert done.code == 1
    assert "4 of 7 lines" in done.err
    results = {one["line"]: one["result"] for one in done.json["lines"]}
    assert [line for line, result in results.items() if result == "added"] == [5, 6, 8]
    jobs = stage.ok("job", "list", "--tag", "from=crontab", "--json").json["jobs"]
    assert {job["when"] for job in jobs} == {
        "30 2 * * 1-5 UTC",
        "@daily UTC",
        "0 9 * * MON Europe/Berlin",
    }
    assert {job["task"] for job in jobs} == {"jobs:command"}
    assert all(job["arguments"]["argv"] for job in jobs)


def test_the_same_file_again_finds_its_jobs_and_a_new_time_updates_one(
    stage: Stage,
) -> None:
    words = (*WORDS, "--tz", "UTC", "--json")
    lines = "0 1 * * * a\n0 2 * * * b\n0 3 * * * b\n"
    assert [one["result"] for one in stage.ok(*words, text=lines).json["lines"]] == [
        "added"
    ] * 3
    again = stage.ok(*words, text=lines.replace("0 1", "5 1")).json["lines"]
    assert [one["result"] for one in again] == ["updated", "there", "there"]
    assert len(stage.ok("job", "list", "--json").json["jobs"]) == 3


def test_a_dry_run_adds_nothing(stage: Stage) -> None:
    done = stage.ok(*WORDS, "--tz", "UTC", "--dry-run", text="0 1 * * * a\n")
    assert "planned" in done.out
    assert "next 2026-01-02 01:00:00+00:00" in done.out
    assert stage.ok("job", "list", "--json").json["jobs"] == []


def test_the_zone_must_be_said(stage: Stage) -> None:
    done = stage.run(*WORDS, text="0 1 * * * a\n")
    assert done.code == 2
    assert "--tz" in done.err
    assert stage.run(*WORDS, text="CRON_TZ=UTC\n0 1 * * * a\n").code == 0


def test_a_file_that_is_not_there_is_named(stage: Stage) -> None:
    words = (
        "import",
        "crontab",
        "nowhere.cron",
        "--task",
        "jobs:command",
        "--tz",
        "UTC",
    )
    done = stage.run(*words)
    assert done.code == 2
    assert "nowhere.cron" in done.err
