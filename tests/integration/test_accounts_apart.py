"""Another account's events name objects of this one: nothing of this account changes, and nobody sees a change."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from payments_integration import inbox, projection
from payments_integration.api import querysets
from payments_integration.erasure.search import expand
from payments_integration.models import DueRefresh, Event, Payment, Payout, Refund, StatusChange, refundable_rest
from tests import factories
from tests.factories import body, event, rows
from tests.unit.payable.payables import Order

pytestmark = [
    pytest.mark.case(101),
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("woken"),
]

ORDER = "A-1"
PAID = {"status": "succeeded", "amount_received": 10_000, "merchant_reference": ORDER}
THEIRS = {"id": "ref_b", "status": "succeeded", "amount": 10_000}


def receive(*events: dict[str, Any], account: str = "default") -> None:
    for item in events:
        inbox.receive(account, body(item))
        inbox.process()


def pay(**fields: Any) -> None:
    receive(event(factories.payment(**{**PAID, **fields}), seconds=1))


@pytest.fixture
def order() -> Order:
    return Order.objects.create(number=ORDER)


def is_untouched(order: Order, customer: User) -> None:
    """The payment is whole, the order is paid, and no page or list has the other account's refund."""
    payment = Payment.objects.get()
    assert (payment.account, payment.gone_at) == ("default", None)
    assert refundable_rest(payment) == payment.refundable_amount == 10_000
    assert order.is_paid(10_000, "CLP")
    assert (order.totals_in("CLP").refunded, order.totals_in("CLP").refundable) == (0, 10_000)
    [read_ahead] = Order.objects.with_totals()
    assert read_ahead.totals_in("CLP").refundable == 10_000
    assert not order.refunds.exists()
    assert not payment.refunds.exists()
    assert not Refund.objects.filter(payment__merchant_reference=ORDER).exists()
    assert [list(row.refunds.all()) for row in Payment.objects.prefetch_related("refunds")] == [[]]
    for theirs in Refund.objects.all():
        assert theirs.account == "second"
        assert Order.objects.of(theirs) is None
        with pytest.raises(Payment.DoesNotExist):
            _ = theirs.payment
    for theirs in (*Refund.objects.select_related("payment"), *Refund.objects.prefetch_related("payment")):
        assert theirs.payment is None
    assert not querysets.own(Refund.objects.all(), customer).exists()
    keys = {("default", "payment", payment.pk)}
    expand(keys)
    assert keys == {("default", "payment", payment.pk)}
    boss = Client()
    boss.force_login(User.objects.filter(is_superuser=True).first() or User.objects.create_superuser("boss"))
    page = boss.get(reverse("admin:payments_integration_payment_change", args=[payment.pk]))
    assert b"ref_b" not in page.content
    assert boss.get(f"/payments/api/payments/{payment.pk}/refunds/").json()["data"] == []
    assert boss.get(f"/payments/api/refunds/?payment_id={payment.pk}").json()["data"] == []


@pytest.fixture
def customer() -> User:
    """Who paid for the order."""
    user = User.objects.create_user("customer")
    rows.operation(
        operation="create_payment", state="done", result_kind="payment", result_id="pay_1", actor_id=user.pk
    )
    return user


def test_a_refund_of_another_accounts_payment_goes_to_quarantine(
    order: Order, customer: User, attentions: list[dict[str, Any]]
) -> None:
    pay()
    receive(event(factories.refund(**THEIRS), seconds=2), account="second")
    stray = Event.objects.get(state="quarantined")
    assert (stray.account, stray.error) == ("second", "it names an object of another account")
    assert [seen["reason"] for seen in attentions] == ["event_quarantined"]
    assert not Refund.objects.exists()
    assert not DueRefresh.objects.filter(account="second").exists()
    assert not StatusChange.objects.filter(object_kind="refund").exists()
    is_untouched(order, customer)


def test_a_refund_that_comes_before_another_accounts_payment_never_counts(order: Order, customer: User) -> None:
    receive(event(factories.refund(**THEIRS)), account="second")
    assert Refund.objects.get().account == "second"
    pay()
    # The refund has its payment read, and the provider does not know it in that account.
    before = projection.snapshot("payment", "second", "pay_1")
    projection.mark_gone("second", "payment", "pay_1", before=before)
    is_untouched(order, customer)
    receive(event(factories.refund(**{**THEIRS, "status": "returned"}), seconds=5), account="second")
    assert Refund.objects.get().status == "succeeded", "by now its payment is known as another account's"
    assert Event.objects.filter(state="quarantined").count() == 1
    is_untouched(order, customer)


def test_both_in_one_batch_are_told_apart(order: Order, customer: User) -> None:
    inbox.receive("default", body(event(factories.payment(**PAID), seconds=1)))
    inbox.receive("second", body(event(factories.refund(**THEIRS), seconds=2)))
    inbox.process()
    assert not Refund.objects.exists()
    is_untouched(order, customer)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (factories.payout(), factories.refund(id="ref_b", payment_id="pay_b", payout_id="pout_1")),
        (factories.refund(), factories.payout(id="pout_b", refund_id="ref_1")),
    ],
    ids=["refund.payout_id", "payout.refund_id"],
)
def test_every_field_that_names_an_object_is_compared(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    receive(event(mine))
    receive(event(theirs, seconds=1), account="second")
    assert Event.objects.get(state="quarantined").error == "it names an object of another account"
    assert {*Payout.objects.values_list("account"), *Refund.objects.values_list("account")} == {("default",)}


def test_an_event_that_comes_to_name_another_accounts_object_is_refused() -> None:
    receive(event(factories.payout()))
    receive(event(factories.refund(id="ref_b", payment_id="pay_b")), account="second")
    named = factories.refund(id="ref_b", payment_id="pay_b", status="processing", payout_id="pout_1")
    receive(event(named, seconds=1), account="second")
    row = Refund.objects.get()
    assert (row.status, row.payout_id) == ("created", None)
    assert Event.objects.filter(state="quarantined").count() == 1


def test_objects_of_one_account_name_each_other() -> None:
    pay()
    receive(
        event(factories.payout(refund_id="ref_1"), seconds=2),
        event(factories.refund(payout_id="pout_1"), seconds=3),
    )
    refund = Refund.objects.select_related("payment").get()
    assert (refund.payment, refund.payout) == (Payment.objects.get(), Payout.objects.get())
    assert [list(row.refunds.all()) for row in Payment.objects.prefetch_related("refunds")] == [[refund]]
    assert refund.payouts.get().refund == refund
    assert not Event.objects.filter(state="quarantined").exists()
