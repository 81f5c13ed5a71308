"""What the browser keeps: cookies for the token, the CSRF check, the zone, a last word.

A form is taken only with the value of the CSRF cookie in it. Another site can have a
form sent here, but can neither read that cookie nor, by SameSite, have it sent along; and
before that, access.py has compared the Origin. The value is random and outlives a restart
of the server, so a form that was open meanwhile is not lost.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final
from urllib.parse import quote, unquote
from zoneinfo import ZoneInfo

from starlette.requests import Request
from starlette.responses import Response

from timingwheel.errors import ArgumentError
from timingwheel.jobs.zones import zone_named
from timingwheel.server.dashboard.visits import Fields

CSRF_COOKIE: Final = "timingwheel_csrf"
CSRF_FIELD: Final = "csrf"
ZONE_COOKIE: Final = "timingwheel_zone"
SAID_COOKIE: Final = "timingwheel_said"
SAID_CHARS_MAX: Final = 1_000
_CSRF_BYTES: Final = 32
_CSRF_CHARS_MIN: Final = 40
_SECONDS: Final = {ZONE_COOKIE: 365 * 86_400, SAID_COOKIE: 60}
"""How long they are kept; all others as long as the browser is open."""
_UTC: Final = ZoneInfo("UTC")


def csrf_of(request: Request) -> str:
    """Return the value that forms must carry; a new one for a new browser."""
    known = request.cookies.get(CSRF_COOKIE, "")
    return known if len(known) >= _CSRF_CHARS_MIN else new_csrf()


def new_csrf() -> str:
    """Return a value that nobody can guess."""
    return secrets.token_urlsafe(_CSRF_BYTES)


def has_csrf(request: Request, form: Fields) -> bool:
    """Return whether a form came from a page that this browser got here."""
    known = request.cookies.get(CSRF_COOKIE, "")
    found = form.get(CSRF_FIELD)
    return len(known) >= _CSRF_CHARS_MIN and hmac.compare_digest(
        known.encode(), found.encode()
    )


def zone_of(request: Request) -> ZoneInfo:
    """Return the zone that the visitor has chosen; UTC at first."""
    try:
        zone = zone_named(unquote(request.cookies.get(ZONE_COOKIE, "UTC")))
        return ZoneInfo(zone.name)
    except ArgumentError:
        return _UTC


def said_of(request: Request) -> tuple[str, str] | None:
    """Return the last word of an action, (tone, text), if there is one."""
    tone, colon, text = unquote(request.cookies.get(SAID_COOKIE, "")).partition(":")
    return (tone, text) if colon and tone in {"good", "bad", "plain"} else None


def keep_csrf(request: Request, response: Response, value: str) -> None:
    """Have the browser keep the CSRF value, if it does not yet."""
    if request.cookies.get(CSRF_COOKIE) != value:
        keep(request, response, CSRF_COOKIE, value)


def keep_said(request: Request, response: Response, tone: str, text: str) -> None:
    """Have the next page show a word."""
    keep(request, response, SAID_COOKIE, f"{tone}:{text[:SAID_CHARS_MAX]}")


def keep(request: Request, response: Response, name: str, value: str) -> None:
    """Have the browser keep a cookie, which its scripts never see; "" forgets it."""
    response.set_cookie(
        name,
        quote(value, safe=""),
        max_age=_SECONDS.get(name) if value else 0,
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
