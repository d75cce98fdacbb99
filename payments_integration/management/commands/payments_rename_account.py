"""``payments_rename_account``: give the rows of an account another alias."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError

from payments_integration import conf
from payments_integration.management.arguments import require_database
from payments_integration.management.command import PaymentsCommand
from payments_integration.models import WebhookEndpoint
from payments_integration.reconciliation import RenameRefused, rename_account, stored_accounts


class Command(PaymentsCommand):
    help = (
        "Gives every row of the account OLD the alias NEW, after you renamed it in the setting. Stop the site, "
        "workers and cron first. Tables of the optional apps are included, tables of your own apps are not."
    )
    # One of the checks reports the rows that this command renames.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("old", help="the alias that the rows have")
        parser.add_argument("new", help="the alias that the setting has now")

    def handle(self, *args: Any, **options: Any) -> None:
        old, new = options["old"], options["new"]
        require_database()
        try:
            counts = rename_account(old, new)
        except ImproperlyConfigured as error:
            raise CommandError(str(error), returncode=2) from None
        except RenameRefused as error:
            configured = conf.current().ACCOUNTS
            is_wrong = new not in configured or old in configured or old not in stored_accounts()
            raise CommandError(f"Nothing was renamed: {error}.", returncode=2 if is_wrong else 1) from None
        for table, count in counts.items():
            self.stdout.write(f"{count} rows of {table}")
        self.stdout.write(f"The account {old} is called {new} now.")
        for model in apps.get_models():
            if column := getattr(model, "payments_account_field", ""):
                self.stdout.write(f"If rows of {model._meta.label} have {old} in {column}, set it to {new}.")
            elif getattr(model, "payments_account", "") == old:
                self.stdout.write(f"{model._meta.label} still belongs to {old}: set its payments_account to {new}.")
        path = f"/webhook/{old}/"
        for endpoint in WebhookEndpoint.objects.filter(account=new, deleted_at=None, url__endswith=path):
            self.stdout.write(
                f"{endpoint.pk} still delivers to {endpoint.url}, which answers 404 now: create an endpoint for "
                f"…/webhook/{new}/, then delete this one (payments_endpoints)."
            )
