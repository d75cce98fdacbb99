"""The pages with the sandbox as provider: what is clicked happens at the provider."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from payments_integration import services
from payments_integration.models import Operation, OperationState, Payment, Refund
from payments_integration.sandbox import Fault
from tests.unit.admin.conftest import browser, page, url

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def boss() -> Client:
    return browser(User.objects.create_superuser("boss"))


def paid(sandbox: Any, method_code: str, amount: int = 10_000) -> Payment:
    made = services.create_payment(amount=amount, currency="CLP", country="CL", method_code=method_code)
    sandbox.engine.pay(made.pk)
    sandbox.settle()
    made.refresh_from_db()
    assert made.status == "succeeded"
    return made


def form_of(client: Client, payment: Payment) -> dict[str, Any]:
    form = client.get(url("payment", "refund", payment.pk)).context["form"]
    return {"step": "confirm", **{name: str(form[name].value() or "") for name in form.fields}}


@pytest.mark.parametrize("atomic_requests", [False, True])
def test_a_card_refund_from_the_button_to_the_bank(
    boss: Client, payments_sandbox: Any, monkeypatch: pytest.MonkeyPatch, atomic_requests: bool
) -> None:
    payment = paid(payments_sandbox, "cl_webpay_card")
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", atomic_requests)
    assert url("payment", "refund", payment.pk) in page(boss, url("payment", "change", payment.pk))
    form = {**form_of(boss, payment), "amount": "2500", "reason": "broken"}
    assert boss.post(url("payment", "refund", payment.pk), form).status_code == 302
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", False)
    payments_sandbox.settle()
    [theirs] = payments_sandbox.project.refunds.values()
    ours = Refund.objects.get()
    assert (theirs["id"], theirs["amount"], theirs["reason"]) == (ours.pk, 2500, "broken")
    assert ours.payment_id == payment.pk
    assert Operation.objects.get(operation="create_refund").actor.endswith(":boss")
    assert LogEntry.objects.get().object_id == payment.pk
    assert ours.pk in page(boss, url("payment", "change", payment.pk))


@pytest.mark.promise(5)
@pytest.mark.case(83)
def test_a_double_click_makes_one_refund(boss: Client, payments_sandbox: Any) -> None:
    payment = paid(payments_sandbox, "cl_webpay_card")
    form = {**form_of(boss, payment), "amount": "2500"}
    for _ in range(2):
        assert boss.post(url("payment", "refund", payment.pk), form).status_code == 302
    # The same form with another amount is not sent either.
    boss.post(url("payment", "refund", payment.pk), {**form, "amount": "2600"})
    assert len(payments_sandbox.project.refunds) == 1
    assert Operation.objects.filter(operation="create_refund").count() == 1


def test_a_bank_refund_goes_to_the_account_that_was_typed(boss: Client, payments_sandbox: Any) -> None:
    payment = paid(payments_sandbox, "cl_bank_transfer")
    payments_sandbox.engine.fund("CLP", 1_000_000)
    payments_sandbox.engine.whitelist("000123")
    wrong = {
        **form_of(boss, payment), "account_number": "000123", "holder_name": "Ana", "document_type": "RUT",
        "document_number": "12345678-0",
    }  # fmt: skip
    response = boss.post(url("payment", "refund", payment.pk), wrong)
    assert set(response.context["form"].errors) == {"document_number"}
    assert payments_sandbox.project.refunds == {}
    right = {**wrong, "document_number": "12345678-5"}
    response = boss.post(url("payment", "refund", payment.pk), right)
    assert response.status_code == 302, response.context["form"].errors
    [theirs] = payments_sandbox.project.refunds.values()
    assert theirs["amount"] == 10_000
    [payout] = payments_sandbox.project.payouts.values()
    assert payout["destination"]["account_number"] == "000123"
    payments_sandbox.settle()
    refund = Refund.objects.get()
    assert refund.payout_id == payout["id"]
    assert payout["id"] in page(boss, url("refund", "change", refund.pk))


def test_more_than_the_refundable_rest_is_refused(boss: Client, payments_sandbox: Any) -> None:
    payment = paid(payments_sandbox, "cl_webpay_card")
    form = {**form_of(boss, payment), "amount": "10001"}
    response = boss.post(url("payment", "refund", payment.pk), form)
    assert "amount" in response.context["form"].errors
    assert "10,000" in response.context["form"].errors["amount"][0]
    assert payments_sandbox.project.refunds == {}


def test_refresh_and_cancel(boss: Client, payments_sandbox: Any) -> None:
    made = services.create_payment(amount=10_000, currency="CLP", country="CL", method_code="cl_webpay_card")
    payments_sandbox.engine.open_checkout(made.pk)
    boss.post(url("payment", "refresh", made.pk))
    made.refresh_from_db()
    assert made.status == payments_sandbox.project.payments[made.pk]["status"]
    boss.post(url("payment", "cancel", made.pk))
    made.refresh_from_db()
    assert made.status == "canceled"
    assert payments_sandbox.project.payments[made.pk]["status"] == "canceled"
    # Too late: the service refuses, and says so.
    response = boss.post(url("payment", "cancel", made.pk), follow=True)
    assert list(response.context["messages"])[-1].level_tag == "error"
    assert Operation.objects.filter(operation="cancel_payment", state=OperationState.DONE).count() == 1


@pytest.mark.promise(5)
@pytest.mark.case(125)
def test_after_a_temporary_refusal_the_old_form_sends_no_second_refund(boss: Client, payments_sandbox: Any) -> None:
    payment = paid(payments_sandbox, "cl_webpay_card")
    address = url("payment", "refund", payment.pk)
    old = {**form_of(boss, payment), "amount": "3000"}
    payments_sandbox.engine.faults.add(Fault("rate_limited", operation="create_refund", retry_after=60, times=1))
    form = boss.post(address, old).context["form"]
    assert form.errors
    again = {"step": "confirm", **{name: str(form[name].value() or "") for name in form.fields}}
    assert boss.post(address, again).status_code == 302
    assert boss.post(address, old).status_code == 302
    assert len(payments_sandbox.project.refunds) == 1


@pytest.mark.promise(5)
@pytest.mark.case(125)
def test_an_old_form_that_was_refused_for_now_is_shown_again_beside_another_refund(
    boss: Client, payments_sandbox: Any
) -> None:
    payment = paid(payments_sandbox, "cl_webpay_card")
    address = url("payment", "refund", payment.pk)
    old = {**form_of(boss, payment), "amount": "3000"}
    payments_sandbox.engine.faults.add(Fault("rate_limited", operation="create_refund", retry_after=60, times=1))
    boss.post(address, old)
    assert boss.post(address, {**form_of(boss, payment), "amount": "3000"}).status_code == 302
    response = boss.post(address, old)
    assert response.status_code == 200
    assert [twin.state for (pk, _sentence) in response.context["twins"] for twin in Operation.objects.filter(pk=pk)]
    assert len(payments_sandbox.project.refunds) == 1
