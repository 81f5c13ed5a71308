"""The dashboard as routes of the application: pages, sign-in, static files, live stream.

Each page is a row of `PAGES` (visits.py says how one is added). Here is what all have in
common: who may, the check of forms, the call on a thread, errors as pages, and the
headers that bind the browser: nothing is loaded from elsewhere, no script or style stands
in a page, no other site may frame it.
"""

from __future__ import annotations

import logging
from typing import Any, Final, cast
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from timingwheel.scheduler.awaited import RequestThreads
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.access import CALLER_KEY, Caller
from timingwheel.server.api import BODY_BYTES_MAX
from timingwheel.server.audit import AuditBook
from timingwheel.server.dashboard import sessions
from timingwheel.server.dashboard.auditing import is_recorded, page_entry, status_of
from timingwheel.server.dashboard.live import LiveStreams
from timingwheel.server.dashboard.pages import NAV, PAGES
from timingwheel.server.dashboard.rendering import render
from timingwheel.server.dashboard.visits import (
    Answer,
    Fields,
    Page,
    Redirect,
    View,
    Visit,
    parse_fields,
)
from timingwheel.server.dashboard.vitals import Vitals
from timingwheel.server.hub import WorkerHub
from timingwheel.server.operations import Role
from timingwheel.server.tokens import TokenBook
from timingwheel.wire.problems import Problem, make_problem, problem_of

CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": CONTENT_POLICY,
    "cross-origin-opener-policy": "same-origin",
    # Not no-referrer: with it browsers send `Origin: null` along with forms.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_NOBODY: Final = Caller(None, Role.READ)
_logger = logging.getLogger("timingwheel.server")


class _RefusedError(Exception):
    """Ends a visit with an error page."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(status, detail)
        self.problem = make_problem("refused", status, detail)


class _StaticFiles(StaticFiles):
    """Files that a browser asks for anew each time, at the price of a 304."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """Return the file, or that it is still the same."""
        response = super().file_response(*args, **kwargs)
        response.headers["cache-control"] = "no-cache"
        response.headers["x-content-type-options"] = "nosniff"
        return response


class Dashboard:
    """Answers visits.

    Args:
        scheduler: which is asked.
        hub: the workers that work from afar.
        vitals: how the scheduler does.
        threads: where pages are made.
        tokens: who may sign in; None: nobody need.
        audit: who did what.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        hub: WorkerHub,
        vitals: Vitals,
        threads: RequestThreads,
        tokens: TokenBook | None,
        audit: AuditBook,
    ) -> None:
        self._scheduler = scheduler
        self._audit = audit
        self._hub = hub
        self._vitals = vitals
        self._threads = threads
        self._tokens = tokens

    # -- pages ----------------------------------------------------------------------------

    async def serve(self, page: Page, request: Request) -> Response:
        """Answer with a page, or with the page of its error."""
        csrf = sessions.csrf_of(request)
        form = Fields([])
        try:
            form = await self._form(page, request)
            _check_role(_caller(request), page)
            query = parse_fields(request.scope["query_string"])

            def made() -> Response:
                visit = self._visit(request, query=query, form=form)
                answer = page.answer(visit)
                self._note(page, request, form, status=status_of(answer))
                return self._answered(request, visit, answer, nav=page.nav, csrf=csrf)

            return await self._threads.call(made)
        except ClientDisconnect:
            return Response(status_code=400)
        except _RefusedError as refused:
            problem = refused.problem
        except Exception as error:
            found = problem_of(error, place=request.path_params)
            if found is None:
                _logger.exception("%s %s failed", request.method, request.url.path)
                found = make_problem(
                    "internal", 500, "The server has a fault; its log tells more."
                )
            problem = found
        self._note(page, request, form, status=problem.status, problem=problem)
        return await self._error(request, problem, nav=page.nav, csrf=csrf)

    def _note(
        self,
        page: Page,
        request: Request,
        form: Fields,
        *,
        status: int,
        problem: Problem | None = None,
    ) -> None:
        if is_recorded(page, status):
            entry = page_entry(
                page.operation,
                _caller(request),
                path=request.path_params,
                form=form,
                status=status,
                problem=problem,
                time_ns=self._scheduler.clock.wall_ns(),
            )
            self._audit.note(entry)

    async def nowhere(self, request: Request) -> Response:
        """Answer that there is no such page."""
        problem = make_problem("no-such-page", 404, "There is no such page.")
        csrf = sessions.csrf_of(request)
        return await self._error(request, problem, nav="", csrf=csrf)

    async def _form(self, page: Page, request: Request) -> Fields:
        """Return what was sent, once it is known that it was sent from a page of ours.

        Raises:
            _RefusedError: it is not known.
        """
        if page.method != "POST":
            return Fields([])
        form = await _sent(request)
        if not sessions.has_csrf(request, form):
            raise _RefusedError(
                403,
                "This form is not one that this browser got here, or it is too old. "
                "Go back, load the page anew, and send it again.",
            )
        return form

    def _visit(self, request: Request, *, query: Fields, form: Fields) -> Visit:
        return Visit(
            scheduler=self._scheduler,
            hub=self._hub,
            vitals=self._vitals,
            audit=self._audit,
            tokens=self._tokens,
            caller=_caller(request),
            path=request.path_params,
            query=query,
            form=form,
            zone=sessions.zone_of(request),
            now_ns=self._scheduler.clock.wall_ns(),
            is_partial=request.headers.get("hx-request") == "true",
        )

    def _answered(
        self, request: Request, visit: Visit, answer: Answer, *, nav: str, csrf: str
    ) -> Response:
        if isinstance(answer, Redirect):
            return _redirect(request, answer)
        values = self._values(request, visit, nav=nav, csrf=csrf)
        said = None if visit.is_partial else sessions.said_of(request)
        values.update(answer.values, said=said)
        body = render(answer.template, values)
        response = HTMLResponse(body, answer.status, headers=dict(_HEADERS))
        sessions.keep_csrf(request, response, csrf)
        if said is not None:
            sessions.keep(request, response, sessions.SAID_COOKIE, "")
        return response

    def _values(
        self, request: Request, visit: Visit, *, nav: str, csrf: str
    ) -> dict[str, Any]:
        return {
            "visit": visit,
            "nav": nav,
            "nav_groups": NAV,
            "csrf": csrf,
            "here": _here(request),
            "can_operate": visit.caller.role >= Role.OPERATE,
            "can_administer": visit.caller.role >= Role.ADMIN,
            "needs_token": self._tokens is not None,
            "said": None,
        }

    async def _error(
        self, request: Request, problem: Problem, *, nav: str, csrf: str
    ) -> Response:
        nothing = Fields([])
        visit = self._visit(request, query=nothing, form=nothing)
        view = View("error.html", {"problem": problem}, problem.status)
        return await self._threads.call(
            lambda: self._answered(request, visit, view, nav=nav, csrf=csrf)
        )


def dashboard_routes(
    scheduler: Scheduler,
    *,
    hub: WorkerHub,
    vitals: Vitals,
    threads: RequestThreads,
    live: LiveStreams,
    tokens: TokenBook | None,
    audit: AuditBook,
) -> list[BaseRoute]:
    """Return the routes of the dashboard; they take all paths that are left.

    Args:
        scheduler: which is asked.
        hub: the workers that work from afar.
        vitals: how the scheduler does.
        threads: where pages are made: they may wait for the disk.
        live: the streams of open pages.
        tokens: who may sign in; None: nobody need.
        audit: who did what.
    """
    dashboard = Dashboard(
        scheduler,
        hub=hub,
        vitals=vitals,
        threads=threads,
        tokens=tokens,
        audit=audit,
    )
    static = _StaticFiles(packages=[("timingwheel.server.dashboard", "static")])
    return [
        *(_route(dashboard, page) for page in PAGES),
        Route("/live", live.serve),
        Mount("/static", static),
        Route("/{path:path}", dashboard.nowhere, methods=["GET", "POST"]),
    ]


def _route(dashboard: Dashboard, page: Page) -> Route:
    async def serve(request: Request) -> Response:
        return await dashboard.serve(page, request)

    return Route(page.path, serve, methods=[page.method])


async def _sent(request: Request) -> Fields:
    """Return the fields of a form.

    Raises:
        _RefusedError: it is too long.
        ArgumentError: it cannot be read.
        ClientDisconnect: its sender has gone.
    """
    parts, size_bytes = [], 0
    async for part in request.stream():
        parts.append(part)
        size_bytes += len(part)
        if size_bytes > BODY_BYTES_MAX:
            raise _RefusedError(
                413, f"A form holds at most {BODY_BYTES_MAX:,} bytes; send less."
            )
    return parse_fields(b"".join(parts))


def _check_role(caller: Caller, page: Page) -> None:
    if page.role is not None and caller.role < page.role:
        raise _RefusedError(
            403,
            f"{caller.name} may {caller.role.name.lower()}, and this needs the role "
            f"{page.role.name.lower()}.",
        )


def _caller(request: Request) -> Caller:
    """Return who asks; one who has not signed in yet may read what is for everybody."""
    caller = request.scope[CALLER_KEY]
    return _NOBODY if caller is None else cast("Caller", caller)


def _here(request: Request) -> str:
    """Return the path and query of a page, to come back to."""
    query = request.url.query
    path = quote(request.scope["path"])  # of `url.path` some versions quote it
    return f"{path}?{query}" if query else path


def _redirect(request: Request, answer: Redirect) -> Response:
    response = RedirectResponse(answer.to, 303, headers=dict(_HEADERS))
    for name, value in answer.cookies.items():
        sessions.keep(request, response, name, value)
    if answer.said:
        sessions.keep_said(request, response, answer.tone, answer.said)
    return response
