"""The only way out to the provider.

Every call that changes something is recorded before it leaves, sent under one idempotency key, and brought to
an end whatever happens: see ``docs/operations.md``. Any exception except OutcomeUnknown, and ApprovalRequired where
limits are set, means that it was not executed and will not be sent later. Actors who are staff need the permission
for a call (PermissionDenied).
"""

from payments_integration.services.approvals import approve, reject
from payments_integration.services.calls import defer
from payments_integration.services.deposits import create_deposit_reference
from payments_integration.services.endpoints import (
    create_webhook_endpoint,
    delete_webhook_endpoint,
    rotate_webhook_secret,
)
from payments_integration.services.keys import scoped_key
from payments_integration.services.payments import cancel_payment, create_payment
from payments_integration.services.payouts import cancel_payout, create_payout, payout_cover
from payments_integration.services.people import look_up, mark_happened, mark_never_happened, retry
from payments_integration.services.reads import (
    list_payment_methods,
    refresh,
    sync_balances,
    sync_webhook_endpoints,
)
from payments_integration.services.refunds import create_refund
from payments_integration.services.resuming import resume_operations

__all__ = [
    "approve",
    "cancel_payment",
    "cancel_payout",
    "create_deposit_reference",
    "create_payment",
    "create_payout",
    "create_refund",
    "create_webhook_endpoint",
    "defer",
    "delete_webhook_endpoint",
    "list_payment_methods",
    "look_up",
    "mark_happened",
    "mark_never_happened",
    "payout_cover",
    "refresh",
    "reject",
    "resume_operations",
    "retry",
    "rotate_webhook_secret",
    "scoped_key",
    "sync_balances",
    "sync_webhook_endpoints",
]
