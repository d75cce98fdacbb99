"""Read an object from the provider and write it to the mirror. Nothing here can move money.

``project_keys`` hands out the client of an account, unless its API key is of another project than the mirror;
``reading`` reads.
"""

from payments_integration.sync.project_keys import (
    COMPARED as COMPARED,
    WORKER_WAIT as WORKER_WAIT,
    compare_key as compare_key,
    compare_keys as compare_keys,
    forget_keys as forget_keys,
    get_client as get_client,
    newest_objects as newest_objects,
    replaced_key as replaced_key,
    replaced_keys as replaced_keys,
    require_same_key as require_same_key,
    require_same_project as require_same_project,
    uncompared_accounts as uncompared_accounts,
    waiting_accounts as waiting_accounts,
)
from payments_integration.sync.reading import (
    is_any_known as is_any_known,
    read as read,
    read_balances as read_balances,
    read_endpoints as read_endpoints,
    read_refunds as read_refunds,
)
