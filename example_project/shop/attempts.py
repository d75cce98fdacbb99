"""What became of the attempt that an order is at: the ledger knows, also after a crash or a lost answer."""

from __future__ import annotations

from dataclasses import dataclass

from example_project.shop.models import Order
from payments_integration.models import OPEN_OPERATION_STATES, Operation, OperationState

#: Characters; codes are short, and somebody else writes them.
MOST_OF_A_CODE = 100


@dataclass(frozen=True, slots=True)
class Attempt:
    """``create_payment`` under the order's idempotency key."""

    #: It was asked for, or is about to be, and its payment is not known yet.
    is_pending: bool
    #: It was never asked for: whoever set it up did not come so far.
    is_unsent: bool
    #: Why there is no payment and will be none; empty where there is one, or may be.
    refusal: str


def current(order: Order) -> Attempt:
    operation = Operation.objects.filter(account="default", idempotency_key=order.idempotency_key).first()
    if operation is None:
        # Arguments that were refused before anything was recorded.
        return Attempt(is_pending=not order.refusal, is_unsent=not order.refusal, refusal=order.refusal)
    refusal = ""
    if operation.state in (OperationState.REJECTED, OperationState.CLOSED):
        refusal = str((operation.error or {}).get("code") or operation.state)[:MOST_OF_A_CODE]
    return Attempt(is_pending=operation.state in OPEN_OPERATION_STATES, is_unsent=False, refusal=refusal)
