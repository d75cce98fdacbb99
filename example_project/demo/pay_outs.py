"""The later parts: refunds, payouts, and two answers that are lost on the way.

A lost answer is the one error after which money may have moved.
"""

from __future__ import annotations

from collections.abc import Callable

from example_project.demo.pay_ins import Cast
from example_project.demo.payer import Payer
from example_project.demo.processes import DemoError
from example_project.demo.stage import Stage
from example_project.shop.models import Order
from payments_integration import services
from payments_integration.exceptions import OutcomeUnknown
from payments_integration.models import Operation, Payment, Payout, Refund
from payments_integration.money import format_for_payer, format_money
from payments_integration.payable import OrderStatus

DIEGOS_ACCOUNT = {
    "type": "bank_account",
    "bank_code": "012",
    "account_number": "012180001234567897",
    "account_type": "checking",
    "holder_name": "Diego Ramírez",
    "holder_document": {"type": "RFC", "number": "GODE561231GR8"},
}
ROASTER = {
    "type": "bank_account",
    "account_number": "00123456789",
    "account_type": "checking",
    "holder_name": "Torrefação Aurora Ltda",
    "holder_document": {"type": "CNPJ", "number": "11.222.333/0001-81"},
}

INVOICE = "invoice-42"


def refunds(stage: Stage, cast: Cast) -> None:
    """Part of a card payment, and all of a bank transfer."""
    stage.screen.step("Money goes back")
    ana, ana_payment = _paid(cast.ana)
    diego, diego_payment = _paid(cast.diego)
    stage.wait_until_delivered()
    # Reconciliation will have to find this one too.
    stage.provider.fault("drop", event_type="refund.succeeded")
    part = services.create_refund(ana_payment, amount=29_900, reason="one tassel is missing", actor="demo")
    stage.expected.refunds += 1
    stage.expected.orders[ana.reference] = OrderStatus.PARTIALLY_REFUNDED
    stage.wait("Ana's refund", lambda: any(_is_done(item) for item in stage.provider.books().refunds))
    back = format_for_payer(part.amount, part.currency, ana.country)
    stage.screen.say(
        f"{back} of Ana's {ana.price} went back to her card ({part.pk}); the webhook that says so is lost."
    )
    whole = services.create_refund(diego_payment, destination=DIEGOS_ACCOUNT, reason="changed his mind", actor="demo")
    stage.expected.refunds += 1
    stage.expected.orders[diego.reference] = OrderStatus.REFUNDED
    stage.wait_for_order(diego, OrderStatus.REFUNDED)
    whole.refresh_from_db()
    stage.screen.say(f"All of Diego's {diego.price} went back to his bank account, as payout {whole.payout_id}.")


def payout(stage: Stage) -> None:
    """Money to a supplier."""
    stage.screen.step("The coffee roaster is paid")
    sent = pay_roaster(150_000, "invoice-41")
    stage.expected.payouts += 1
    stage.wait("the payout", _status_is(sent, "succeeded"))
    stage.screen.say(f"{format_money(150_000, 'BRL')} for invoice 41: {sent.pk} succeeded.")


def pay_roaster(amount: int, invoice: str) -> Payout:
    """Send the roaster what an invoice asks for, once: its number is the idempotency key."""
    return services.create_payout(
        amount=amount,
        currency="BRL",
        country="BR",
        method_code="br_pix",
        destination=ROASTER,
        merchant_reference=invoice,
        idempotency_key=f"payout-{invoice}",
        actor="demo",
    )


def answers_are_lost(stage: Stage) -> None:
    """The answers to a payment and a payout are lost. Beat and the worker resolve both."""
    stage.screen.step("Two answers are lost on the way")
    order = _lose_a_payment(stage)
    _lose_a_payout(stage)
    keys = [order.key, f"payout-{INVOICE}"]
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
    # Unless a webhook has brought the payment meanwhile.
    if "do not order again" not in page and order.payment is None:
        raise DemoError("the order's page does not say that the outcome is open")
    return order


def _lose_a_payout(stage: Stage) -> None:
    stage.provider.fault("reset", operation="create_payout", work=True)
    try:
        pay_roaster(98_000, INVOICE)
    except OutcomeUnknown as error:
        amount = format_money(98_000, "BRL")
        stage.screen.say(f"{amount} to the roaster: outcome unknown, {error.operation.pk} is kept.")
    else:
        raise DemoError("the answer arrived although the connection was cut")
    stage.expected.payouts += 1


def _status_is(row: Payout | Refund, status: str) -> Callable[[], bool]:
    def holds() -> bool:
        row.refresh_from_db()
        return row.status == status

    return holds


def _paid(order: Order | None) -> tuple[Order, Payment]:
    payment = order.payment if order is not None else None
    if order is None or payment is None:
        raise DemoError("an act before this one is missing")
    return order, payment


def _is_done(refund: dict[str, object]) -> bool:
    return refund["status"] == "succeeded"
