"""Refunding several payments: the summary, then one service call and one result for each."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import OperationalError
from django.test import Client
from django.urls import reverse

from payments_integration import services
from payments_integration.contrib.backoffice.admin import bulk_refund
from payments_integration.exceptions import ApprovalRequired, InvalidState, NoAnswer, OutcomeUnknown
from payments_integration.models import Payment, Refund
from tests.factories import rows
from tests.unit.admin.conftest import page, url

pytestmark = pytest.mark.any_database

BULK = "admin:payments_integration_payment_refund-selected"
TOO_MUCH = ValidationError("At most %(rest)d.", params={"rest": 1050, "currency": "USD"})
VALUES = re.compile(r'name="refund" value="([^"]*)"')


class Service:
    """Replaces create_refund: records the calls, and raises for some payments."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.errors: dict[str, Exception] = {}

    def __call__(self, payment: Payment, **kwargs: Any) -> Refund:
        self.calls.append((payment.pk, kwargs))
        if payment.pk in self.errors:
            raise self.errors[payment.pk]
        return rows.refund(payment=payment, amount=kwargs["amount"], currency=payment.currency)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    stand_in = Service()
    monkeypatch.setattr(services, "create_refund", stand_in)
    return stand_in


def select(client: Client, *chosen: Payment) -> Any:
    form = {"action": "refund_selected", "_selected_action": [row.pk for row in chosen]}
    return client.post(url("payment", "changelist"), form)


def summary(client: Client, *chosen: Payment) -> str:
    return page(client, select(client, *chosen).headers["Location"])


def confirm(client: Client, *values: str, **fields: Any) -> Any:
    form = {"idempotency_key": "k-1", "reason": "", "step": "confirm", "refund": values, **fields}
    return client.post(reverse(BULK), form)


def outcomes(response: Any) -> list[tuple[str, str]]:
    """(payment, result) of each line."""
    return [(re.sub("<[^>]*>", "", row[0]), re.sub("<[^>]*>", "", row[3])) for row in response.context["rows"]]


def test_the_summary_shows_which_payments_are_included(boss: Client, service: Service) -> None:
    full = rows.payment(amount_received=1050, method_code="cl_webpay_card")
    part = rows.payment(amount_received=1000, refunded_amount=250)
    pesos = rows.payment(currency="CLP", amount_received=1_000_000)
    rows.refund(payment=part, amount=50, status="processing")
    cash = rows.payment(method_family="cash")
    gone = rows.payment(refunded_amount=1050)
    taken = rows.payment(status="chargeback")
    removed = rows.payment(account="removed")
    html = summary(boss, full, part, pesos, cash, gone, taken, removed)
    # The newest first.
    assert VALUES.findall(html) == [f"{pesos.pk}:1000000", f"{part.pk}:750", f"{full.pk}:1050"]
    assert "USD\xa018.00" in html
    assert "CLP\xa01,000,000" in html
    assert "Refund 3 payments" in html
    assert "<td>Webpay card</td>" in html.replace('<td data-label="Method">', "<td>")
    assert "Nothing has been sent yet." in html
    left_out = html.split("Not included</h2>")[1]
    for row, words in (
        (cash, "Not paid by card"),
        (gone, "Nothing is left"),
        (taken, "not succeeded"),
        (removed, "The account removed is not configured any more"),
    ):
        assert words in left_out.split(row.pk)[-1].split("</tr>")[0]
    assert service.calls == []


def test_the_confirmed_amount_is_sent(boss: Client, service: Service) -> None:
    first, second = rows.payment(amount_received=1050), rows.payment(amount_received=2000)
    html = summary(boss, first, second)
    key = re.search(r'name="idempotency_key" value="([^"]+)"', html)
    assert key is not None
    # What came in since does not change it.
    Payment.objects.filter(pk=first.pk).update(amount_received=9_999)
    response = confirm(boss, *VALUES.findall(html), idempotency_key=key[1], reason="a bad day\r\nfor us")
    assert [(pk, call["amount"]) for pk, call in service.calls] == [(second.pk, 2000), (first.pk, 1050)]
    for _pk, call in service.calls:
        assert call["actor"] == User.objects.get()
        assert call["reason"] == "a bad day\nfor us"
        assert "destination" not in call
    assert outcomes(response) == [(second.pk, "created"), (first.pk, "created")]
    html = response.content.decode()
    assert "USD\xa030.50" in html
    assert all(url("refund", "change", made.pk) in html for made in Refund.objects.all())
    assert {entry.object_id for entry in LogEntry.objects.all()} == {first.pk, second.pk}
    assert "Continue with the others" not in html


@pytest.mark.case(83)
def test_each_payment_has_its_own_key_and_keeps_it(boss: Client, service: Service) -> None:
    first, second = rows.payment(), rows.payment()
    values = [f"{row.pk}:1050" for row in (first, second)]
    for _ in range(2):
        confirm(boss, *values)
    confirm(boss, *values, idempotency_key="k-2")
    keys = [call["idempotency_key"] for _pk, call in service.calls]
    assert keys[:2] == keys[2:4]
    assert len(set(keys)) == 4


def test_a_failed_refund_does_not_stop_the_others(boss: Client, service: Service) -> None:
    made = [rows.payment() for _ in range(7)]
    open_one, waiting = (rows.operation(state=state) for state in ("unknown", "awaiting_approval"))
    service.errors = dict(
        zip(
            [row.pk for row in made],
            [
                ValidationError({"amount": ["No longer <left>.", TOO_MUCH]}),
                InvalidState("too little", status_code=422, code="insufficient_balance", request_id="req_42"),
                OutcomeUnknown(open_one),
                ApprovalRequired(waiting),
                PermissionDenied("You may not."),
                NoAnswer("timeout"),
            ],
            strict=False,
        )
    )
    response = confirm(boss, *(f"{row.pk}:1050" for row in made))
    assert dict(outcomes(response)) == dict(
        zip(
            [row.pk for row in made],
            ["refused", "refused", "no outcome yet", "no outcome yet", "refused", "refused", "created"],
            strict=True,
        )
    )
    html = response.content.decode()
    for words in (
        "No longer &lt;left&gt;. At most USD\xa010.50 can be refunded.",
        "insufficient_balance",
        "req_42",
        "Do not repeat it",
        "must approve",
    ):
        assert words in html, words
    assert url("operation", "change", open_one.pk) in html
    assert url("operation", "change", waiting.pk) in html
    assert "Total of the refunds: <span" in html
    # What was asked for or made is in the history; what was refused is not.
    assert {entry.object_id for entry in LogEntry.objects.all()} == {made[2].pk, made[3].pk, made[6].pk}


def test_refunds_that_would_start_too_late_can_be_continued(
    boss: Client, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [rows.payment() for _ in range(3)]
    now, takes = [0.0], [8.0]

    class Clock:
        @staticmethod
        def monotonic() -> float:
            now[0] += takes[0]
            return now[0]

    monkeypatch.setattr(bulk_refund, "time", Clock)
    response = confirm(boss, *(f"{row.pk}:1050" for row in made), reason="late")
    assert [result for _pk, result in outcomes(response)] == ["created", "created", "not started"]
    assert len(service.calls) == 2
    html = response.content.decode()
    assert "Continue with the others" in html
    values = VALUES.findall(html)
    assert len(values) == 3
    carried = dict(re.findall(r'<input type="hidden" name="(reason|idempotency_key)" value="([^"]*)"', html))
    assert carried == {"reason": "late", "idempotency_key": "k-1"}
    # The same page again: the same keys for those that were begun.
    takes[0] = 1.0
    response = confirm(boss, *values, **carried)
    assert [result for _pk, result in outcomes(response)] == ["created"] * 3
    keys = [call["idempotency_key"] for _pk, call in service.calls]
    assert keys[:2] == keys[2:4]


def test_a_void_refund_is_not_counted_as_made(boss: Client, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        services,
        "create_refund",
        lambda payment, **kwargs: rows.refund(payment=payment, amount=kwargs["amount"], status="failed"),
    )
    paid = rows.payment(status="succeeded", method_family="card", amount_received=10)
    response = confirm(boss, f"{paid.pk}:10")
    assert outcomes(response) == [(paid.pk, "not paid back")]
    assert response.context["totals"] == []


def test_a_database_error_does_not_stop_the_other_refunds(boss: Client, service: Service) -> None:
    first, second = (rows.payment(status="succeeded", method_family="card", amount_received=10) for _ in range(2))
    service.errors[second.pk] = OperationalError("lock wait timeout")
    response = confirm(boss, f"{first.pk}:10", f"{second.pk}:10")
    assert dict(outcomes(response)) == {first.pk: "created", second.pk: "not started"}
    assert response.context["values"], "it can be continued"


def test_at_most_fifty_payments_are_refunded_at_once(boss: Client, service: Service) -> None:
    made = [rows.payment() for _ in range(51)]
    response = select(boss, *made)
    assert response.headers["Location"] == url("payment", "changelist")
    assert "at most 50" in page(boss, url("payment", "changelist"))
    # Nor by hand.
    html = page(boss, f"{reverse(BULK)}?" + "&".join(f"id={row.pk}" for row in made))
    assert len(VALUES.findall(html)) == 50
    assert "At most 50 payments" in html
    confirm(boss, *(f"{row.pk}:1" for row in made))
    assert len(service.calls) == 50


@pytest.mark.parametrize("value", ["", "x", ":1", "pay_absent:1", "{pk}", "{pk}:", "{pk}:-1", "{pk}:1.5", "{pk}:٣"])
def test_an_invalid_refund_value_sends_nothing(boss: Client, service: Service, value: str) -> None:
    row = rows.payment()
    response = confirm(boss, value.format(pk=row.pk))
    assert response.status_code == 200
    assert service.calls == []


@pytest.mark.parametrize("fields", [{"step": "review"}, {"step": ""}, {"idempotency_key": ""}, {"reason": "x" * 2001}])
def test_without_the_confirmation_no_refund_is_sent(boss: Client, service: Service, fields: dict[str, str]) -> None:
    row = rows.payment()
    response = confirm(boss, f"{row.pk}:1050", **fields)
    assert VALUES.findall(response.content.decode()) == [f"{row.pk}:1050"]
    assert service.calls == []


def test_without_selected_payments_nothing_is_refunded(boss: Client, service: Service) -> None:
    for response in (boss.get(reverse(BULK)), boss.get(reverse(BULK), {"id": "pay_absent"}), confirm(boss)):
        assert "None of the selected payments" in response.content.decode()
        assert "<button" not in response.content.decode().split('id="content-main"')[1]
    assert boss.put(reverse(BULK)).status_code == 405


def test_a_bulk_refund_needs_the_permission_to_refund(
    staff: Callable[..., Client], service: Service, settings: Any
) -> None:
    row = rows.payment()
    client = staff("view_payment", "change_payment")
    assert client.get(reverse(BULK), {"id": row.pk}).status_code == 403
    assert confirm(client, f"{row.pk}:1050").status_code == 403
    # Who may only refund sees no links to what cannot be seen.
    html = page(staff("refund_payment"), f"{reverse(BULK)}?id={row.pk}")
    assert url("payment", "change", row.pk) not in html
    assert url("payment", "changelist") not in html.split('id="content-main"')[1]
    settings.AUTHENTICATION_BACKENDS = [
        "django.contrib.auth.backends.ModelBackend",
        "tests.unit.admin.backends.OnePaymentBackend",
    ]
    mine = rows.payment(id="pay_mine")
    client = staff()
    assert VALUES.findall(page(client, f"{reverse(BULK)}?id={row.pk}&id={mine.pk}")) == ["pay_mine:1050"]
    confirm(client, f"{row.pk}:1050", f"{mine.pk}:1050")
    assert [pk for pk, _call in service.calls] == ["pay_mine"]


def test_a_repeated_form_adds_no_second_history_entry(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    row = rows.payment()
    made = rows.refund(payment=row, amount=1050)

    def create_refund(payment: Payment, *, idempotency_key: str, **kwargs: Any) -> Refund:
        if not LogEntry.objects.exists():
            rows.operation(idempotency_key=idempotency_key, target_id=payment.pk)
        return made

    monkeypatch.setattr(services, "create_refund", create_refund)
    for _ in range(2):
        confirm(boss, f"{row.pk}:1050")
    assert LogEntry.objects.count() == 1
    # Where the first died before it left one, the second does.
    LogEntry.objects.all().delete()
    monkeypatch.setattr(services, "create_refund", lambda payment, **kwargs: made)
    confirm(boss, f"{row.pk}:1050")
    assert LogEntry.objects.count() == 1
