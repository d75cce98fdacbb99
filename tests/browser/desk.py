"""A window at the overview, in which the clicks of a task are counted and every page is checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Download, Locator

from tests.browser.accessibility import grave
from tests.browser.test_dashboard import DASHBOARD
from tests.browser.visitor import Visitor

#: Notes the clicks of a mouse. A click that the keyboard makes, such as Enter on a button, has no pointer.
NOTE_CLICKS = """addEventListener("click", event => {
    if (event.isTrusted && event.pointerType) noteClick(event.target.textContent.trim() || event.target.name);
}, true);"""


class Desk:
    """Typing, Tab and Enter are free; the first field of a form is clicked, because it does not have the focus."""

    def __init__(self, visitor: Visitor, start: str = DASHBOARD) -> None:
        self.visitor = visitor
        self.page = visitor.page
        #: What was clicked. It survives navigation.
        self.clicks: list[str] = []
        self._violations: list[str] = []
        self.page.context.expose_binding("noteClick", lambda source, what: self.clicks.append(what))
        self.page.context.add_init_script(NOTE_CLICKS)
        visitor.open(start)

    def click(self, target: Locator | str) -> None:
        """Click something that stays on the page."""
        self._found(target).click()

    def follow(self, target: Locator | str) -> None:
        """Click something that leads to another page."""
        with self._leaving():
            self._found(target).click()

    def enter(self) -> None:
        """Press Enter in the field that has the focus, which leads to another page."""
        with self._leaving():
            self.page.keyboard.press("Enter")

    def search(self, text: str) -> None:
        """Search everything, from any page."""
        self.click("#pi-search")
        self.page.keyboard.type(text)
        self.enter()

    def download(self, target: Locator | str) -> Download:
        with self.page.expect_download() as caught:
            self._found(target).click()
        return caught.value

    def shows(self) -> str:
        """The text of the page, with plain spaces."""
        return " ".join(self.visitor.find("#content").inner_text().split())

    def done(self, most: int) -> None:
        """Check the clicks of the task, and that no page on the way had an accessibility violation."""
        self._examine()
        assert not self._violations, "\n".join(self._violations)
        assert 0 < len(self.clicks) <= most, self.clicks

    @contextmanager
    def _leaving(self) -> Iterator[Any]:
        self._examine()
        with self.page.expect_navigation():
            yield

    def _examine(self) -> None:
        with self.visitor.unheard():
            self._violations += [f"{self.page.url}: {violation}" for violation in grave(self.page)]

    def _found(self, target: Locator | str) -> Locator:
        return (self.visitor.find(target) if isinstance(target, str) else target).first
