"""The confirmation step: what a person confirms, in words, and confirming it twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from payments_integration import services
from payments_integration.models import Payment
from payments_integration.outbox.operations.refunds import WithinRest
from tests.factories import rows
from tests.unit.admin.conftest import page, url
from tests.unit.admin.flows.test_refund import BANK, Service, hidden, initial, submit

pytestmark = pytest.mark.any_database


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    stand_in = Service()
    monkeypatch.setattr(services, "create_refund", stand_in)
    return stand_in


def test_the_review_of_a_card_refund_says_in_words_what_will_happen(boss: Client, service: Service) -> None:
    row = rows.payment(amount_received=10_050)
    html = submit(boss, row, step="review", amount="100,5", reason="it <broke>\r\ntwice").content.decode()
    for words in (
        "USD\xa0100.50 will be sent back to the card that was charged.",
        "it &lt;broke&gt;",
        "Left to refund afterwards",
        "USD\xa00.00",
        'value="confirm">Refund USD\xa0100.50</button>',
        "Nothing has been sent yet.",
    ):
        assert words in html, words
    assert "24 hours" not in html
    assert service.calls == []
    assert not LogEntry.objects.exists()
    carried = hidden(html)
    assert carried["idempotency_key"] == "k-1"
    response = boss.post(url("payment", "refund", row.pk), {**carried, "step": "confirm"})
    assert response.status_code == 302
    [(_payment, sent)] = service.calls
    assert (sent["amount"], sent["reason"], sent["idempotency_key"]) == (10_050, "it <broke>\ntwice", "k-1")


def test_the_review_of_a_bank_refund_names_the_recipient(boss: Client, service: Service) -> None:
    row = rows.payment(currency="CLP", amount_received=1000, method_family="cash", country="CL")
    html = submit(boss, row, step="review", amount="400", **BANK).content.decode()
    for words in (
        "CLP\xa0400 will be sent back to Ana Pérez (RUT 12345678-5), account 000123 at bank 001.",
        "checking",
        "CLP\xa0600",
        "24 hours",
    ):
        assert words in html, words
    assert {name: value for name, value in hidden(html).items() if name in BANK} == BANK
    assert service.calls == []


@pytest.mark.parametrize("step", ["review", "confirm"])
def test_an_invalid_document_is_refused_at_its_field(boss: Client, service: Service, step: str) -> None:
    row = rows.payment(method_family="cash", country="CL")
    response = submit(boss, row, step=step, amount="1", **{**BANK, "document_number": "12345678-0"})
    assert list(response.context["form"].errors) == ["document_number"]
    assert service.calls == []


@pytest.mark.parametrize("step", ["review", "", "unheard-of"])
def test_nothing_but_the_confirmation_sends(boss: Client, service: Service, step: str) -> None:
    assert submit(boss, rows.payment(), step=step, amount="1").status_code == 200
    assert service.calls == []


def test_going_back_to_change_keeps_the_typed_values(boss: Client, service: Service) -> None:
    row = rows.payment(method_family="cash", country="CL")
    response = submit(boss, row, step="change", amount="1,5x", reason="so", **BANK)
    form = response.context["form"]
    assert not form.errors
    kept = {name: str(form[name].value()) for name in form.fields}
    assert kept == {**BANK, "amount": "1,5x", "reason": "so", "idempotency_key": "k-1"}
    assert service.calls == []


def test_too_much_is_refused_after_one_refresh(
    boss: Client, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, read = rows.payment(amount_received=1050), []

    def refresh(precondition: WithinRest) -> None:
        read.append(precondition.payment_id)
        # The mirror was behind.
        Payment.objects.filter(pk=row.pk).update(amount_received=1100)

    monkeypatch.setattr(WithinRest, "refresh", refresh)
    response = submit(boss, row, step="review", amount="11.01")
    assert response.context["form"].errors == {"amount": ["At most USD\xa011.00 can be refunded."]}
    assert "will be sent back" in submit(boss, row, step="review", amount="11").content.decode()
    Payment.objects.filter(pk=row.pk).update(amount_received=1050)
    assert "will be sent back" in submit(boss, row, step="review", amount="11").content.decode()
    assert read == [row.pk] * 2
    Payment.objects.filter(pk=row.pk).update(refunded_amount=1100)
    assert "Nothing is left to refund." in submit(boss, row, step="review", amount="1").content.decode()
    assert service.calls == []


def test_a_failed_refresh_stops_the_refund(boss: Client, service: Service) -> None:
    response = submit(boss, rows.payment(amount_received=1050), step="review", amount="11")
    assert "no usable answer" in response.context["form"].errors["__all__"][0]
    assert service.calls == []


def test_the_payer_is_prefilled_for_users_who_may_see_who_paid(staff: Callable[..., Client]) -> None:
    payer = {"name": "Ana Pérez", "document": {"type": "RUT", "number": "12345678-5"}}
    row = rows.payment(method_family="cash", country="CL", payer=payer)
    for rights, filled in (
        (("view_payment", "view_personal_data"), ("Ana Pérez", "RUT", "12345678-5")),
        (("view_payment",), ("", "", "")),
        (("view_personal_data",), ("", "", "")),
    ):
        client = staff("refund_payment", *rights)
        form = initial(client, row)
        assert (form["holder_name"], form["document_type"], form["document_number"]) == filled, rights
        assert ("Pérez" in page(client, url("payment", "refund", row.pk))) is bool(filled[0]), rights


@pytest.mark.parametrize(("family", "said"), [("cash", True), ("card", False)])
def test_the_review_says_that_another_person_must_approve(
    boss: Client, service: Service, settings: Any, family: str, said: bool
) -> None:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "APPROVAL_LIMITS": {"USD": 100}}
    row = rows.payment(method_family=family, country="CL")
    destination = BANK if family != "card" else {}
    words = "another person must approve it"
    assert (words in submit(boss, row, step="review", amount="1", **destination).content.decode()) is said
    assert words not in submit(boss, row, step="review", amount="0.99", **destination).content.decode()


def test_the_button_that_asks_for_approval_never_refunds(boss: Client, service: Service, settings: Any) -> None:
    row = rows.payment(currency="CLP", amount_received=1000, method_family="cash", country="CL")
    without = settings.PAYMENTS_INTEGRATION
    settings.PAYMENTS_INTEGRATION = {**without, "APPROVAL_LIMITS": {"CLP": 400}}
    html = submit(boss, row, step="review", amount="400", **BANK).content.decode()
    settings.PAYMENTS_INTEGRATION = without
    shown = submit(boss, row, **{**hidden(html), "step": "confirm"}).content.decode()
    assert 'value="confirm">Refund CLP\xa0400</button>' in shown
    assert service.calls == []
    # The service asks for the approval of what was to be sent at once.
    settings.PAYMENTS_INTEGRATION = {**without, "APPROVAL_LIMITS": {"CLP": 400}}
    assert submit(boss, row, **{**hidden(shown), "step": "confirm"}).status_code == 302
    assert len(service.calls) == 1


def test_the_same_form_again_adds_no_second_history_entry(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    row = rows.payment()
    made = rows.refund(payment=row, amount=100)
    monkeypatch.setattr(services, "create_refund", lambda payment, **kwargs: made)
    rows.operation(idempotency_key="k-1", target_id=row.pk)
    for _ in range(2):
        submit(boss, row, amount="1")
    # One is left, although the first may have died before it left it.
    assert LogEntry.objects.count() == 1
