"""The only way out to the provider.

Every call that changes something is recorded before it leaves, sent under one idempotency key, and brought to
an end whatever happens: see ``docs/operations.md``. Any exception except OutcomeUnknown, and ApprovalRequired where
limits are set, means that it was not executed and will not be sent later. Actors who are staff need the permission
for a call (PermissionDenied).

A module of this package is loaded with the first use of what it exports.
"""

from typing import TYPE_CHECKING

from payments_integration import lazy

if TYPE_CHECKING:
    from payments_integration.services import leases as leases
    from payments_integration.services import ledger as ledger
    from payments_integration.services import recipes as recipes
    from payments_integration.services import refunds as refunds
    from payments_integration.services import sending as sending
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
else:
    __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            "approvals": ("approve", "reject"),
            "calls": ("defer",),
            "deposits": ("create_deposit_reference",),
            "endpoints": ("create_webhook_endpoint", "delete_webhook_endpoint", "rotate_webhook_secret"),
            "keys": ("scoped_key",),
            "leases": (),
            "ledger": (),
            "payments": ("cancel_payment", "create_payment"),
            "payouts": ("cancel_payout", "create_payout", "payout_cover"),
            "people": ("look_up", "mark_happened", "mark_never_happened", "retry"),
            "reads": ("list_payment_methods", "refresh", "sync_balances", "sync_webhook_endpoints"),
            "recipes": (),
            "refunds": ("create_refund",),
            "resuming": ("resume_operations",),
            "sending": (),
        },
    )

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
