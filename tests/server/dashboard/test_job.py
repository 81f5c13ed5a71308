"""The page of a job, and what its buttons do: all of it as a visitor does it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.scheduler import program
from tests.server.dashboard.visitor import Visitor
from timingwheel.jobs.model import JobState
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.serving import HttpServer

YEARLY = "0 0 1 1 *"
secretive = Scheduler("never-opened")


@secretive.task(secret=("pin",))
def login(user: str, pin: int) -> str:
    return f"{user} {pin}"


@pytest.fixture
def yearly(app: Scheduler, visitor: Visitor) -> str:
    return app.add(program.note.call("tea"), cron=YEARLY, name="yearly").id


def test_it_shows_the_schedule_in_words_and_the_next_ten_times(
    yearly: str, visitor: Visitor
) -> None:
    page = visitor.get(f"/jobs/{yearly}")
    assert page.root.one("h1").text == "yearly"
    assert "It is active" in page.by_id("schedule").text
    assert len(page.by_id("next-times").all("tr")) == 11
    assert '"what": "tea"' in page.by_id("arguments").text
    assert page.by_id("revision").text == "1"


def test_what_the_clocks_do_to_a_time_is_marked(
    app: Scheduler, visitor: Visitor
) -> None:
    # At 02:30 on the last Sunday of March the clocks of Berlin show no such time.
    ref = app.add(program.note.call("x"), cron="30 2 25-31 3 SUN", tz="Europe/Berlin")
    times = visitor.get(f"/jobs/{ref.id}").by_id("next-times")
    assert "shifted" in times.text


def test_run_now_makes_one_run_which_the_strip_shows(
    app: Scheduler, yearly: str, visitor: Visitor
) -> None:
    visitor.http.follow_redirects = False
    shown = visitor.get(f"/jobs/{yearly}")
    visitor.send(shown, f"/jobs/{yearly}/run", status=303)
    (run,) = app.runs(job=yearly)
    app.run(run.id).wait("30s")
    strip = visitor.get(f"/jobs/{yearly}").by_id("strip")
    (link,) = strip.all("a")
    assert link.attributes["href"] == f"/runs/{run.id}".replace("#", "%23")
    assert "succeeded" in link.one("title").text


def test_pause_with_a_note_and_an_end_then_resume_with_what_it_would_start(
    app: Scheduler, yearly: str, visitor: Visitor
) -> None:
    form = visitor.get(f"/jobs/{yearly}/pause")
    page = visitor.send(form, f"/jobs/{yearly}/pause", note="moving", until="2h")
    assert "moving" in page.by_id("paused").text
    pause = app.job(yearly).pause
    assert pause is not None
    assert pause.until_ns == pytest.approx(pause.since_ns + 7_200 * 10**9)
    form = visitor.get(f"/jobs/{yearly}/resume")
    assert "would start 0 runs, skip 0" in form.by_id("resume-all").text
    assert app.job(yearly).state is JobState.PAUSED
    page = visitor.send(form, f"/jobs/{yearly}/resume")
    assert "goes on" in page.said
    assert app.job(yearly).state is JobState.ACTIVE


def test_what_was_typed_is_not_lost_when_it_cannot_be_meant(
    app: Scheduler, yearly: str, visitor: Visitor
) -> None:
    form = visitor.get(f"/jobs/{yearly}/pause")
    page = visitor.send(
        form, f"/jobs/{yearly}/pause", status=422, note="moving", until="soon"
    )
    assert page.root.one(id="e-until").text
    assert page.form(f"/jobs/{yearly}/pause").fields()["note"] == "moving"
    assert app.job(yearly).state is JobState.ACTIVE


def test_an_edit_shows_the_difference_first_and_saves_what_was_retyped_alone(
    app: Scheduler, visitor: Visitor
) -> None:
    ref = app.add(
        program.note.call("tea"),
        cron="30 2 * * *",
        tz="Europe/Berlin",
        name="nightly",
        splay="10m",
        overlap="allow(3)",
        tags={"team": "bi"},
    )
    to = f"/jobs/{ref.id}/edit"
    page = visitor.send(visitor.get(to), to, when="0 4 * * *", do="preview")
    before, after = page.by_id("diff").all("ol")
    assert "02:30:00" in before.text
    assert "04:00:00" in after.text
    assert app.job(ref).revision == 1
    page = visitor.send(page, to, do="save")
    job = app.job(ref)
    assert (job.revision, job.trigger.splay_ns) == (2, 600 * 10**9)
    assert (job.policy.overlap.limit, job.tags) == (3, {"team": "bi"})
    assert "04:00:00 +0100" in visitor.get(f"/jobs/{ref.id}").by_id("next-times").text


def test_an_edit_of_what_somebody_else_has_changed_is_refused_once(
    app: Scheduler, yearly: str, visitor: Visitor
) -> None:
    to = f"/jobs/{yearly}/edit"
    form = visitor.get(to)
    app.update(yearly, priority=5)
    page = visitor.send(form, to, status=422, do="save", tags="team:bi")
    assert "revision" in page.by_id("form-error").text
    assert page.form(to).fields()["tags"] == "team:bi"
    visitor.send(page, to, do="save")
    job = app.job(yearly)
    assert (job.priority, job.tags) == (5, {"team": "bi"})


def test_new_arguments_are_checked_against_the_task(
    app: Scheduler, yearly: str, visitor: Visitor
) -> None:
    to = f"/jobs/{yearly}/edit"
    page = visitor.send(visitor.get(to), to, status=422, do="save", args='{"no": 1}')
    assert page.root.one(id="e-args").text
    visitor.send(page, to, do="save", args='{"what": "milk"}')
    assert '"milk"' in visitor.get(f"/jobs/{yearly}").by_id("arguments").text


def test_an_edit_that_changes_nothing_says_so(yearly: str, visitor: Visitor) -> None:
    to = f"/jobs/{yearly}/edit"
    page = visitor.send(visitor.get(to), to, status=422, do="save")
    assert "othing is different" in page.by_id("form-error").text


def test_a_backfill_shows_what_it_makes_before_it_does(
    app: Scheduler, visitor: Visitor
) -> None:
    ref = app.add(program.note.call("x"), cron="0 * * * *", name="hourly")
    to = f"/jobs/{ref.id}/backfill"
    now = datetime.now(UTC).replace(minute=30)
    start = f"{now - timedelta(hours=4):%Y-%m-%d %H:%M}"
    end = f"{now - timedelta(hours=1):%Y-%m-%d %H:%M}"
    page = visitor.send(visitor.get(to), to, start=start, end=end, do="preview")
    assert len(page.by_id("preview").all("li")) == 3
    assert not app.runs(job=ref)
    page = visitor.send(page, to, do="make")
    assert page.said == "3 runs made."
    assert len(app.runs(job=ref)) == 3


def test_a_backfill_of_the_future_is_told_at_its_field(
    yearly: str, visitor: Visitor
) -> None:
    to = f"/jobs/{yearly}/backfill"
    page = visitor.send(
        visitor.get(to), to, status=422, end="2090-01-01 00:00", do="preview"
    )
    assert "up to now" in page.root.one(id="e-end").text


def test_cancel_ends_it_for_good_and_takes_its_buttons(
    app: Scheduler, yearly: str, visitor: Visitor
) -> None:
    page = visitor.send(visitor.get(f"/jobs/{yearly}/cancel"), f"/jobs/{yearly}/cancel")
    assert page.said.startswith("Cancelled")
    assert app.job(yearly).state is JobState.CANCELLED
    assert not page.root.all("form", action=f"/jobs/{yearly}/run")


def test_a_job_that_is_not_there_is_an_error_page(visitor: Visitor) -> None:
    page = visitor.get("/jobs/00000000-0000-8000-8000-000000000000", status=404)
    assert "no such job" in page.by_id("error").text


def test_a_new_job_shows_its_times_first_and_then_is_there(
    app: Scheduler, visitor: Visitor
) -> None:
    page = visitor.send(
        visitor.get("/jobs/new"),
        "/jobs/new",
        task="tests.scheduler.program:note",
        name="tea",
        args='{"what": "tea"}',
        when="30 2 * * *",
        tz="America/New_York",
        tags="team:bi, region:north",
        attempts="2",
        do="preview",
    )
    assert len(page.by_id("preview").all("li")) == 10
    assert not app.jobs(name="tea")
    page = visitor.send(page, "/jobs/new", do="save")
    (job,) = app.jobs(name="tea")
    assert page.path == f"/jobs/{job.id}"
    assert job.tags == {"team": "bi", "region": "north"}
    assert job.policy.retry.attempts == 2


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"when": "61 * * * *"}, "when"),
        ({"when": ""}, "when"),
        ({"kind": "every", "when": "soon"}, "when"),
        ({"kind": "at", "when": "tomorrow"}, "when"),
        ({"tz": "Europe/Berln"}, "tz"),
        ({"args": "{"}, "args"),
        ({"args": '{"who": 1}'}, "args"),
        ({"task": ""}, "task"),
        ({"tags": "team"}, "tags"),
        ({"priority": "high"}, "priority"),
        ({"attempts": "0"}, "attempts"),
        ({"timeout": "-1s"}, "timeout"),
        ({"overlap": "maybe"}, "overlap"),
        ({"misfire": "all(0)"}, "misfire"),
        ({"calendar": "none such"}, "calendar"),
    ],
    ids=str,
)
def test_what_is_wrong_is_told_at_its_field_and_nothing_is_lost(
    app: Scheduler, visitor: Visitor, fields: dict[str, str], wrong: str
) -> None:
    typed = {
        "task": "tests.scheduler.program:note",
        "name": "tea",
        "args": '{"what": "tea"}',
        "when": "30 2 * * *",
        "do": "save",
    } | fields
    page = visitor.send(visitor.get("/jobs/new"), "/jobs/new", status=422, **typed)
    assert page.root.one(id=f"e-{wrong}").text
    del typed["do"]
    assert typed.items() <= page.form("/jobs/new").fields().items()
    assert not app.jobs()


def test_a_moment_is_typed_in_the_zone_of_the_form(
    app: Scheduler, visitor: Visitor
) -> None:
    visitor.send(
        visitor.get("/jobs/new"),
        "/jobs/new",
        task="tests.scheduler.program:note",
        args='{"what": "x"}',
        kind="at",
        when="2090-07-01 09:30",
        tz="America/New_York",
        do="save",
    )
    (job,) = app.jobs()
    assert app.next_times(job)[0].utc == datetime(2090, 7, 1, 13, 30, tzinfo=UTC)


def test_a_name_that_is_taken_is_told(yearly: str, visitor: Visitor) -> None:
    page = visitor.send(
        visitor.get("/jobs/new"),
        "/jobs/new",
        status=422,
        task="tests.scheduler.program:note",
        name="yearly",
        args='{"what": "x"}',
        when="0 0 * * *",
        do="save",
    )
    assert "yearly" in page.by_id("form-error").text


def test_a_secret_is_not_shown_and_an_edit_of_other_arguments_keeps_it() -> None:
    scheduler = Scheduler(":memory:", tasks=secretive.tasks)
    with HttpServer(scheduler, port=0) as server, Visitor(server.url) as visitor:
        ref = scheduler.add(login.call("ann", 4711), cron=YEARLY)
        to = f"/jobs/{ref.id}/edit"
        form = visitor.get(to)
        assert "4711" not in form.response.text
        assert "4711" not in visitor.get(f"/jobs/{ref.id}").response.text
        args = form.form(to).fields()["args"].replace("ann", "bob")
        visitor.send(form, to, do="save", args=args)
        assert scheduler.trigger(ref).result("30s") == "bob 4711"
