"""Which rows somebody may see: what API_QUERYSET names.

A project's own function has the same signature: ``f(queryset, user) -> queryset``, for querysets of Payment, Payout,
Refund, DepositReference, Balance, Event and Operation. What it leaves out does not exist for that user (404).
"""

from __future__ import annotations

from typing import Any

from django.db.models import Exists, OuterRef, QuerySet

from payments_integration import permissions
from payments_integration.models import DepositReference, Operation, Payment, Payout, Refund
from payments_integration.services.ledger import user_id
from payments_integration.services.recipes import (
    CREATE_DEPOSIT_REFERENCE,
    CREATE_PAYMENT,
    CREATE_PAYOUT,
)

#: The operation that makes a row, and the field of the row that names what was made.
_MADE_BY: dict[type[Any], tuple[str, str]] = {
    Payment: (CREATE_PAYMENT, "pk"),
    Payout: (CREATE_PAYOUT, "pk"),
    # It belongs to whoever paid, whoever gave the money back.
    Refund: (CREATE_PAYMENT, "payment_id"),
    DepositReference: (CREATE_DEPOSIT_REFERENCE, "pk"),
}


def visible(queryset: QuerySet[Any], user: Any) -> QuerySet[Any]:
    """All rows for staff, whom the permission classes have let in; for others their own. The default."""
    return queryset if permissions.is_staff(user) else own(queryset, user)


def own(queryset: QuerySet[Any], user: Any) -> QuerySet[Any]:
    """The rows that the user asked for: payments, their refunds, deposit references, payouts and operations.

    Who asked is the ``actor`` of the operation. Nobody owns balances, events, nor what came without an operation,
    such as a payment by a transfer to a deposit reference.
    """
    owner = user_id(user)
    if not owner:
        return queryset.none()
    if queryset.model is Operation:
        return queryset.filter(actor_id=owner)
    if queryset.model not in _MADE_BY:
        return queryset.none()
    operation, field = _MADE_BY[queryset.model]
    made = Operation.objects.filter(operation=operation, actor_id=owner).exclude(result_id="")
    return queryset.filter(**{f"{field}__in": made.values("result_id")})


def with_owner(queryset: QuerySet[Any], user: Any) -> QuerySet[Any]:
    """The same rows, each of which says in ``is_own`` whether this user asked for it."""
    owner = user_id(user)
    operation, field = _MADE_BY.get(queryset.model, ("", "pk"))
    if not owner or not operation:
        return queryset
    made = Operation.objects.filter(operation=operation, actor_id=owner, result_id=OuterRef(field))
    marked: QuerySet[Any] = queryset.annotate(is_own=Exists(made))
    return marked
