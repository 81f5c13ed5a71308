"""What people do with the dashboard, from a first job to the morning after a crash."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.conftest import PATIENCE_MS, Opens, Trouble
from tests.server.process import served
from timingwheel.client.client import Client

PROGRAM = "tests.scheduler.program:app"
TASK = "tests.scheduler.program:note"
COMMAND = (sys.executable, "-m", "timingwheel.server")
NAME = "every second"
NOTE = "until the shop has moved"

expect.set_options(timeout=PATIENCE_MS)


@contextmanager
def serving(
    trouble: Trouble, data: Path, *more: str, log: Path
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """As served; pages that are open lose their stream with the server, and say so."""
    with served(data, *more, log=log) as found:
        yield found
        trouble.is_over = True


def add_cron_job(page: Page, url: str) -> None:
    page.goto(f"{url}/jobs")
    page.get_by_test_id("new-job").click()
    form = page.get_by_test_id("job-form")
    form.get_by_label("Task", exact=True).fill(TASK)
    form.get_by_label("Name", exact=True).fill(NAME)
    form.get_by_label("Arguments").fill('{"what": "tea"}')
    form.get_by_label("Runs", exact=True).select_option("cron")
    form.get_by_label("When", exact=True).fill("* * * * * *")
    form.get_by_label("Zone").fill("Europe/Berlin")
    form.get_by_role("button", name="Show its next times").click()
    expect(page.get_by_test_id("preview")).to_be_visible()
    page.get_by_role("button", name="Add the job").click()
    expect(page.get_by_role("heading", name=NAME, level=1)).to_be_visible()


def test_a_job_is_added_runs_is_paused_and_resumed_and_outlives_a_kill(
    tmp_path: Path, opens: Opens, trouble: Trouble
) -> None:
    data = tmp_path / "data"
    options = ("--app", PROGRAM)
    with serving(trouble, data, *options, log=tmp_path / "first.log") as (process, url):
        page = opens()
        add_cron_job(page, url)
        # Seen by itself: the page hears of the run and asks for itself anew.
        runs = page.get_by_test_id("job-runs")
        expect(runs.locator("td").get_by_text("succeeded").first).to_be_visible()

        page.get_by_role("link", name="Pause").click()
        page.get_by_label("Note").fill(NOTE)
        page.get_by_role("button", name="Pause", exact=True).click()
        expect(page.get_by_test_id("paused")).to_contain_text(NOTE)
        expect(page.get_by_test_id("state")).to_contain_text("paused")

        # What each choice would start is shown, and nothing has changed by that.
        page.get_by_role("link", name="Resume").click()
        resume = page.get_by_test_id("resume")
        expect(resume.get_by_test_id("resume-latest")).to_contain_text("would start")
        with Client(url) as app:
            assert app.jobs(name=NAME)[0].pause is not None
        resume.get_by_test_id("resume-skip").get_by_role("radio").check()
        resume.get_by_role("button", name="Resume").click()
        expect(page.get_by_test_id("state")).to_contain_text("active")

        page.get_by_role("link", name="Pause").click()
        page.get_by_label("Note").fill(NOTE)
        page.get_by_role("button", name="Pause", exact=True).click()
        expect(page.get_by_test_id("paused")).to_be_visible()
        job_id = page.get_by_test_id("job-id").inner_text()
        revision = page.get_by_test_id("revision").inner_text()
        with Client(url) as app:
            before = app.jobs(name=NAME)[0]
            ended = {run.id: run.state for run in app.runs(job=NAME, limit=1_000)}
        page.close()
        process.kill()
        process.wait(60)

    with serving(trouble, data, *options, log=tmp_path / "second.log") as (_, url):
        page = opens()
        page.goto(f"{url}/jobs")
        page.get_by_role("link", name=NAME).click()
        expect(page.get_by_test_id("paused")).to_contain_text(NOTE)
        assert page.get_by_test_id("job-id").inner_text() == job_id
        assert page.get_by_test_id("revision").inner_text() == revision
        runs = page.get_by_test_id("job-runs")
        expect(runs.locator("td").get_by_text("succeeded").first).to_be_visible()
        with Client(url) as app:
            assert app.jobs(name=NAME) == [before]
            kept = {run.id: run.state for run in app.runs(job=NAME, limit=1_000)}
        assert ended.items() <= kept.items()


def test_what_cannot_be_meant_is_told_at_its_field_and_nothing_typed_is_lost(
    tmp_path: Path, opens: Opens, trouble: Trouble
) -> None:
    trouble.forgives = "status of 422"
    with serving(
        trouble, tmp_path / "data", "--app", PROGRAM, log=tmp_path / "log"
    ) as (_, url):
        page = opens()
        page.goto(f"{url}/jobs/new")
        form = page.get_by_test_id("job-form")
        form.get_by_label("Task", exact=True).fill(TASK)
        form.get_by_label("Arguments").fill('{"what": "tea"}')
        form.get_by_label("Runs", exact=True).select_option("cron")
        form.get_by_label("When", exact=True).fill("61 * * * *")
        form.get_by_role("button", name="Add the job").click()
        when = page.get_by_label("When", exact=True)
        expect(when).to_have_attribute("aria-invalid", "true")
        expect(when).to_have_value("61 * * * *")
        expect(page.get_by_label("Arguments")).to_have_value('{"what": "tea"}')
        with Client(url) as app:
            assert app.jobs() == []


def test_the_keyboard_reaches_what_matters(
    tmp_path: Path, opens: Opens, trouble: Trouble
) -> None:
    with serving(
        trouble, tmp_path / "data", "--app", PROGRAM, log=tmp_path / "log"
    ) as (_, url):
        page = opens()
        page.goto(url)
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#main")).to_be_focused()
        page.keyboard.press("g")
        page.keyboard.press("j")
        expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
        page.wait_for_load_state()  # short cuts are there once the script has run
        page.keyboard.press("n")
        expect(page.get_by_role("heading", name="New job", level=1)).to_be_visible()
        task = page.get_by_label("Task", exact=True)
        for _ in range(40):
            if task.evaluate("it => it === document.activeElement"):
                break
            page.keyboard.press("Tab")
        expect(task).to_be_focused()
        page.keyboard.type(TASK)
        page.keyboard.press("Tab")
        page.keyboard.type("by hand")
        page.keyboard.press("Tab")
        page.keyboard.press("Control+a")
        page.keyboard.type('{"what": "x"}')
        page.get_by_label("When", exact=True).focus()
        page.keyboard.press("Control+a")
        page.keyboard.type("0 3 * * *")
        page.get_by_role("button", name="Add the job").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="by hand", level=1)).to_be_visible()
        run = page.get_by_role("button", name="Run now")
        run.focus()
        page.keyboard.press("Enter")
        ended = page.locator("main").get_by_text("succeeded", exact=True)
        expect(ended.first).to_be_visible()
        with Client(url) as app:
            assert [job.name for job in app.jobs()] == ["by hand"]


def test_a_token_opens_the_door_and_its_role_decides_what_is_offered(
    tmp_path: Path, opens: Opens, trouble: Trouble
) -> None:
    trouble.forgives = "status of 401"
    data = tmp_path / "data"
    secrets = {role: new_token(data, role) for role in ("read", "operate")}
    with serving(trouble, data, "--app", PROGRAM, log=tmp_path / "log") as (_, url):
        page = opens()
        page.goto(f"{url}/jobs")
        login = page.get_by_test_id("login")
        login.get_by_label("Token").fill("tw_wrong")
        login.get_by_role("button", name="Sign in").click()
        expect(page.get_by_label("Token")).to_have_attribute("aria-invalid", "true")
        for role, offered in (("read", 0), ("operate", 1)):
            page = opens()
            page.goto(f"{url}/jobs")
            page.get_by_label("Token").fill(secrets[role])
            page.get_by_role("button", name="Sign in").click()
            expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
            expect(page.get_by_test_id("who")).to_have_text(role)
            expect(page.get_by_test_id("new-job")).to_have_count(offered)
            cookies = page.context.cookies()
            assert all(
                one["httpOnly"] for one in cookies if secrets[role] in one["value"]
            )
            assert page.evaluate("document.cookie").find(secrets[role]) == -1
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_test_id("login")).to_be_visible()


def new_token(data: Path, role: str) -> str:
    made = subprocess.run(
        [*COMMAND, str(data), "--add-token", f"{role}:{role}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return made.stdout.strip()
