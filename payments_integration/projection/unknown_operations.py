"""Notice objects that another ledger made: proof of a restored backup, or of a second installation."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.utils import timezone

from payments_integration.attention import call_attention
from payments_integration.db.transactions import updated
from payments_integration.models import AccountState, Payment, Payout, unknown_operations
from payments_integration.signals import Reason

#: One call for attention per account and day: after a restore there may be thousands of these objects.
REPORT_EVERY = timedelta(days=1)


def notice_unknown_operations(rows: Iterable[Any]) -> None:
    """Search ``rows``, which this transaction inserted. No statement if no reference is an operation's id."""
    made = {row.merchant_reference: row for row in rows if isinstance(row, Payment | Payout)}
    for reference in sorted(unknown_operations(made)):
        row, now = made[reference], timezone.now()
        state = AccountState.objects.filter(
            Q(unknown_operation_at=None) | Q(unknown_operation_at__lt=now - REPORT_EVERY), account=row.account
        )
        if updated(state, unknown_operation=reference, unknown_operation_at=now):
            call_attention(
                type(row),
                Reason.LEDGER_INCOMPLETE,
                account=row.account,
                message=f"{row.pk} has the reference {reference}, an operation that this ledger does not have: "
                "a backup was restored, or another installation uses this account",
                instance=row,
            )
