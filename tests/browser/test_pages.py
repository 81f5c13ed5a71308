"""Every page of the dashboard, with jobs of all kinds: in light, in dark, on a telephone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PATIENCE_MS, WIDE, Opens
from tests.browser.sample import sample
from tests.postgres import Postgres
from tests.server.process import served
from timingwheel.client.client import Client
from timingwheel.jobs.model import RunState
from timingwheel.scheduler.tasks import NamedTask

NARROW = {"width": 360, "height": 740}
LOOKS = {
    "light": {"color_scheme": "light", "viewport": WIDE},
    "dark": {"color_scheme": "dark", "viewport": WIDE},
    "narrow": {"color_scheme": "light", "viewport": NARROW},
}

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The sample jobs, once one of them has failed for good."""
    data: Path = tmp_path_factory.mktemp("sample") / "data"
    with sample(data) as found, Client(found) as app:
        app.trigger("heartbeat").wait("60s")
        failed = app.trigger("dunning").wait("60s")
        assert failed.state is RunState.FAILED
        yield found


def paths_of(page: Page, url: str) -> list[str]:
    """Return the paths of all pages: those of the menu, and one of each kind of thing."""
    page.goto(url)
    paths = [
        str(link.get_attribute("href"))
        for link in page.get_by_role("navigation", name="Pages")
        .get_by_role("link")
        .all()
    ]
    assert len(paths) == 11
    with Client(url) as app:
        job = app.jobs(name="nightly-report-north")[0].id
        run = app.runs(state="failed")[0].id.replace("#", "%23")
    return [
        *paths,
        "/jobs/new",
        f"/jobs/{job}",
        *(f"/jobs/{job}/{what}" for what in ("pause", "edit", "backfill", "cancel")),
        "/jobs/import-old-shop/resume",
        f"/runs/{run}",
    ]


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_opens_and_fits(url: str, opens: Opens, look: str) -> None:
    page = opens(**LOOKS["light"])
    paths = paths_of(page, url)
    page = opens(**LOOKS[look])
    for path in paths:
        answer = page.goto(url + path, wait_until="load")
        assert answer is not None
        assert answer.status == 200, path
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy or "default-src 'self'" in policy, policy
        assert "unsafe" not in policy
        expect(page.locator("h1")).to_have_count(1)
        # Nothing hangs out at the side; wide tables scroll in their own frame.
        wider = page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert wider <= 0, (path, wider)


def test_every_field_and_every_button_has_a_name(url: str, opens: Opens) -> None:
    page = opens()
    for path in paths_of(page, url):
        page.goto(url + path)
        nameless = page.evaluate(
            """() => [...document.querySelectorAll("input, select, textarea, button, a")]
              .filter(it => it.type !== "hidden" && it.offsetParent !== null)
              .filter(it => !(it.labels?.length || it.getAttribute("aria-label")
                || it.getAttribute("aria-labelledby") || it.textContent.trim()
                || it.title))
              .map(it => it.outerHTML)"""
        )
        assert nameless == [], path


def test_the_overview_goes_on_by_itself(url: str, opens: Opens) -> None:
    page = opens()
    page.goto(url)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    with (
        Client(url) as app,
        page.expect_request(lambda one: one.headers.get("hx-request") == "true"),
    ):
        app.trigger("heartbeat").wait("60s")


def test_a_page_that_is_not_there_says_so(
    url: str, opens: Opens, trouble: object
) -> None:
    trouble.forgives = "status of 404"  # type: ignore[attr-defined]
    page = opens()
    answer = page.goto(f"{url}/nowhere")
    assert answer is not None
    assert answer.status == 404
    expect(page.get_by_role("heading", level=1)).to_be_visible()


@pytest.mark.parametrize("look", LOOKS)
def test_the_nodes_of_a_database_are_shown_and_fit(
    postgres: Postgres, opens: Opens, look: str
) -> None:
    page = opens(**LOOKS[look])
    with served(postgres.new_schema()) as (_, url):
        answer = page.goto(f"{url}/nodes", wait_until="load")
        assert answer is not None
        assert answer.status == 200
        expect(page.get_by_test_id("node")).to_have_count(1)
        expect(page.locator("#shards svg g")).to_have_count(256)
        expect(page.get_by_test_id("finding-not_durable")).to_be_visible()
        wider = page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert wider <= 0
        page.goto("about:blank")  # before the server goes, and its stream with it


def test_one_long_name_does_not_push_the_other_columns_out_of_sight(
    url: str, opens: Opens
) -> None:
    long = "x" * 512
    call = NamedTask("heartbeat").call()
    with Client(url) as app:
        app.add(call, delay="1h", name=long, queue="q" * 512, tags={"t": long})
    page = opens(**LOOKS["light"])
    for path in ("/jobs", "/runs", "/queues"):
        page.goto(url + path, wait_until="load")
        hidden = page.locator(".table").first.evaluate(
            "e => e.scrollWidth - e.clientWidth"
        )
        assert hidden <= 0, path
