"""Everything that is due, once: what a worker does when it is woken."""

from __future__ import annotations

import time

from django.db import router

from payments_integration import inbox, services
from payments_integration.models import Event
from payments_integration.reconciliation.refreshing import refresh_due
from payments_integration.transactions import Patience

#: A step begins nothing further after so many seconds: workers are to be free again soon, and the next pass goes on.
#: Each step has its own, so that a long backlog of one kind does not keep the others waiting.
STEP_SECONDS = 120.0


def work_off(account: str | None = None, *, deadline: float | None = None) -> None:
    """Apply and tell events, send and resolve operations, read objects that are due, tell what that changed.

    With a ``deadline`` (``time.monotonic()``: somebody waits for an answer) operations are left to the sweeper.
    Without one each step ends after some minutes, and what is left is for the next pass.
    """

    def end() -> float:
        return time.monotonic() + STEP_SECONDS if deadline is None else deadline

    with Patience(deadline, using=router.db_for_write(Event)):
        inbox.process(account, deadline=end())
        inbox.tell(account, deadline=end())
        if deadline is None:
            services.resume_operations(account=account)
        if refresh_due(account, deadline=end(), hurry=deadline is not None):
            inbox.tell(account, deadline=end())
