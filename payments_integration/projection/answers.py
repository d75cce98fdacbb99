"""Answers of the provider to mirror rows. An answer never overwrites a newer state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import router
from django.db.models import Count, Subquery
from django.utils import timezone

from payments_integration import bulk, wire
from payments_integration.enums import Kind
from payments_integration.models import Balance, Event, Mirror, StateBy, StatusChange
from payments_integration.projection import changes, ordering, rows
from payments_integration.projection.clock import provider_time
from payments_integration.projection.erasing import keep_erased
from payments_integration.projection.refreshes import CHANGED_MEANWHILE, request_refresh
from payments_integration.transactions import hold, repeatable, updated


@dataclass(slots=True)
class _Writes:
    """The updates of rows of one kind that are held, two statements at most."""

    #: What the answer merely confirms.
    confirmed: list[Any] = field(default_factory=list)
    changed: list[Any] = field(default_factory=list)

    def execute(self) -> None:
        if self.confirmed:
            seen = type(self.confirmed[0])._default_manager.filter(pk__in=[row.pk for row in self.confirmed])
            seen.update(synced_at=timezone.now(), gone_at=None)
        bulk.overwrite(list(dict.fromkeys(self.changed)))


class Snapshot(NamedTuple):
    """What we knew of an object before a request left. Equal afterwards: nothing came in between."""

    version: int | None
    events: int


def snapshot(kind: str, account: str, object_id: str) -> Snapshot:
    """Read it before sending; one statement where it is mirrored, else two."""
    of_it = Event.objects.filter(account=account, object_kind=kind, object_id=object_id)
    counted = of_it.order_by().values("object_id").annotate(number=Count("pk")).values("number")
    mirrored = rows.model_of(kind)._default_manager.filter(**_identity(kind, account, object_id))
    known = mirrored.values_list("version", Subquery(counted)).first()
    return Snapshot(known[0], known[1] or 0) if known else Snapshot(None, _events(kind, account, object_id))


def balance_snapshots(account: str) -> dict[str, Snapshot]:
    """The same of all balances that are known, by currency; two statements."""
    versions = dict(Balance.objects.filter(account=account).values_list("currency", "version"))
    counts = _balance_events(account)
    return {currency: Snapshot(version, counts[currency]) for currency, version in versions.items()}


#: Of an object that does not exist before the request: the first POST that creates it.
ABSENT = Snapshot(None, 0)


def write_answer(
    account: str,
    resource: wire.AnyResource,
    *,
    answered_at: datetime | None,
    duration: float,
    before: Snapshot,
    is_new: bool = False,
) -> Any:
    """Write what a GET, or a POST sent for the first time, answered; returns the row as it is now.

    It is written only if the object is still as it was ``before`` sending. Otherwise, where content differs, the
    object is marked to be read again. ``duration``: seconds. Joins a transaction or makes its own.

    ``is_new``: the request has just made the object, and nobody looks for it. Only within a transaction; an
    IntegrityError means that an event of it was faster: repeat it without.
    """
    if is_new:
        at, span = ordering.when_read(answered_at, provider_time(account), duration)
        return _insert(account, resource, at, span, is_new=True)

    def write() -> Any:
        return _write(account, resource, answered_at, duration, before)

    return repeatable(write, using=router.db_for_write(Event))


def record_identity(account: str, resource: wire.AnyResource) -> Any:
    """The answer of a repeated POST: it may be older than anything we know, and proves only that the object exists.

    Inserted if absent, and marked to be read again either way; returns the row as it is now.
    """

    def write() -> Any:
        row = _held(rows.KIND_OF[type(resource)], account, rows.object_id_of(resource))
        if row is None:
            # Its creation is the earliest time at which it can have been read: whatever happened since is newer.
            row = _insert(account, resource, resource_time(resource), ordering.MAX_AHEAD.total_seconds())
        _same_account(row, account)
        request_refresh(account, row.kind, row.object_id, "repeated_post")
        return row

    return repeatable(write, using=router.db_for_write(Event))


def write_balances(
    account: str,
    resources: Iterable[wire.Balance],
    *,
    answered_at: datetime | None,
    duration: float,
    before: Mapping[str, Snapshot],
) -> list[Balance]:
    """Write the answer of GET /balances, one row per currency; rows that are newer already stay.

    ``before``: snapshots taken before sending, by currency; a currency that has none was not known. In one
    transaction, and where no amount changed in five statements, however many currencies there are.
    """
    listed = list(resources)

    def write() -> list[Balance]:
        at, span = ordering.when_read(answered_at, provider_time(account), duration)
        held = {row.currency: row for row in hold(Balance.objects.filter(account=account)).order_by("currency")}
        counts = _balance_events(account)
        writes = _Writes()
        for resource in listed:
            row, snapshot = held.get(resource.currency), before.get(resource.currency, ABSENT)
            unchanged = snapshot == Snapshot(row.version if row else None, counts[resource.currency])
            # A currency may be listed twice.
            held[resource.currency] = _put(account, resource, row, at, span, unchanged, writes)
        writes.execute()
        return [held[resource.currency] for resource in listed]

    return repeatable(write, using=router.db_for_write(Event))


def mark_gone(account: str, kind: str, object_id: str) -> None:
    """The provider answered 404: the row is kept, and says so."""
    here = rows.model_of(kind)._default_manager.filter(**_identity(kind, account, object_id), gone_at=None)
    updated(here, gone_at=timezone.now(), synced_at=timezone.now())


def resource_time(resource: wire.AnyResource) -> datetime:
    """The earliest time at which an object can have had this content."""
    return getattr(resource, "created_at", None) or timezone.now()


def _write(
    account: str, resource: wire.AnyResource, answered_at: datetime | None, duration: float, before: Snapshot
) -> Any:
    kind, object_id = rows.KIND_OF[type(resource)], rows.object_id_of(resource)
    answered_at, span = ordering.when_read(answered_at, provider_time(account), duration)
    row = _held(kind, account, object_id)
    is_as_before = row is not None and before.version == row.version
    unchanged = is_as_before and before.events == _events(kind, account, object_id)
    writes = _Writes()
    row = _put(account, resource, row, answered_at, span, unchanged, writes)
    writes.execute()
    return row


def _put(
    account: str,
    resource: wire.AnyResource,
    row: Any | None,
    answered_at: datetime,
    span: float,
    unchanged: bool,
    writes: _Writes,
) -> Any:
    """Bring an answer to the row that is held (None: a new one); its update is left to ``writes``."""
    kind, object_id = rows.KIND_OF[type(resource)], rows.object_id_of(resource)
    if row is None:
        # An event of the object is stored but not applied yet; its turn comes, and is ordered by this row.
        return _insert(account, resource, answered_at, span)
    _same_account(row, account)
    differs = rows.differences(row, resource)
    if not differs and _orders_better(row, answered_at, span):
        writes.confirmed.append(row)
        return row
    if not unchanged or (
        row.state_by == StateBy.EVENT and not ordering.answer_may_replace_event(answered_at, span, row.state_at)
    ):
        if differs:
            request_refresh(account, kind, object_id, CHANGED_MEANWHILE)
        return row
    previous_status, previous_at = rows.status_of(row), row.state_at
    amounts = changes.balance_amounts(row) if isinstance(row, Balance) else ()
    rows.assign(row, rows.row_values(resource))
    rows.stamp(row, at=answered_at, by=StateBy.ANSWER, span=span)
    writes.changed.append(row)
    _record(row, previous_status, amounts, at=max(answered_at, previous_at))
    if isinstance(resource, wire.Refund) and differs:
        request_refresh(account, Kind.PAYMENT, resource.payment_id, "refund_changed")
    return row


def _same_account(row: Mirror, account: str) -> None:
    if row.account != account:
        raise wire.WireError("the object belongs to another account")


def _insert(account: str, resource: wire.AnyResource, at: datetime, span: float, *, is_new: bool = False) -> Any:
    is_erased = bool(keep_erased([(account, resource)]))
    row = rows.new_row(
        account, resource, rows.row_values(resource), at=at, by=StateBy.ANSWER, span=span, is_erased=is_erased
    )
    row.save(force_insert=True)
    _record(row, "", (), at=at, is_new=is_new)
    if isinstance(resource, wire.Refund):
        request_refresh(account, Kind.PAYMENT, resource.payment_id, "refund_changed")
    return row


def _record(
    row: Mirror, previous_status: str, amounts: tuple[int, ...], *, at: datetime, is_new: bool = False
) -> None:
    if isinstance(row, Balance):
        if changes.balance_amounts(row) != amounts:
            changes.balance_change(row, at=at).save(force_insert=True)
    elif change := changes.status_change(row, previous_status, at=at, event=None):
        # Dates are whole seconds, and an answer without news may have set the row's time back by a part of one: the
        # change is told after what it followed all the same.
        mine = StatusChange.objects.filter(account=row.account, object_kind=row.kind, object_id=row.object_id)
        latest = None if is_new else mine.order_by("-at").values_list("at", flat=True).first()
        change.at = max(at, latest) if latest is not None else at
        change.save(force_insert=True)


def _orders_better(row: Mirror, answered_at: datetime, span: float) -> bool:
    """Whether the row's own time says more than that of an answer with the same content.

    An event's is exact; any says more than that of an answer which nobody can date.
    """
    if span >= ordering.UNDATED_SPAN:
        return True
    is_clearly_newer = answered_at - timedelta(seconds=span) - ordering.MARGIN > row.state_at
    return row.state_by == StateBy.EVENT and not is_clearly_newer


def _held(kind: str, account: str, object_id: str) -> Any | None:
    return hold(rows.model_of(kind)._default_manager.filter(**_identity(kind, account, object_id))).first()


def _identity(kind: str, account: str, object_id: str) -> dict[str, str]:
    return {"account": account, "currency": object_id} if kind == Kind.BALANCE else {"pk": object_id}


def _balance_events(account: str) -> Counter[str]:
    """How many events of each balance are stored, by currency."""
    mine = Event.objects.filter(account=account, object_kind=Kind.BALANCE)
    return Counter(dict(mine.values_list("object_id").annotate(Count("pk"))))


def _events(kind: str, account: str, object_id: str) -> int:
    return Event.objects.filter(account=account, object_kind=kind, object_id=object_id).count()
