"""What each operation is to the provider: its kind of object, its request, and whether it may be repeated at
will.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from payments_integration import wire
from payments_integration.client import Answer, Client
from payments_integration.enums import Kind
from payments_integration.models import Operation

CREATE_PAYMENT = "create_payment"
CANCEL_PAYMENT = "cancel_payment"
CREATE_PAYOUT = "create_payout"
CANCEL_PAYOUT = "cancel_payout"
CREATE_REFUND = "create_refund"
CREATE_DEPOSIT_REFERENCE = "create_deposit_reference"
CREATE_WEBHOOK_ENDPOINT = "create_webhook_endpoint"
ROTATE_WEBHOOK_SECRET = "rotate_webhook_secret"  # noqa: S105
DELETE_WEBHOOK_ENDPOINT = "delete_webhook_endpoint"

#: (client, operation, body, seconds to wait on 429) to the answer.
Send = Callable[[Client, Operation, bytes, float], Answer[Any]]


@dataclass(frozen=True, slots=True)
class Recipe:
    """One of the provider's operations that change something."""

    kind: Kind
    send: Send
    #: It works on the object in the path; the others make a new one.
    on_target: bool = False
    #: Repeating it has no further effect, whatever key it carries.
    harmless: bool = False


RECIPES: dict[str, Recipe] = {
    CREATE_PAYMENT: Recipe(
        Kind.PAYMENT,
        lambda client, op, body, wait: client.payments.create(body, idempotency_key=op.idempotency_key, max_wait=wait),
    ),
    CANCEL_PAYMENT: Recipe(
        Kind.PAYMENT,
        lambda client, op, body, wait: client.payments.cancel(
            op.target_id, idempotency_key=op.idempotency_key, max_wait=wait
        ),
        on_target=True,
    ),
    CREATE_PAYOUT: Recipe(
        Kind.PAYOUT,
        lambda client, op, body, wait: client.payouts.create(body, idempotency_key=op.idempotency_key, max_wait=wait),
    ),
    CANCEL_PAYOUT: Recipe(
        Kind.PAYOUT,
        lambda client, op, body, wait: client.payouts.cancel(
            op.target_id, idempotency_key=op.idempotency_key, max_wait=wait
        ),
        on_target=True,
    ),
    CREATE_REFUND: Recipe(
        Kind.REFUND,
        lambda client, op, body, wait: client.refunds.create(body, idempotency_key=op.idempotency_key, max_wait=wait),
    ),
    CREATE_DEPOSIT_REFERENCE: Recipe(
        Kind.DEPOSIT_REFERENCE,
        lambda client, op, body, wait: client.deposit_references.create(
            body, idempotency_key=op.idempotency_key, max_wait=wait
        ),
    ),
    CREATE_WEBHOOK_ENDPOINT: Recipe(
        Kind.WEBHOOK_ENDPOINT,
        lambda client, op, body, wait: client.webhook_endpoints.create(
            body, idempotency_key=op.idempotency_key, max_wait=wait
        ),
    ),
    ROTATE_WEBHOOK_SECRET: Recipe(
        Kind.WEBHOOK_ENDPOINT,
        lambda client, op, body, wait: client.webhook_endpoints.rotate_secret(
            op.target_id, idempotency_key=op.idempotency_key, max_wait=wait
        ),
        on_target=True,
    ),
    DELETE_WEBHOOK_ENDPOINT: Recipe(
        Kind.WEBHOOK_ENDPOINT,
        lambda client, op, body, wait: client.webhook_endpoints.delete(op.target_id, max_wait=wait),
        on_target=True,
        harmless=True,
    ),
}


def contradiction(operation: Operation, resource: wire.AnyResource | None) -> str:
    """Why a successful answer cannot be the answer to this operation; "" where it can."""
    recipe = RECIPES[operation.operation]
    if resource is None:
        return "" if operation.operation == DELETE_WEBHOOK_ENDPOINT else "the answer has no object"
    if recipe.on_target:
        return "" if getattr(resource, "id", "") == operation.target_id else "the answer is about another object"
    if isinstance(resource, wire.Refund) and resource.payment_id != operation.target_id:
        return "the answer is about another payment"
    if isinstance(resource, wire.Payment | wire.Payout | wire.Refund) and (
        resource.amount != operation.amount or resource.currency != operation.currency
    ):
        return "the answer has another amount or currency"
    return ""
