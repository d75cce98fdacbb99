"""The listing of payment methods that pages and API share: read once a minute, and each time without a cache."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from payments_integration import checkout, services
from payments_integration.payer import methods
from payments_integration.schemas import PaymentMethod
from tests.caches import DOWN

LISTED = [
    PaymentMethod(code="cl_card", extra={"name": "Webpay card"}),
    PaymentMethod(code="cl_odd", extra={"name": 7}),
]
QUERY: dict[str, Any] = {"country": "CL", "currency": "CLP", "amount": None, "account": "default"}


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    found = mock.Mock(return_value=LISTED)
    monkeypatch.setattr(services, "list_payment_methods", found)
    return found


def test_the_provider_is_asked_once_for_pages_and_api(provider: mock.Mock) -> None:
    assert methods.listed_methods(**QUERY) == LISTED
    assert [each.code for each in checkout.methods("CL", "CLP")] == ["cl_card", "cl_odd"]
    provider.assert_called_once_with(**QUERY)
    methods.listed_methods(**{**QUERY, "amount": 1_000})
    assert provider.call_count == 2
    assert [methods.listed_name(code) for code in ("cl_card", "cl_odd", "unknown")] == ["Webpay card", "", ""]


def test_without_a_working_cache_payers_still_see_them(
    provider: mock.Mock, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.CACHES = DOWN
    assert [each.name for each in checkout.methods("CL", "CLP")] == ["Webpay card", "Odd"]
    assert checkout.method_name("cl_card") == "Card"
    assert provider.call_count == 1
    assert "cache does not work" in caplog.text


def test_a_site_that_shares_the_cache_asks_its_own_account(provider: mock.Mock, settings: Any) -> None:
    methods.listed_methods(**QUERY)
    configured = settings.PAYMENTS_INTEGRATION
    other = {"default": {**configured["ACCOUNTS"]["default"], "API_KEY": "sk_live_production"}}
    settings.PAYMENTS_INTEGRATION = {**configured, "ACCOUNTS": other}
    methods.listed_methods(**QUERY)
    assert provider.call_count == 2
