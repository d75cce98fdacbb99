"""``payments_listen``: receive events without a public URL, for development."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from django.core.management import BaseCommand, CommandError
from django.utils import timezone

from payments_integration import conf, reconciliation
from payments_integration.exceptions import PaymentsError, ProviderError, recorded_error
from payments_integration.management.arguments import (
    EXIT_KEY_REFUSED,
    chosen_accounts,
    exit_code,
    require_tables,
    time_argument,
)


class Command(BaseCommand):
    help = (
        "Polls GET /events and puts new events into the inbox, as if they had been delivered. For development on a "
        "machine that the provider cannot reach. Stop it with Ctrl-C."
    )

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--account", default=conf.DEFAULT_ACCOUNT, help="alias of the account (default)")
        parser.add_argument("--interval", type=float, default=2.0, help="seconds between polls (2)")
        parser.add_argument("--since", type=time_argument, help="begin with events from this time (now)")
        parser.add_argument("--once", action="store_true", help="poll once and exit")

    def handle(self, *args: Any, **options: Any) -> None:
        (account,) = chosen_accounts(options["account"])
        require_tables()
        since = options["since"] or timezone.now() - timedelta(minutes=1)
        self.stdout.write(f"Listening for events of account {account}. Ctrl-C stops it.")
        try:
            while True:
                since = self._poll(account, since)
                if options["once"]:
                    return
                time.sleep(max(0.1, options["interval"]))
        except KeyboardInterrupt:
            self.stdout.write("Stopped.")

    def _poll(self, account: str, since: Any) -> Any:
        try:
            found = reconciliation.poll(account, since=since)
        except PaymentsError as error:
            if exit_code(recorded_error(error)) == EXIT_KEY_REFUSED:
                raise CommandError(f"The provider refuses the API key: {error}", returncode=EXIT_KEY_REFUSED) from None
            answered = isinstance(error, ProviderError)
            self.stderr.write(f"The provider {'answered with an error' if answered else 'did not answer'}: {error}")
            return since
        for event in found.events:
            self.stdout.write(f"{event.created_at:%H:%M:%S}  {event.type:<24} {event.object_id}  {event.pk}")
        return found.next_since
