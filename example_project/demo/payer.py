"""The payer's browser: forms are read from the pages and sent as a browser would."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urljoin

import requests

TIMEOUT = 15


@dataclass(slots=True)
class Form:
    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)
    #: Names and values of its buttons.
    buttons: list[tuple[str, str]] = field(default_factory=list)


class _Forms(HTMLParser):
    """Collects a page's forms with what their fields hold."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(Form(given.get("action", ""), given.get("method", "get").lower()))
        if not self.forms:
            return
        form = self.forms[-1]
        if tag == "select":
            self._select = given.get("name", "")
        elif tag == "option" and ("selected" in given or self._select not in form.fields):
            form.fields[self._select] = given.get("value", "")
        if not given.get("name"):
            return
        if tag == "button":
            form.buttons.append((given["name"], given.get("value", "")))
        elif tag == "input" and (given.get("type") not in ("radio", "checkbox") or "checked" in given):
            form.fields[given["name"]] = given.get("value", "")


class Payer:
    """One person at a browser with cookies."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._http = requests.Session()
        self._http.trust_env = False

    def pay(self, checkout_url: str) -> None:
        """Open the checkout page and press its button."""
        self._press(checkout_url, "pay")

    def pay_amount(self, checkout_url: str, amount: str) -> None:
        """Transfer another amount than asked, as typed: ``12.50``."""
        self._press(checkout_url, "pay_other", amount=amount)

    def let_expire(self, checkout_url: str) -> None:
        self._press(checkout_url, "expire")

    def fill_in_order(self, page_url: str, **fields: str) -> tuple[str, dict[str, str]]:
        """Open a product's page and fill in its form; returns where it goes and what it holds, not sent yet."""
        page = self._get(page_url)
        form = next(form for form in _forms(page) if form.method == "post")
        return urljoin(page.url, form.action), {**form.fields, **fields}

    def send(self, url: str, data: dict[str, str]) -> str:
        """Send a form; returns where it leads."""
        answer = self._http.post(url, data=data, headers={"Referer": url}, timeout=TIMEOUT, allow_redirects=False)
        if answer.status_code not in (302, 303):
            raise RuntimeError(f"{url} answered {answer.status_code} to a form")
        return urljoin(url, answer.headers["Location"])

    def see(self, url: str) -> str:
        """What a page says."""
        return self._get(url).text

    def _press(self, page_url: str, action: str, **fields: str) -> None:
        page = self._get(page_url)
        for form in _forms(page):
            if ("action", action) in form.buttons:
                data = {**form.fields, **fields, "action": action}
                # Where the payer is sent afterwards matters to the shop alone.
                answer = self._http.post(
                    urljoin(page.url, form.action), data=data, timeout=TIMEOUT, allow_redirects=False
                )
                if answer.status_code not in (302, 303):
                    raise RuntimeError(f"{page_url} answered {answer.status_code} to {action!r}")
                return
        raise RuntimeError(f"{page_url} has no button {action!r}")

    def _get(self, url: str) -> requests.Response:
        answer = self._http.get(url, timeout=TIMEOUT)
        answer.raise_for_status()
        return answer


def _forms(page: requests.Response) -> list[Form]:
    parser = _Forms()
    parser.feed(page.text)
    return parser.forms
