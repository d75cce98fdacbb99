"""``payments_process``: do once everything that a worker and its schedule would do."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Any

from django.core.management import CommandError

from payments_integration import reconciliation
from payments_integration.attention import send_overdue
from payments_integration.management.arguments import (
    add_account_argument,
    chosen_accounts,
    provider_failure,
    require_database,
)
from payments_integration.management.command import PaymentsCommand
from payments_integration.models import ReconciliationRun, RunState

_WHAT = {
    "applied": "events applied",
    "dispatched": "dispatched to handlers",
    "read": "objects read",
    "operations": "operations sent or resolved",
    "open": "operations tried and still open",
}


class Command(PaymentsCommand):
    help = (
        "Does once what a worker and its schedule would do; run it from cron every minute. Applies and dispatches "
        "events, sends and resolves operations, reads objects that are due, and reconciles as often as the schedule "
        "says. Prints a line for each account; --verbosity 0 prints nothing. Exit code 1: a pass failed; 3: the "
        "provider refused the API key; 4: it could not be reached."
    )
    # Cron would mail the warnings every minute; manage.py check reports them.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: Any) -> None:
        add_account_argument(parser)
        parser.add_argument(
            "--all", action="store_true", help="reconcile now, even if the schedule does not ask for it"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        accounts = chosen_accounts(options["account"])
        require_database()
        if options["account"] is None:
            # Includes accounts that the setting no longer has.
            send_overdue()

        def work(account: str) -> list[ReconciliationRun]:
            done = Counter[str]()
            runs = reconciliation.run_due(account, reconcile_now=options["all"], done=done)
            if options["verbosity"]:
                self.stdout.write(f"{account}: {_summary(done, runs)}")
            return runs

        runs = list(chain.from_iterable(reconciliation.each(accounts, work)))
        failed = [f"{run.kind} of {run.account}: {run.error}" for run in runs if run.state == RunState.FAILED]
        if failed:
            raise provider_failure(runs) or CommandError(f"Not everything was done. {' '.join(failed)}")


def _summary(done: Counter[str], runs: list[ReconciliationRun]) -> str:
    """Return one line such as “2 events applied, 3 dispatched; events: done, 2 seen, 1 recovered”."""
    shown = {**done, "operations": done["operations"] - done["open"]}
    counts = [f"{shown[name]} {what}" for name, what in _WHAT.items() if shown.get(name)]
    passes = [f"{run.kind}: {run.error or run.state}, {run.seen} seen, {run.recovered} recovered" for run in runs]
    return "; ".join([", ".join(counts)] * bool(counts) + passes) or "nothing was due"
