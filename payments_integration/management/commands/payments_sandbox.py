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
        """Add the options. All have defaults."""
        add_options(parser)
        parser.set_defaults(port=None)

    def handle(self, *args: Any, **options: Any) -> None:
        """Start, print the URL and keys, and wait for a signal."""
        given = Namespace(**options)
        if given.port is None:
            given.port = _port_of(given.api_key or DEFAULT_API_KEY) or DEFAULT_PORT
        if given.webhook_url and not given.webhook_secret:
            given.webhook_secret = _secret_of(given.api_key or DEFAULT_API_KEY)
        try:
            serve(given, self.stdout, self.style)
        except CommandFailedError as error:
            raise CommandError(str(error)) from error


def _port_of(api_key: str) -> int | None:
    """Return the port on this machine that the project's account with this API key calls; None if there is none."""
    found = next((account for account in _accounts() if account.api_key == api_key), None)
    address = urlsplit(found.base_url) if found is not None else None
    return address.port if address is not None and address.hostname in LOOPBACK_HOSTS else None


def _secret_of(api_key: str) -> str | None:
    """Return the first webhook secret of the project's account with this API key; None if there is none."""
    return next(
        (found.webhook_secrets[0] for found in _accounts() if found.api_key == api_key and found.webhook_secrets), None
    )


def _accounts() -> list[conf.Account]:
    """Return the accounts, or none if the settings are wrong: a sandbox must start even then."""
    try:
        return list(conf.current().ACCOUNTS.values())
    except ImproperlyConfigured:
        return []
