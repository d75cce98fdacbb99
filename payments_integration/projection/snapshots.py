"""Take snapshots: what the mirror knew of objects before a request."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from django.db.models import Count, Exists, OuterRef, Subquery

from payments_integration.enums import Kind
from payments_integration.models import Balance, Event, Refund, sent_refund_operations
from payments_integration.projection import rows


class Snapshot(NamedTuple):
    """What the mirror knew of an object before a request. If it is equal afterwards, nothing came meanwhile."""

    version: int | None
    events: int


def snapshot(kind: str, account: str, object_id: str) -> Snapshot:
    """Take a snapshot of an object before sending. One statement if it is mirrored, otherwise two."""
    mirrored = rows.rows_of(kind, account, object_id)
    known = mirrored.values_list("version", number_of_events(kind, account, object_id)).first()
    if known:
        return Snapshot(known[0], known[1] or 0)
    return Snapshot(None, Event.objects.filter(account=account, object_kind=kind, object_id=object_id).count())


class KnownRefund(NamedTuple):
    row: Refund
    before: Snapshot
    #: True if an operation that asks for a refund of the payment has an unknown outcome.
    is_any_unknown: bool


def refunds_of(account: str, payment_id: str) -> dict[str, KnownRefund]:
    """Return the mirrored refunds of a payment by id, in one statement. Call before sending."""
    mirrored: Any = Refund.objects.filter(account=account, payment_id=payment_id).annotate(
        number_of_events=number_of_events(Kind.REFUND, account, OuterRef("pk")),
        is_any_unknown=Exists(sent_refund_operations(account, payment_id)),
    )
    return {
        row.pk: KnownRefund(row, Snapshot(row.version, row.number_of_events or 0), row.is_any_unknown)
        for row in mirrored
    }


def balance_snapshots(account: str) -> dict[str, Snapshot]:
    """Return snapshots of all mirrored balances by currency, in two statements."""
    versions = dict(Balance.objects.filter(account=account).values_list("currency", "version"))
    counts = balance_events(account)
    return {currency: Snapshot(version, counts[currency]) for currency, version in versions.items()}


#: The snapshot of an object that does not exist before the request: for the first POST that creates it.
ABSENT = Snapshot(None, 0)


def balance_events(account: str) -> Counter[str]:
    """Count the stored events of each balance, by currency."""
    mine = Event.objects.filter(account=account, object_kind=Kind.BALANCE)
    return Counter(dict(mine.values_list("object_id").annotate(Count("pk"))))


def number_of_events(kind: str, account: str, object_id: str | OuterRef) -> Subquery:
    """Count the stored events of an object; null instead of 0."""
    mine = Event.objects.filter(account=account, object_kind=kind, object_id=object_id)
    return Subquery(mine.order_by().values("object_id").annotate(number=Count("pk")).values("number"))
