"""Write the provider's objects to mirror rows. Nothing else writes mirrors.

``events`` applies events in batches, and ``answers`` writes answers. ``reads`` tells what was known before a request,
and records which objects must be read again. ``ordering`` decides which of two states is newer, ``history`` knows what
was before the installation and the provider's time, and ``rows`` converts structs to rows and compares them.
"""

from payments_integration.projection.answers import (
    leaves_work as leaves_work,
    mark_gone as mark_gone,
    record_identity as record_identity,
    write_answer as write_answer,
    write_balances as write_balances,
    write_new as write_new,
)
from payments_integration.projection.endpoints import (
    active_secrets as active_secrets,
    forget_secrets as forget_secrets,
    has_unreadable_secret as has_unreadable_secret,
    mark_endpoint_deleted as mark_endpoint_deleted,
    store_secret as store_secret,
    unreadable_secrets as unreadable_secrets,
    write_endpoints as write_endpoints,
)
from payments_integration.projection.events import (
    BatchResult as BatchResult,
    apply_events as apply_events,
)
from payments_integration.projection.history import (
    TOO_OLD_TO_DISPATCH as TOO_OLD_TO_DISPATCH,
    before_installation as before_installation,
    clock_offset as clock_offset,
    dispatch_begins_at as dispatch_begins_at,
    forget_contacts as forget_contacts,
    found_too_late as found_too_late,
    installed_at as installed_at,
    is_history as is_history,
    key_values as key_values,
    note_contact as note_contact,
    ours as ours,
    own_time as own_time,
    provider_time as provider_time,
)
from payments_integration.projection.ordering import (
    MARGIN as MARGIN,
    MAX_AHEAD as MAX_AHEAD,
    Order as Order,
    against_answer as against_answer,
)
from payments_integration.projection.reads import (
    ABSENT as ABSENT,
    Snapshot as Snapshot,
    awaiting_read as awaiting_read,
    balance_snapshots as balance_snapshots,
    is_awaited as is_awaited,
    refunds_of as refunds_of,
    request_refresh as request_refresh,
    request_refreshes as request_refreshes,
    snapshot as snapshot,
)
from payments_integration.projection.rows import (
    differences as differences,
    erase_row as erase_row,
    erased as erased,
    id_field as id_field,
    object_id_of as object_id_of,
    storable as storable,
)
