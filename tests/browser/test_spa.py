"""The checkout page of ``example_project/spa``, on another origin than the site, to a paid order."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, expect

from payments_integration.models import Operation, Payment
from payments_integration.testing import ProviderSandbox
from tests.browser.middleware import idle
from tests.browser.site import bugs, serving
from tests.browser.spa import DEFAULT_HEADERS, build, compile_in, page_server
from tests.browser.visitor import TIMEOUT_MS, Visitor

pytestmark = pytest.mark.urls("tests.browser.spa")

#: As docs/rest-api.md has them.
HEADERS = {
    "CORS_ALLOW_HEADERS": [*DEFAULT_HEADERS, "idempotency-key"],
    "CORS_EXPOSE_HEADERS": ["request-id", "retry-after"],
}


@pytest.fixture(scope="module")
def shop(django_db_setup: None, browser: Browser) -> Iterator[str]:
    with serving(strict=False, first=["tests.browser.spa.cross_origin"]) as address:
        yield address


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spa")
    result = build(folder)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


@pytest.fixture(scope="module")
def spa(shop: str, built: Path) -> Iterator[str]:
    with page_server(built, shop) as address:
        yield address


@pytest.fixture
def customer(browser: Browser, shop: str, spa: str, provider: ProviderSandbox, settings: Any) -> Iterator[Visitor]:
    settings.PAYMENTS_INTEGRATION = {
        **settings.PAYMENTS_INTEGRATION,
        "API_PERMISSION_CLASSES": ["payments_integration.api.permissions.StaffAndCustomers"],
        "API_PAYMENT": "tests.browser.spa.payment_of_order",
    }
    settings.CORS_ALLOWED_ORIGINS = [spa]
    settings.CSRF_TRUSTED_ORIGINS = [spa]
    for option, names in HEADERS.items():
        setattr(settings, option, names)
    visitor = Visitor(browser, spa, User.objects.create_user("ana"), leads_to=f"{shop} {provider.url}", width=390)
    with bugs() as found:
        yield visitor
        visitor.leave()
        assert idle(TIMEOUT_MS / 1000)
    assert found == []


def choose(customer: Visitor) -> None:
    customer.open("/?order=order-1001")
    customer.page.locator("input[value=cl_webpay_card]").check()


def pay(customer: Visitor) -> None:
    choose(customer)
    customer.find("form button").click()


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("payment.is_final", "payment.isFinal", "isFinal"),
        ("payment.display.tone", "payment.display.tones", "tones"),
        ("payment.checkout_url) location", "!payment.checkout_url) location", "null"),
        ("method.name ?? method.code", "method.name", "undefined"),
        ("each.param", "each.params", "params"),
    ],
)
def test_the_types_find_mistakes(built: Path, tmp_path: Path, right: str, wrong: str, says: str) -> None:
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    script = tmp_path / "main.ts"
    source = script.read_text()
    assert right in source
    script.write_text(source.replace(right, wrong))
    result = compile_in(tmp_path)
    assert result.returncode != 0
    assert says in result.stdout


def test_an_order_is_paid_from_another_origin(customer: Visitor, provider: ProviderSandbox) -> None:
    pay(customer)
    customer.page.wait_for_url(f"{provider.url}/**")
    customer.press(customer.page.get_by_role("button", name=re.compile(r"^Pay\b")))
    # No delivery comes: the page has the payment read.
    expect(customer.find("#status")).to_have_text("Paid. Thank you! Your payment has arrived.")
    expect(customer.find("#status")).to_have_attribute("data-tone", "good")
    payment = Payment.objects.get()
    assert (payment.status, payment.merchant_reference, payment.amount) == ("succeeded", "order-1001", 12_990)
    assert Operation.objects.get().actor.endswith(":ana")
    assert customer.complaints == []


def test_the_page_shows_what_is_wrong_with_its_request_id(customer: Visitor, provider: ProviderSandbox) -> None:
    choose(customer)
    provider.engine.terms.forbidden_methods.add("cl_webpay_card")
    customer.expected.add(422)
    customer.find("form button").click()
    expect(customer.find("#status")).to_have_text(re.compile(r"^method_code: .+ \(req_[0-9a-f]{32}\)$"))
    assert customer.complaints == []


def test_the_usual_headers_of_other_origins_do_not_do(customer: Visitor, settings: Any) -> None:
    """What the system check W026 warns of."""
    settings.CORS_ALLOW_HEADERS = DEFAULT_HEADERS
    pay(customer)
    expect(customer.find("#status")).to_have_text(re.compile("Failed to fetch"))
    assert not Operation.objects.exists()
    assert any("idempotency-key" in complaint for complaint in customer.complaints)
