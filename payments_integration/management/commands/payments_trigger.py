"""``payments_trigger``: let the sandbox make an object and send an event."""

from __future__ import annotations

from argparse import Namespace
from typing import Any
from urllib.parse import urlsplit

from django.core.management import CommandError

from payments_integration import conf
from payments_integration.management.arguments import chosen_accounts
from payments_integration.management.command import PaymentsCommand
from payments_integration.sandbox.command import CommandFailedError
from payments_integration.sandbox.triggering import add_trigger_arguments, run
from payments_integration.validation.urls import LOOPBACK_HOSTS, is_base_url


class Command(PaymentsCommand):
    help = (
        "Has the sandbox make an object and lead it to an event, through the states on the way. Only for a sandbox on "
        "this machine."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: Any) -> None:
        add_trigger_arguments(parser)
        where = parser.add_mutually_exclusive_group()
        where.add_argument(
            "--account",
            default=conf.DEFAULT_ACCOUNT,
            help="alias of the account whose BASE_URL is the sandbox (default)",
        )
        where.add_argument("--url", help="address of the sandbox; its first project is used")

    def handle(self, *args: Any, **options: Any) -> None:
        url, headers = self._sandbox(options)
        try:
            endpoints = run(url, Namespace(**options), headers, self.stdout)
        except CommandFailedError as error:
            raise CommandError(str(error), returncode=error.code) from None
        if not endpoints:
            self.stderr.write(
                self.style.WARNING(
                    "No webhook endpoint of the sandbox takes this event. Read it with payments_listen, or make an "
                    "endpoint: payments_endpoints create, or payments_sandbox --webhook-url."
                )
            )

    def _sandbox(self, options: dict[str, Any]) -> tuple[str, dict[str, str]]:
        """Return the address, and the header that names the account's project. A key goes only to its own BASE_URL."""
        if options["url"]:
            return _loopback(options["url"], "--url"), {}
        (alias,) = chosen_accounts(options["account"])
        account = conf.account(alias)
        where = f'The BASE_URL of account "{alias}"'
        return _loopback(account.base_url, where), {"Authorization": f"Bearer {account.api_key}"}


def _loopback(url: str, where: str) -> str:
    """Return the address if it is on this machine. Otherwise raise CommandError: never trigger the real provider."""
    if not is_base_url(url) or urlsplit(url).hostname not in LOOPBACK_HOSTS:
        raise CommandError(
            f"{where} is {url}, not a sandbox on this machine such as http://127.0.0.1:8400. "
            "Start one with payments_sandbox, and point BASE_URL or --url at it.",
            returncode=2,
        )
    return url.rstrip("/")
