"""The hosted checkout page."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

from payments_integration.sandbox import Engine, SandboxError
from payments_integration.sandbox.views import parse_amount

from .support import Client, Reply, types_of

BACK = "https://shop.example/back?cart=7&empty=#top"


def open_page(client: Client, payment: dict[str, Any]) -> Reply:
    return client.call("GET", urlsplit(payment["checkout_url"]).path)


def press(client: Client, payment: dict[str, Any], action: str, amount: str = "", **headers: str) -> Reply:
    raw = f"action={action}&amount={amount}".encode()
    form = "application/x-www-form-urlencoded"
    return client.call("POST", urlsplit(payment["checkout_url"]).path, raw, content_type=form, **headers)


def test_opening_the_page_shows_the_payment_and_sets_requires_action(engine: Engine, client: Client) -> None:
    payment = client.card(merchant_reference="order <7>", payer={"name": "Ana & Co"})
    page = open_page(client, payment)
    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    text = page.raw.decode()
    assert "$10.000" in text
    assert "order &lt;7&gt;" in text
    assert "Ana &amp; Co" in text
    assert 'name="viewport"' in text
    assert all(f'value="{action}"' in text for action in ("pay", "fail", "expire"))
    assert 'value="pay_other"' not in text
    assert engine.payments[payment["id"]]["status"] == "requires_action"
    assert types_of(engine) == ["payment.created", "payment.requires_action"]


@pytest.mark.parametrize(("action", "status"), [("pay", "succeeded"), ("fail", "failed"), ("expire", "expired")])
def test_each_button_changes_the_payment_and_returns_to_the_shop(
    engine: Engine, client: Client, action: str, status: str
) -> None:
    payment = client.card(return_url=BACK)
    reply = press(client, payment, action)
    assert reply.status == 303
    assert reply.headers["Location"] == BACK
    assert engine.payments[payment["id"]]["status"] == status


def test_without_a_return_url_the_page_shows_the_result(client: Client) -> None:
    payment = client.card()
    reply = press(client, payment, "pay")
    assert reply.headers["Location"] == urlsplit(payment["checkout_url"]).path
    text = open_page(client, payment).raw.decode()
    assert "the payment is complete" in text
    assert "<form" not in text


def test_a_transfer_of_another_amount(engine: Engine, client: Client) -> None:
    payment = client.make(
        "/payments", {"amount": 10_000, "currency": "USD", "country": "EC", "method_code": "ec_bank_transfer"}
    )
    assert 'value="pay_other"' in open_page(client, payment).raw.decode()
    press(client, payment, "pay_other", "40.50")
    assert engine.payments[payment["id"]]["amount_received"] == 4_050
    text = open_page(client, payment).raw.decode()
    assert "$40,50" in text
    assert "Pay $59,50" in text
    press(client, payment, "pay_other", "60")
    assert engine.payments[payment["id"]]["status"] == "overpaid"


@pytest.mark.parametrize(
    "amount", ["", "abc", "-5", "0", "1e30", "10.5", "10,5", "1.00", "1,000", "NaN", "1" * 40, "1234567890123"]
)
def test_an_invalid_amount_is_refused(engine: Engine, client: Client, amount: str) -> None:
    payment = client.bank(return_url=BACK)
    reply = press(client, payment, "pay_other", amount)
    assert reply.status == 422
    text = reply.raw.decode()
    assert 'role="alert"' in text
    assert f'value="{amount}"' in text
    assert engine.payments[payment["id"]]["status"] == "requires_action"
    assert engine.payments[payment["id"]]["amount_received"] == 0


def test_amounts_are_parsed_with_point_or_comma() -> None:
    assert parse_amount(" 12.34 ", "USD", "EC") == 1_234
    assert parse_amount("100,5", "USD", "EC") == 10_050
    assert parse_amount("12", "USD", "EC") == 1_200
    assert parse_amount("1234", "CLP", "CL") == 1_234
    assert parse_amount("1.234.567", "CLP", "CL") == 1_234_567
    assert parse_amount("1.000,50", "USD", "EC") == 100_050
    assert parse_amount("1,000.50", "MXN", "MX") == 100_050


@pytest.mark.parametrize(
    ("text", "currency", "country", "how"),
    [
        ("12.345", "MXN", "MX", "1,234.50"),
        ("12,345", "USD", "EC", "1.234,50"),
        ("1,000.50", "USD", "EC", "1.234,50"),
        ("1.00.000", "USD", "EC", "1.234,50"),
        ("0.5", "CLP", "CL", "123.450"),
        ("1,000", "CLP", "CL", "123.450"),
    ],
)
def test_an_amount_that_can_be_misread_is_refused(text: str, currency: str, country: str, how: str) -> None:
    with pytest.raises(SandboxError, match=f"Write the amount in {currency} like this: {how}\\."):
        parse_amount(text, currency, country)


def test_a_refused_amount_is_escaped(client: Client) -> None:
    text = press(client, client.bank(), "pay_other", "%22%3E%3Cb%3E").raw.decode()
    assert 'value="&quot;&gt;&lt;b&gt;"' in text


def test_no_page_requests_an_icon(client: Client) -> None:
    for path in ("/", urlsplit(client.card()["checkout_url"]).path, "/checkout/pay_none"):
        assert '<link rel="icon" href="data:,">' in client.call("GET", path).raw.decode()


def test_an_expired_payment_can_be_paid_late(engine: Engine, client: Client) -> None:
    payment = client.card()
    press(client, payment, "expire")
    assert "Pay late" in open_page(client, payment).raw.decode()
    press(client, payment, "pay")
    assert engine.payments[payment["id"]]["status"] == "succeeded"


def test_impossible_actions_are_refused(engine: Engine, client: Client) -> None:
    payment = client.card()
    assert press(client, payment, "dance").status == 422
    press(client, payment, "pay")
    assert press(client, payment, "fail").status == 422
    assert engine.payments[payment["id"]]["status"] == "succeeded"
    assert client.call("PUT", urlsplit(payment["checkout_url"]).path).status == 405
    missing = client.call("GET", "/checkout/pay_none")
    assert (missing.status, b"Without --state, the sandbox forgets all payments" in missing.raw) == (404, True)
    assert client.call("GET", "/favicon.ico").status == 404


@pytest.mark.parametrize("back", [{}, {"return_url": BACK}])
@pytest.mark.parametrize(("action", "status"), [("pay", "succeeded"), ("fail", "failed"), ("expire", "expired")])
@pytest.mark.parametrize("method", ["card", "bank"])
def test_a_second_click_leads_to_the_same_page(
    engine: Engine, client: Client, method: str, action: str, status: str, back: dict[str, str]
) -> None:
    payment = getattr(client, method)(**back)
    first, second = (press(client, payment, action) for _ in range(2))
    assert (second.status, second.headers["Location"]) == (303, first.headers["Location"])
    assert engine.payments[payment["id"]]["status"] == status
    assert engine.payments[payment["id"]]["amount_received"] == (10_000 if action == "pay" else 0)


def test_forms_of_other_sites_are_refused(engine: Engine, client: Client) -> None:
    payment = client.card()
    assert press(client, payment, "pay", origin="https://evil.example", host="127.0.0.1:8400").status == 403
    assert engine.payments[payment["id"]]["status"] == "requires_action"
    assert press(client, payment, "pay", origin="http://127.0.0.1:8400", host="127.0.0.1:8400").status == 303


def test_payments_of_every_project_have_a_page(engine: Engine) -> None:
    engine.add_project("sk_test_two")
    payment = Client(engine, "sk_test_two").card()
    assert press(Client(engine), payment, "pay").status == 303
    assert engine.projects["sk_test_two"].payments[payment["id"]]["status"] == "succeeded"
