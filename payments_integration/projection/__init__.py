"""Translation of the provider's objects into mirror rows. The only writer of mirrors.

``events`` applies what came as events, in batches; ``answers`` writes what a request brought; ``refreshes`` keeps
the marks for objects that must be read again; ``rows`` turns structs into rows and compares them.
"""

from payments_integration.projection.answers import (
    ABSENT,
    Snapshot,
    balance_snapshots,
    mark_gone,
    record_identity,
    snapshot,
    write_answer,
    write_balances,
)
from payments_integration.projection.changes import TOO_OLD_TO_TELL
from payments_integration.projection.clock import provider_time
from payments_integration.projection.endpoints import (
    active_secrets,
    mark_endpoint_deleted,
    store_secret,
    write_endpoints,
)
from payments_integration.projection.erasing import erase_row, erased
from payments_integration.projection.events import apply_events
from payments_integration.projection.ordering import MARGIN
from payments_integration.projection.refreshes import request_refresh, request_refreshes
from payments_integration.projection.rows import differences, row_values, storable

__all__ = [
    "ABSENT",
    "MARGIN",
    "TOO_OLD_TO_TELL",
    "Snapshot",
    "active_secrets",
    "apply_events",
    "balance_snapshots",
    "differences",
    "erase_row",
    "erased",
    "mark_endpoint_deleted",
    "mark_gone",
    "provider_time",
    "record_identity",
    "request_refresh",
    "request_refreshes",
    "row_values",
    "snapshot",
    "storable",
    "store_secret",
    "write_answer",
    "write_balances",
    "write_endpoints",
]
