"""``payments_search_terms``: write the search index again."""

from __future__ import annotations

from functools import partial
from typing import Any

from payments_integration.contrib.backoffice import index
from payments_integration.management.arguments import add_account_argument, chosen_accounts, require_tables
from payments_integration.management.command import PaymentsCommand
from payments_integration.management.progress import Progress


class Command(PaymentsCommand):
    help = (
        "Writes the back office's search terms of every mirrored object again: after the back office was added to a "
        "project whose mirror is filled, and after an upgrade that asks for it. It can run beside everything else."
    )

    def add_arguments(self, parser: Any) -> None:
        add_account_argument(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        accounts = chosen_accounts(options["account"])
        require_tables()
        count = 0
        for account in accounts:
            with Progress(self.stderr) as progress:
                count += index.rebuild(account, partial(progress.count, f"objects of {account} written"))
        self.stdout.write(f"Wrote the search terms of {count} objects.")
