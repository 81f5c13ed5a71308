"""What a page is: a function that is asked with a Visit and answers with a View.

    def show_queues(visit: Visit) -> View:
        return View("queues.html", {"queues": visit.scheduler.queues()})

    QUEUE_PAGES = (Page("GET", "/queues", show_queues, nav="Queues"),)

It is called on a thread, so it may wait for the disk. An error that the house knows
becomes an error page by itself; a page with a form catches it and shows the form again,
with what was typed and the error at its field (`FormErrors`).

To add a page: a module with a `..._PAGES` tuple beside this one, its template in
templates/ (`{% extends "base.html" %}`, macros of `macros.html`), and the tuple in
`PAGES` of pages.py. The navigation has all names already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode
from zoneinfo import ZoneInfo

from timingwheel.errors import ArgumentError, TimingWheelError
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.access import Caller
from timingwheel.server.audit import AuditBook
from timingwheel.server.dashboard.vitals import Vitals
from timingwheel.server.hub import WorkerHub
from timingwheel.server.operations import Role
from timingwheel.server.tokens import TokenBook
from timingwheel.wire.problems import problem_of

FIELDS_MAX: Final = 2_000
"""Fields of one form; as many rows as a page of a bulk action has."""


class Fields:
    """Fields of a form or of a query, in order; a name may come more than once.

    Args:
        pairs: of name and value.
    """

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs = pairs

    def get(self, name: str, default: str = "") -> str:
        """Return the last value of a name, without spaces around it."""
        return next(
            (value.strip() for key, value in reversed(self._pairs) if key == name),
            default,
        )

    def all(self, name: str) -> list[str]:
        """Return all values of a name, in order."""
        return [value for key, value in self._pairs if key == name]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield names and values as they came."""
        return iter(self._pairs)

    def __contains__(self, name: str) -> bool:
        return any(key == name for key, _ in self._pairs)

    def __bool__(self) -> bool:
        return bool(self._pairs)

    def with_(self, **changes: str | None) -> str:
        """Return them as a query text with other values; None or "" takes one out."""
        kept = [(key, value) for key, value in self._pairs if key not in changes]
        added = [(key, value) for key, value in changes.items() if value]
        pairs = [(key, value) for key, value in kept + added if value]
        return urlencode(pairs)


def parse_fields(text: bytes) -> Fields:
    """Return the fields of an urlencoded body or query.

    Raises:
        ArgumentError: they are too many, or no UTF-8.
    """
    try:
        pairs = parse_qsl(
            text.decode("ascii"),
            keep_blank_values=True,
            max_num_fields=FIELDS_MAX,
            errors="strict",
        )
    except ValueError as error:
        raise ArgumentError(
            "form", "...", f"pass up to {FIELDS_MAX:,} fields in UTF-8"
        ) from error
    return Fields(pairs)


class Visit(NamedTuple):
    """A request for a page.

    Attributes:
        scheduler: which is asked.
        hub: the workers that work from afar.
        vitals: how the scheduler does.
        audit: who did what; the frame notes what forms do by itself.
        tokens: who may sign in; None: nobody need.
        caller: who asks.
        path: the names in the path, such as {"job": "0190..."}.
        query: behind the question mark.
        form: what was sent; empty with GET.
        zone: in which the visitor reads times, and types them.
        now_ns: by the store's wall clock.
        is_partial: htmx asks, for a part of a page that is open.
    """

    scheduler: Scheduler
    hub: WorkerHub
    vitals: Vitals
    audit: AuditBook
    tokens: TokenBook | None
    caller: Caller
    path: Mapping[str, str]
    query: Fields
    form: Fields
    zone: ZoneInfo
    now_ns: int
    is_partial: bool = False

    @property
    def actor(self) -> str | None:
        """Who does what the visit does: the token's name; None: the scheduler's own."""
        return self.caller.name


class View(NamedTuple):
    """An answer: a template and what it shows.

    Attributes:
        template: its name.
        values: beside `visit`, `nav`, `can_operate`, `csrf` and the like of base.html.
        status: of HTTP; 422 for a form with errors.
    """

    template: str
    values: Mapping[str, Any] = {}
    status: int = 200


class Redirect(NamedTuple):
    """An answer: go there, and read this.

    Attributes:
        to: a path of the dashboard.
        said: shown once at the top of the next page, as a sentence.
        tone: "good", "bad" or "plain".
        cookies: what the browser is to keep from now on; "" forgets.
    """

    to: str
    said: str = ""
    tone: str = "good"
    cookies: Mapping[str, str] = {}


Answer = View | Redirect


class Page(NamedTuple):
    """One page or one action.

    Attributes:
        method: "GET" or "POST"; a POST has passed the check of its CSRF token.
        path: with names in braces; `{name:path}` takes slashes too.
        answer: makes the answer, on a thread.
        nav: which entry of the navigation it belongs to.
        role: who may; None: everybody, also one who has not signed in.
    """

    method: str
    path: str
    answer: Callable[[Visit], Answer]
    nav: str = ""
    role: Role | None = Role.READ

    @property
    def operation(self) -> str:
        """What the audit calls it: its function; "" if it changes nothing to record.

        That is a page that is shown, and what concerns the visitor alone.
        """
        return self.answer.__name__ if self.method == "POST" and self.nav else ""


NO_PLACES: Final[Mapping[str, str]] = {}


class FormErrors(dict[str, str]):
    """What is wrong with a form, by field; the key "" is the form as a whole.

    `with errors.caught("cron", "tz"): ...` takes in an error of the house: at its field
    if that is among the names, else at the form. True if there are any.
    """

    def caught(self, *fields: str, places: Mapping[str, str] = NO_PLACES) -> _Catch:
        """Take in an error that the block raises; others than the house's pass.

        Args:
            fields: of the form.
            places: of arguments that the form has under another name: its field.
        """
        return _Catch(self, fields, places)


class _Catch:
    """Takes in an error of its block."""

    def __init__(
        self, errors: FormErrors, fields: tuple[str, ...], places: Mapping[str, str]
    ) -> None:
        self._errors = errors
        self._fields = {*fields, *places.values()}
        self._places = places

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        problem = None if error is None else problem_of(error)
        if problem is None or not isinstance(error, TimingWheelError):
            return False
        field = (problem.field or "").partition(".")[0]
        field = self._places.get(field, field)
        self._errors[field if field in self._fields else ""] = _words(error)
        return True


def _words(error: TimingWheelError) -> str:
    """Return an error as it reads beside its field, which need not be named again."""
    if isinstance(error, ArgumentError):
        fix = error.fix
        return fix[:1].upper() + fix[1:]
    return str(error)
