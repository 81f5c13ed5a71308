"""A real browser, headless, and pages in it that report all that a person would not see.

It is Debian's chromium, which `make test` installs where it may. Elsewhere the tests are
skipped and say so; under CI a browser that is missing is a failure.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 30_000
WIDE = {"width": 1280, "height": 900}
_WATCH = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
"""


@dataclass
class Trouble:
    """What went wrong in a page unseen.

    Attributes:
        found: what it was, in order.
        hosts: of all requests.
        forgives: answers with a status of 400 or more that a test asks for, as the
            console words them.
        is_over: whether the server has gone, so that streams break off.
    """

    found: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    forgives: str | None = None
    is_over: bool = False

    def watch(self, page: Page) -> None:
        """Note what goes wrong in a page from now on."""
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.found.append(f"error: {error}"))
        page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type not in {"error", "warning"}:
            return
        if self.is_over and "net::ERR_" in message.text:
            return
        if self.forgives is not None and self.forgives in message.text:
            return
        self.found.append(f"{message.type}: {message.text}")

    def _request(self, request: Request) -> None:
        host = urlsplit(request.url).netloc
        if host:  # a data: URL has none
            self.hosts.add(host)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if shutil.which(CHROMIUM) is None:
        words = f"there is no browser at {CHROMIUM}: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(words)
        pytest.skip(words)
    # Of a module each: playwright keeps an event loop running in this thread.
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield opened
        finally:
            opened.close()


Opens = Callable[..., Page]


@pytest.fixture
def trouble() -> Iterator[Trouble]:
    """What went wrong; nothing may have, when the test is over."""
    noted = Trouble()
    yield noted
    assert noted.found == []
    assert {host.partition(":")[0] for host in noted.hosts} <= {"127.0.0.1"}


@pytest.fixture
def opens(browser: Browser, trouble: Trouble) -> Iterator[Opens]:
    """Open a page in a context of its own, with what `new_context` takes."""
    with contextlib.ExitStack() as stack:

        def opened(**options: Any) -> Page:
            context = browser.new_context(**{"viewport": WIDE} | options)
            stack.callback(context.close)
            context.set_default_timeout(PATIENCE_MS)
            context.add_init_script(_WATCH)
            page = context.new_page()
            trouble.watch(page)
            return page

        yield opened
