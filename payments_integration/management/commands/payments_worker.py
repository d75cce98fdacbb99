"""``payments_worker``: run a long-lived worker, for projects without a broker."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

from payments_integration.management import worker
from payments_integration.management.arguments import add_account_argument, chosen_accounts, require_database
from payments_integration.management.command import PaymentsCommand


class Command(PaymentsCommand):
    help = (
        "Works until it is stopped, for projects without a broker: it applies and dispatches events as they come, and "
        "does what payments_process does every half minute. Several may run at once. SIGTERM and Ctrl-C stop it after "
        "the item in hand; a second one stops it at once."
    )

    def add_arguments(self, parser: Any) -> None:
        add_account_argument(parser)
        parser.add_argument(
            "--poll", type=_seconds, default=0.5, metavar="SECONDS",
            help="how often to look for work where the database does not notify (0.5)",
        )  # fmt: skip
        parser.add_argument(
            "--heartbeat", type=Path, metavar="FILE", help="a file to touch every few seconds while the worker lives"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        accounts = chosen_accounts(options["account"])
        require_database()
        worker.require_two_connections()
        with worker.stopped_by_signals(), worker.logged_to(self.stdout):
            worker.Worker(
                accounts,
                is_every_account=options["account"] is None,
                poll_seconds=options["poll"],
                heartbeat=options["heartbeat"],
            ).run()


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.05 <= seconds <= 86400:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds from 0.05 to 86400")
    return seconds
