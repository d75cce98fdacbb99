"""Pay-ins, and the references that payers transfer to (spec, "Payments" and "Deposit references")."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _

from payments_integration import sync
from payments_integration.client import Client
from payments_integration.enums import CANCELABLE_PAYMENT_STATUSES, Flow, Kind
from payments_integration.models import Operation
from payments_integration.outbox.operations.base import Candidates, Creation, Unclear, sent_since
from payments_integration.outbox.operations.cancels import Cancel


class CreatePayment(Creation):
    name, label, kind = "create_payment", _("new payment"), Kind.PAYMENT

    def look_up(self, client: Client, operation: Operation) -> Candidates:
        listed = client.payments.list(
            merchant_reference=operation.merchant_reference,
            created_from=sent_since(operation),
            max_wait=sync.WORKER_WAIT,
            background=True,
        )
        return self.candidates(operation, listed)

    def fits(self, operation: Operation, item: Any) -> bool:
        # The provider itself makes the payments of a deposit reference, with its merchant reference. ``flow`` may be
        # missing (spec, "Payment").
        return Flow.DEPOSIT_REFERENCE not in (item.flow, item.method_family) and super().fits(operation, item)


class CancelPayment(Cancel):
    name, label, kind = "cancel_payment", _("cancel of a payment"), Kind.PAYMENT
    target, permission, cancelable = Kind.PAYMENT, "cancel_payment", CANCELABLE_PAYMENT_STATUSES


class CreateDepositReference(Creation):
    name, label, kind = "create_deposit_reference", _("new deposit reference"), Kind.DEPOSIT_REFERENCE

    def look_up(self, client: Client, operation: Operation) -> Unclear:
        return Unclear("deposit references cannot be listed; look for it in the provider's dashboard")

    def fits(self, operation: Operation, item: Any) -> bool:
        asked = operation.arguments
        same = all(getattr(item, name) == asked.get(name) for name in ("country", "currency", "method_code"))
        return same and super().fits(operation, item)
