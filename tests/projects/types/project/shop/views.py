"""Calls of the services, and what their results are."""

from datetime import datetime
from typing import Any, assert_type

from payments_integration import conf, services
from payments_integration.exceptions import OutcomeUnknown, ProviderError
from payments_integration.models import (
    Balance,
    DepositReference,
    Event,
    Operation,
    Payment,
    Payout,
    ReconciliationRun,
    Refund,
    WebhookEndpoint,
)
from payments_integration.services import create_payment, create_refund, defer
from payments_integration.signals import status_changed
from payments_integration.testing import ProviderSandbox, signed_delivery
from shop.models import Order


def pay(order: Order) -> str | None:
    try:
        payment = create_payment(
            amount=11_980,
            currency="CLP",
            country="CL",
            method_code="cl_webpay_card",
            merchant_reference="order-1",
            payer={"name": "Ana", "document": {"type": "RUT", "number": "11111111-1"}},
            idempotency_key="order-1",
        )
    except ProviderError as error:
        assert_type(error.code, str)
        return None
    except OutcomeUnknown:
        return None
    assert_type(payment, Payment)
    assert_type(payment.checkout_url, str | None)
    assert_type(order.is_paid(11_980, "CLP"), bool)
    return payment.checkout_url


def fields(payment: Payment, payout: Payout, refund: Refund) -> None:
    assert_type(payment.id, str)
    assert_type(payment.status, str)
    assert_type(payment.amount, int)
    assert_type(payment.fee, int | None)
    assert_type(payment.refundable_amount, int)
    assert_type(payment.created_at, datetime)
    assert_type(payment.succeeded_at, datetime | None)
    assert_type(payment.payer, dict[str, Any] | None)
    assert_type(payment.metadata, dict[str, Any] | None)
    assert_type(payment.extra, dict[str, Any])
    assert_type(payment.account, str)
    assert_type(payment.refunds.get(), Refund)
    assert_type(payout.destination, dict[str, Any] | None)
    assert_type(payout.refund_id, str | None)
    assert_type(payout.refund, Refund | None)
    assert_type(refund.payment_id, str | None)
    assert_type(refund.payment, Payment | None)
    assert_type(refund.reason, str | None)


def other_fields(
    reference: DepositReference, balance: Balance, endpoint: WebhookEndpoint, event: Event, run: ReconciliationRun
) -> None:
    assert_type(reference.details, dict[str, Any])
    assert_type(balance.available, int)
    assert_type(balance.updated_at, datetime | None)
    assert_type(endpoint.events, list[str])
    assert_type(event.body, bytes | None)
    assert_type(event.get_state_display(), str)
    assert_type(run.drift, list[dict[str, Any]])
    assert_type(run.duration, float | None)


def rows() -> None:
    assert_type(Payment.objects.get(pk="pay_1"), Payment)
    assert_type(Operation.objects.get(pk="op_1").arguments, dict[str, Any])
    try:
        assert_type(Refund.objects.get(pk="ref_1"), Refund)
    except Refund.DoesNotExist:
        return


def results(payment: Payment) -> None:
    assert_type(create_refund(payment, amount=1_000), Refund)
    assert_type(services.create_refund("pay_1"), Refund)
    assert_type(services.cancel_payment(payment), Payment)
    assert_type(services.refresh(payment), Payment)
    assert_type(services.refundable(payment, at_least=1), int)
    assert_type(services.sync_balances(), list[Balance])
    assert_type(services.payout_cover("CLP"), Balance | None)
    services.delete_webhook_endpoint("whk_1", actor="a job")
    assert_type(defer(create_refund, payment, amount=1_000), Operation)
    assert_type(conf.from_env(prefix="SHOP_"), dict[str, Any])
    with ProviderSandbox(options={"BATCH_SIZE": 10}) as sandbox:
        assert_type(sandbox, ProviderSandbox)
        assert_type(sandbox.deliver(), int)
        sandbox.engine.pay(payment.id)
    assert_type(signed_delivery({"id": "evt_1"}, "whsec_1"), dict[str, Any])
    status_changed.connect(receiver)


def receiver(**kwargs: Any) -> None: ...
