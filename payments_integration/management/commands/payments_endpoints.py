"""``payments_endpoints``: manage the webhook endpoints of an account."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management import CommandError
from django.http.request import split_domain_port, validate_host
from django.urls import get_script_prefix

from payments_integration import conf, projection, services, site_urls
from payments_integration.enums import EVENT_TYPES
from payments_integration.exceptions import PaymentsError, recorded_error
from payments_integration.management.arguments import chosen_accounts, exit_code, require_database
from payments_integration.management.command import PaymentsCommand
from payments_integration.models import WebhookEndpoint
from payments_integration.reconciliation import UNREADABLE
from payments_integration.validation.urls import is_secure_url


class Command(PaymentsCommand):
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
            if name == "list":
                action.add_argument("--json", action="store_true", help="print them as JSON")
            if name == "create":
                action.add_argument("url", help="the public HTTPS URL of the webhook view")
                action.add_argument("--events", nargs="+", default=list(EVENT_TYPES), help="event types (all)")
                action.add_argument(
                    "--no-input", action="store_true", help="refuse a second endpoint for the same URL, do not ask"
                )
            if name in ("rotate", "delete"):
                action.add_argument("endpoint", help="id of the endpoint, whk_…")
            if name in ("create", "rotate"):
                action.add_argument("--show-secret", action="store_true", help="print the secret, once")

    def handle(self, *args: Any, **options: Any) -> None:
        (account,) = chosen_accounts(options["account"])
        require_database()
        try:
            getattr(self, f"_{options['action']}")(account, options)
        except ValidationError as error:
            raise CommandError("; ".join(error.messages), returncode=2) from None
        except PaymentsError as error:
            raise CommandError(str(error), returncode=exit_code(recorded_error(error))) from None

    def _list(self, account: str, options: dict[str, Any]) -> None:
        endpoints = services.sync_webhook_endpoints(account=account)
        if options["json"]:
            self.stdout.write(json.dumps([_as_json(endpoint) for endpoint in endpoints], indent=2))
            return
        are_set = bool(conf.account(account).webhook_secrets)
        unknown = "secret not stored, WEBHOOK_SECRETS are tried" if are_set else "secret not known to the app"
        for endpoint in endpoints:
            secret = "secret known" if endpoint.secret_token else unknown
            if projection.has_unreadable_secret(endpoint):
                secret = UNREADABLE
            self.stdout.write(
                f"{endpoint.pk}  {endpoint.status}  {endpoint.url}  {len(endpoint.events)} event types  {secret}"
            )
        if not endpoints:
            self.stdout.write("No endpoints. Create one: payments_endpoints create https://…/payments/webhook/")

    def _create(self, account: str, options: dict[str, Any]) -> None:
        url = options["url"]
        if is_secure_url(url):  # the service refuses any other
            self._warn_of_other_views(url, account)
            self._warn_of_other_hosts(url)
            self._confirm_second(url, account, may_ask=not options["no_input"])
        endpoint = services.create_webhook_endpoint(url=url, events=options["events"], account=account)
        self.stdout.write(self.style.SUCCESS(f"Created {endpoint.pk} for {endpoint.url}."))
        self._show_secret(endpoint, options)
        self.stdout.write(
            "The app stores the secret: add nothing to the settings. All processes know it in ten seconds. "
            "Then have the provider create an event, for example with a test payment. payments_health then shows when "
            "the last webhook arrived."
        )

    def _warn_of_other_views(self, url: str, account: str) -> None:
        """Warn if the URL leads to another view. It is no error, because a proxy may change the path."""
        path = urlsplit(url).path
        target, prefix = site_urls.target(path), get_script_prefix()
        if target.account == account and path.startswith(prefix):
            return
        if target.account == account:
            what = f"does not begin with {prefix}"
        elif target.account is not None:
            what = f"takes the deliveries of account {target.account}, not of {account}"
        else:
            what = f"leads to another view ({target.view})" if target.view else "leads to no view"
        right = site_urls.webhook_path(account)
        where = f"The webhook's path is {right}" if right else "Your URLconf has no webhook view (manage.py check)"
        self.stderr.write(
            self.style.WARNING(
                f"In this project the path {path} {what}. Unless a proxy changes it, no delivery will arrive. {where}."
            )
        )

    def _warn_of_other_hosts(self, url: str) -> None:
        """Warn if Django answers this host with 400, before the webhook view sees a delivery."""
        host, _ = split_domain_port(urlsplit(url).netloc)
        # As HttpRequest.get_host does it.
        allowed = settings.ALLOWED_HOSTS or ([".localhost", "127.0.0.1", "[::1]"] if settings.DEBUG else [])
        if host and not validate_host(host, allowed):
            self.stderr.write(
                self.style.WARNING(
                    f"ALLOWED_HOSTS does not have {host}: unless a proxy changes the host, each delivery gets a 400."
                )
            )

    def _confirm_second(self, url: str, account: str, *, may_ask: bool) -> None:
        """Ask before creating a second endpoint for a URL: the provider would deliver every event twice."""
        known = [row.pk for row in services.sync_webhook_endpoints(account=account) if _view(row.url) == _view(url)]
        if not known:
            return
        message = f"{url} has an endpoint already ({', '.join(known)}); a second one makes every event arrive twice."
        if not may_ask:
            raise CommandError(f"{message} To get a new secret: payments_endpoints rotate {known[0]}")
        try:
            answer = input(f"{message} Create it? [y/N] ")
        except EOFError:
            answer = ""
        if answer.strip().lower() not in ("y", "yes"):
            raise CommandError("Nothing was created.")

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


def _view(url: str) -> tuple[str, str]:
    """Return the host and path without what makes no difference: the host's case, a default port, a last slash."""
    parts = urlsplit(url)
    host = parts.netloc.lower().removesuffix(":443" if parts.scheme == "https" else ":80")
    return host, parts.path.rstrip("/")


def _as_json(endpoint: WebhookEndpoint) -> dict[str, Any]:
    return {
        "id": endpoint.pk,
        "status": endpoint.status,
        "url": endpoint.url,
        "events": endpoint.events,
        "secret_is_known": bool(endpoint.secret_token) and not projection.has_unreadable_secret(endpoint),
    }
