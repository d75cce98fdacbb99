"""Write the journal as CSV, for beancount or for hledger.

Each movement is a transaction with two postings: one to the asset account of its account and currency, and the
opposite one to an account that names the movement's kind.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from payments_integration.contrib.finance.journal import Period, parts, stream
from payments_integration.contrib.finance.models import Movement, MovementKind
from payments_integration.money import exponent, to_major

#: Stands for all money of the merchant at the provider: available, pending, reserve and hold, less debt.
ASSETS = "Assets:Payments"
#: The other side of each movement.
COUNTERPARTS: dict[str, str] = {
    MovementKind.PAYMENT: "Income:Payments",
    MovementKind.PAYMENT_FEE: "Expenses:PaymentFees",
    MovementKind.REFUND: "Expenses:Refunds",
    MovementKind.CHARGEBACK: "Expenses:Chargebacks",
    MovementKind.PAYOUT: "Expenses:Payouts",
    MovementKind.PAYOUT_FEE: "Expenses:PayoutFees",
}
CSV_HEADER = (
    "date", "occurred", "recorded_later", "movement", "kind", "object_id", "account", "ledger_account", "currency",
    "amount",
)  # fmt: skip

_CURRENCY = re.compile(r"[A-Z]{3}")
_Posting = tuple[str, str]


class NotWritableError(ValueError):
    """The journal cannot be written in this format. The message says why."""


def as_csv(period: Period) -> Iterator[str]:
    """Yield a header line, then one line per posting."""
    yield csv_line(CSV_HEADER)
    for movement in stream(period):
        for ledger_account, amount in _postings(movement):
            yield csv_line(
                (
                    movement.booked_on.isoformat(),
                    movement.occurred_on.isoformat(),
                    "yes" if movement.is_recorded_later else "no",
                    str(movement.pk),
                    movement.kind,
                    movement.object_id,
                    movement.account,
                    ledger_account,
                    movement.currency,
                    amount,
                )
            )


def as_beancount(period: Period) -> Iterator[str]:
    """Yield a complete file for beancount, with all ``open`` directives and no ``balance`` directive."""
    for ledger_account, currency in _ledger_accounts(period):
        yield f"{period.since.isoformat()} open {ledger_account} {currency}\n"
    for movement in stream(period):
        tag = " #recorded-later" if movement.is_recorded_later else ""
        lines = [
            f'{movement.booked_on.isoformat()} * "{movement.kind}" {_quoted(movement.object_id)}{tag}',
            f"  id: {_quoted(movement.object_id)}",
            f'  movement: "{movement.pk}"',
            *([f"  occurred: {movement.occurred_on.isoformat()}"] if movement.is_recorded_later else []),
            *(f"  {ledger_account}  {amount} {movement.currency}" for ledger_account, amount in _postings(movement)),
        ]
        yield "\n" + "\n".join(lines) + "\n"


def as_hledger(period: Period) -> Iterator[str]:
    """Yield a complete file for hledger, which ``hledger check --strict`` accepts."""
    ledger_accounts = list(_ledger_accounts(period))
    yield "decimal-mark .\n"
    for currency in sorted({currency for _, currency in ledger_accounts}):
        # The format must contain a decimal mark, even for a currency without decimals.
        yield f"commodity 1.{'0' * exponent(currency)} {currency}\n"
    for ledger_account, _ in ledger_accounts:
        yield f"account {ledger_account}\n"
    for movement in stream(period):
        tags = [f"movement:{movement.pk}"]
        if movement.is_recorded_later:
            tags += ["recorded-later:", f"occurred:{movement.occurred_on.isoformat()}"]
        # The id comes last: a comma in it ends its tag.
        tags.append(f"id:{movement.object_id}")
        lines = [
            f"{movement.booked_on.isoformat()} * {movement.kind}  ; {', '.join(tags)}",
            *(f"    {ledger_account}  {amount} {movement.currency}" for ledger_account, amount in _postings(movement)),
        ]
        yield "\n" + "\n".join(lines) + "\n"


FORMATS: dict[str, Callable[[Period], Iterator[str]]] = {
    "csv": as_csv,
    "beancount": as_beancount,
    "hledger": as_hledger,
}


def _postings(movement: Movement) -> tuple[_Posting, _Posting]:
    """Return the two sides of a movement, which add up to zero."""
    return (
        (_ledger_account(ASSETS, movement.account, movement.currency), _decimal(movement.amount, movement.currency)),
        (
            _ledger_account(COUNTERPARTS[movement.kind], movement.account, movement.currency),
            _decimal(-movement.amount, movement.currency),
        ),
    )


def _ledger_account(root: str, account: str, currency: str) -> str:
    """Return an account's name that beancount accepts: letters, digits and hyphens, with a capital letter first."""
    name = account.replace("_", "-")
    name = name[0].upper() + name[1:]
    return f"{root}:{name if name[0] != '-' else f'X{name}'}:{currency}"


def _ledger_accounts(period: Period) -> Iterable[tuple[str, str]]:
    """Return each ledger account with its currency. Raises NotWritableError before anything is written."""
    found = parts(period)
    names: dict[str, str] = {}
    for account, currency, _ in found:
        if not _CURRENCY.fullmatch(currency):
            raise NotWritableError(f'The currency "{currency}" cannot be written in this format. Use --format csv.')
        name = _ledger_account(ASSETS, account, currency)
        if names.setdefault(name, account) != account:
            raise NotWritableError(
                f'The accounts "{names[name]}" and "{account}" have the same name in this format. Write one file for '
                "each account."
            )
    return sorted(
        set(
            chain.from_iterable(
                (
                    (_ledger_account(ASSETS, account, currency), currency),
                    (_ledger_account(COUNTERPARTS[kind], account, currency), currency),
                )
                for account, currency, kind in found
            )
        )
    )


def _decimal(amount: int, currency: str) -> str:
    return f"{to_major(amount, currency):f}"


def _quoted(text: str) -> str:
    """Return a beancount string. Ids are printable ASCII, so only two characters need an escape."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def csv_line(cells: Iterable[str]) -> str:
    """Return one line of a CSV file."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()
