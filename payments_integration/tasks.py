"""Celery tasks: one-liners over the flows. Each may run at any time, twice, or beside itself.

All take ``account`` (an alias); without it they do every account.
"""

from __future__ import annotations

from celery import shared_task

from payments_integration import conf, reconciliation, services


@shared_task(ignore_result=True)
def process_events(account: str | None = None) -> None:
    """Everything due: events to apply and tell, operations to send, objects to read. Woken, and the sweeper."""
    reconciliation.work_off(account)


@shared_task(ignore_result=True)
def reconcile_events(account: str | None = None) -> None:
    """Find missed events through GET /events."""
    for alias in conf.aliases(account):
        reconciliation.reconcile_events(alias)


@shared_task(ignore_result=True)
def reconcile_objects(account: str | None = None) -> None:
    """Read silent objects, sweep the lists once a day, check the endpoints."""
    for alias in conf.aliases(account):
        reconciliation.reconcile_objects(alias)


@shared_task(ignore_result=True)
def resume_operations(account: str | None = None) -> None:
    """Send deferred operations and resolve unknown ones."""
    services.resume_operations(account=account)


@shared_task(ignore_result=True)
def sync_balances(account: str | None = None) -> None:
    """Read the balances."""
    for alias in conf.aliases(account):
        reconciliation.reconcile_balances(alias)


@shared_task(ignore_result=True)
def prune(account: str | None = None) -> None:
    """Delete what is past its retention."""
    reconciliation.prune(account)


def wake_up(account: str) -> None:
    """Publish one wake-up. It expires: the sweeper does the same every half minute."""
    process_events.apply_async(kwargs={"account": account}, retry=False, expires=60)
