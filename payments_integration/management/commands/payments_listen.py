"""``payments_listen``: receive events without a public URL, for development."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any

from django.core.management import CommandError
from django.utils import timezone

from payments_integration import conf, reconciliation
from payments_integration.dates import on_site
from payments_integration.enums import EVENT_TYPES
from payments_integration.exceptions import PaymentsError, ProviderError, recorded_error
from payments_integration.management.arguments import (
    EXIT_KEY_REFUSED,
    chosen_accounts,
    exit_code,
    require_database,
    require_past,
    time_argument,
)
from payments_integration.management.command import PaymentsCommand


class Command(PaymentsCommand):
    help = (
        "Polls GET /events and puts new events into the inbox, as if they had been delivered. For development on a "
        "machine that the provider cannot reach. Stop it with Ctrl-C."
    )

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--account", default=conf.DEFAULT_ACCOUNT, help="alias of the account (default)")
        parser.add_argument("--interval", type=float, default=2.0, help="seconds between polls (2)")
        parser.add_argument("--since", type=time_argument, help="begin with events from this time (now)")
        parser.add_argument(
            "--events", nargs="+", action="extend", metavar="PATTERN",
            help="print only these types, such as payment.* refund.succeeded; all events are received (*)",
        )  # fmt: skip
        parser.add_argument(
            "--json", action="store_true", help="print each event as the provider sent it, one JSON object per line"
        )
        parser.add_argument("--once", action="store_true", help="poll once and exit")

    def handle(self, *args: Any, **options: Any) -> None:
        require_past(options["since"])
        (account,) = chosen_accounts(options["account"])
        require_database()
        self.patterns: list[str] = options["events"] or ["*"]
        self.as_json: bool = options["json"]
        for pattern in self.patterns:
            if not any(fnmatchcase(known, pattern) for known in EVENT_TYPES):
                self.stderr.write(
                    f"No event type that this version knows matches {pattern!r}; the provider may add types. "
                    f"Known: {', '.join(EVENT_TYPES)}."
                )
        since = reconciliation.polled_from(account, options["since"] or timezone.now() - timedelta(minutes=1))
        self._listen(account, since, options)

    def _listen(self, account: str, since: Any, options: dict[str, Any]) -> None:
        self._say(f"Listening for events of account {account}. Ctrl-C stops it.")
        try:
            while True:
                try:
                    since = self._poll(account, since)
                except PaymentsError as error:
                    self._report(error, is_last=options["once"])
                if options["once"] or self.reader_has_gone:
                    return
                time.sleep(max(0.1, options["interval"]))
        except KeyboardInterrupt:
            self._say("Stopped.")

    def _report(self, error: PaymentsError, *, is_last: bool) -> None:
        code = exit_code(recorded_error(error))
        if code == EXIT_KEY_REFUSED:
            raise CommandError(f"The provider refuses the API key: {error}", returncode=code) from None
        answered = isinstance(error, ProviderError)
        words = f"The provider {'answered with an error' if answered else 'did not answer'}: {error}"
        if is_last:
            raise CommandError(words, returncode=code) from None
        self.stderr.write(words)

    def _poll(self, account: str, since: Any) -> Any:
        found = reconciliation.poll(account, since=since)
        for event in found.events:
            if any(fnmatchcase(event.type, pattern) for pattern in self.patterns):
                self._show(event)
        return found.next_since

    def _show(self, event: Any) -> None:
        text = f"{on_site(event.created_at):%H:%M:%S}  {event.type:<24} {event.object_id}  {event.pk}"
        if self.as_json:
            try:
                text = json.dumps(json.loads(bytes(event.body or b"")), separators=(",", ":"))
            except (ValueError, RecursionError):  # in quarantine
                self.stderr.write(f"Not JSON, and not printed: {text}")
                return
        self.stdout.write(text)
        self.stdout.flush()

    def _say(self, text: str) -> None:
        """Print a text for a person, outside the stream of JSON."""
        output = self.stderr if self.as_json else self.stdout
        output.write(text)
        output.flush()
