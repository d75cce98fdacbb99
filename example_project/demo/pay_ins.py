"""The first parts: buying, and everything that can happen to a webhook."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from example_project.demo.payer import Payer
from example_project.demo.processes import DemoError
from example_project.demo.stage import Stage, product_page
from example_project.shop.models import Order
from payments_integration import reconciliation, services
from payments_integration.enums import EVENT_TYPES
from payments_integration.models import Event, Payment
from payments_integration.money import format_for_payer, format_money
from payments_integration.payable import OrderStatus


@dataclass(slots=True)
class Cast:
    """The orders that later parts use again."""

    ana: Order | None = None
    diego: Order | None = None
    #: Orders whose webhooks will not come (in time).
    waiting: list[Order] = field(default_factory=list)


def open_shop(stage: Stage) -> None:
    """An endpoint for webhooks, and a first look at what the provider has."""
    stage.screen.step("The shop opens")
    endpoint = services.create_webhook_endpoint(
        url=f"{stage.site_url}/payments/webhook/", events=EVENT_TYPES, actor="demo"
    )
    stage.screen.say(f"Webhook endpoint {endpoint.pk}; its secret is stored encrypted and never shown.")
    run = reconciliation.reconcile_events("default")
    if run.error:
        raise DemoError(f"the first reconciliation failed: {run.error}")
    stage.screen.say(f"First reconciliation: {run.recovered} events from before the endpoint existed.")


def buy_in_the_shop(stage: Stage, cast: Cast) -> None:
    """A real form, sent twice."""
    stage.screen.step("Ana buys a blanket in the shop, and double-clicks")
    ana = Payer("Ana")
    url, data = ana.fill_in_order(
        f"{stage.site_url}{product_page('blanket')}?market=CL-CLP",
        name="Ana",
        email="ana@example.com",
        method_code="cl_webpay_card",
    )
    landed: list[str] = []
    clicks = [threading.Thread(target=lambda: landed.append(ana.send(url, data))) for _ in range(2)]
    for click in clicks:
        click.start()
    for click in clicks:
        click.join()
    order = Order.objects.get(submission=data["submission"])
    stage.wait("Ana's payment", lambda: order.payment is not None)
    stage.expected.orders[order.reference] = OrderStatus.PAID
    payments = stage.provider.books().payments_of(order.reference)
    stage.screen.say(f"{len(landed)} clicks, {len(payments)} payment: {payments[0]['id']}, {order.price}.")
    ana.pay(payments[0]["checkout_url"])
    took = stage.wait_for_order(order, OrderStatus.PAID)
    stage.screen.say(f"Paid on the checkout page; {took:.1f} s later a signed webhook has marked the order paid.")
    cast.ana = order


def webhooks_go_wrong(stage: Stage, cast: Cast) -> None:
    """Late, twice, out of order, not signed by the provider, in two parts."""
    stage.screen.step("Webhooks come twice, out of order, late and with a wrong signature")
    provider, screen = stage.provider, stage.screen

    provider.fault("duplicate", event_type="payment.succeeded")
    order = _bought(stage, "Bruno", "coffee", "BR", "BRL", "br_pix")
    stage.wait_for_order(order, OrderStatus.PAID)
    screen.say("Bruno (Brazil, Pix): “succeeded” comes twice. The order is paid once.")

    stage.wait_until_delivered()
    provider.fault("reorder", event_type="payment.created", count=3)
    provider.fault("reorder", event_type="payment.requires_action", count=1)
    order = cast.diego = _bought(stage, "Diego", "hammock", "MX", "MXN", "mx_spei")
    stage.wait_for_order(order, OrderStatus.PAID)
    screen.say("Diego (Mexico, SPEI): “succeeded” comes before “created”. The order stays paid.")

    stage.wait_until_delivered()
    provider.fault("delay", event_type="payment.succeeded", delay=50)
    cast.waiting.append(_bought(stage, "Carmen", "coffee", "PE", "PEN", "pe_card"))
    screen.say("Carmen (Peru, card): has paid; “succeeded” will come late.")

    stage.wait_until_delivered()
    provider.fault("bad_signature", event_type="payment.succeeded")
    cast.waiting.append(_bought(stage, "Elena", "chocolate", "CO", "COP", "co_pse"))
    stage.wait("the refusal", lambda: bool(provider.books().struck("bad_signature")))
    screen.say("Elena (Colombia, PSE): a delivery is signed with another secret: 400, and nothing is written.")

    stage.wait_until_delivered()
    payer, order = Payer("Felipe"), stage.order("Felipe", "coffee", "CL", "CLP", "cl_bank_transfer")
    payment = stage.pay_for(order)
    payer.pay_amount(payment.checkout_url or "", "5000")
    stage.wait_for_order(order, OrderStatus.PARTIALLY_PAID)
    payer.pay(payment.checkout_url or "")
    stage.wait_for_order(order, OrderStatus.PAID)
    screen.say(
        f"Felipe (Chile, transfer): pays {format_for_payer(5000, 'CLP', 'CL')}, then the rest of {order.price}."
    )


def webhooks_never_come(stage: Stage, cast: Cast) -> None:
    """Everything about one payment is lost."""
    stage.screen.step("Webhooks never come")
    stage.wait_until_delivered()
    for status in ("created", "requires_action", "processing", "succeeded"):
        stage.provider.fault("drop", event_type=f"payment.{status}")
    order = _bought(stage, "Gabriela", "chocolate", "EC", "USD", "ec_deuna")
    cast.waiting.append(order)
    books = stage.wait_until_delivered()
    payment = order.payment
    theirs = books.payments_of(order.reference)[0]
    stage.screen.say(
        f"Gabriela (Ecuador, DeUna) has paid: {theirs['status']} at the provider, "
        f"{payment.status if payment else 'unknown'} in the mirror."
    )


def expired_then_paid(stage: Stage) -> None:
    """Expired is not final."""
    stage.screen.step("A payment expires, and is paid all the same")
    payer, order = Payer("Hugo"), stage.order("Hugo", "hammock", "BR", "BRL", "br_boleto")
    checkout_url = stage.pay_for(order).checkout_url or ""
    payer.let_expire(checkout_url)
    stage.wait_for_order(order, OrderStatus.EXPIRED)
    payer.pay(checkout_url)
    stage.wait_for_order(order, OrderStatus.PAID)
    stage.screen.say("Hugo (Brazil, boleto): the order was expired; the late money turned it paid.")


def deposit_arrives(stage: Stage) -> None:
    """A payment without an order."""
    stage.screen.step("A regular customer transfers to a deposit reference")
    reference = services.create_deposit_reference(
        country="PE", currency="PEN", method_code="pe_deposit", merchant_reference="customer-17", actor="demo"
    )
    arrived = stage.provider.move("deposit-references", reference.pk, "transfer", amount=25_000)
    stage.expected.deposits += 1
    stage.wait("the deposit", lambda: Payment.objects.filter(pk=arrived["id"], status="succeeded").exists())
    stage.screen.say(f"{reference.pk}: {format_money(25_000, 'PEN')} became payment {arrived['id']} by itself.")


def time_passes(stage: Stage, cast: Cast) -> None:
    """The provider repeats failed deliveries and sends late ones; reconciliation finds the others."""
    stage.screen.step("A minute passes; then reconciliation looks for what is missing")
    stage.provider.run_behind(0)
    *late, lost = cast.waiting
    for order in late:
        stage.wait_for_order(order, OrderStatus.PAID)
    stage.screen.say("The late webhook and the one that was refused have come, with a right signature this time.")
    stage.wait_until_settled()
    find_what_is_missing(stage)
    stage.wait_for_order(lost, OrderStatus.PAID)
    stage.screen.say("Gabriela's order is paid.")


def find_what_is_missing(stage: Stage) -> None:
    """Reconcile until every event is here; an event of this very second is for the next pass."""
    recovered = 0

    def complete() -> bool:
        nonlocal recovered
        run = reconciliation.reconcile_events("default")
        if run.error:
            raise DemoError(f"reconciliation failed: {run.error}")
        recovered += run.recovered
        theirs = {event["id"] for event in stage.provider.books().events}
        return theirs <= set(Event.objects.values_list("pk", flat=True))

    stage.wait("reconciliation to find what is missing", complete)
    stage.screen.say(f"Reconciliation found the {recovered} events that never arrived.")


def _bought(stage: Stage, buyer: str, product: str, country: str, currency: str, method_code: str) -> Order:
    """Ordered, and paid on the checkout page."""
    order = stage.order(buyer, product, country, currency, method_code)
    Payer(buyer).pay(stage.pay_for(order).checkout_url or "")
    return order
