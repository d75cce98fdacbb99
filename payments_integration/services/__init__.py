"""The only way out to the provider.

Every call that changes something is recorded before it leaves, sent under one idempotency key, and brought to
an end whatever happens: see ``docs/operations.md``. Any exception except OutcomeUnknown means that it was not
executed and will not be sent later.
"""

from payments_integration.services.calls import defer
from payments_integration.services.deposits import create_deposit_reference
from payments_integration.services.endpoints import (
    create_webhook_endpoint,
    delete_webhook_endpoint,
    rotate_webhook_secret,
)
from payments_integration.services.payments import cancel_payment, create_payment
from payments_integration.services.payouts import cancel_payout, create_payout
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
    "refresh",
    "resume_operations",
    "retry",
    "rotate_webhook_secret",
    "sync_balances",
    "sync_webhook_endpoints",
]
