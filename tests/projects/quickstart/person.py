"""A person at a browser without scripts: opens pages, follows links, and presses buttons of forms."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import urljoin

import requests

#: Seconds for a page.
PATIENCE = 30.0


class _Page(HTMLParser):
    """The links of a page by their text, and its buttons with the fields of their forms."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: dict[str, str] = {}
        #: By their label: where the form goes, its fields, and the field of the button itself.
        self.buttons: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {}
        self.text = ""
        #: The statuses that it shows, in their order.
        self.statuses: list[str] = []
        self._href = ""
        self._in_status = False
        self._fields: dict[str, str] = {}
        self._action = ""
        self._button: dict[str, str] | None = None
        self._label = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        name, value = values.get("name", ""), values.get("value", "")
        if tag == "form":
            self._fields, self._action = {}, values.get("action", "")
        elif tag == "a":
            self._href, self._label = values.get("href", ""), ""
        elif tag == "span":
            self._in_status, self._label = "pi-status" in values.get("class", "").split(), ""
        elif tag == "button":
            self._button, self._label = ({name: value} if name else {}), ""
        elif tag == "input" and values.get("type") == "submit":
            self.buttons[value] = (self._action, self._fields, {name: value} if name else {})
        elif tag in ("input", "textarea") and name:
            self._fields[name] = value

    def handle_data(self, data: str) -> None:
        self.text += data
        self._label += data

    def handle_endtag(self, tag: str) -> None:
        label = " ".join(self._label.split())
        if tag == "span" and self._in_status:
            self.statuses.append(label)
        elif tag == "a":
            self.links[label] = self._href
        elif tag == "button" and self._button is not None:
            # Fields below the button come into the same dict.
            self.buttons[label] = (self._action, self._fields, self._button)
            self._button = None


class Person:
    def __init__(self) -> None:
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy for this machine
        self.address = ""
        self.page = _Page("")

    def open(self, address: str) -> None:
        self._show(self._session.get(urljoin(self.address, address), timeout=PATIENCE))

    def follow(self, text: str) -> None:
        """Follow the last link with this text."""
        self.open(self.page.links[text])

    def press(self, label: str, **typed: str) -> None:
        action, fields, button = self.page.buttons[label]
        data = {**fields, **typed, **button}
        address = urljoin(self.address, action)
        self._show(self._session.post(address, data=data, headers={"Referer": self.address}, timeout=PATIENCE))

    def _show(self, answer: requests.Response) -> None:
        assert answer.status_code == 200, (answer.url, answer.status_code, answer.text[:2000])
        self.address, self.page = answer.url, _Page(answer.text)
