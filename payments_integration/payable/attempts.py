"""Find the idempotency key of an order's current payment attempt, by counting attempts in the ledger.

The mirror cannot count attempts: it lacks attempts with an unknown outcome and attempts that the provider refused.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable
from datetime import timedelta

from django.core import signing
from django.core.exceptions import ValidationError
from django.db.models import Case, F, Q, Value, When
from django.utils import timezone
from django.utils.translation import gettext as _

from payments_integration.db.statements import filter_account
from payments_integration.db.transactions import ledger_database
from payments_integration.enums import (
    CANCELABLE_PAYMENT_STATUSES,
    PAID_PAYMENT_STATUSES,
    VAIN_PAYMENT_STATUSES,
    PaymentStatus,
)
from payments_integration.models import Operation, OperationState, Payment
from payments_integration.money import checked_minor
from payments_integration.payable.queries import Key, chunks, payments_of, totals_by_key
from payments_integration.payable.totals import Totals
from payments_integration.validation.attempt_key import AttemptKey

#: A 404 that has lasted this long came from no slow replica of the provider's database.
GONE_FOR_GOOD = timedelta(days=1)
#: ``Operation.operation`` of the call that begins an attempt. Not imported: the registry of calls is a layer above.
CREATES_PAYMENT = "create_payment"
#: The longest prefix of a key. It leaves room for a number in the 255 characters that a key may have.
_LONGEST = 240
#: Characters of the readable part, for a reference that does not fit into a key.
_READABLE = 100
_SALT = "payments_integration.payable.attempt"


def attempt_key(
    of: Key, price_of: Callable[[], tuple[int, str] | None], *, signed: str | None = None, deposits: bool = False
) -> str:
    """Return the key of a form (``signed``), otherwise ``open_key``, as an ``AttemptKey``.

    Unless the attempt itself is paid, raises ValidationError if the order is paid. Without a price, that is so before
    a new attempt if it has a paid payment that no operation made. Raises ValueError if the key was sent with another
    ``merchant_reference``, and TypeError for a price that is not an int.
    """
    operations = _operations(of)
    statuses = _statuses(operations)
    known = {operation.idempotency_key for operation in operations}
    # A key that a temporary refusal left free begins an attempt like a new one.
    taken = {operation.idempotency_key: operation for operation in operations if not operation.has_free_key}
    current = _open_key(of, operations, statuses)
    key = AttemptKey(_unsign(of, signed, known) if signed else current)
    # Late money may have paid an attempt that had expired when the form was made.
    if current in taken and (key not in taken or _is_overtaken(taken[key], taken[current], statuses)):
        key = AttemptKey(current)
    key.account, key.merchant_reference = of
    key.amounts, key.currency = frozenset(), ""
    if key in taken:
        # The ledger knows a key per account: in another one, the call would be a second attempt.
        key.account = taken[key].account
        if statuses.get(taken[key].result_id) in CANCELABLE_PAYMENT_STATUSES:
            price = price_of()
            is_paid = price is not None and _missing(of, *price, deposits=deposits) == 0 < price[0]
            # The money may be the attempt's own, received after the statuses were read.
            if is_paid and _statuses([taken[key]]).get(taken[key].result_id) in CANCELABLE_PAYMENT_STATUSES:
                raise _paid_already()
        return key
    _refuse_other_reference(of, key)
    price = price_of()
    if price is not None:
        amount, key.currency = price
        missing = _missing(of, amount, key.currency, deposits=deposits)
        key.amounts = frozenset({amount, missing or amount})
        is_paid = missing == 0 < amount
    else:
        is_paid = _has_other_payment(of, {operation.result_id for operation in operations})
    if is_paid:
        raise _paid_already()
    return key


def open_key(of: Key) -> str:
    """Return the key of the attempt that is open or paid, or that a temporary refusal closed; otherwise the next key.

    The next key's number is one more than the attempts that have ended, so calls at the same time get the same key.
    A number that was used is skipped: late money may have paid an attempt, which had ended, under another key.
    """
    operations = _operations(of)
    return _open_key(of, operations, _statuses(operations))


def precedence(operation: Operation) -> tuple[bool, bool]:
    """Return the rank of an operation whose key several accounts have. The one with the highest rank decides."""
    return operation.state not in (OperationState.REJECTED, OperationState.CLOSED), not operation.has_free_key


def begun(payments: list[Payment]) -> list[Payment]:
    """Return the payments of the list that were created with a key of ``attempt_key``."""
    found: set[str] = set()
    for chunk in chunks([payment.pk for payment in payments]):
        made = Operation.objects.using(ledger_database()).filter(operation=CREATES_PAYMENT, result_id__in=chunk)
        rows = made.values_list("result_id", "idempotency_key", "account", "merchant_reference")
        found.update(
            pk for pk, key, account, reference in rows if reference and _is_attempt(key, (account, reference))
        )
    return [payment for payment in payments if payment.pk in found]


def sign(key: str) -> str:
    return signing.Signer(salt=_SALT).sign(key)


def _open_key(of: Key, operations: Iterable[Operation], statuses: dict[str, str]) -> str:
    prefix = _prefix(of)
    ended, current = 0, []
    for operation in operations:
        status = statuses.get(operation.result_id, "")
        if _has_ended(operation, status):
            ended += 1
        elif _is_attempt(operation.idempotency_key, of):
            is_sent = not operation.has_free_key
            current.append((status in PAID_PAYMENT_STATUSES, is_sent, operation.created_at, operation.idempotency_key))
    # Late money may pay an abandoned attempt while the next one is open. The paid attempt wins.
    if current:
        return max(current)[-1]
    used = {operation.idempotency_key for operation in operations}
    keys = (f"{prefix}-{number}" for number in itertools.count(ended + 1))
    return next(key for key in keys if key not in used)


def _is_overtaken(attempt: Operation, current: Operation, statuses: dict[str, str]) -> bool:
    """Return True if the attempt is open and the current one is paid."""
    status = statuses.get(attempt.result_id, "")
    is_open = not _has_ended(attempt, status) and status not in PAID_PAYMENT_STATUSES
    return is_open and statuses.get(current.result_id) in PAID_PAYMENT_STATUSES


def _missing(of: Key, amount: int, currency: str, *, deposits: bool) -> int:
    """Return the minor units of a price that are not paid yet."""
    totals = totals_by_key([of], deposits=deposits).get(of, {}).get(currency, Totals(currency))
    # The call refuses an amount of zero or less, in words for the payer.
    return totals.missing(max(0, checked_minor(amount, currency)))


def _paid_already() -> ValidationError:
    return ValidationError(_("This is paid already."), code="paid")


def _unsign(of: Key, signed: str, known: set[str]) -> str:
    """Return the key of a form. Raises ValidationError if this site did not sign it for this order."""
    try:
        key = signing.Signer(salt=_SALT).unsign(signed)
    except signing.BadSignature:
        key = ""
    if key not in known and not _number(key, _prefix(of)):
        raise ValidationError(_("This page is out of date. Open it again."), code="attempt")
    return key


def _refuse_other_reference(of: Key, key: str) -> None:
    account, reference = of
    found = Operation.objects.using(ledger_database()).filter(idempotency_key=key)
    for other in (
        filter_account(found, account)
        .exclude(merchant_reference=reference)
        .values_list("merchant_reference", flat=True)[:1]
    ):
        raise ValueError(
            f"the key {key!r} was sent with merchant_reference {other!r}, but the order's is {reference!r}: pass the "
            "value of merchant_reference_field to create_payment"
        )


def _has_other_payment(of: Key, made: set[str]) -> bool:
    """Return True if a paid payment was made before the ledger began, or after the backup from which it was restored.

    Transfers to a deposit reference do not count: no operation makes them.
    """
    account, reference = of
    paid = payments_of(account, reference, deposits=False).filter(status__in=PAID_PAYMENT_STATUSES)
    return any(pk not in made for pk in paid.values_list("pk", flat=True))


def _operations(of: Key) -> list[Operation]:
    account, reference = of
    if account == "" or not reference:
        raise ValueError("an attempt to pay needs an order with an account and a merchant_reference")
    found = Operation.objects.using(ledger_database()).filter(operation=CREATES_PAYMENT, merchant_reference=reference)
    fields = ("account", "idempotency_key", "state", "error", "body", "result_id", "created_at")
    operations = list(filter_account(found, account).only(*fields))
    # Another account may have taken a free key since, or have been faster with a new one.
    best: dict[str, tuple[bool, bool]] = {}
    for each in operations:
        best[each.idempotency_key] = max(best.get(each.idempotency_key, (False, False)), precedence(each))
    return [each for each in operations if precedence(each) == best[each.idempotency_key]]


def _statuses(operations: Iterable[Operation]) -> dict[str, str]:
    """Return the status of each mirrored payment by its id: ``expired`` if it was unpaid and is gone for good."""
    ids = [operation.result_id for operation in operations if operation.result_id]
    rows = Payment.objects.using(ledger_database()).filter(pk__in=ids)
    gone = Q(gone_at__lt=timezone.now() - GONE_FOR_GOOD, status__in=CANCELABLE_PAYMENT_STATUSES)
    status = Case(When(gone, then=Value(PaymentStatus.EXPIRED.value)), default=F("status"))
    return dict(rows.values_list("pk", status)) if ids else {}


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
    """Return the prefix of an order's keys: unique to the order, and ASCII for any reference.

    ``is_of_any_account`` reads from it if the order has an account.
    """
    account, reference = of
    name = f"{account or ''}-{reference}"
    if name.isascii() and name.isprintable() and len(name) <= _LONGEST - len("order-"):
        return f"order-{name}"
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    readable = "".join(character for character in plain if character.isprintable())[:_READABLE]
    # The other separator keeps it apart from an order whose reference looks like this prefix.
    return f"order~{readable}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def _is_attempt(key: str, of: Key) -> bool:
    """Return True for the key of an attempt of the order under any alias of its account: an alias can be renamed."""
    reference = re.escape(of[1])
    return re.fullmatch(rf"order-.*-{reference}-[0-9]{{1,9}}|order~.*-[0-9a-f]{{32}}-[0-9]{{1,9}}", key) is not None


def _number(key: str, prefix: str) -> int:
    """Return the number of the attempt; 0 for a key of another order."""
    text = key.removeprefix(f"{prefix}-")
    return int(text) if text != key and text.isascii() and text.isdigit() and len(text) < 10 else 0
