"""The listing of payment methods that pages and API share: read once a minute, and each time without a cache."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from payments_integration import checkout, services
from payments_integration.payer import methods
from payments_integration.schemas import PaymentMethod

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


def test_without_a_working_cache_payers_still_see_them(provider: mock.Mock, caplog: pytest.LogCaptureFixture) -> None:
    failing = mock.Mock(**{"get.side_effect": OSError("away"), "set_many.side_effect": OSError("away")})
    with mock.patch.object(methods, "cache", failing):
        assert [each.name for each in checkout.methods("CL", "CLP")] == ["Webpay card", "Odd"]
        assert checkout.method_name("cl_card") == "Card"
    assert provider.call_count == 1
    assert "The cache does not work" in caplog.text
