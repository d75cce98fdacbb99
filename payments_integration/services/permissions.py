"""The permission that each call needs of a member of staff who makes it."""

from __future__ import annotations

from typing import Any

from payments_integration import permissions
from payments_integration.enums import Kind
from payments_integration.models import MIRRORS, Mirror
from payments_integration.services.recipes import (
    CANCEL_PAYMENT,
    CANCEL_PAYOUT,
    CREATE_PAYOUT,
    CREATE_REFUND,
    CREATE_WEBHOOK_ENDPOINT,
    DELETE_WEBHOOK_ENDPOINT,
    ROTATE_WEBHOOK_SECRET,
)

#: Operation to codename. Whoever works in the admin takes no payments there: those two need none.
REQUIRED: dict[str, str] = {
    CREATE_REFUND: "refund_payment",
    CANCEL_PAYMENT: "cancel_payment",
    CREATE_PAYOUT: "create_payout",
    CANCEL_PAYOUT: "cancel_payout",
    CREATE_WEBHOOK_ENDPOINT: "manage_webhookendpoint",
    DELETE_WEBHOOK_ENDPOINT: "manage_webhookendpoint",
    ROTATE_WEBHOOK_SECRET: "rotate_webhookendpoint",
}
APPROVE = "approve_operation"
RESOLVE = "change_operation"
CLOSE = "close_operation"

#: What the call is about, for permissions on single rows.
_TARGETS: dict[str, Kind] = {
    CREATE_REFUND: Kind.PAYMENT,
    CANCEL_PAYMENT: Kind.PAYMENT,
    CANCEL_PAYOUT: Kind.PAYOUT,
    DELETE_WEBHOOK_ENDPOINT: Kind.WEBHOOK_ENDPOINT,
    ROTATE_WEBHOOK_SECRET: Kind.WEBHOOK_ENDPOINT,
}


def check(operation: str, actor: object, target: object = None) -> None:
    """Raise PermissionDenied where the actor is staff and may not. ``target``: the row that it is about, or its id."""
    codename = REQUIRED.get(operation)
    if codename is None or not permissions.is_staff(actor) or permissions.may(actor, codename):
        return
    permissions.require(actor, codename, _row(operation, target))


def _row(operation: str, target: object) -> Any:
    if isinstance(target, Mirror):
        return target
    kind = _TARGETS.get(operation)
    if kind is None or not isinstance(target, str):
        return None
    return MIRRORS[kind]._default_manager.filter(pk=target).first()
