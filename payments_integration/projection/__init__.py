"""Writes the provider's objects to mirror rows. Nothing else writes mirrors.

``events`` applies events in batches, ``answers`` writes answers, ``ordering`` decides which of two states is newer,
``history`` knows what was before the installation,
``refreshes`` records which objects must be read again, ``rows`` converts structs to rows and compares them, ``terms``
keeps the search index.
"""

from payments_integration.projection.answers import (
    ABSENT,
    Snapshot,
    balance_snapshots,
    clock_offset,
    mark_gone,
    provider_time,
    record_identity,
    snapshot,
    write_answer,
    write_balances,
    write_new,
)
from payments_integration.projection.endpoints import (
    active_secrets,
    forget_secrets,
    mark_endpoint_deleted,
    store_secret,
    write_endpoints,
)
from payments_integration.projection.events import Applied, apply_events
from payments_integration.projection.history import (
    dispatch_begins_at,
    forget_contacts,
    is_history,
    note_contact,
    ours,
)
from payments_integration.projection.ordering import MARGIN, MAX_AHEAD, UNDATED
from payments_integration.projection.refreshes import (
    awaiting_read,
    is_awaited,
    of_objects,
    request_refresh,
    request_refreshes,
)
from payments_integration.projection.rows import (
    TOO_OLD_TO_DISPATCH,
    differences,
    erase_row,
    erased,
    row_values,
    storable,
)
from payments_integration.projection.terms import rebuild_terms

__all__ = [
    "ABSENT",
    "MARGIN",
    "MAX_AHEAD",
    "TOO_OLD_TO_DISPATCH",
    "UNDATED",
    "Applied",
    "Snapshot",
    "active_secrets",
    "apply_events",
    "awaiting_read",
    "balance_snapshots",
    "clock_offset",
    "differences",
    "dispatch_begins_at",
    "erase_row",
    "erased",
    "forget_contacts",
    "forget_secrets",
    "is_awaited",
    "is_history",
    "mark_endpoint_deleted",
    "mark_gone",
    "note_contact",
    "of_objects",
    "ours",
    "provider_time",
    "rebuild_terms",
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
    "write_new",
]
