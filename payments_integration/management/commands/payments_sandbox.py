"""``payments_sandbox``: run the provider's sandbox as a process."""

from __future__ import annotations

from argparse import Namespace
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser

from payments_integration import conf
from payments_integration.management.command import PaymentsCommand
from payments_integration.sandbox.command import DEFAULT_PORT, CommandFailedError, add_options, serve
from payments_integration.sandbox.engine import DEFAULT_API_KEY
from payments_integration.validation.urls import LOOPBACK_HOSTS


class Command(PaymentsCommand):
    """Run ``payments-sandbox`` where the project's account calls it, with a webhook secret that the project knows.

    Uses no database and needs no migrations.
    """

    help = "Serves a complete fake of the payment provider until Ctrl-C or SIGTERM."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        add_options(parser)
        parser.set_defaults(port=None)

    def handle(self, *args: Any, **options: Any) -> None:
        given = Namespace(**options)
        ours = _accounts(given.api_key or DEFAULT_API_KEY)
        if given.port is None:
            given.port = (_local_port(ours[0]) if ours else None) or DEFAULT_PORT
        if given.webhook_url and not given.webhook_secret:
            given.webhook_secret = next((secret for account in ours for secret in account.webhook_secrets), None)
        try:
            serve(given, self.stdout, self.style)
        except CommandFailedError as error:
            raise CommandError(str(error)) from error


def _local_port(account: conf.Account) -> int | None:
    """Return the port on this machine that the account calls; None if it calls another machine."""
    address = urlsplit(account.base_url)
    return address.port if address.hostname in LOOPBACK_HOSTS else None


def _accounts(api_key: str) -> list[conf.Account]:
    """Return the accounts with this API key, or none if the settings are wrong: a sandbox must start even then."""
    try:
        return [account for account in conf.current().ACCOUNTS.values() if account.api_key == api_key]
    except ImproperlyConfigured:
        return []
