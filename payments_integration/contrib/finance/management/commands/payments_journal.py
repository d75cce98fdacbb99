"""``payments_journal``: write the movements of money as a file for an accounting program."""

from __future__ import annotations

from datetime import date
from functools import partial
from typing import Any

from django.core.management import CommandError
from django.utils import timezone
from django.utils.dateparse import parse_date

from payments_integration.contrib.finance import balances, movements
from payments_integration.contrib.finance.formats import FORMATS, NotWritableError
from payments_integration.contrib.finance.journal import EARLIEST, LATEST, Period, Statement, statements, unstored
from payments_integration.dates import on_site
from payments_integration.management.arguments import add_account_argument, chosen_accounts
from payments_integration.management.command import PaymentsCommand
from payments_integration.management.progress import Progress
from payments_integration.money import to_major


class Command(PaymentsCommand):
    help = (
        "Writes the movements of money of a period to standard output, as CSV or for beancount or hledger, and their "
        "comparison with the balances to standard error. Exit code 0; with --check 1 if something is unexplained; 2: "
        "wrong arguments. Sends no requests. Writes to the database with --backfill, and the balances of closed "
        "months that no pass has stored yet."
    )

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--since", help="the first day, such as 2026-01-01")
        parser.add_argument("--until", help="the day after the last one, such as 2026-02-01")
        parser.add_argument("--format", choices=list(FORMATS), help="default: csv")
        parser.add_argument(
            "--check",
            action="store_true",
            help="exit with code 1 unless the movements explain every change of the balances",
        )
        parser.add_argument(
            "--backfill",
            action="store_true",
            help="write no file; record movements and balances from before the app was installed",
        )
        add_account_argument(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        chosen_accounts(options["account"])
        if options["backfill"]:
            if any(options[name] for name in ("since", "until", "format", "check", "account")):
                raise CommandError("--backfill goes alone: it records everything, of every account.", returncode=2)
            with Progress(self.stderr) as progress:
                balances.backfill()
                recorded = movements.backfill(partial(progress.count, "objects looked at"))
            self.stderr.write(f"{recorded} movements recorded", lambda text: text)
            return
        period = _period(options)
        is_shown = self.stdout.isatty()
        try:
            with Progress(self.stderr) as progress:
                for number, text in enumerate(FORMATS[options["format"] or "csv"](period), start=1):
                    self.stdout.write(text, ending="")
                    if self.reader_has_gone:
                        break
                    # On a terminal, the lines themselves show the progress.
                    if not is_shown:
                        progress.count("entries written", number)
        except NotWritableError as error:
            raise CommandError(str(error), returncode=2) from None
        found = statements(period)
        for line in _report(period, found):
            self.stderr.write(line, lambda text: text)
        if options["check"] and any(statement.unexplained != 0 for statement in found):
            raise SystemExit(1)


def _period(options: dict[str, Any]) -> Period:
    since, until = _day("since", options["since"]), _day("until", options["until"])
    if since >= until:
        raise CommandError("--until is exclusive: it must be a later day than --since.", returncode=2)
    return Period(since, until, options["account"])


def _day(name: str, value: str | date | None) -> date:
    """Return an argument as a day. Code that calls the command may pass a date."""
    if value is None:
        raise CommandError(f"--{name} is required, such as --{name} 2026-01-01.", returncode=2)
    try:
        day = parse_date(value) if isinstance(value, str) else value
    except ValueError:
        day = None
    if day is None or not EARLIEST <= day <= LATEST:
        raise CommandError(f"--{name} {value} is not a day; write 2026-01-31.", returncode=2)
    return day


def _report(period: Period, found: list[Statement]) -> list[str]:
    """Return lines that compare the movements with the balances, and say if the period can still change."""
    lines = [line for statement in found for line in _compared(statement)]
    if timezone.now() < movements.closes_at(period.until):
        closes = on_site(movements.closes_at(period.until))
        lines.append(f"The period is open: movements may be added to it until {closes:%Y-%m-%d %H:%M}.")
    elif names := sorted(f"{balance.account} {balance.currency}" for balance in unstored(period)):
        lines.append(
            f"The period is closed, but these balances are not stored yet and may change: {', '.join(names)}."
        )
    return lines


def _compared(statement: Statement) -> list[str]:
    def money(amount: int) -> str:
        return f"{to_major(amount, statement.currency):f}"

    name = f"{statement.account} {statement.currency}"
    lines = []
    if statement.opening is None or statement.closing is None or statement.unexplained is None:
        lines.append(f"{name}: movements {money(statement.total)}; no balance known")
    else:
        lines.append(
            f"{name}: opening balance {money(statement.opening)}, movements {money(statement.total)}, "
            f"closing balance {money(statement.closing)}, unexplained {money(statement.unexplained)}"
        )
    if statement.recorded_later:
        lines.append(
            f"{name}: {statement.recorded_later} movements of closed months were recorded later and are in this file; "
            f"before the period: {money(statement.occurred_before)}"
        )
    if statement.recorded_after:
        lines.append(f"{name}: recorded later, in the file of another period: {money(statement.recorded_after)}")
    return lines
