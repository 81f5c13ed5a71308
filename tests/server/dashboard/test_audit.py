"""The page Audit, and what forms leave in it."""

from __future__ import annotations

from tests.server.dashboard.visitor import Shown, Visitor
from timingwheel.server.access import Caller
from timingwheel.server.dashboard.auditing import page_entry
from timingwheel.server.dashboard.pages import PAGES
from timingwheel.server.dashboard.visits import Fields
from timingwheel.server.operations import Role
from timingwheel.server.serving import HttpServer


def rows(shown: Shown) -> list[str]:
    return [row.text for row in shown.root.all("tr", data_testid="entry")]


def test_what_is_done_here_and_by_the_api_is_shown(
    server: HttpServer, visitor: Visitor
) -> None:
    assert "Nobody has changed" in visitor.get("/audit").by_id("empty").text
    page = visitor.get("/queues?queue=bulk")
    visitor.send(page, "/queues/set", limit="2")
    visitor.send(page, "/queues/set", limit="0", status=422)
    visitor.http.post(f"{server.url}/api/v1/jobs/nope/cancel")
    visitor.send(page, "/zone", zone="Asia/Tokyo")  # is nobody's business
    cancel, refused, done = rows(visitor.get("/audit"))
    assert "Set queue bulk" in done
    assert "limit=2" in done
    assert "csrf" not in done
    assert "page" in done
    assert "refused 422" in refused
    assert "Cancel job nope" in cancel
    assert "404 unknown job" in cancel
    assert rows(visitor.get("/audit?outcome=done")) == [done]
    assert rows(visitor.get("/audit?target=nope")) == [cancel]
    assert len(rows(visitor.get("/audit?operation=set_queue"))) == 2
    assert rows(visitor.get("/audit?actor=ann")) == []
    wrong = visitor.get("/audit?outcome=wat&since=soon", status=422)
    assert len(wrong.root.all(data_testid="filter-error")) == 2


def test_a_form_without_its_token_is_recorded_as_refused(
    server: HttpServer, visitor: Visitor
) -> None:
    assert visitor.http.post("/queues/set", data={"queue": "q"}).status_code == 403
    (entry,) = rows(visitor.get("/audit"))
    assert "refused 403" in entry


def test_payloads_and_secrets_of_forms_are_left_out() -> None:
    form = Fields(
        [
            ("csrf", "C"),
            ("token", "T"),
            ("args", "SECRET"),
            ("note", "rain"),
            ("run", "a"),
            ("run", "b"),
            ("run", "c"),
            ("until", ""),
        ]
    )
    entry = page_entry(
        "retry_dead",
        Caller("ann", Role.OPERATE),
        path={},
        form=form,
        status=303,
        problem=None,
        time_ns=1,
    )
    assert entry.arguments == {
        "args": "...",
        "note": "rain",
        "run": ["a", "b", "c"],
    }
    assert (entry.actor, entry.role, entry.target) == ("ann", "operate", "3 of them")


def test_every_form_that_changes_something_is_recorded_by_a_name_of_its_own() -> None:
    names = [page.operation for page in PAGES if page.method == "POST" and page.nav]
    assert all(names)
    assert len(set(names)) == len(names)
    silent = {page.path for page in PAGES if page.method == "POST" and not page.nav}
    assert silent == {"/login", "/logout", "/zone"}
