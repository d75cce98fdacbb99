"""From which amount on money may leave only when a second person has said so (APPROVAL_LIMITS)."""

from __future__ import annotations

from payments_integration import conf
from payments_integration.services.intents import Intent
from payments_integration.services.recipes import CREATE_PAYOUT, CREATE_REFUND


def must_wait(intent: Intent) -> bool:
    """Whether this payout, or refund that runs as one, reaches the limit of its currency.

    Of an intent as its guard has decided it: only then is the amount of a full refund known. A refund to a card goes
    back to where the money came from, and does not wait.
    """
    as_payout = intent.operation == CREATE_PAYOUT or (
        intent.operation == CREATE_REFUND and "destination" in (intent.body or {})
    )
    return as_payout and intent.amount is not None and reaches_limit(intent.amount, intent.currency)


def reaches_limit(amount: int, currency: str) -> bool:
    """Whether so many minor units are as much as the limit of their currency, or more."""
    limit = conf.current().APPROVAL_LIMITS.get(currency)
    return limit is not None and amount >= limit
