"""The refund page: its form, the service call and the messages."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from html import unescape
from typing import Any
from urllib.parse import parse_qs

import pytest
from django.contrib.admin import site
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.signals import got_request_exception
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import translation
from django.views.debug import ExceptionReporter
from django.views.decorators.debug import sensitive_variables

from payments_integration import services
from payments_integration.admin.models.payments import PaymentAdmin
from payments_integration.admin.shared.buttons import Button
from payments_integration.enums import DocumentType
from payments_integration.exceptions import (
    ApprovalRequired,
    IdempotencyMismatch,
    InvalidState,
    NoAnswer,
    OutcomeUnknown,
)
from payments_integration.models import Operation, Payment, Refund
from tests.factories import rows
from tests.unit.admin.conftest import page, url

pytestmark = pytest.mark.any_database

HIDDEN = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)"')
BANK = {
    "bank_code": "001",
    "account_number": "000123",
    "account_type": "checking",
    "holder_name": "Ana Pérez",
    "document_type": "RUT",
    "document_number": "12345678-5",
}


class Service:
    """Replaces create_refund: records the calls, and answers or raises."""

    def __init__(self) -> None:
        self.calls: list[tuple[Payment, dict[str, Any]]] = []
        self.error: Exception | None = None

    @sensitive_variables()
    def __call__(self, payment: Payment, **kwargs: Any) -> Refund:
        self.calls.append((payment, kwargs))
        if self.error is not None:
            raise self.error
        return rows.refund(payment=payment, amount=kwargs["amount"], currency=payment.currency)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    stand_in = Service()
    monkeypatch.setattr(services, "create_refund", stand_in)
    return stand_in


def initial(client: Client, row: Payment) -> dict[str, Any]:
    """The initial values of the page's form."""
    form = client.get(url("payment", "refund", row.pk)).context["form"]
    return {name: str(form[name].value() or "") for name in form.fields}


def submit(client: Client, row: Payment, *, step: str = "confirm", **fields: Any) -> Any:
    form = {"idempotency_key": "k-1", "reason": "", "step": step, **fields}
    return client.post(url("payment", "refund", row.pk), form)


def hidden(html: str) -> dict[str, str]:
    """The hidden fields of the confirmation page."""
    return {name: unescape(value) for name, value in HIDDEN.findall(html) if name != "csrfmiddlewaretoken"}


def test_a_card_is_refunded_with_the_rest_prefilled(boss: Client, service: Service) -> None:
    row = rows.payment(amount_received=1050, refunded_amount=50)
    form = initial(boss, row)
    assert form["amount"] == "10.00"
    assert set(form) == {"amount", "reason", "idempotency_key"}
    assert form["idempotency_key"] != initial(boss, row)["idempotency_key"]
    response = submit(boss, row, **form)
    assert response.headers["Location"] == url("payment", "change", row.pk)
    assert service.calls == [
        (
            row,
            {
                "amount": 1000,
                "destination": None,
                "reason": None,
                "idempotency_key": form["idempotency_key"],
                "actor": User.objects.get(),
            },
        )
    ]
    made = Refund.objects.get()
    html = page(boss, url("payment", "change", row.pk))
    # Its status may also be "failed": the message does not say that money went back.
    assert f'The provider created refund <a href="{url("refund", "change", made.pk)}">' in html
    assert "USD\xa010.00" in html
    entry = LogEntry.objects.get()
    assert entry.object_id == row.pk
    assert made.pk in entry.get_change_message()


def test_a_payment_without_card_is_refunded_to_the_typed_account(boss: Client, service: Service) -> None:
    payer = {"name": "Ana Pérez", "document": {"type": "RUT", "number": "12345678-5"}}
    row = rows.payment(currency="CLP", amount_received=1000, method_family="bank_transfer", country="CL", payer=payer)
    form = initial(boss, row)
    assert form["amount"] == "1,000"
    assert (form["holder_name"], form["document_type"], form["document_number"]) == ("Ana Pérez", "RUT", "12345678-5")
    submit(boss, row, **{**form, **BANK, "reason": "returned goods"})
    [(_payment, sent)] = service.calls
    assert sent["amount"] == 1000
    assert sent["reason"] == "returned goods"
    assert sent["destination"] == {
        "type": "bank_account",
        "bank_code": "001",
        "account_number": "000123",
        "account_type": "checking",
        "holder_name": "Ana Pérez",
        "holder_document": {"type": "RUT", "number": "12345678-5"},
    }
    submit(boss, row, **{**form, **BANK, "bank_code": "", "account_type": ""})
    assert set(service.calls[1][1]["destination"]) == {"type", "account_number", "holder_name", "holder_document"}


@pytest.mark.parametrize("family", ["bank_redirect", "wallet", "cash", "deposit_reference", "barter"])
def test_every_family_but_cards_needs_a_destination(boss: Client, service: Service, family: str) -> None:
    row = rows.payment(method_family=family)
    response = submit(boss, row, amount="1")
    assert {"account_number", "holder_name", "document_type", "document_number"} <= set(
        response.context["form"].errors
    )
    assert service.calls == []


@pytest.mark.parametrize(
    ("currency", "typed", "minor"),
    [
        ("USD", "10", 1000),
        ("USD", "10.5", 1050),
        ("USD", "10,50", 1050),
        ("USD", " 0.29 ", 29),
        ("USD", "90071992547409.93", 9007199254740993),
        ("USD", "1.29", 129),
        ("CLP", "1000", 1000),
        ("CLP", "9007199254740993", 9007199254740993),
        ("COP", "1234.56", 123456),
        ("CLP", "1,000", 1000),
        ("USD", "1,000.00", 100000),
        ("USD", "USD\xa01,000.00", 100000),
        ("CLP", "1.000", None),
        ("CLP", "10.0", None),
        ("USD", "1.000", None),
        ("USD", "1.000,00", None),
        ("USD", "1,00,000", None),
        ("USD", "CLP 1,000", None),
        ("USD", "1e3", None),
        ("USD", "1_0", None),
        ("USD", "-5", None),
        ("USD", "+5", None),
        ("USD", "$5", None),
        ("USD", "٥", None),
        ("USD", "NaN", None),
        ("USD", "Infinity", None),
        ("USD", "", None),
        ("USD", "10.505", None),
        ("USD", "99999999999999999999", None),
    ],
)
def test_amounts_are_typed_in_major_units(
    boss: Client, service: Service, currency: str, typed: str, minor: int | None
) -> None:
    row = rows.payment(currency=currency, amount_received=2**62)
    response = submit(boss, row, amount=typed)
    if minor is None:
        assert response.status_code == 200
        assert set(response.context["form"].errors) == {"amount"}
        assert service.calls == []
    else:
        assert [call["amount"] for _payment, call in service.calls] == [minor]
        assert type(service.calls[0][1]["amount"]) is int


@pytest.mark.parametrize(
    ("currency", "typed", "words"),
    [
        ("CLP", "-5", "more than zero"),
        ("USD", "-5.50", "more than zero"),
        ("CLP", "10,5", "CLP has no decimals: write a whole number, for example 123,450"),
        ("CLP", "10.0", "no decimals"),
        ("USD", "10.5000", "USD has 2 decimals, for example 1,234.50"),
        ("CLP", "1.000", "more than one way. Write it like 123,450."),
        ("USD", "1.000,00", "more than one way. Write it like 1,234.50."),
        ("USD", "1.000", "more than one way"),
        ("USD", "$5", "in digits, for example 1,234.50"),
        ("USD", "ten", "in digits"),
        ("USD", "1e3", "in digits"),
    ],
)
def test_each_mistake_in_an_amount_has_its_message(
    boss: Client, service: Service, currency: str, typed: str, words: str
) -> None:
    response = submit(boss, rows.payment(currency=currency), amount=typed)
    [message] = response.context["form"].errors["amount"]
    assert words in message
    assert ("more than one way" in message) is ("more than one way" in words)
    assert service.calls == []


def test_the_help_text_shows_an_example(boss: Client) -> None:
    html = page(boss, url("payment", "refund", rows.payment(currency="CLP").pk))
    assert "For example 123,450." in html
    with translation.override("es"):
        html = page(boss, url("payment", "refund", rows.payment(currency="USD", amount_received=2_000_000).pk))
    assert "Por ejemplo 1.234,50." in html
    assert 'value="20.000,00"' in html


@pytest.mark.parametrize(
    ("country", "first"),
    [
        ("CL", ["RUT", "PASS"]),
        ("CO", ["CC", "NIT", "CE", "PPT", "PASS"]),
        ("EC", ["RUC", "CC", "PASS"]),
        ("PE", ["DNI", "RUC", "CE", "PASS"]),
        ("MX", ["RFC", "CURP", "PASS"]),
        ("BR", ["CPF", "CNPJ", "PASS"]),
    ],
)
def test_only_documents_of_the_country_are_offered(boss: Client, country: str, first: list[str]) -> None:
    assert documents(boss, rows.payment(method_family="cash", country=country)) == ["", *first]


def test_of_an_unknown_country_every_document_is_offered(boss: Client) -> None:
    assert set(documents(boss, rows.payment(method_family="cash", country="ZZ"))) == {"", *DocumentType.values}


def test_the_document_of_the_payer_is_offered_too(boss: Client, service: Service) -> None:
    payer = {"name": "Ana Pérez", "document": {"type": "CE", "number": "123456789"}}
    row = rows.payment(method_family="cash", country="CL", currency="CLP", payer=payer, amount_received=1000)
    assert documents(boss, row) == ["", "RUT", "PASS", "CE"]
    form = {**initial(boss, row), **BANK, "document_type": "CE", "document_number": "123456789"}
    assert "document_type" not in submit(boss, row, step="review", **form).context.get("form").errors


def documents(client: Client, row: Payment) -> list[str]:
    form = client.get(url("payment", "refund", row.pk)).context["form"]
    return [value for value, _label in form.fields["document_type"].choices]


class TestTitles:
    """The page's title says how much and to whom, for users who may see it."""

    def titles(self, response: Any) -> list[str]:
        html = response.content.decode().replace("\xa0", " ")
        return [
            unescape(html.split("<title>")[1].split(" | ")[0]).strip(),
            unescape(html.split("<h1>")[1].split("</h1>")[0]).strip(),
        ]

    @pytest.mark.parametrize(
        ("rights", "name"),
        [
            (("view_payment", "view_personal_data"), "Ana Soto"),
            (("view_payment",), "•••"),
            (("view_personal_data",), "•••"),
        ],
    )
    def test_a_card(
        self, staff: Callable[..., Client], monkeypatch: pytest.MonkeyPatch, rights: tuple[str, ...], name: str
    ) -> None:
        monkeypatch.setattr(services, "refundable", lambda payment, at_least: 1050)
        row = rows.payment(amount_received=1050, payer={"name": "Ana Soto"})
        client = staff("refund_payment", *rights)
        form = client.get(url("payment", "refund", row.pk))
        assert self.titles(form) == [f"Refund up to USD 10.50 to {name}"] * 2
        review = submit(client, row, step="review", amount="4.50")
        assert self.titles(review) == [f"Refund USD 4.50 to {name}"] * 2
        assert ("Soto" in form.content.decode() + review.content.decode()) is (name == "Ana Soto")

    def test_a_bank_account_is_that_of_its_holder(self, boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(services, "refundable", lambda payment, at_least: 1000)
        row = rows.payment(currency="CLP", country="CL", method_family="cash", amount_received=1000, payer=None)
        assert self.titles(boss.get(url("payment", "refund", row.pk))) == ["Refund up to CLP 1,000"] * 2
        review = submit(boss, row, step="review", amount="400", **BANK)
        assert self.titles(review) == ["Refund CLP 400 to Ana Pérez"] * 2


def test_a_refund_that_is_made_again_has_its_amount(boss: Client) -> None:
    row = rows.payment(currency="CLP", amount=9000, amount_received=9000)
    failed, other = (rows.refund(payment=each, status="failed", amount=500) for each in (row, rows.payment()))
    address = url("payment", "refund", row.pk)
    for again, amount in ((failed.pk, "500"), (other.pk, "9,000"), ("%00", "9,000")):
        assert f'value="{amount}"' in page(boss, f"{address}?again={again}"), again
    rows.refund(payment=row, status="succeeded", amount=8800)
    assert 'value="200"' in page(boss, f"{address}?again={failed.pk}")


class TestPaidTooMuch:
    """The excess of an overpaid payment is one click away."""

    def test_one_click_fills_it_in(self, boss: Client) -> None:
        row = rows.payment(status="overpaid", currency="CLP", amount=1000, amount_received=1250)
        html = page(boss, url("payment", "refund", row.pk)).replace("\xa0", " ")
        assert "Refund only what was paid too much: CLP 250</a>" in html
        assert 'value="1,250"' in html
        html = page(boss, url("payment", "refund", row.pk) + "?excess").replace("\xa0", " ")
        assert 'value="250"' in html
        assert "Refund all that is left: CLP 1,250</a>" in html

    @pytest.mark.parametrize(("refunded", "excess"), [(100, "150"), (250, ""), (600, "")])
    def test_what_was_refunded_is_no_excess_any_more(self, boss: Client, refunded: int, excess: str) -> None:
        row = rows.payment(currency="CLP", amount=1000, amount_received=1250, refunded_amount=refunded)
        html = page(boss, url("payment", "refund", row.pk) + "?excess")
        assert (f'value="{excess}"' in html) is bool(excess)
        assert ("all that is left:" in html) is bool(excess)

    def test_a_payment_of_the_right_amount_offers_none(self, boss: Client) -> None:
        html = page(boss, url("payment", "refund", rows.payment(amount=1000, amount_received=1000).pk) + "?excess")
        assert "too much" not in html
        assert 'value="10.00"' in html


def test_banks_are_suggested_to_those_who_may_see_bank_accounts(staff: Callable[..., Client]) -> None:
    account = {"type": "bank_account", "account_number": "000123", "holder_name": "Ana"}
    rows.payout(country="CL", destination={**account, "bank_code": "077"})
    rows.payout(country="PE", destination={**account, "bank_code": "088"})
    rows.payout(country="CL", destination={**account, "bank_code": "099"}, erased_at=rows.AT)
    row = rows.payment(method_family="cash", country="CL")
    for rights, sees in (
        (("refund_payment", "view_payout", "view_personal_data"), True),
        (("refund_payment", "view_payout"), False),
        (("refund_payment", "view_personal_data"), False),
    ):
        html = page(staff(*rights), url("payment", "refund", row.pk))
        assert ('<option value="077"' in html) is sees, rights
        assert '"088"' not in html
        assert '"099"' not in html


@pytest.mark.parametrize(
    ("argument", "message", "field"),
    [
        ("amount", "This is too large.", "amount"),
        ("reason", "Too long.", "reason"),
        ("destination", "account_number: Too long.", "account_number"),
        ("destination", "bank_code: Too long.", "bank_code"),
        ("destination", "account_type: Unknown.", "account_type"),
        ("destination", "holder_name: Too long.", "holder_name"),
        ("destination", "holder_document.number: Not a valid RUT.", "document_number"),
        ("destination", "holder_document.type: Unknown.", "document_type"),
        ("destination", "It has an unknown key.", "__all__"),
        ("payment", "Nothing is left to refund.", "__all__"),
        ("idempotency_key", "Not printable.", "idempotency_key"),
    ],
)
def test_errors_of_the_service_are_shown_at_their_fields(
    boss: Client, service: Service, argument: str, message: str, field: str
) -> None:
    row = rows.payment(method_family="cash")
    service.error = ValidationError({argument: [message]})
    response = submit(boss, row, amount="1", **BANK)
    assert response.status_code == 200
    errors = response.context["form"].errors
    assert set(errors) == {field}
    shown = message.split(": ")[-1]
    assert errors[field] == [shown]
    assert shown in response.content.decode()
    assert 'value="000123"' in response.content.decode()
    assert not LogEntry.objects.exists()


def test_too_much_is_refused_in_the_currency_of_the_payment(boss: Client, service: Service) -> None:
    row = rows.payment(amount_received=1050)
    service.error = ValidationError(
        {"amount": ValidationError("At most %(rest)d.", params={"rest": 1050, "currency": "USD"})}
    )
    response = submit(boss, row, amount="11")
    assert response.context["form"].errors["amount"] == ["At most USD\xa010.50 can be refunded."]


def test_too_much_is_refused_at_once_beside_other_mistakes(
    boss: Client, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "refundable", lambda payment, *, at_least: 1050)
    row = rows.payment(amount_received=1050, method_family="cash")
    errors = submit(boss, row, amount="11", **{**BANK, "account_number": ""}).context["form"].errors
    assert errors["amount"] == ["At most USD\xa010.50 can be refunded."]
    assert set(errors) == {"amount", "account_number"}


def test_a_refusal_shows_code_and_request_id_and_the_form_has_a_new_key(boss: Client, service: Service) -> None:
    row = rows.payment()
    service.error = InvalidState("too <little>", status_code=422, code="insufficient_balance", request_id="req_42")
    response = submit(boss, row, amount="1", reason="typed")
    html = response.content.decode()
    assert "insufficient_balance" in html
    assert "req_42" in html
    assert "too &lt;little&gt;" in html
    assert "typed" in html
    assert response.context["form"]["idempotency_key"].value() not in ("k-1", "", None)
    assert not LogEntry.objects.exists()


def test_after_an_invalid_value_the_key_stays(boss: Client, service: Service) -> None:
    row = rows.payment()
    response = submit(boss, row, amount="one")
    assert response.context["form"]["idempotency_key"].value() == "k-1"


@pytest.mark.parametrize(
    ("kind", "words"), [(OutcomeUnknown, ["not known yet", "Do not repeat"]), (ApprovalRequired, ["must approve"])]
)
def test_after_an_open_outcome_the_form_is_left(
    boss: Client, service: Service, kind: type[Any], words: list[str]
) -> None:
    row = rows.payment()
    operation = rows.operation(state="unknown", target_id=row.pk, idempotency_key="k-1")
    service.error = kind(operation)
    response = submit(boss, row, amount="1")
    assert response.headers["Location"] == url("payment", "change", row.pk)
    html = page(boss, url("payment", "change", row.pk))
    assert all(word in html for word in words)
    assert f'href="{url("operation", "change", operation.pk)}"' in html.split("messagelist")[1].split("</ul>")[0]
    assert operation.pk in LogEntry.objects.get().get_change_message()
    # The page warns the next user.
    again = page(boss, url("payment", "refund", row.pk))
    assert operation.pk in again
    assert "no outcome yet" in again


def test_a_message_links_only_to_what_opens(staff: Callable[..., Client], service: Service) -> None:
    row = rows.payment()
    operation = rows.operation(state="unknown", target_id=row.pk, idempotency_key="k-1")
    service.error = OutcomeUnknown(operation)
    client = staff("view_payment", "refund_payment")
    submit(client, row, amount="1")
    messages = page(client, url("payment", "change", row.pk)).split("messagelist")[1].split("</ul>")[0]
    for shown in (messages, page(client, url("payment", "refund", row.pk))):
        assert operation.pk in shown
        assert url("operation", "change", operation.pk) not in shown


def test_a_form_sent_twice_with_other_values_refunds_nothing_more(boss: Client, service: Service) -> None:
    row = rows.payment()
    service.error = IdempotencyMismatch("used")
    response = submit(boss, row, amount="1")
    assert response.headers["Location"] == url("payment", "change", row.pk)
    assert "nothing was sent now" in page(boss, url("payment", "change", row.pk))


def test_without_an_answer_nothing_counts_as_refunded(boss: Client, service: Service) -> None:
    service.error = NoAnswer("timeout")
    response = submit(boss, rows.payment(), amount="1")
    assert "Nothing was changed" in response.content.decode()


def test_without_the_key_of_the_page_nothing_is_sent(boss: Client, service: Service) -> None:
    response = submit(boss, rows.payment(), amount="1", idempotency_key="")
    assert response.status_code == 200
    assert "idempotency_key" in response.context["form"].errors
    assert service.calls == []


def test_the_rest_subtracts_refunds_on_their_way(boss: Client) -> None:
    row = rows.payment(amount_received=1050)
    rows.refund(payment=row, amount=250, status="processing")
    assert initial(boss, row)["amount"] == "8.00"
    rows.refund(payment=row, amount=800, status="created")
    assert initial(boss, row)["amount"] == ""
    html = page(boss, url("payment", "refund", row.pk))
    assert "Nothing is left to refund." in html
    # No form that could only be refused: a sentence, and the way back.
    assert 'name="amount"' not in html
    assert 'type="submit"' not in html.split('id="content-main"')[1]
    assert f'href="{url("payment", "change", row.pk)}">Back' in html


@pytest.mark.parametrize("status", ["failed", "expired", "canceled", "chargeback"])
def test_a_payment_that_cannot_be_refunded_has_no_form(boss: Client, service: Service, status: str) -> None:
    row = rows.payment(amount_received=1050, status=status)
    html = page(boss, url("payment", "refund", row.pk))
    assert "Nothing is left to refund." in html
    assert 'name="amount"' not in html


def test_an_open_refund_of_the_rest_is_shown(boss: Client) -> None:
    row = rows.payment(amount_received=1050)
    operation = rows.operation(state="unknown", target_id=row.pk, amount=1050)
    html = page(boss, url("payment", "refund", row.pk))
    assert "Nothing is left to refund." in html
    assert "no outcome yet" in html
    assert operation.pk in html


@pytest.mark.parametrize("payer", [None, [], "x", {"name": {"a": 1}, "document": "x"}, {"document": {"type": "??"}}])
def test_a_malformed_payer_is_accepted(boss: Client, payer: Any) -> None:
    assert page(boss, url("payment", "refund", rows.payment(method_family="cash", payer=payer).pk))


def test_the_action_leads_one_payment_to_its_page_and_several_to_a_summary(
    boss: Client, staff: Callable[..., Client], service: Service
) -> None:
    first, second = rows.payment(), rows.payment()

    def act(client: Client, *chosen: Payment) -> Any:
        form = {"action": "refund_selected", "_selected_action": [row.pk for row in chosen]}
        return client.post(url("payment", "changelist"), form)

    assert act(boss, first).headers["Location"] == url("payment", "refund", first.pk)
    several = act(boss, first, second).headers["Location"]
    assert several.partition("?")[0] == reverse("admin:payments_integration_payment_refund-selected")
    assert {first.pk, second.pk} == set(parse_qs(several.partition("?")[2])["id"])
    assert act(staff("view_payment"), first).headers.get("Location") != url("payment", "refund", first.pk)
    assert service.calls == []


def test_the_refund_link_is_shown_while_something_is_left(boss: Client) -> None:
    left, gone = rows.payment(), rows.payment(refunded_amount=1050)
    unpaid = rows.payment(amount_received=0, status="created")
    for row, offered in ((left, True), (gone, False), (unpaid, False)):
        html = page(boss, url("payment", "change", row.pk))
        assert (url("payment", "refund", row.pk) in html) is offered


REMOVED = "The account gone is not configured any more, so nothing can be sent to the provider."


def test_rows_of_a_removed_account_offer_nothing_and_say_why(boss: Client) -> None:
    paid, failed = rows.payment(account="gone"), rows.payment(account="gone", status="failed")
    open_rows = (rows.payment(account="gone", status="requires_action"), rows.payout(account="gone", status="created"))
    refund = rows.refund(payment=paid, account="gone", status="failed", amount=1)
    for row in (paid, failed, *open_rows, refund):
        html = page(boss, url(row.kind, "change", row.pk))
        assert REMOVED in html
        for name in ("refund", "cancel", "refresh"):
            assert f"{row.pk}/{name}/" not in html.replace(paid.pk, row.pk), (row, name)


def test_a_removed_account_keeps_the_buttons_of_the_project(rf: RequestFactory, admin_user: User) -> None:
    class ShopAdmin(PaymentAdmin):
        buttons = (
            *PaymentAdmin.buttons,
            Button(name="ship", label="Ship", permission="", call=lambda row, press: None, twin=None, done=""),
        )

        def object_url(self, name: str, obj: Payment) -> str:
            return name

    request = rf.get("/")
    request.user = admin_user
    row = rows.payment(account="gone", status="requires_action")
    assert [tool.label for tool in ShopAdmin(Payment, site)._button_tools(request, row)] == ["Ship"]


def test_a_removed_account_has_no_form_of_a_refund(boss: Client) -> None:
    row = rows.payment(account="gone")
    for response in (boss.get(url("payment", "refund", row.pk), follow=True), submit(boss, row, amount="1")):
        shown = response if response.status_code == 200 else boss.get(response.headers["Location"])
        assert REMOVED in shown.content.decode()
        assert 'id="refund_form"' not in shown.content.decode()
    assert not Operation.objects.exists()


@pytest.mark.case(85)
def test_error_reports_do_not_contain_the_bank_account(boss: Client, service: Service) -> None:
    reports: list[str] = []

    def report(request: Any, **kwargs: Any) -> None:
        reporter = ExceptionReporter(request, *sys.exc_info())
        reports.append(reporter.get_traceback_html() + reporter.get_traceback_text())

    service.error = RuntimeError("a bug")
    got_request_exception.connect(report)
    try:
        with pytest.raises(RuntimeError):
            submit(boss, rows.payment(method_family="cash"), amount="1", **BANK)
    finally:
        got_request_exception.disconnect(report)
    [shown] = reports
    assert "a bug" in shown
    assert "000123" not in shown
    assert "12345678-5" not in shown
