"""Write the provider's objects to mirror rows. Nothing else writes mirrors.

``events`` applies events in batches, and ``answers`` writes answers. ``reads`` tells what was known before a request,
and records which objects must be read again. ``ordering`` decides which of two states is newer, ``history`` knows what
was before the installation and the provider's time, and ``rows`` converts structs to rows and compares them.
"""

from payments_integration.projection.answers import (
    leaves_work,
    mark_gone,
    record_identity,
    write_answer,
    write_balances,
    write_new,
)
from payments_integration.projection.endpoints import (
    active_secrets,
    forget_secrets,
    has_unreadable_secret,
    mark_endpoint_deleted,
    store_secret,
    unreadable_secrets,
    write_endpoints,
)
from payments_integration.projection.events import BatchResult, apply_events
from payments_integration.projection.history import (
    TOO_OLD_TO_DISPATCH,
    before_installation,
    clock_offset,
    dispatch_begins_at,
    forget_contacts,
    found_too_late,
    is_history,
    key_values,
    note_contact,
    ours,
    own_time,
    provider_time,
)
from payments_integration.projection.ordering import MARGIN, MAX_AHEAD, Order, against_answer
from payments_integration.projection.reads import (
    ABSENT,
    Snapshot,
    awaiting_read,
    balance_snapshots,
    is_awaited,
    refunds_of,
    request_refresh,
    request_refreshes,
    snapshot,
)
from payments_integration.projection.rows import differences, erase_row, erased, storable

__all__ = [
    "ABSENT",
    "MARGIN",
    "MAX_AHEAD",
    "TOO_OLD_TO_DISPATCH",
    "BatchResult",
    "Order",
    "Snapshot",
    "active_secrets",
    "against_answer",
    "apply_events",
    "awaiting_read",
    "balance_snapshots",
    "before_installation",
    "clock_offset",
    "differences",
    "dispatch_begins_at",
    "erase_row",
    "erased",
    "forget_contacts",
    "forget_secrets",
    "found_too_late",
    "has_unreadable_secret",
    "is_awaited",
    "is_history",
    "key_values",
    "leaves_work",
    "mark_endpoint_deleted",
    "mark_gone",
    "note_contact",
    "ours",
    "own_time",
    "provider_time",
    "record_identity",
    "refunds_of",
    "request_refresh",
    "request_refreshes",
    "snapshot",
    "storable",
    "store_secret",
    "unreadable_secrets",
    "write_answer",
    "write_balances",
    "write_endpoints",
    "write_new",
]
