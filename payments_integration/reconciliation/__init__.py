"""Find and repair what webhooks missed: events, objects, endpoints and balances; and let go of old events."""

from typing import TYPE_CHECKING

from payments_integration import lazy

if TYPE_CHECKING:
    from payments_integration.reconciliation.accounts import (
        check_endpoints as check_endpoints,
        endpoint_problem as endpoint_problem,
        reconcile_balances as reconcile_balances,
    )
    from payments_integration.reconciliation.due import process_due as process_due, refresh_due as refresh_due
    from payments_integration.reconciliation.events import reconcile_events as reconcile_events
    from payments_integration.reconciliation.objects import reconcile_objects as reconcile_objects
    from payments_integration.reconciliation.renaming import (
        RenameRefused as RenameRefused,
        rename_account as rename_account,
        stored_accounts as stored_accounts,
    )
    from payments_integration.reconciliation.retention import (
        Archived as Archived,
        ArchiveError as ArchiveError,
        archive as archive,
        prune as prune,
    )
    from payments_integration.reconciliation.runs import DeadlinePassed as DeadlinePassed
    from payments_integration.reconciliation.without_worker import poll as poll, run_due as run_due
else:
    __getattr__, __dir__, __all__ = lazy.exports(__name__)
