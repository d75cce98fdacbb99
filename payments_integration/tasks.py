"""Celery tasks: one-liners over the flows. Each may run at any time, twice, or beside itself.

All take ``account`` (an alias); without it they do every account.

What is to be done stands in the database, and the schedule looks again: a message only says "now". It is acknowledged
when it is taken, whatever the project's default, so that no broker loses its patience with a long pass. The time
limits stand here for the same reason: a short one of the project's would end a long sweep each time before its end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from celery import shared_task

from payments_integration import conf, reconciliation, services
from payments_integration.transactions import drop_broken_connections

#: Seconds after which a task hangs; it ends itself long before. A process that is killed loses nothing.
SHORT = 25 * 60
#: The same for those that may have weeks of events or every object to read.
LONG = 12 * 3600

Work = Callable[[str | None], None]


def _task(limit: int) -> Callable[[Work], Any]:
    def decorate(work: Work) -> Any:
        @shared_task(bind=True, ignore_result=True, acks_late=False, soft_time_limit=limit, time_limit=limit)
        @wraps(work)
        def run(task: Any, account: str | None = None) -> None:
            # In somebody's own thread they are somebody's own.
            if not (task.request.is_eager or task.request.called_directly):
                drop_broken_connections()
            work(account)

        return run

    return decorate


@_task(SHORT)
def process_events(account: str | None = None) -> None:
    """Everything due: events to apply and tell, operations to send, objects to read. Woken, and the sweeper."""
    reconciliation.work_off(account)


@_task(LONG)
def reconcile_events(account: str | None = None) -> None:
    """Find missed events through GET /events."""
    for alias in conf.aliases(account):
        reconciliation.reconcile_events(alias)


@_task(LONG)
def reconcile_objects(account: str | None = None) -> None:
    """Read silent objects, sweep the lists once a day, check the endpoints."""
    for alias in conf.aliases(account):
        reconciliation.reconcile_objects(alias)


@_task(SHORT)
def resume_operations(account: str | None = None) -> None:
    """Send deferred operations and resolve unknown ones."""
    services.resume_operations(account=account)


@_task(SHORT)
def sync_balances(account: str | None = None) -> None:
    """Read the balances."""
    for alias in conf.aliases(account):
        reconciliation.reconcile_balances(alias)


@_task(LONG)
def prune(account: str | None = None) -> None:
    """Delete what is past its retention."""
    reconciliation.prune(account)


def wake_up(account: str) -> None:
    """Publish one wake-up. It expires: the sweeper does the same every half minute."""
    process_events.apply_async(kwargs={"account": account}, retry=False, expires=60)
