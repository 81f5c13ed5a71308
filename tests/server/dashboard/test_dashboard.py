"""The frame of all pages: who may see them, what binds the browser, what a form needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.scheduler import program
from tests.server.dashboard.visitor import Visitor
from timingwheel.manual_clock import ManualClock
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server import dashboard
from timingwheel.server.access import TOKEN_COOKIE
from timingwheel.server.dashboard.pages import NAV, PAGES
from timingwheel.server.serving import HttpServer
from timingwheel.server.tokens import TokenBook, TokenFile
from wal.testing.memory import MemoryFileSystem

HERE = Path(dashboard.__file__).parent
TEMPLATES = sorted((HERE / "templates").glob("*.html"))


@pytest.fixture
def book() -> TokenBook:
    return TokenBook(TokenFile(MemoryFileSystem()), ManualClock())


@pytest.fixture
def guarded(book: TokenBook) -> Iterator[Visitor]:
    scheduler = Scheduler(":memory:", tasks=program.app.tasks)
    with (
        HttpServer(scheduler, port=0, tokens=book) as server,
        Visitor(server.url) as visitor,
    ):
        yield visitor


def sign_in(visitor: Visitor, book: TokenBook, role: str) -> None:
    secret = book.add("ann", role)
    visitor.send(visitor.get("/login"), "/login", token=secret)


def test_the_front_page_names_all_pages(visitor: Visitor) -> None:
    page = visitor.get("/")
    nav = page.root.one("nav", class_="nav")
    links = [link.attributes["href"] for link in nav.all("a")]
    assert links == [entry.path for group in NAV for entry in group]
    assert nav.one("a", aria_current="page").text == "Overview"


def test_a_page_loads_nothing_from_elsewhere_and_has_no_script_or_style_in_it(
    visitor: Visitor,
) -> None:
    page = visitor.get("/")
    policy = page.response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for element in page.root.walk():
        for name in ("src", "href", "action"):
            target = element.attributes.get(name, "/")
            assert target.startswith(("/", "#")), (element.tag, target)
            if name == "src" or element.tag == "link":
                assert visitor.http.get(target).status_code == 200, target


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_breaks_the_content_policy(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"\sstyle\s*=", text)
    assert not re.search(r"\son\w+\s*=", text)
    assert "hx-on" not in text
    assert "<style" not in text
    assert not re.search(r"<script(?![^>]*\ssrc=)", text)
    assert "|safe" not in text.replace(" ", "")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_form_that_changes_something_carries_the_check(path: Path) -> None:
    text = path.read_text()
    for form in re.findall(r'<form[^>]*method="post".*?</form>', text, re.DOTALL):
        assert re.search(r"\{\{ (ui\.)?hidden\(\) \}\}", form), form[:80]


def test_a_page_that_is_not_there_is_an_error_page(visitor: Visitor) -> None:
    page = visitor.get("/no/such", status=404)
    assert "no such page" in page.by_id("error").text


def test_a_form_without_the_check_of_its_page_changes_nothing(visitor: Visitor) -> None:
    visitor.get("/")
    refused = visitor.http.post("/zone", data={"zone": "Europe/Berlin"})
    assert refused.status_code == 403
    other = visitor.http.post("/zone", data={"zone": "Europe/Berlin", "csrf": "x" * 43})
    assert other.status_code == 403
    page = visitor.get("/")
    assert page.form("/zone").fields()["zone"] == "UTC"


def test_a_form_from_another_site_is_refused(visitor: Visitor) -> None:
    fields = visitor.get("/").form("/zone").fields()
    refused = visitor.http.post(
        "/zone", data=fields, headers={"origin": "http://evil.example"}
    )
    assert refused.status_code == 403


def test_times_are_shown_in_the_zone_that_the_visitor_chooses(visitor: Visitor) -> None:
    page = visitor.send(visitor.get("/"), "/zone", zone="America/New_York")
    assert page.said == "Times are shown in America/New_York."
    again = visitor.get("/")
    assert again.form("/zone").fields()["zone"] == "America/New_York"
    assert not again.root.all(data_testid="said")


def test_a_zone_that_is_none_is_refused_with_the_nearest(visitor: Visitor) -> None:
    page = visitor.send(visitor.get("/"), "/zone", zone="Europe/Berln")
    assert "did you mean Europe/Berlin" in page.said


def test_with_tokens_a_visitor_signs_in_and_comes_back_to_where_they_were(
    guarded: Visitor, book: TokenBook
) -> None:
    page = guarded.get("/?x=1")
    assert page.path == "/login"
    page = guarded.send(page, "/login", token=book.add("ann", "operate"))
    assert (page.path, page.response.url.query) == ("/", b"x=1")
    assert page.by_id("who").text == "ann"
    page = guarded.send(page, "/logout")
    assert page.path == "/login"
    assert guarded.get("/").path == "/login"


def test_a_wrong_token_is_told_at_its_field_and_never_shown(guarded: Visitor) -> None:
    page = guarded.send(guarded.get("/login"), "/login", status=401, token="tw_wrong")
    assert "no such token" in page.root.one(id="e-token").text
    assert "tw_wrong" not in page.response.text


def test_the_cookie_of_a_token_is_out_of_reach_of_scripts_and_of_other_sites(
    guarded: Visitor, book: TokenBook
) -> None:
    fields = guarded.get("/login").form("/login").fields()
    fields["token"] = book.add("ann", "admin")
    answer = guarded.http.post("/login", data=fields, follow_redirects=False)
    cookie = next(
        value
        for value in answer.headers.get_list("set-cookie")
        if value.startswith(TOKEN_COOKIE)
    )
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie


def test_the_cookie_does_not_open_the_api(guarded: Visitor, book: TokenBook) -> None:
    sign_in(guarded, book, "admin")
    assert guarded.http.get("/").status_code == 200
    assert guarded.http.get("/api/v1/jobs").status_code == 401


@pytest.mark.parametrize("to", ["//evil.example", "http://evil.example", "/\\evil", ""])
def test_signing_in_leads_to_no_other_site(
    guarded: Visitor, book: TokenBook, to: str
) -> None:
    page = guarded.send(
        guarded.get("/login"), "/login", token=book.add("ann", "read"), next=to
    )
    assert (page.response.url.host, page.path) == ("127.0.0.1", "/")


def test_without_a_token_every_page_leads_to_the_login_and_no_action_acts(
    guarded: Visitor,
) -> None:
    for page in PAGES:
        if page.role is None:
            continue
        path = re.sub(r"\{.*?\}", "x", page.path)
        answer = guarded.http.request(
            page.method, path, headers={"accept": "text/html"}, follow_redirects=False
        )
        assert answer.status_code == 303, path
        assert answer.headers["location"].startswith("/login")


def test_the_stream_says_that_something_may_have_changed(
    app: Scheduler, server: HttpServer
) -> None:
    with httpx.stream("GET", f"{server.url}/live", timeout=30) as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("retry:")
        app.schedule(program.note.call("tea"), 0)
        assert any(line == "event: live" for line in lines)


def test_open_streams_do_not_hold_up_the_end(server: HttpServer) -> None:
    with httpx.stream("GET", f"{server.url}/live", timeout=30) as stream:
        assert next(stream.iter_lines()).startswith("retry:")
        server.stop()
