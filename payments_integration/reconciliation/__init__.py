"""Find and repair what webhooks missed: events, objects, endpoints and balances; and delete old events."""

from typing import TYPE_CHECKING

from payments_integration.runtime import lazy

if TYPE_CHECKING:
    from payments_integration.reconciliation.accounts import (
        UNREADABLE as UNREADABLE,
        check_endpoints as check_endpoints,
        endpoint_problem as endpoint_problem,
        is_elsewhere as is_elsewhere,
        reconcile_balances as reconcile_balances,
    )
    from payments_integration.reconciliation.commands import (
        poll as poll,
        polled_from as polled_from,
        run_due as run_due,
    )
    from payments_integration.reconciliation.doubles import doubles_of as doubles_of, report_doubles as report_doubles
    from payments_integration.reconciliation.due import (
        process_due as process_due,
        refresh_due as refresh_due,
        waiting_work as waiting_work,
    )
    from payments_integration.reconciliation.events import reconcile_events as reconcile_events
    from payments_integration.reconciliation.forgetting import (
        ForgetRefused as ForgetRefused,
        count_rows as count_rows,
        forget_account as forget_account,
        refuse_to_forget as refuse_to_forget,
    )
    from payments_integration.reconciliation.objects import reconcile_objects as reconcile_objects
    from payments_integration.reconciliation.renaming import (
        RenameRefused as RenameRefused,
        rename_account as rename_account,
        stored_accounts as stored_accounts,
    )
    from payments_integration.reconciliation.retention import prune as prune, prune_daily as prune_daily
    from payments_integration.reconciliation.runs import DeadlinePassed as DeadlinePassed, each as each
else:
    __getattr__, __dir__, __all__ = lazy.exports(__name__)
