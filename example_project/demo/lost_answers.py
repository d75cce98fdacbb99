"""The provider did the work, and its answer never came: the one error after which money may have moved."""

from __future__ import annotations

from example_project.demo.pay_outs import pay_roaster
from example_project.demo.payer import Payer
from example_project.demo.processes import DemoError
from example_project.demo.stage import Stage
from example_project.shop.models import Order, OrderStatus
from example_project.shop.money import show_money
from payments_integration.exceptions import OutcomeUnknown
from payments_integration.models import Operation, Payout

INVOICE = "invoice-42"


def answers_are_lost(stage: Stage) -> None:
    """Of a payment and of a payout. Beat and the worker find out what became of them."""
    stage.screen.step("Two answers are lost on the way")
    order = _lose_a_payment(stage)
    _lose_a_payout(stage)
    keys = [f"order-{order.reference}", f"payout-{INVOICE}"]
    operations = Operation.objects.filter(idempotency_key__in=keys)
    took = stage.wait("both to be resolved", lambda: operations.filter(state="done").count() == len(keys))
    books = stage.provider.books()
    payments = books.payments_of(order.reference)
    payouts = [item for item in books.payouts if item.get("merchant_reference") == INVOICE]
    stage.screen.say(
        f"{took:.1f} s later the worker has asked again under the same keys. "
        f"The provider has {len(payments)} payment and {len(payouts)} payout."
    )
    Payer("Isabel").pay(payments[0]["checkout_url"])
    stage.wait_for_order(order, OrderStatus.PAID)
    stage.wait("the payout", lambda: Payout.objects.get(pk=payouts[0]["id"]).status == "succeeded")


def _lose_a_payment(stage: Stage) -> Order:
    stage.provider.fault("reset", operation="create_payment", work=True)
    order = stage.order("Isabel", "coffee", "MX", "MXN", "mx_card")
    try:
        stage.pay_for(order)
    except OutcomeUnknown as error:
        stage.screen.say(f"Isabel's payment: outcome unknown, {error.operation.pk} is kept. She is asked to wait.")
    else:
        raise DemoError("the answer arrived although the connection was cut")
    page = Payer("Isabel").see(f"{stage.site_url}{order.get_absolute_url()}")
    # Unless a webhook has told of the payment meanwhile.
    if "do not order again" not in page and order.payment is None:
        raise DemoError("the order's page does not say that the outcome is open")
    return order


def _lose_a_payout(stage: Stage) -> None:
    stage.provider.fault("reset", operation="create_payout", work=True)
    try:
        pay_roaster(98_000, INVOICE)
    except OutcomeUnknown as error:
        amount = show_money(98_000, "BRL")
        stage.screen.say(f"{amount} to the roaster: outcome unknown, {error.operation.pk} is kept.")
    else:
        raise DemoError("the answer arrived although the connection was cut")
    stage.expected.payouts += 1
