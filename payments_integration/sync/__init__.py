"""Read an object from the provider and write it to the mirror. Nothing here can move money.

``project_keys`` hands out the client of an account, unless its API key is of another project than the mirror;
``reading`` reads.
"""

from payments_integration.sync.project_keys import (
    COMPARED,
    WORKER_WAIT,
    compare_key,
    compare_keys,
    forget_keys,
    get_client,
    newest_objects,
    replaced_key,
    replaced_keys,
    require_same_key,
    require_same_project,
    uncompared_accounts,
    waiting_accounts,
)
from payments_integration.sync.reading import is_any_known, read, read_balances, read_endpoints, read_refunds

__all__ = [
    "COMPARED",
    "WORKER_WAIT",
    "compare_key",
    "compare_keys",
    "forget_keys",
    "get_client",
    "is_any_known",
    "newest_objects",
    "read",
    "read_balances",
    "read_endpoints",
    "read_refunds",
    "replaced_key",
    "replaced_keys",
    "require_same_key",
    "require_same_project",
    "uncompared_accounts",
    "waiting_accounts",
]
