"""``payments_process``: everything that a worker and its schedule would do, once."""

from __future__ import annotations

from typing import Any

from django.core.management import BaseCommand

from payments_integration import projection, reconciliation
from payments_integration.attention import send_overdue
from payments_integration.management.arguments import (
    add_account_argument,
    chosen_accounts,
    provider_failure,
    require_tables,
)


class Command(BaseCommand):
    help = (
        "Does once what a worker and its schedule would do; run it from cron every minute. Applies and dispatches "
        "events, sends and resolves operations, reads objects that are due, and reconciles as often as the schedule "
        "says. Exit code 3: the provider refused the API key; 4: it could not be reached."
    )
    # Cron would mail the warnings every minute; manage.py check reports them.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: Any) -> None:
        add_account_argument(parser)
        parser.add_argument(
            "--all", action="store_true", help="reconcile now, even if the schedule does not ask for it"
        )
        parser.add_argument(
            "--search-terms", action="store_true", help="first write the admin's search terms of every object again"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        accounts = chosen_accounts(options["account"])
        require_tables()
        if options["search_terms"]:
            count = sum(projection.rebuild_terms(account) for account in accounts)
            self.stdout.write(f"Wrote the search terms of {count} objects.")
        if options["account"] is None:
            # Also for accounts that the setting no longer has.
            send_overdue()
        runs = [run for account in accounts for run in reconciliation.run_due(account, reconcile_now=options["all"])]
        if failure := provider_failure(runs):
            raise failure
        if options["verbosity"] > 1:
            self.stdout.write(f"Done for {', '.join(accounts)}.")
