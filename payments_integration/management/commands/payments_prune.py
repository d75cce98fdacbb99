"""``payments_prune``: delete data that is past its retention."""

from __future__ import annotations

from typing import Any

from payments_integration import reconciliation
from payments_integration.management.arguments import add_account_argument, chosen_accounts, require_database
from payments_integration.management.command import PaymentsCommand
from payments_integration.management.progress import Progress

_WHAT = {
    "bodies": "raw event bodies removed",
    "events": "events deleted",
    "runs": "records of passes deleted",
    "erased": "rows erased that an erasure had to leave",
}


class Command(PaymentsCommand):
    help = (
        "Removes raw event bodies, events and records of passes that are past their retention, and finishes "
        "erasures. Events that are not dispatched, parked or quarantined stay. You can run it at any time."
    )
    # Cron would mail the warnings every time; manage.py check reports them.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: Any) -> None:
        add_account_argument(parser)
        parser.add_argument("--dry-run", action="store_true", help="only count what would be removed")

    def handle(self, *args: Any, **options: Any) -> None:
        chosen_accounts(options["account"])
        require_database()
        with Progress(self.stderr) as progress:
            counts = reconciliation.prune(
                options["account"],
                dry_run=options["dry_run"],
                progress=lambda name, count: progress.count(_WHAT[name], count),
            )
        if options["dry_run"]:
            self.stdout.write("Nothing was removed. This would be removed:")
        for name, count in counts.items():
            self.stdout.write(f"{count} {_WHAT[name]}")
