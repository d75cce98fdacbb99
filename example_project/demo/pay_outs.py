"""The later acts: money that goes back and out."""

from __future__ import annotations

from collections.abc import Callable

from example_project.demo.pay_ins import Cast
from example_project.demo.processes import DemoError
from example_project.demo.stage import Stage
from example_project.shop.models import Order, OrderStatus
from example_project.shop.money import show_money
from payments_integration import services
from payments_integration.models import Payment, Payout, Refund

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
    stage.screen.say(
        f"{show_money(part.amount, part.currency)} of Ana's {ana.price} went back to her card ({part.pk}); "
        "the webhook that says so is lost."
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
    stage.screen.say(f"{show_money(150_000, 'BRL')} for invoice 41: {sent.pk} succeeded.")


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
