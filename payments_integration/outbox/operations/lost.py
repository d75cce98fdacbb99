"""Find objects of a ledger that was lost: after a restored backup a job may make them again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from payments_integration import projection
from payments_integration.models import Operation
from payments_integration.outbox.operations.base import Intent

#: The provider knows the key of a younger object (24 hours, spec, "Limits").
KEY_IS_KNOWN = timedelta(hours=23)
#: An operation of this ledger created or changed the object.
IS_OURS = Exists(Operation.objects.filter(account=OuterRef("account"), result_id=OuterRef("pk")))


def not_ours(rows: QuerySet[Any], asked: Intent | Operation) -> QuerySet[Any]:
    """Leave the objects of the call's account and amount that no operation made, newest first.

    They are from the time since the installation, and the provider has forgotten their keys.
    """
    now = timezone.now()
    oldest = now - projection.TOO_OLD_TO_DISPATCH
    began = projection.dispatch_begins_at(asked.account)
    return rows.filter(
        ~IS_OURS,
        account=asked.account,
        amount=asked.amount,
        created_at__gte=max(oldest, began or oldest),
        created_at__lt=now - KEY_IS_KNOWN,
    ).order_by("-created_at")
