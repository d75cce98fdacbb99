"""Find the idempotency key of an order's current payment attempt, by counting attempts in the ledger.

The mirror cannot count attempts: it lacks attempts with an unknown outcome and attempts that the provider refused.
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

#: ``Operation.operation`` of the call that begins an attempt. Not imported: the registry of calls is a layer above.
CREATES_PAYMENT = "create_payment"
#: The longest prefix of a key. It leaves room for a number in the 255 characters that a key may have.
_LONGEST = 240
#: Characters of the readable part, for a reference that does not fit into a key.
_READABLE = 100
_SALT = "payments_integration.payable.attempt"


def attempt_key(of: Key) -> str:
    """Return the key of the attempt that is open or paid, or that a temporary refusal closed; otherwise the next key.

    The next key's number is one more than the attempts that have ended, so calls at the same time get the same key.
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
    # Late money may pay an abandoned attempt while the next one is open. The paid attempt wins.
    return max(current)[-1] if current else f"{prefix}-{ended + 1}"


def sign(key: str) -> str:
    return signing.Signer(salt=_SALT).sign(key)


def unsign(of: Key, signed: str) -> str:
    """Return the key of a form. Raises ValidationError if this site did not sign it for this order."""
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
    """Return the status of each mirrored payment by its id."""
    ids = [operation.result_id for operation in operations if operation.result_id]
    rows = Payment.objects.using(ledger_database()).filter(pk__in=ids)
    return dict(rows.values_list("pk", "status")) if ids else {}


def _has_ended(operation: Operation, status: str) -> bool:
    """Return True if no money can be expected from it, so that the payer may try again.

    ``status`` is its payment's. Any other attempt is open or paid, even if this version does not know the status.
    """
    if operation.state == OperationState.DONE:
        return status in VAIN_PAYMENT_STATUSES
    if operation.state == OperationState.CLOSED:
        return not operation.has_free_key
    return operation.state == OperationState.REJECTED


def _prefix(of: Key) -> str:
    """Return the prefix of an order's keys: unique to the order, and ASCII for any reference."""
    account, reference = of
    if account == "" or not reference:
        raise ValueError("an attempt to pay needs an order with an account and a merchant_reference")
    name = f"{account or ''}-{reference}"
    if name.isascii() and name.isprintable() and len(name) <= _LONGEST - len("order-"):
        return f"order-{name}"
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    readable = "".join(character for character in plain if character.isprintable())[:_READABLE]
    # The other separator keeps it apart from an order whose reference looks like this prefix.
    return f"order~{readable}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def _number(key: str, prefix: str) -> int:
    """Return the number of the attempt; 0 for a key of another order."""
    text = key.removeprefix(f"{prefix}-")
    return int(text) if text != key and text.isascii() and text.isdigit() and len(text) < 10 else 0
