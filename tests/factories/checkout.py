"""Payments that wait for their payer, and deposit references, for tests of the checkout pages."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

from django.utils import timezone

from payments_integration.models import DepositReference, Payment
from tests.factories.rows import AT, mirror

PAYER = {"name": "Ana Rojas", "email": "ana@example.com", "document": {"type": "RUT", "number": "12345678-5"}}
_numbers = itertools.count(1)


def unsaved(**fields: Any) -> Payment:
    """An unsaved payment that waits for its payer; the provider's last news is a minute old."""
    at = timezone.now() - timedelta(minutes=1)
    values = {
        "id": f"pay_c{next(_numbers)}", "status": "requires_action", "amount": 10_000, "amount_received": 0,
        "currency": "CLP", "country": "CL", "method_code": "cl_card", "method_family": "card",
        "merchant_reference": "order-1", "payer": PAYER, "created_at": at, "state_at": at, "synced_at": at,
    }  # fmt: skip
    return Payment(**mirror(**{**values, **fields}))


def payment(**fields: Any) -> Payment:
    row = unsaved(**fields)
    row.save(force_insert=True)
    return row


def deposit_reference(**fields: Any) -> DepositReference:
    """An unsaved reference."""
    number = next(_numbers)
    values = {
        "id": f"dep_c{number}", "status": "active", "country": "MX", "currency": "MXN", "method_code": "mx_deposit",
        "details": {"type": "bank_transfer_details"}, "created_at": AT + timedelta(seconds=number),
    }  # fmt: skip
    return DepositReference(**mirror(**{**values, **fields}))
