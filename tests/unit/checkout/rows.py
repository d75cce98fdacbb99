"""Payments in the mirror."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

from django.utils import timezone

from payments_integration.models import DepositReference, Payment

_numbers = itertools.count(1)
#: A name that is nobody's business.
PAYER = {"name": "Ana Rojas", "email": "ana@example.com", "document": {"type": "RUT", "number": "12345678-5"}}


def payment(**fields: Any) -> Payment:
    """Waiting for its payer, and silent for a minute."""
    return Payment.objects.create(**_payment(**fields))


def unsaved(**fields: Any) -> Payment:
    return Payment(**_payment(**fields))


def _payment(**fields: Any) -> dict[str, Any]:
    at = timezone.now() - timedelta(minutes=1)
    return {
        "id": f"pay_{next(_numbers)}", "account": "default", "status": "requires_action", "amount": 10_000,
        "amount_received": 0, "currency": "CLP", "country": "CL", "method_code": "cl_card", "method_family": "card",
        "merchant_reference": "order-1", "payer": PAYER, "created_at": at, "state_at": at, "state_by": "event",
        "synced_at": at, **fields,
    }  # fmt: skip


def deposit_reference(**fields: Any) -> DepositReference:
    at = timezone.now()
    return DepositReference(
        **{
            "id": "dep_1", "account": "default", "status": "active", "country": "MX", "currency": "MXN",
            "method_code": "mx_deposit", "details": {"type": "bank_transfer_details"}, "created_at": at,
            "state_at": at, "state_by": "event", "synced_at": at, **fields,
        }
    )  # fmt: skip
