"""``payments_endpoints``: manage the webhook endpoints of an account."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management import BaseCommand, CommandError

from payments_integration import conf, services
from payments_integration.enums import EVENT_TYPES
from payments_integration.exceptions import PaymentsError
from payments_integration.management.arguments import chosen_accounts
from payments_integration.models import WebhookEndpoint


class Command(BaseCommand):
    help = "Lists, creates, rotates and deletes webhook endpoints. The app stores their secrets encrypted."

    def add_arguments(self, parser: Any) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="list|create|rotate|delete")
        for name, description in (
            ("list", "read the endpoints from the provider"),
            ("create", "create an endpoint; the app stores its secret"),
            ("rotate", "give an endpoint a new secret; the old one stays valid for 24 hours"),
            ("delete", "delete an endpoint"),
        ):
            action = actions.add_parser(name, help=description)
            action.add_argument("--account", default=conf.DEFAULT_ACCOUNT, help="alias of the account (default)")
            if name == "create":
                action.add_argument("url", help="the public HTTPS URL of the webhook view")
                action.add_argument("--events", nargs="+", default=list(EVENT_TYPES), help="event types (all)")
            if name in ("rotate", "delete"):
                action.add_argument("endpoint", help="id of the endpoint, whk_…")
            if name in ("create", "rotate"):
                action.add_argument("--show-secret", action="store_true", help="print the secret, once")

    def handle(self, *args: Any, **options: Any) -> None:
        (account,) = chosen_accounts(options["account"])
        try:
            getattr(self, f"_{options['action']}")(account, options)
        except ValidationError as error:
            raise CommandError("; ".join(error.messages)) from None
        except PaymentsError as error:
            raise CommandError(str(error)) from None

    def _list(self, account: str, options: dict[str, Any]) -> None:
        endpoints = services.sync_webhook_endpoints(account=account)
        for endpoint in endpoints:
            secret = "secret known" if endpoint.secret_token else "secret not known to the app"
            self.stdout.write(
                f"{endpoint.pk}  {endpoint.status}  {endpoint.url}  {len(endpoint.events)} event types  {secret}"
            )
        if not endpoints:
            self.stdout.write("No endpoints. Create one: payments_endpoints create https://…/payments/webhook/")

    def _create(self, account: str, options: dict[str, Any]) -> None:
        endpoint = services.create_webhook_endpoint(url=options["url"], events=options["events"], account=account)
        self.stdout.write(self.style.SUCCESS(f"Created {endpoint.pk} for {endpoint.url}."))
        self._show_secret(endpoint, options)

    def _rotate(self, account: str, options: dict[str, Any]) -> None:
        endpoint = services.rotate_webhook_secret(options["endpoint"], account=account)
        self.stdout.write(self.style.SUCCESS(f"Rotated {endpoint.pk}; the old secret stays valid for 24 hours."))
        self._show_secret(endpoint, options)

    def _delete(self, account: str, options: dict[str, Any]) -> None:
        services.delete_webhook_endpoint(options["endpoint"], account=account)
        self.stdout.write(self.style.SUCCESS(f"Deleted {options['endpoint']}."))

    def _show_secret(self, endpoint: WebhookEndpoint, options: dict[str, Any]) -> None:
        if options["show_secret"]:
            self.stdout.write(f"Secret (shown only now): {getattr(endpoint, 'secret', '')}")
