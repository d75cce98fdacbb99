"""Arguments that several commands have: accounts and times."""

from __future__ import annotations

from argparse import ArgumentTypeError
from datetime import datetime
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

from payments_integration import conf


def add_account_argument(parser: Any) -> None:
    parser.add_argument("--account", help="alias of an account (default: every account)")


def chosen_accounts(account: str | None) -> list[str]:
    """The chosen aliases. Raises CommandError (exit code 2) for an unknown alias or a wrong setting."""
    try:
        found = conf.aliases(account)
    except ImproperlyConfigured as error:
        raise CommandError(str(error), returncode=2) from None
    if not found:
        raise CommandError(f'{conf.NAME}["ACCOUNTS"] is empty: add an account first.', returncode=2)
    return found


def time_argument(text: str) -> datetime:
    """A date or date-time in ISO 8601, in the project's time zone if it names none."""
    try:
        value = parse_datetime(text)
        day = parse_date(text) if value is None else None
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not a time: {error}") from None
    if value is None and day is not None:
        value = datetime(day.year, day.month, day.day)  # noqa: DTZ001  (made aware below)
    if value is None:
        raise ArgumentTypeError(f"{text!r} is not a time; write 2026-01-31 or 2026-01-31T12:00:00Z")
    return value if timezone.is_aware(value) else timezone.make_aware(value)
