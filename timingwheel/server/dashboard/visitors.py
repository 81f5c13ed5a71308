"""What concerns the visitor: to sign in, to sign out, and whose clock times are read by."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from timingwheel.errors import ArgumentError
from timingwheel.jobs.zones import zone_named
from timingwheel.server.access import LOGIN_PATH, TOKEN_COOKIE
from timingwheel.server.dashboard.sessions import CSRF_COOKIE, ZONE_COOKIE, new_csrf
from timingwheel.server.dashboard.visits import Answer, Page, Redirect, View, Visit


def show_sign_in(visit: Visit) -> Answer:
    """Show the form for a token."""
    return View(
        "login.html", {"next": local_path(visit.query.get("next")), "error": ""}
    )


def sign_in(visit: Visit) -> Answer:
    """Take a token."""
    to, secret = local_path(visit.form.get("next")), visit.form.get("token")
    if visit.tokens is None:
        return Redirect(to)
    if visit.tokens.find(secret) is None:
        error = "This server knows no such token."
        return View("login.html", {"next": to, "error": error}, 401)
    # A new life, a new value: one that was planted before is worth nothing.
    return Redirect(to, cookies={TOKEN_COOKIE: secret, CSRF_COOKIE: new_csrf()})


def sign_out(_: Visit) -> Answer:
    """Forget the token of this browser."""
    return Redirect(LOGIN_PATH, cookies={TOKEN_COOKIE: ""})


def choose_zone(visit: Visit) -> Answer:
    """Show times in another zone from now on."""
    to, zone = local_path(visit.form.get("next")), visit.form.get("zone")
    try:
        zone_named(zone)
    except ArgumentError as error:
        return Redirect(to, f"{zone!r}: {error.fix}.", "bad")
    said = f"Times are shown in {zone}."
    return Redirect(to, said, "plain", cookies={ZONE_COOKIE: zone})


def local_path(text: str) -> str:
    """Return where a form leads back to: a path of this server, never another's."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return "/"
    foreign = parts.scheme or parts.netloc or not text.startswith("/")
    # Browsers read a backslash as a slash, and two slashes begin a host.
    if foreign or text.startswith("//") or "\\" in text:
        return "/"
    return text


VISITOR_PAGES: Final = (
    Page("GET", LOGIN_PATH, show_sign_in, role=None),
    Page("POST", LOGIN_PATH, sign_in, role=None),
    Page("POST", "/logout", sign_out),
    Page("POST", "/zone", choose_zone),
)
