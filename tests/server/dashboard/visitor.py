"""A visitor of the dashboard: asks for pages over a socket, reads them by a parser.

What it sends is what a form in the page would send, hidden fields and all, so a form that
lacks its CSRF field fails here as it would in a browser.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from types import TracebackType
from typing import Self

import httpx

VOID = frozenset({"input", "link", "meta", "br", "hr", "img", "option"})
FIELDS = frozenset({"input", "select", "textarea"})


class Element:
    """An element: its tag, its attributes, its children."""

    def __init__(self, tag: str, attributes: Mapping[str, str]) -> None:
        self.tag = tag
        self.attributes = attributes
        self.children: list[Element | str] = []

    @property
    def text(self) -> str:
        """All text in it, with single spaces."""
        return " ".join(" ".join(self._texts()).split())

    def _texts(self) -> Iterator[str]:
        for child in self.children:
            if isinstance(child, str):
                yield child
            else:
                yield from child._texts()

    def walk(self) -> Iterator[Element]:
        """It and all elements in it, in the order of the page."""
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def all(self, tag: str = "", /, **attributes: str) -> list[Element]:
        """Elements of a tag and of attributes; `class_` is one of its classes."""
        return [
            one
            for one in self.walk()
            if tag in {"", one.tag}
            and all(one._has(name, value) for name, value in attributes.items())
        ]

    def one(self, tag: str = "", /, **attributes: str) -> Element:
        """The only such element."""
        found = self.all(tag, **attributes)
        assert len(found) == 1, (tag, attributes, [each.text for each in found])
        return found[0]

    def _has(self, name: str, value: str) -> bool:
        if name == "class_":
            return value in self.attributes.get("class", "").split()
        return self.attributes.get(name.rstrip("_").replace("_", "-")) == value

    def fields(self) -> dict[str, str]:
        """What a form sends as it stands."""
        sent = {}
        for field in self.walk():
            name = field.attributes.get("name")
            if field.tag not in FIELDS or name is None:
                continue
            kind = field.attributes.get("type")
            if kind in {"checkbox", "radio"} and "checked" not in field.attributes:
                continue
            if field.tag == "textarea":
                text = "".join(part for part in field.children if isinstance(part, str))
                sent[name] = text.removeprefix("\n")
            elif field.tag == "select":
                options = field.all("option")
                chosen = [one for one in options if "selected" in one.attributes]
                sent[name] = (chosen or options)[0].attributes["value"]
            else:
                sent[name] = field.attributes.get("value", "on")
        return sent


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("", {})
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(made)
        if tag not in VOID:
            self._open.append(made)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(made)

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        assert self._open[-1].tag == tag, (self._open[-1].tag, tag, self.getpos())
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


class Shown:
    """A page as it came.

    Attributes:
        response: all of it.
        root: its elements.
    """

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.status = response.status_code
        reader = _Reader()
        reader.feed(response.text)
        reader.close()
        self.root = reader.root

    @property
    def path(self) -> str:
        """Where it is, after redirects."""
        return self.response.url.path

    @property
    def said(self) -> str:
        """The word of the last action."""
        return self.by_id("said").text

    def by_id(self, testid: str) -> Element:
        """The only element of a data-testid."""
        return self.root.one(data_testid=testid)

    def form(self, action: str) -> Element:
        """The only form that sends there."""
        return self.root.one("form", action=action, method="post")


class Visitor:
    """Asks for pages.

    Args:
        url: of the server.
    """

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=30, follow_redirects=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.http.close()

    def get(self, path: str, *, status: int = 200) -> Shown:
        """Ask for a page."""
        shown = Shown(self.http.get(path, headers={"accept": "text/html"}))
        assert shown.status == status, (path, shown.response.text)
        return shown

    def send(
        self, shown: Shown, action: str, *, status: int = 200, **fields: str
    ) -> Shown:
        """Send a form of a page with some fields filled in, and return what comes."""
        form = shown.form(action)
        known = form.fields()
        pressed = {
            button.attributes["name"]: button.attributes.get("value", "")
            for button in form.all("button")
            if "name" in button.attributes
        }
        assert fields.keys() <= known.keys() | pressed.keys(), fields
        answer = self.http.post(
            action,
            data={**known, **fields},
            headers={"accept": "text/html", "origin": str(self.http.base_url)},
        )
        made = Shown(answer)
        assert made.status == status, (action, made.response.text)
        return made
