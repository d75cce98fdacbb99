"""Refunds, and how much can still be refunded (spec, "Refunds")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from payments_integration import outbox
from payments_integration.db.transactions import refuse_transaction
from payments_integration.models import Payment, Refund, refundable_rest
from payments_integration.outbox import Intent
from payments_integration.services.service import creation, find, service
from payments_integration.validation import objects
from payments_integration.validation.validator import MAX_LONG_TEXT, Json, Validator


@service(Refund)
def create_refund(
    payment: Payment | str,
    *,
    amount: int | None = None,
    destination: Mapping[str, Any] | None = None,
    reason: str | None = None,
    account: str | None = None,
    idempotency_key: str | None = None,
    actor: object = None,
) -> Intent:
    """Give money back (spec, "Refunds"); returns the Refund.

    ``payment``: an instance or its id. ``amount``: minor units; without it, the call refunds the whole rest, which it
    reads from the provider first. ``destination``: as for a payout; required unless a card was charged, and
    refused after a card payment, because the money goes back to the card.

    Raises what ``create_payment`` raises. ValidationError also if the amount exceeds the refundable rest, which
    refunds in progress and open operations reduce; the payment and its refunds are read again before a refusal.
    NoAnswer, PagingError and ProviderError also if reading fails: nothing was sent. ApprovalRequired from
    APPROVAL_LIMITS on, if it has a destination.
    """
    validator = Validator()
    key = validator.key("idempotency_key", idempotency_key)
    questions = outbox.operations.CALLS["create_refund"].questions
    alias, payment_id, row = find(validator, "payment", Payment, payment, account, key=key, questions=questions)
    given: Json = {}
    if amount is not None:
        given["amount"] = validator.amount("amount", amount)
    if destination is not None:
        country = row.country if row is not None else ""
        given["destination"] = objects.destination(validator, "destination", destination, country)
    if reason is not None:
        given["reason"] = validator.text("reason", reason, max_length=MAX_LONG_TEXT)
    return creation(
        "create_refund",
        validator,
        {"payment_id": payment_id, **given},
        account=alias,
        idempotency_key=key or None,
        actor=actor,
        arguments={"payment": payment_id, **given},
        target_id=payment_id,
        target=row,
    )


def refundable(payment: Payment, *, at_least: int) -> int:
    """Minor units of a payment that can still be refunded, for a page that asks before it sends a refund.

    The mirror answers. If it has less than ``at_least``, the payment and its refunds are read from the provider first,
    as ``create_refund`` does before it refuses. Raises ProviderError, NoAnswer, TransactionRefused.
    """
    rest = refundable_rest(payment)
    if rest >= at_least:
        return rest
    refuse_transaction("refundable")
    intent = Intent(
        operation="create_refund", account=payment.account, arguments={}, target_id=payment.pk, target=payment
    )
    precondition = outbox.operations.CALLS[intent.operation].precondition(intent)
    if precondition is not None:
        outbox.bring_up_to_date(precondition)
    payment.refresh_from_db()
    return refundable_rest(payment)
