"""Refund payments, and tell how much can still be refunded (spec, "Refunds")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from payments_integration import conf, outbox
from payments_integration.db.transactions import refuse_transaction
from payments_integration.models import Payment, Refund, refundable_rest
from payments_integration.money import checked_minor
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
    """Give money back (spec, "Refunds").

    ``idempotency_key``, ``actor`` and further errors are the same as in ``create_payment``.

    Args:
        payment: An instance or its id.
        amount: Minor units; without it, the whole rest, which the call reads from the provider first.
        destination: As for ``create_payout``. Required unless a card was charged, and refused after a card payment,
            because the money goes back to the card.
        reason: Why, as the provider stores it.
        account: The payment's account; needed only for an id that the mirror does not know.

    Returns:
        The mirrored refund.

    Raises:
        ValidationError: An argument is wrong, or the amount exceeds ``models.refundable_rest``, which refunds in
            progress and open operations reduce. The payment and its refunds are read again before a refusal.
        NoAnswer: The payment or its refunds could not be read. Nothing was sent; the same for PagingError, and for a
            ProviderError of these reads.
        ApprovalRequired: It has a destination and reaches ``APPROVAL_LIMITS``. Recorded; ``approve`` sends it.
        OutcomeUnknown: Also before anything is sent, if no user asks, and the payment has a refund of this amount
            that is older than 23 hours and that no operation made. A person decides.
    """
    validator = Validator(conf.current().DOCUMENT_CHECKS)
    # Checked here, because ``find`` looks it up in the same statement.
    key = validator.key("idempotency_key", idempotency_key)
    annotations = outbox.operations.CALLS["create_refund"].target_annotations
    alias, payment_id, row = find(validator, "payment", Payment, payment, account, key=key, annotations=annotations)
    given: Json = {}
    if amount is not None:
        given["amount"] = validator.amount("amount", amount, row.currency if row is not None else None)
    if destination is not None:
        country = row.country if row is not None else ""
        given["destination"] = objects.destination(validator, "destination", destination, country)
    if reason is not None:
        given["reason"] = validator.text("reason", reason, max_length=MAX_LONG_TEXT)
    return creation(
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
    """Return how much of a payment can still be refunded, for a page that asks before it sends a refund.

    The mirror answers. If it has less than ``at_least``, the payment and its refunds are read from the provider first,
    as ``create_refund`` does before it refuses.

    Args:
        payment: An instance.
        at_least: Minor units that the page is about to refund.

    Returns:
        Minor units.

    Raises:
        TypeError: ``at_least`` is not an int.
        ProviderError: The provider refused the read.
        NoAnswer: The provider did not answer.
        TransactionRefused: The call is inside a transaction.
    """
    rest = refundable_rest(payment)
    if rest >= checked_minor(at_least, payment.currency):
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
