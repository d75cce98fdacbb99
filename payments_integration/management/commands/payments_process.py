"""``payments_process``: what a worker and its schedule would do, once."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.core.management import BaseCommand
from django.utils import timezone

from payments_integration import reconciliation
from payments_integration.management.accounts import add_account_argument, chosen_accounts
from payments_integration.models import AccountState, ReconciliationRun, RunKind
from payments_integration.schedule import BEAT_SCHEDULE


class Command(BaseCommand):
    help = (
        "Does everything the worker would do, once: for cron, every minute. Applies and tells events, sends and "
        "resolves operations, reads what is due, and reconciles as often as the schedule says."
    )

    def add_arguments(self, parser: Any) -> None:
        add_account_argument(parser)
        parser.add_argument("--all", action="store_true", help="reconcile now, whenever the last time was")

    def handle(self, *args: Any, **options: Any) -> None:
        accounts = chosen_accounts(options["account"])
        for account in accounts:
            reconciliation.work_off(account)
            if options["all"] or is_due(account, RunKind.EVENTS, "reconcile_events"):
                reconciliation.reconcile_events(account)
            if options["all"] or is_due(account, RunKind.OBJECTS, "reconcile_objects"):
                swept_at = _swept_at(account)
                reconciliation.reconcile_objects(account)
                if _swept_at(account) != swept_at:  # once a day
                    reconciliation.prune(account)
            if options["all"] or is_due(account, RunKind.BALANCES, "sync_balances"):
                reconciliation.reconcile_balances(account)
            reconciliation.work_off(account)
        if options["verbosity"] > 1:
            self.stdout.write(f"Done for {', '.join(accounts)}.")


def _swept_at(account: str) -> datetime | None:
    return AccountState.objects.filter(pk=account).values_list("swept_at", flat=True).first()


def is_due(account: str, kind: str, task: str) -> bool:
    """Whether the schedule's interval has passed since the last pass of this kind."""
    interval = timedelta(seconds=float(BEAT_SCHEDULE[f"payments_integration.{task}"]["schedule"]))
    return not ReconciliationRun.objects.filter(
        account=account, kind=kind, started_at__gt=timezone.now() - interval
    ).exists()
