"""Finding what was missed: events through GET /events, objects through GET and lists, endpoints and balances."""

from typing import TYPE_CHECKING

from payments_integration import lazy

if TYPE_CHECKING:
    from payments_integration.reconciliation.archiving import Archived, ArchiveError, archive
    from payments_integration.reconciliation.due import work_off
    from payments_integration.reconciliation.endpoints import check_endpoints, complaint
    from payments_integration.reconciliation.events import reconcile_events
    from payments_integration.reconciliation.objects import reconcile_balances, reconcile_objects
    from payments_integration.reconciliation.polling import poll
    from payments_integration.reconciliation.pruning import prune
    from payments_integration.reconciliation.refreshing import refresh_due
    from payments_integration.reconciliation.runs import TimeUp
else:
    __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            "archiving": ("ArchiveError", "Archived", "archive"),
            "due": ("work_off",),
            "endpoints": ("check_endpoints", "complaint"),
            "events": ("reconcile_events",),
            "objects": ("reconcile_balances", "reconcile_objects"),
            "polling": ("poll",),
            "pruning": ("prune",),
            "refreshing": ("refresh_due",),
            "runs": ("TimeUp",),
        },
    )

__all__ = [
    "ArchiveError",
    "Archived",
    "TimeUp",
    "archive",
    "check_endpoints",
    "complaint",
    "poll",
    "prune",
    "reconcile_balances",
    "reconcile_events",
    "reconcile_objects",
    "refresh_due",
    "work_off",
]
