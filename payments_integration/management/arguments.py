"""Provide what the commands share: arguments, a question, and errors for missing tables or provider."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError
from django.db import DatabaseError, connections, router
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

from payments_integration import conf
from payments_integration.dates import end_of, from_site, start_of
from payments_integration.db.transactions import in_transaction
from payments_integration.exceptions import KEY_REFUSED, UNREACHABLE
from payments_integration.models import Operation, ReconciliationRun, RunState

#: A time before it is a slip.
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
#: Exit codes. 1 is any other failure, and 2 wrong arguments or settings.
EXIT_KEY_REFUSED = 3
EXIT_UNREACHABLE = 4


def add_account_argument(parser: Any) -> None:
    parser.add_argument("--account", help="alias of an account (default: every account)")


def chosen_accounts(account: str | None) -> list[str]:
    """Return the chosen aliases. Raises CommandError (exit code 2) for an unknown alias or a wrong setting."""
    try:
        found = conf.aliases(account)
    except ImproperlyConfigured as error:
        raise CommandError(str(error), returncode=2) from None
    if not found:
        raise CommandError(f'{conf.NAME}["ACCOUNTS"] is empty: add an account first.', returncode=2)
    return found


def confirm(question: str, word: str, *, flag: str, done: str) -> None:
    """Have the person at the terminal type a word. Raises CommandError without a terminal, and for another word."""
    if not sys.stdin.isatty():
        raise CommandError(f"Nothing was {done}, because standard input is not a terminal. Add {flag}.", returncode=2)
    if input(f"{question} Type “{word}” to continue: ").strip() != word:
        raise CommandError(f"Nothing was {done}.")


def time_argument(text: str) -> datetime:
    """Parse a date or date-time in ISO 8601, in the site's time zone if it names none. A date is its first moment."""
    return _time(text, start_of)


def end_argument(text: str) -> datetime:
    """Parse a date or date-time as ``time_argument`` does. A date is its last moment."""
    return _time(text, end_of)


def _time(text: str, of_day: Callable[[date], datetime]) -> datetime:
    try:
        if day := parse_date(text):
            return of_day(day)
        value = parse_datetime(text)
    except (ValueError, OverflowError) as error:
        raise ArgumentTypeError(f"{text!r} is not a time: {error}") from None
    if value is None:
        raise ArgumentTypeError(f"{text!r} is not a time; write 2026-01-31 or 2026-01-31T12:00:00Z")
    return value if timezone.is_aware(value) else from_site(value)


def require_past(since: datetime | None) -> None:
    """Raise CommandError if ``--since`` is not a time when something can have happened."""
    if since and not EARLIEST <= since <= timezone.now():
        raise CommandError("--since must be a time between 1970 and now.", returncode=2)


def require_tables() -> None:
    """Raise CommandError if the database cannot be read, or the app's tables do not exist yet."""
    try:
        tables = connections[router.db_for_write(Operation)].introspection.table_names()
    except DatabaseError as error:
        raise CommandError(f"The database cannot be read: {error}") from error
    if Operation._meta.db_table not in tables:
        raise CommandError("The tables of payments_integration do not exist yet. Run manage.py migrate first.")


def require_database() -> None:
    """Do as ``require_tables``, and raise CommandError if a transaction is open: these commands commit."""
    require_tables()
    if in_transaction():
        raise CommandError(
            "This command commits step by step and cannot run inside a database transaction. Call it outside "
            "transaction.atomic, or in a callback of transaction.on_commit."
        )


def exit_code(error: str) -> int:
    """Return the exit code for a recorded error (``exceptions.recorded_error``)."""
    if error.startswith(KEY_REFUSED):
        return EXIT_KEY_REFUSED
    return EXIT_UNREACHABLE if error.startswith(UNREACHABLE) else 1


def provider_failure(runs: Iterable[ReconciliationRun]) -> CommandError | None:
    """Return the error to end with if the provider refused an account's API key or could not be reached."""
    failed = [run for run in runs if run.state == RunState.FAILED]
    for code, what in (
        (EXIT_KEY_REFUSED, "The provider refuses the API key of account"),
        (EXIT_UNREACHABLE, "The provider cannot be reached for account"),
    ):
        for run in failed:
            if exit_code(run.error) == code:
                return CommandError(
                    f"{what} {run.account}: {run.error} The next run continues there.", returncode=code
                )
    return None
