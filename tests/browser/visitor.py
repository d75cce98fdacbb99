"""A user with a browser. Errors, unexpected statuses and requests to other hosts are noted and fail the test."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, Response, expect

from tests.browser.middleware import idle

#: The maximum time of one step.
TIMEOUT_MS = 15_000
#: The folder for screenshots; if empty, none are made.
SCREENSHOTS = os.environ.get("SCREENSHOTS", "")
WIDTH, HEIGHT = 1280, 860

#: Chromium logs every response from 400 on; these are checked by their status instead.
_STATUS = re.compile(r"Failed to load resource: the server responded with a status of")


def resize(page: Page, width: int, height: int) -> None:
    """Give the page another size, and wait until it is laid out for it."""
    page.set_viewport_size({"width": width, "height": height})
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


class Visitor:
    """One browser window of one user, used by one test."""

    def __init__(
        self,
        browser: Browser,
        site: str,
        user: User | None,
        *,
        language: str = "en",
        dark: bool = False,
        width: int = WIDTH,
        leads_to: str = "",
        **options: Any,
    ) -> None:
        """``leads_to``: other sites that pages link to or call, as ``http://host:port``, with blanks between them."""
        self.site = site
        self._known = {site, *leads_to.split()}
        self.complaints: list[str] = []
        #: Statuses from 400 on that the test expects.
        self.expected: set[int] = set()
        self._context = browser.new_context(
            base_url=site,
            locale=language,
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            viewport={"width": width, "height": HEIGHT},
            **options,
        )
        self._context.set_default_timeout(TIMEOUT_MS)
        if SCREENSHOTS:
            # Screenshots show the page without Django's sidebar.
            folded = "localStorage.setItem('django.admin.navSidebarIsOpen', 'false')"
            self._context.add_init_script(f"if (location.protocol === 'http:') {folded}")
        self._context.on("request", self._requested)
        self._context.on("response", self._answered)
        self._context.on("console", self._logged)
        self._context.on("weberror", lambda error: self.complaints.append(f"script error: {error.error}"))
        if user is not None:
            self._log_in(user)
        self.page: Page = self._context.new_page()

    def open(self, address: str, *, status: int = 200) -> Page:
        """Open a URL, as from a link or the address bar."""
        if status >= 400:
            self.expected.add(status)
        response = self.page.goto(address)
        assert response is not None
        assert response.status == status, (address, response.status)
        return self.page

    def find(self, selector: str) -> Locator:
        return self.page.locator(selector)

    def another_page(self) -> Page:
        """A second tab of the same user."""
        return self._context.new_page()

    def press(self, target: Locator | str) -> None:
        """Click an element that leads to another page, and wait for that page."""
        found = self.find(target) if isinstance(target, str) else target
        with self.page.expect_navigation():
            found.click()

    def press_twice(self, target: Locator | str, *, leads_to: re.Pattern[str]) -> None:
        """Double-click a submit button: two requests, and the browser stops waiting for the first."""
        found = self.find(target) if isinstance(target, str) else target
        found.dblclick(no_wait_after=True)
        # Not expect_navigation(), which fails because the first request is aborted.
        expect(self.page).to_have_url(leads_to)
        self.page.wait_for_load_state()
        assert idle(TIMEOUT_MS / 1000)

    def messages(self, level: str = "") -> list[str]:
        """The messages at the top of the page; ``level``: success, warning or error."""
        return [
            text.strip() for text in self.find(f"ul.messagelist li{'.' + level if level else ''}").all_inner_texts()
        ]

    def shoot(self, name: str, *, at: str = "") -> None:
        """Take a screenshot for the documentation, if screenshots are enabled, scrolled to ``at``."""
        if not SCREENSHOTS:
            return
        if at:
            self.find(at).evaluate("element => element.scrollIntoView({block: 'start'})")
        self.page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", animations="disabled")

    @contextmanager
    def unheard(self) -> Iterator[None]:
        """Ignore errors that the test itself causes, as axe does with its own styles."""
        before = len(self.complaints)
        yield
        del self.complaints[before:]

    def leave(self) -> None:
        self._context.close()

    def _log_in(self, user: User) -> None:
        client = Client()
        client.force_login(user)
        name = settings.SESSION_COOKIE_NAME
        self._context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": self.site}])

    def _requested(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and f"{parts.scheme}://{parts.netloc}" not in self._known:
            self.complaints.append(f"asked elsewhere: {request.url}")

    def _answered(self, response: Response) -> None:
        if response.status >= 400 and response.status not in self.expected:
            self.complaints.append(f"{response.status} for {response.request.method} {response.url}")

    def _logged(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not _STATUS.match(message.text):
            self.complaints.append(f"console {message.type} on {self.page.url}: {message.text}")
