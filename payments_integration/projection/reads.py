"""Around a read: what was known before it (snapshots), and which objects must be read again (refreshes)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import connections, router
from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Subquery
from django.db.models.sql import Query
from django.utils import timezone

from payments_integration import schemas
from payments_integration.db import statements
from payments_integration.db.claims import NOW, expired, times_of
from payments_integration.db.transactions import repeatable
from payments_integration.enums import Kind, PayoutStatus
from payments_integration.models import (
    Balance,
    DueRefresh,
    Event,
    ObjectKey,
    RefreshReason,
    Refund,
    Shape,
    keys_of,
    of_objects,
    sent_refund_operations,
    shape_of,
)
from payments_integration.projection import rows

#: Handlers of an object wait this long for a read that must tell them its state.
HANDLERS_WAIT = timedelta(minutes=1)


class Snapshot(NamedTuple):
    """What the mirror knew of an object before a request. If it is equal afterwards, nothing came meanwhile."""

    version: int | None
    events: int


def snapshot(kind: str, account: str, object_id: str) -> Snapshot:
    """Take a snapshot of an object before sending. One statement."""
    given = statements.about(account, object_id)
    [(version, events)] = _snapshot(kind, using=router.db_for_write(Event), given=given)
    return Snapshot(version, events or 0)


@statements.built_once
def _snapshot(kind: str) -> Query:
    account, object_id = statements.ACCOUNT, statements.OBJECT
    version = rows.rows_of(kind, account, object_id).values("version")
    return statements.values_query(Subquery(version), number_of_events(kind, account, object_id))


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


def linked_reads(account: str, resource: schemas.AnyResource) -> dict[ObjectKey, str]:
    """Return the object to read after a change of this one, with the reason. It may change without an event.

    A refund changes its payment's ``refunded_amount``. A refund that is executed by a payout is canceled with it, and
    the spec has no ``refund.canceled``.
    """
    if isinstance(resource, schemas.Refund):
        return {(account, str(Kind.PAYMENT), resource.payment_id): RefreshReason.REFUND_CHANGED}
    if isinstance(resource, schemas.Payout) and resource.refund_id and resource.status == PayoutStatus.CANCELED:
        return {(account, str(Kind.REFUND), resource.refund_id): RefreshReason.PAYOUT_CANCELED}
    return {}


def request_refresh(account: str, kind: str, object_id: str, reason: str) -> None:
    """Request a refresh of one object. Joins the caller's transaction or makes its own."""

    def request() -> None:
        request_refreshes({(account, str(kind), object_id): reason})

    # The transaction of the answer or the event is retried as a whole.
    if connections[router.db_for_write(DueRefresh)].in_atomic_block:
        request()
    else:
        repeatable(request, using=router.db_for_write(DueRefresh))


def request_refreshes(reasons: Mapping[ObjectKey, str], *, awaited: Collection[ObjectKey] = ()) -> None:
    """Request refreshes of objects, within a transaction. Takes one statement per hundred.

    If a refresh was requested before, the earlier time stays, and ``marks`` grows, so that a GET that is already under
    way does not count as an answer to this request. A worker that finishes one of them waits for this transaction.
    ``awaited`` are the objects whose handlers wait for the read, for HANDLERS_WAIT at most.
    """
    now = timezone.now()
    requests = [
        DueRefresh(
            account=key[0],
            object_kind=key[1],
            object_id=key[2],
            reason=str(reason),
            due_at=now,
            dispatch_waits_until=now + HANDLERS_WAIT if key in awaited else None,
        )
        for key, reason in sorted(reasons.items())
    ]
    statements.insert_or_update(requests, unique=("account", "object_kind", "object_id"), changes=_REPEATED)


#: A GET that requests another GET must not cancel the backoff, or the two would repeat for ever. A GET under way does
#: not answer a new request: its claim ends.
_IS_EARLIER = (
    "({new[due_at]} < {old}.due_at OR {new[due_at]} < {old}.claimed_until)"
    f" AND {{new[reason]}} <> '{RefreshReason.CHANGED_MEANWHILE}'"
)
#: While handlers wait for a read, another request does not make them wait longer.
_STILL_WAITS = "{old}.dispatch_waits_until IS NOT NULL AND {old}.dispatch_waits_until > {new[due_at]}"
#: What another request changes in the first one.
_REPEATED = {
    "dispatch_waits_until": f"CASE WHEN {_STILL_WAITS} THEN {{old}}.dispatch_waits_until"
    " ELSE COALESCE({new[dispatch_waits_until]}, {old}.dispatch_waits_until) END",
    "marks": "{old}.marks + 1",
    "attempts": f"CASE WHEN {_IS_EARLIER} THEN 0 ELSE {{old}}.attempts END",
    "due_at": f"CASE WHEN {_IS_EARLIER} THEN {{new[due_at]}} ELSE {{old}}.due_at END",
    "claimed_until": f"CASE WHEN {_IS_EARLIER} THEN NULL ELSE {{old}}.claimed_until END",
}


def is_awaited(*, now: datetime | None = None) -> Q:
    """Match due reads for which handlers wait now."""
    return Q(dispatch_waits_until__isnull=False) & ~expired("dispatch_waits_until", HANDLERS_WAIT, now=now)


def awaiting_read(keys: Collection[ObjectKey]) -> set[ObjectKey]:
    """Return the objects whose handlers wait for a read. One statement."""
    (shape, given), using = shape_of(keys), router.db_for_write(DueRefresh)
    times = times_of(timezone.now(), HANDLERS_WAIT)
    return {(row[0], row[1], row[2]) for row in _awaited(shape, using=using, given=given, times=times)}


@statements.built_once
def _awaited(shape: Shape) -> QuerySet[Any, Any]:
    waiting = DueRefresh.objects.filter(is_awaited(now=NOW), of_objects(keys_of(shape)))
    return waiting.values_list("account", "object_kind", "object_id")
