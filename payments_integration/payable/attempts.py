"""The idempotency key of an order's current attempt to be paid, counted in the ledger.

The mirror cannot count attempts: it has none whose outcome is unknown, and none that the provider refused.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable

from django.core import signing
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from payments_integration.db.transactions import ledger_database
from payments_integration.enums import PAID_PAYMENT_STATUSES, VAIN_PAYMENT_STATUSES
from payments_integration.models import Operation, OperationState, Payment
from payments_integration.payable.queries import Key

#: ``Operation.operation`` of the call that begins an attempt. The registry of calls is in a layer above this one.
CREATES_PAYMENT = "create_payment"
#: The longest beginning of a key: it leaves room for a number in the 255 characters that a key may have.
_LONGEST = 240
#: Characters of the readable part of a key whose reference does not fit into one.
_READABLE = 100
_SALT = "payments_integration.payable.attempt"


def attempt_key(of: Key) -> str:
    """The key of the attempt that is open or paid, or that a passing refusal closed; otherwise that of the next one.

    Its number is one more than the attempts that have ended, so that calls at the same time get the same key.
    """
    prefix = _prefix(of)
    ended, current = 0, []
    operations = _operations(of)
    statuses = _statuses(operations)
    for operation in operations:
        status = statuses.get(operation.result_id, "")
        if _has_ended(operation, status):
            ended += 1
        elif _number(operation.idempotency_key, prefix):
            current.append((status in PAID_PAYMENT_STATUSES, operation.created_at, operation.idempotency_key))
    # Late money may pay an attempt that was given up, while the next one is open: the paid one is the order's.
    return max(current)[-1] if current else f"{prefix}-{ended + 1}"


def sign(key: str) -> str:
    return signing.Signer(salt=_SALT).sign(key)


def unsign(of: Key, signed: str) -> str:
    """The key of a form. Raises ValidationError if this site did not sign it for this order."""
    try:
        key = signing.Signer(salt=_SALT).unsign(signed)
    except signing.BadSignature:
        key = ""
    if not _number(key, _prefix(of)):
        raise ValidationError(_("This page is out of date. Open it again."), code="attempt")
    return key


def _operations(of: Key) -> list[Operation]:
    account, reference = of
    found = Operation.objects.using(ledger_database()).filter(operation=CREATES_PAYMENT, merchant_reference=reference)
    if account is not None:
        found = found.filter(account=account)
    return list(found.only("account", "idempotency_key", "state", "error", "body", "result_id", "created_at"))


def _statuses(operations: Iterable[Operation]) -> dict[str, str]:
    """The status of each payment that the mirror has, by its id."""
    ids = [operation.result_id for operation in operations if operation.result_id]
    rows = Payment.objects.using(ledger_database()).filter(pk__in=ids)
    return dict(rows.values_list("pk", "status")) if ids else {}


def _has_ended(operation: Operation, status: str) -> bool:
    """Whether no money can be expected from it, so that the payer may try again. ``status``: of its payment.

    Everything else is still open or paid, also a status that this version does not know.
    """
    if operation.state == OperationState.DONE:
        return status in VAIN_PAYMENT_STATUSES
    if operation.state == OperationState.CLOSED:
        return not operation.has_free_key
    return operation.state == OperationState.REJECTED


def _prefix(of: Key) -> str:
    """The beginning of the keys of an order: ASCII, whatever its reference has, and of no other order."""
    account, reference = of
    if account == "" or not reference:
        raise ValueError("an attempt to pay needs an order with an account and a merchant_reference")
    name = f"{account or ''}-{reference}"
    if name.isascii() and name.isprintable() and len(name) <= _LONGEST - len("order-"):
        return f"order-{name}"
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    readable = "".join(character for character in plain if character.isprintable())[:_READABLE]
    # With another separator, no order whose reference looks like this one has the same key.
    return f"order~{readable}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def _number(key: str, prefix: str) -> int:
    """The number of the attempt; 0 for a key that is none of this order's."""
    text = key.removeprefix(f"{prefix}-")
    return int(text) if text != key and text.isascii() and text.isdigit() and len(text) < 10 else 0
