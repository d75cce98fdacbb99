"""The page to try the API: a call from its form reaches the provider, and nothing is loaded from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from playwright.sync_api import Browser, expect

from payments_integration.models import Operation, Payment
from payments_integration.services import scoped_key
from payments_integration.testing import ProviderSandbox
from tests.browser.middleware import POLICY, idle
from tests.browser.site import bugs, serving
from tests.browser.visitor import TIMEOUT_MS, Visitor


def policy(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """As docs/rest-api.md has it."""

    def respond(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response["Content-Security-Policy"] = POLICY.format("") + "; img-src 'self' data:"
        return response

    return respond


@pytest.fixture(scope="module")
def site(django_db_setup: None, browser: Browser) -> Iterator[str]:
    with serving(strict=False, first=["tests.browser.test_try_api.policy"]) as address:
        yield address


@pytest.fixture
def boss(browser: Browser, site: str, provider: ProviderSandbox) -> Iterator[Visitor]:
    visitor = Visitor(browser, site, User.objects.create_superuser("boss"))
    with bugs() as found:
        yield visitor
        visitor.leave()
        assert idle(TIMEOUT_MS / 1000)
    assert visitor.complaints == []
    assert found == []


def test_it_says_that_the_description_could_not_be_read(boss: Visitor) -> None:
    boss.expected.add(429)
    boss.page.route("**/payments/api/schema/", lambda route: route.fulfill(status=429, body="{}"))
    page = boss.open("/payments/api/try/")
    expect(page.locator("main")).to_contain_text("could not be read (429)")


def test_a_payment_is_created_once_per_key(boss: Visitor, provider: ProviderSandbox) -> None:
    page = boss.open("/payments/api/try/")
    expect(page.get_by_text("With live keys it moves money")).to_be_visible()
    call = page.locator("#operations-payments-create_payment")
    call.locator(".opblock-summary-control").click()
    call.get_by_role("button", name="Try it out").click()
    key = call.get_by_placeholder("Idempotency-Key").input_value()
    assert len(key) == 36
    answer = call.locator(".live-responses-table .response").first
    call.get_by_role("button", name="Execute").click()
    expect(answer.locator(".response-col_status")).to_contain_text("201")
    boss.shoot("try-api", at="#operations-payments-create_payment")
    call.get_by_role("button", name="Execute").click()
    expect(answer).to_contain_text("idempotent-replayed")
    payment = Payment.objects.get()
    shown: Any = json.loads(answer.locator(".highlight-code code").first.inner_text())
    assert (shown["id"], shown["status"]) == (payment.pk, payment.status)
    assert Operation.objects.get().idempotency_key == f"api-{scoped_key(key, User.objects.get().pk)}"
    assert len(provider.project.payments) == 1
