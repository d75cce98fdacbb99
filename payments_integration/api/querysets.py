"""Decide which rows a user may see: the functions for API_QUERYSET.

A project's own function has the same signature: ``f(queryset, user) -> queryset``, for querysets of Payment, Payout,
Refund, DepositReference, Balance, Event and Operation. A row that it leaves out does not exist for that user (404).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.db.models import Exists, F, OuterRef, QuerySet

from payments_integration import permissions
from payments_integration.enums import Kind
from payments_integration.models import Mirror, Operation
from payments_integration.services import operations


def visible(queryset: QuerySet[Any], user: Any) -> QuerySet[Any]:
    """Return all rows for staff, whom the permission classes let in, and own rows for other users. The default."""
    return queryset if permissions.is_staff(user) else own(queryset, user)


def own(queryset: QuerySet[Any], user: Any) -> QuerySet[Any]:
    """Return the rows that the user requested: payments, their refunds, deposit references, payouts and operations.

    The operation's ``actor`` is the owner. Balances and events have no owner, nor do rows without an operation, such
    as a payment by a transfer to a deposit reference.
    """
    owner = permissions.user_id(user)
    if not owner:
        return queryset.none()
    if queryset.model is Operation:
        return queryset.filter(actor_id=owner)
    names, field = _created_by(queryset.model)
    if not names:
        return queryset.none()
    created = Operation.objects.filter(operation__in=names, actor_id=owner).exclude(result_id="")
    found = queryset.filter(**{f"{field}__in": created.values("result_id")})
    # Another account's refund may name the payment.
    return found if field == "pk" else found.filter(payment__account=F("account"))


def with_owner(queryset: QuerySet[Any], user: Any) -> QuerySet[Any]:
    """Return the same rows with ``is_own``, which is True if this user requested the row."""
    owner = permissions.user_id(user)
    names, field = _created_by(queryset.model)
    if not owner or not names:
        return queryset
    created = Operation.objects.filter(
        account=OuterRef("account"), operation__in=names, actor_id=owner, result_id=OuterRef(field)
    )
    marked: QuerySet[Any] = queryset.annotate(is_own=Exists(created))
    return marked


def _created_by(model: type[Any]) -> tuple[Collection[str], str]:
    """Return the operations whose actor owns a row, and the row's field with the id of what they create."""
    if not issubclass(model, Mirror):
        return (), "pk"
    if model.kind == Kind.REFUND:
        # A refund belongs to the user who paid, not to the user who refunded.
        return operations.creating(Kind.PAYMENT), "payment_id"
    return operations.creating(model.kind), "pk"
