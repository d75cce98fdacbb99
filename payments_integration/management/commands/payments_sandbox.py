"""``payments_sandbox``: run the provider's sandbox as a process."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from payments_integration import conf
from payments_integration.sandbox.command import CommandFailedError, add_options, serve
from payments_integration.sandbox.engine import DEFAULT_API_KEY


class Command(BaseCommand):
    """The same as ``payments-sandbox``, but deliveries are signed with a secret that the project knows.

    Uses no database and needs no migrations.
    """

    help = "Serves a complete fake of the payment provider until Ctrl-C or SIGTERM."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """The options; all have defaults."""
        add_options(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Start, print the URL and keys, and wait for a signal."""
        given = Namespace(**options)
        if given.webhook_url and not given.webhook_secret:
            given.webhook_secret = _secret_of(given.api_key or DEFAULT_API_KEY)
        try:
            serve(given, self.stdout)
        except CommandFailedError as error:
            raise CommandError(str(error)) from error


def _secret_of(api_key: str) -> str | None:
    """The first webhook secret of the project's account with this API key."""
    try:
        accounts = conf.current().ACCOUNTS.values()
    except ImproperlyConfigured:
        return None
    return next(
        (found.webhook_secrets[0] for found in accounts if found.api_key == api_key and found.webhook_secrets), None
    )
