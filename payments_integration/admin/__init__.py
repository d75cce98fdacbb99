"""Provide the admin: read-only pages over the mirror, and pages that refund, pay out, cancel, refresh and replay.

A page calls a service or a flow and decides no rule itself. Every page and button checks its permission. Each
package imports only the packages below it:

- ``models``: one module per model page (or per group of related models)
- ``technical``: the technical state of an account
- ``flows``: pages that change something through a service, such as refund, payout and approval
- ``base``: the base class of every model page
- ``lists``: search, filters and pagination of every list
- ``shared``: how values, columns, buttons and sections are shown
"""

from payments_integration.admin.models import (  # noqa: F401  (each module registers its pages)
    balances,
    deposit_references,
    events,
    operations,
    payments,
    payouts,
    reconciliation,
    refunds,
    webhook_endpoints,
)
