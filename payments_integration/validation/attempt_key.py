"""The idempotency keys that the app makes. An attempt's key knows what its order asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _

if TYPE_CHECKING:
    from payments_integration.validation.validator import Validator


#: The prefixes of keys that the app makes for a call in a handler, and for a POST to its API.
HANDLER_PREFIX, API_PREFIX = "handler-", "api-"


def is_of_any_account(key: str) -> bool:
    """Return True for a key of an order that may be paid through any account: its prefix names none."""
    return key.startswith(("order--", "order~-"))


def is_of_one_call(key: str) -> bool:
    """Return True for a key that stands for the same call in each account: a handler or the API made it."""
    return key.startswith((HANDLER_PREFIX, API_PREFIX))


class AttemptKey(str):
    """A key that refuses a payment that would not pay its order, or would pay another one."""

    #: The account of the attempt, or of the order before it; None: any.
    account: str | None
    merchant_reference: str
    #: The amounts that may be asked for, in minor units: the price, or its unpaid rest. Empty without a price, and
    #: once the attempt has begun: the ledger then compares the call.
    amounts: frozenset[int]
    #: The ISO code of the price's currency; empty without one.
    currency: str

    def check(self, validator: Validator, body: Mapping[str, Any], account: str) -> None:
        """Fail each argument of ``create_payment`` that differs from the order. ``body`` is what is sent."""
        if self.account not in (None, account):
            validator.fail("account", _("The key is of an order of the account %s.") % self.account, "attempt")
        # A refused value was replaced in the body.
        has_other = body.get("merchant_reference") != self.merchant_reference
        if has_other and not validator.has_failed("merchant_reference"):
            message = _("The key is of the order %s: pass its reference.") % self.merchant_reference
            validator.fail("merchant_reference", message, "attempt")
        if not self.amounts:
            return
        if body["currency"] != self.currency:
            validator.fail("currency", _("The order's price is in %s.") % self.currency, "attempt")
        elif body["amount"] not in self.amounts:
            message = _("The order asks for %(amounts)s in minor units of %(currency)s.") % {
                "amounts": " / ".join(map(str, sorted(self.amounts))),
                "currency": self.currency,
            }
            validator.fail("amount", message, "attempt")
