"""``payments_sandbox``: run the provider's sandbox as a process."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from payments_integration.sandbox.command import CommandFailedError, add_options, serve


class Command(BaseCommand):
    """The same as ``payments-sandbox``. Uses no database and needs no migrations."""

    help = "Serves a complete fake of the payment provider until Ctrl-C or SIGTERM."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """The options; all have defaults."""
        add_options(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Start, print the URL and keys, and wait for a signal."""
        try:
            serve(Namespace(**options), self._write)
        except CommandFailedError as error:
            raise CommandError(str(error)) from error

    def _write(self, text: str) -> None:
        self.stdout.write(text, ending="")
        self.stdout.flush()
