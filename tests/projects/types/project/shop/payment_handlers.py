"""Each kind of handler that is right."""

from typing import Any, assert_type

from payments_integration.enums import PaymentStatus
from payments_integration.handlers import on_event, on_status
from payments_integration.models import (
    Balance,
    DepositReference,
    Event,
    Payment,
    Payout,
    Refund,
    StatusChange,
    WebhookEndpoint,
)
from payments_integration.services import create_refund, defer


@on_status(Payment, "succeeded", "overpaid")
def mark_paid(payment: Payment, status: str, event: Event | None, **kwargs: Any) -> None:
    assert_type(payment.status, str)


@on_status(Payment, PaymentStatus.CHARGEBACK, Payment.Status.ON_HOLD, "failed")
def with_members(payment: Payment, /, **kwargs: object) -> None:
    defer(create_refund, payment, amount=1_000, reason="out of stock")


@on_status(Payment)
@on_status(Refund)
def of_two_models(obj: Payment | Refund, *, status_change: StatusChange, **kwargs: Any) -> None:
    assert_type(obj.amount, int)


@on_status(Payout, "returned")
def with_every_argument(
    payout: Payout,
    sender: type[Payout],
    previous_status: str,
    status: str,
    event: Event | None,
    status_change: StatusChange,
    is_stale: bool,
    **kwargs: Any,
) -> None: ...


@on_status(DepositReference, "disabled")
@on_status(WebhookEndpoint, "disabled", WebhookEndpoint.Status.ACTIVE)
def of_others(obj: DepositReference | WebhookEndpoint, **kwargs: Any) -> None: ...


@on_event("payment.partially_paid", "payment.*")
def of_a_kind(instance: Payment, event: Event, previous_status: str, **kwargs: Any) -> None:
    assert_type(event.created_at.year, int)


@on_event("payment.succeeded", "payout.failed", include_stale=True)
def of_two_kinds(instance: Payment | Payout, is_stale: bool, **kwargs: Any) -> None: ...


@on_event("balance.updated")
def of_a_balance(instance: Balance, **kwargs: Any) -> None: ...


@on_event("*", "*.returned")
def of_every_kind(event: Event, instance: Any, sender: type[Any], **kwargs: Any) -> None: ...


@on_status(Payment, "disputed")  # type: ignore
def of_a_status_that_is_not_in_the_spec(payment: Payment, **kwargs: Any) -> None: ...


def call(payment: Payment, event: Event) -> None:
    """A decorated handler is the function that it was."""
    mark_paid(payment, "succeeded", None)
    of_a_kind(instance=payment, event=event, previous_status="created")
