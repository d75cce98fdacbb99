"""Everything that is due, once: what a worker does when it is woken."""

from __future__ import annotations

from payments_integration import inbox, services
from payments_integration.reconciliation.refreshing import refresh_due


def work_off(account: str | None = None, *, deadline: float | None = None) -> None:
    """Apply and tell events, send and resolve operations, read objects that are due, tell what that changed.

    With a ``deadline`` (``time.monotonic()``: somebody waits for an answer) operations are left to the sweeper.
    """
    inbox.process(account, deadline=deadline)
    inbox.tell(account, deadline=deadline)
    if deadline is None:
        services.resume_operations(account=account)
    if refresh_due(account, deadline=deadline):
        inbox.tell(account, deadline=deadline)
