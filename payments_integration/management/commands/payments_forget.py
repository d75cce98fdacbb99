"""``payments_forget``: delete everything that one alias has mirrored, to start afresh."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError

from payments_integration import reconciliation
from payments_integration.management.arguments import confirm, require_database
from payments_integration.management.command import PaymentsCommand
from payments_integration.models import WebhookEndpoint
from payments_integration.reconciliation import ForgetRefused


class Command(PaymentsCommand):
    help = (
        "Deletes what the account ALIAS has mirrored, with its events, operations and the rows of the optional apps, "
        "to start afresh with the key of another project. You cannot undo this. Stop the workers and the schedule "
        "first. Nothing changes at the provider, nor in the tables of your own apps. If it is interrupted, run it "
        "again."
    )
    # One of the checks reports the rows that this command deletes.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("alias", help="the account, which need not be configured any more")
        parser.add_argument(
            "--force",
            action="store_true",
            help="also if operations of a live account are not finished, or it still has the key that filled it",
        )
        parser.add_argument("--no-input", action="store_false", dest="interactive", help="do not ask for confirmation")

    def handle(self, *args: Any, **options: Any) -> None:
        alias, force = options["alias"], options["force"]
        require_database()
        stored = reconciliation.stored_accounts()
        if alias not in stored:
            raise CommandError(
                f"No table has a row of {alias}. Accounts with rows: {', '.join(stored) or 'none'}.", returncode=2
            )
        deleted: dict[str, int] = {}
        try:
            reconciliation.refuse_to_forget(alias, force=force)
            if options["interactive"]:
                self._confirm(alias)
            endpoints = list(WebhookEndpoint.objects.filter(account=alias, deleted_at=None, gone_at=None))
            counts = reconciliation.forget_account(
                alias, force=force, progress=deleted.__setitem__, waiting=self._tell_of_wait
            )
        except ImproperlyConfigured as error:
            raise CommandError(str(error), returncode=2) from None
        except ForgetRefused as error:
            what = "Not everything" if deleted else "Nothing"
            raise CommandError(f"{what} was deleted: {error}.") from None
        for table, count in counts.items():
            self.stdout.write(f"{count} rows of {table}")
        self.stdout.write(self.style.SUCCESS(f"Nothing is left of {alias}."))
        for endpoint in endpoints:
            self.stdout.write(
                f"The provider still delivers to {endpoint.url} for {endpoint.pk}, and gets 400: delete this endpoint "
                "in its dashboard."
            )

    def _tell_of_wait(self, left: timedelta) -> None:
        seconds = f"{left.total_seconds():.0f} seconds"
        self.stdout.write(f"Nothing is deleted for {seconds}: until then, other processes may go on with the account.")
        self.stdout.flush()

    def _confirm(self, alias: str) -> None:
        for table, count in reconciliation.count_rows(alias).items():
            self.stdout.write(f"{count} rows of {table}")
        confirm("These rows are deleted. You cannot undo this.", alias, flag="--no-input", done="deleted")
