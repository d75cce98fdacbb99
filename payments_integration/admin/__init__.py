"""The admin: a read-only view of the mirror, and the doors to refunding, cancelling, refreshing and replaying.

Every model has its page in one of the modules below. What a page does, it does by calling a service or a flow: no
rule is decided here. Permissions are checked on every page and button.
"""

from payments_integration.admin import (
    accounts,
    balances,
    endpoints,
    events,
    operations,
    payments,
    payouts,
    refunds,
    workings,
)

__all__ = ["accounts", "balances", "endpoints", "events", "operations", "payments", "payouts", "refunds", "workings"]
