"""What the app offers for an order's page of one's own: methods, refusals, the timeline, the receipt's address."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.sessions.backends.cache import SessionStore
from django.contrib.staticfiles import finders
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.template import Context, Template
from django.test import RequestFactory
from django.utils import timezone, translation

from payments_integration import checkout, services
from payments_integration.checkout import attempts, payment_methods
from payments_integration.enums import Kind, MethodFamily
from payments_integration.exceptions import IdempotencyMismatch, NoAnswer, ProviderError
from payments_integration.models import Payment, StatusChange
from payments_integration.payable import OrderStatus, decide_status
from payments_integration.schemas import PaymentMethod
from tests.factories import checkout as rows
from tests.factories.rows import refund
from tests.unit.payable.payables import Customer, Order, Sale

pytestmark = pytest.mark.django_db

LISTED = [
    PaymentMethod(code="cl_card", extra={"name": "Webpay card", "family": "card", "uses": ["payment"]}),
    PaymentMethod(code="cl_x", extra={"name": "TED transfer", "family": "barter", "uses": ["payment", "payout"]}),
    PaymentMethod(code="cl_gone", extra={"name": "Gone", "available": False}),
    PaymentMethod(code="cl_deposit", extra={"name": "Deposit account", "uses": ["deposit_reference"]}),
    PaymentMethod(code="cl_reference", extra={"family": "deposit_reference"}),
    PaymentMethod(code="cl_transfer", extra={"family": "bank_transfer"}),
    PaymentMethod(code="cl_khipu"),
    PaymentMethod(code="cl_odd", extra={"name": 7, "family": None, "uses": "payment"}),
]


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The calls to the provider, which lists LISTED."""
    calls: list[dict[str, Any]] = []

    def listing(**arguments: Any) -> list[PaymentMethod]:
        calls.append(arguments)
        return LISTED

    monkeypatch.setattr(services, "list_payment_methods", listing)
    return calls


def request() -> HttpRequest:
    found = RequestFactory().get("/")
    found.session = SessionStore()
    return found


class TestMethods:
    def test_those_that_fit_are_listed_once_a_minute(self, asked: list[dict[str, Any]]) -> None:
        for _ in range(2):
            found = checkout.methods("CL", "CLP", 500)
            assert [method.code for method in found] == ["cl_card", "cl_x", "cl_transfer", "cl_khipu", "cl_odd"]
        assert asked == [{"country": "CL", "currency": "CLP", "amount": 500, "account": "default"}]
        deposits = checkout.methods("CL", "CLP", use="deposit_reference")
        # A provider may list a method's code alone.
        assert [method.code for method in deposits] == ["cl_deposit", "cl_reference", "cl_khipu", "cl_odd"]
        checkout.methods("CL", "CLP", 500, account="second")
        assert len(asked) == 3

    @pytest.mark.parametrize(
        ("language", "names"),
        [
            ("en", ["Webpay card", "TED transfer", "Transfer", "Khipu", "Odd"]),
            ("es", ["Tarjeta con Webpay", "Transferencia TED", "Transfer", "Khipu", "Odd"]),
            ("pt-br", ["Cartão com Webpay", "Transferência TED", "Transfer", "Khipu", "Odd"]),
        ],
    )
    def test_names_are_in_the_payers_language(self, language: str, names: list[str]) -> None:
        with translation.override(language):
            assert [method.name for method in checkout.methods("CL", "CLP")] == names
            assert checkout.method_name("cl_x") == names[1]

    def test_a_code_is_words_until_its_name_was_listed(self) -> None:
        assert checkout.method_name("cl_bank_transfer") == "Bank transfer"
        assert checkout.method_name("cl_x") == "X"
        assert checkout.method_name("strange") == "Strange"
        checkout.methods("CL", "CLP")
        assert checkout.method_name("cl_x") == "TED transfer"

    def test_what_the_provider_writes_is_not_html(self, monkeypatch: pytest.MonkeyPatch) -> None:
        odd = PaymentMethod(code="a_b", extra={"name": "<b>\u202e online"})
        monkeypatch.setattr(services, "list_payment_methods", lambda **kwargs: [odd])
        [method] = checkout.methods("CL", "CLP")
        assert "&lt;b&gt;\\u202e online" in method.label
        assert "<b>" not in method.label

    def test_every_family_has_a_drawing(self) -> None:
        for family in [*MethodFamily.values, "", "barter"]:
            path = finders.find(payment_methods.logo_of(family))
            assert path is not None
            # A style or a script in it would be against a strict policy.
            assert not re.search(r"<script|<style|style=|href=", Path(path).read_text())
        assert payment_methods.logo_of("barter") == "payments_integration/methods/other.svg"

    def test_a_field_offers_them(self) -> None:
        field = checkout.method_field(checkout.methods("CL", "CLP"))
        assert field.initial == "cl_card"
        assert field.clean("cl_khipu") == "cl_khipu"
        with pytest.raises(ValidationError, match="does not take this amount"):
            field.clean("cl_deposit")
        assert checkout.method_field([]).initial is None


class TestRefusals:
    @pytest.mark.parametrize(
        ("error", "words"),
        [
            (ProviderError("x", status_code=422, code="method_not_available"), "not available just now"),
            (ProviderError("x", status_code=422, code="new_code"), "Nothing was charged"),
            (NoAnswer("nothing was sent"), "cannot reach the payment provider"),
            (IdempotencyMismatch("another call's key"), "If that payment is open, cancel it first"),
            (ValidationError({"amount": "Too much."}), "Too much."),
        ],
    )
    def test_a_payer_reads_why_and_the_log_has_it(self, error: Any, words: str, caplog: Any) -> None:
        assert words in checkout.explain(error)
        assert caplog.messages == [f"A payer could not pay: {error}"]


class TestTimeline:
    def test_it_tells_what_happened_newest_first(self) -> None:
        at = timezone.now() - timedelta(hours=1)
        payment = rows.payment(status="succeeded", amount_received=10_000, created_at=at, merchant_reference="T-1")
        for minutes, status in ((0, "created"), (1, "requires_action"), (2, "processing"), (3, "succeeded")):
            StatusChange.objects.create(
                account="default", object_kind=Kind.PAYMENT, object_id=payment.pk, status=status,
                previous_status="", at=at + timedelta(minutes=minutes),
            )  # fmt: skip
        StatusChange.objects.create(
            account="default", object_kind=Kind.PAYMENT, object_id="pay_other", status="failed", at=at
        )
        refund(payment_id=payment.pk, amount=980, status="processing", currency="CLP", created_at=timezone.now())
        steps = checkout.timeline(Order(number="T-1"))
        assert [(step.words, step.amount, step.tone) for step in steps] == [
            ("Your money is on its way back to you", "$980", "open"),
            ("Paid", "$10.000", "good"),
            ("Your payment is being processed", "", "open"),
            ("Payment started", "$10.000", "quiet"),
        ]
        assert (steps[-1].method, steps[-1].payment_id) == ("Card", payment.pk)
        assert steps[-1].logo == "payments_integration/methods/card.svg"
        html = Template("{% load payments_integration %}{% payment_timeline order %}").render(
            Context({"order": Order(number="T-1")})
        )
        assert html.count("<li") == 4
        assert 'data-refund-status="processing"' in html
        assert re.search(r'<time [^>]*datetime="[-\dT:+]+" data-payments-local>', html)

    def test_a_payment_begins_before_it_is_paid_also_within_a_second(self) -> None:
        """The time of an answer has whole seconds."""
        second = timezone.now().replace(microsecond=0)
        payment = rows.payment(
            merchant_reference="T-3", status="succeeded", created_at=second.replace(microsecond=400_000)
        )
        StatusChange.objects.create(
            account="default", object_kind=Kind.PAYMENT, object_id=payment.pk, status="succeeded", at=second
        )
        assert [step.words for step in checkout.timeline(Order(number="T-3"))] == ["Paid", "Payment started"]

    def test_an_order_without_payments_has_no_steps(self, django_assert_num_queries: Any) -> None:
        StatusChange.objects.create(
            account="default", object_kind=Kind.PAYMENT, object_id="p", status="x", at="2026-01-01T00:00Z"
        )
        with django_assert_num_queries(2):
            assert checkout.timeline(Order(number="T-2")) == []

    def test_the_steps_of_many_payments_are_read_together(self, django_assert_num_queries: Any) -> None:
        """A customer who pays by deposits has a payment for each transfer."""
        of, at = Customer.objects.create(), timezone.now()
        Payment.objects.bulk_create(
            rows.unsaved(
                pk=f"pay_{number}", account=("default", "second")[number % 2], merchant_reference=str(of.code)
            )
            for number in range(1_100)
        )
        for account, number in (("second", 1), ("default", 2), ("default", 1)):
            StatusChange.objects.create(
                account=account, object_kind=Kind.PAYMENT, object_id=f"pay_{number}", status="succeeded", at=at
            )
        with django_assert_num_queries(5):
            words = [step.words for step in checkout.timeline(of)]
        assert words == ["Paid"] * 2 + ["Payment started"] * 1_100

    def test_a_time_that_is_none_is_not_shown(self) -> None:
        template = Template('{% load payments_integration %}{% payment_time at "CL" %}')
        assert template.render(Context({"at": None})) == ""
        assert template.render(Context({"at": timezone.now().replace(tzinfo=None)})) == ""
        assert "(UTC-0" in template.render(Context({"at": timezone.now()}))


class TestOrderPage:
    def test_it_asks_for_the_money_that_is_missing(self) -> None:
        sale = Sale.objects.create(number="B-1", amount=2_000, currency="USD")
        payment = rows.payment(
            merchant_reference="B-1", amount=2_000, currency="USD", country="EC", status="partially_paid",
            amount_received=500, method_family="bank_transfer",
        )  # fmt: skip
        status, note = decide_status(sale, "key")
        assert (status, note) == (OrderStatus.PARTIALLY_PAID, "")
        page = checkout.order_page(request(), sale, status, "key", refusal="none is open")
        assert page.asked == page.payment == payment
        assert (page.received, page.missing, page.surplus, page.receipt_url) == ("$5,00", "$15,00", "", "")
        assert (page.may_cancel, page.may_pay_again, page.reload_seconds) == (False, False, 15)

    def test_a_payer_who_came_back_is_not_asked_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        sale = Sale.objects.create(number="B-2", amount=2_000, currency="USD")
        rows.payment(merchant_reference="B-2", amount=2_000, currency="USD", country="EC")
        visit = request()
        assert checkout.order_page(visit, sale, OrderStatus.NEW, "key", refusal="x").asked is not None
        checkout.note_return(visit, "B-2")
        page = checkout.order_page(visit, sale, OrderStatus.NEW, "key", refusal="x")
        assert (page.asked, page.is_looking) == (None, True)
        assert not checkout.has_returned(visit, "B-3")
        monkeypatch.setattr(attempts, "WAIT_FOR_MONEY", 0)
        assert not checkout.has_returned(visit, "B-2")

    def test_a_project_without_sessions_has_the_page(self) -> None:
        sale = Sale.objects.create(number="B-3", amount=2_000, currency="USD")
        payment = rows.payment(merchant_reference="B-3", amount=2_000, currency="USD", country="EC")
        page = checkout.order_page(RequestFactory().get("/"), sale, OrderStatus.NEW, "key", refusal="x")
        assert (page.asked, page.is_looking) == (payment, False)

    def test_a_model_without_a_price_is_refused(self) -> None:
        for call in (
            lambda: decide_status(Order(number="x"), "key"),
            lambda: checkout.order_page(request(), Order(number="x"), "new", "key"),
        ):
            with pytest.raises(ValueError, match="knows its price"):
                call()


class TestAddresses:
    @pytest.mark.urls("example_project.urls")
    def test_only_a_paid_payment_has_a_receipt(self) -> None:
        assert checkout.receipt_url(request(), rows.payment()) == ""
        paid = rows.payment(status="succeeded", amount_received=10_000)
        assert checkout.receipt_url(request(), paid).startswith("http://testserver/payments/receipt/")

    @pytest.mark.urls("tests.unit.checkout.urls")
    def test_a_project_without_receipts_has_no_address(self) -> None:
        assert checkout.receipt_url(request(), rows.payment(status="succeeded", amount_received=10_000)) == ""

    @pytest.mark.parametrize(
        ("fields", "address"),
        [
            ({"checkout_url": "https://pay.example/1", "flow": "hosted"}, "https://pay.example/1"),
            ({"checkout_url": "https://pay.example/1", "flow": "s2s"}, ""),
            ({"checkout_url": "https://pay.example/1", "status": "succeeded"}, ""),
            ({"checkout_url": "javascript:alert(1)", "flow": "hosted"}, ""),
            ({"checkout_url": None}, ""),
        ],
    )
    def test_only_an_open_hosted_payment_leads_to_the_provider(self, fields: dict[str, Any], address: str) -> None:
        assert checkout.provider_page(rows.unsaved(**fields)) == address
