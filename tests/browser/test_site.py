"""The test site itself: logging in works, and errors in a window are noticed."""

from __future__ import annotations

from typing import Any

from django.urls import reverse

from tests.browser.conftest import Person, Visit


def test_a_person_logs_in_by_keyboard(visit: Visit, person: Person, language: str) -> None:
    user = person("boss")
    user.set_password("a long secret")
    user.save()
    visitor = visit(None, language=language)
    visitor.open(reverse("admin:payments_integration_payment_changelist"))
    page = visitor.page
    assert page.locator("html").get_attribute("lang") == language
    page.keyboard.type("boss")  # the first field has the focus
    page.keyboard.press("Tab")
    page.keyboard.type("a long secret")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert page.locator("body.app-payments_integration.model-payment").count() == 1


def test_errors_in_a_window_are_noticed(visit: Visit, person: Person) -> None:
    visitor = visit(person("boss"))
    visitor.open(reverse("admin:index"))
    assert visitor.complaints == []
    noticed: dict[str, Any] = {
        "Content Security Policy": "document.body.setAttribute('onclick', 'x()'); document.body.click()",
        "console error": "console.error('broken')",
        "script error": "setTimeout(() => { throw new Error('broken') })",
        "404 for": "fetch('/absent').catch(() => null)",
        "asked elsewhere": "location.href = 'http://127.0.0.2:9/'",
    }
    for words, script in noticed.items():
        visitor.page.evaluate(f"() => {{ {script} }}")
        for _ in range(300):
            if any(words in complaint for complaint in visitor.complaints):
                break
            visitor.page.wait_for_timeout(100)
        assert any(words in complaint for complaint in visitor.complaints), (words, visitor.complaints)
        visitor.complaints.clear()
