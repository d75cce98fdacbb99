"""Writes the provider's answers to mirror rows. An answer never overwrites a newer state."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import DatabaseError, router
from django.db.models import CharField, Count, Exists, FloatField, OuterRef, Subquery, Value
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables

from payments_integration import schemas
from payments_integration.db import statements
from payments_integration.db.transactions import is_transient, locked, repeatable, updated
from payments_integration.enums import Kind
from payments_integration.models import (
    AccountState,
    Balance,
    Erasure,
    Event,
    EventState,
    Mirror,
    RefreshReason,
    Searched,
    StateBy,
    StatusChange,
    searched,
)
from payments_integration.projection import history, ordering, rows
from payments_integration.projection.ledgers import notice_unknown_operations
from payments_integration.projection.refreshes import of_objects, request_refresh, request_refreshes
from payments_integration.projection.rows import keep_erased
from payments_integration.projection.terms import write_terms
from payments_integration.signals import mirror_written


@dataclass(slots=True)
class _Writes:
    """Updates of locked rows of one kind, at most two statements, and two more if search terms change."""

    #: Rows whose content the answer confirms.
    confirmed: list[Any] = field(default_factory=list)
    changed: list[Any] = field(default_factory=list)
    #: What the search terms of the changed rows were made of.
    searched: dict[Any, Searched] = field(default_factory=dict)

    def execute(self) -> None:
        if self.confirmed:
            seen = type(self.confirmed[0])._default_manager.filter(pk__in=[row.pk for row in self.confirmed])
            seen.update(synced_at=timezone.now(), gone_at=None)
        changed = list(dict.fromkeys(self.changed))
        statements.update_many(changed)
        write_terms([], self.searched)
        mirror_written(changed)


class Snapshot(NamedTuple):
    """What we knew of an object before a request was sent. If it is equal afterwards, nothing came meanwhile."""

    version: int | None
    events: int


def snapshot(kind: str, account: str, object_id: str) -> Snapshot:
    """Call it before sending. One statement if the object is mirrored, otherwise two."""
    mirrored = rows.model_of(kind)._default_manager.filter(**_identity(kind, account, object_id))
    known = mirrored.values_list("version", _number_of_events(kind, account, object_id)).first()
    if known:
        return Snapshot(known[0], known[1] or 0)
    return Snapshot(None, Event.objects.filter(account=account, object_kind=kind, object_id=object_id).count())


def balance_snapshots(account: str) -> dict[str, Snapshot]:
    """Snapshots of all mirrored balances by currency; two statements."""
    versions = dict(Balance.objects.filter(account=account).values_list("currency", "version"))
    counts = _balance_events(account)
    return {currency: Snapshot(version, counts[currency]) for currency, version in versions.items()}


#: The snapshot of an object that does not exist before the request: for the first POST that creates it.
ABSENT = Snapshot(None, 0)


@sensitive_variables()  # a report of an error would show payers
def write_answer(
    account: str,
    resource: schemas.AnyResource,
    *,
    answered_at: datetime | None,
    duration: float,
    before: Snapshot,
    is_new: bool = False,
) -> Any:
    """Write the answer to a GET, or to a POST that was sent once; returns the row as it is now.

    The answer is written only if the object is still as it was ``before`` sending. Otherwise a refresh is requested if
    the content differs. ``duration``: seconds. Joins the caller's transaction or makes its own.

    ``is_new``: the request has created the object, so skip the look-up. Only within a transaction; an IntegrityError
    means that an event of the object was faster: repeat the transaction without it.
    """
    if is_new:
        now, may_be_erased = _facts_of_new(account, resource)
        at, duration = ordering.when_read(answered_at, now, duration)
        return _insert(account, resource, at, duration, may_be_erased=may_be_erased, is_ours=True)

    def write() -> Any:
        return _write(account, resource, answered_at, duration, before)

    return repeatable(write, using=router.db_for_write(Event))


@sensitive_variables()  # a report of an error would show payers
def write_new(
    account: str, resources: Sequence[schemas.AnyResource], *, answered_at: datetime | None, duration: float
) -> None:
    """Insert the objects of one kind that a list shows and that are not mirrored.

    One transaction with a few statements, for any number of objects. If one of them was inserted meanwhile, or the
    database refuses one, they are written one by one.
    """

    def write() -> None:
        offset, is_synced = statements.values_of(
            router.db_for_write(Event), clock_offset(account), _is_synced(account)
        )
        at, seconds = ordering.when_read(answered_at, _ahead(offset), duration)
        erased = {object_id for _, _, object_id in keep_erased((account, resource) for resource in resources)}
        new = [
            rows.new_row(
                account,
                resource,
                rows.row_values(resource),
                at=at,
                by=StateBy.ANSWER,
                duration=seconds,
                is_erased=rows.object_id_of(resource) in erased,
            )
            # In the same order in every process: two that insert the same objects would otherwise wait for each other.
            for resource in sorted(resources, key=rows.object_id_of)
        ]
        statements.insert_many(new)
        write_terms(new)
        changes = [
            change
            for row in new
            if (change := rows.status_change(row, "", at=at if is_synced else _own_time(row, at), event=None))
        ]
        _set_history_aside(account, changes)
        statements.insert_many(changes, keys=False)
        mirror_written(new)
        notice_unknown_operations(new)
        request_refreshes(
            {
                (account, str(Kind.PAYMENT), resource.payment_id): RefreshReason.REFUND_CHANGED
                for resource in resources
                if isinstance(resource, schemas.Refund)
            }
        )

    try:
        repeatable(write, using=router.db_for_write(Event), lost_races=False)
    except DatabaseError as error:
        if is_transient(error):
            raise
        for resource in resources:
            write_answer(account, resource, answered_at=answered_at, duration=duration, before=ABSENT)


@sensitive_variables()  # a report of an error would show payers
def record_identity(account: str, resource: schemas.AnyResource, *, is_current: bool = False) -> Any:
    """Take the answer to a repeated POST, which may be old and proves only that the object exists.

    Inserts the object if it is absent, and requests a refresh in any case; returns the row as it is now.
    ``is_current``: a look-up has just listed the object, so an event since its creation may be older than that.
    """

    def write() -> Any:
        kind, object_id = rows.KIND_OF[type(resource)], rows.object_id_of(resource)
        row = _locked(kind, account, object_id)
        if row is None:
            facts = _facts(kind, account, object_id)
            # Dated at its creation, the earliest time at which it can have been read: all events since then are newer.
            at, seconds = _earliest_time(resource), ordering.MAX_AHEAD.total_seconds()
            if is_current:
                # Read at some time since its creation: events of that time leave the order to the refresh.
                now = max(facts.provider_time, at)
                at, seconds = now, seconds + (now - at).total_seconds()
            row = _insert(account, resource, at, seconds, latest_change=facts.latest_change, is_ours=True)
        _same_account(row, account)
        request_refresh(account, row.kind, row.object_id, RefreshReason.REPEATED_POST)
        return row

    return repeatable(write, using=router.db_for_write(Event))


@sensitive_variables()  # a report of an error would show payers
def write_balances(
    account: str,
    resources: Iterable[schemas.Balance],
    *,
    answered_at: datetime | None,
    duration: float,
    before: Mapping[str, Snapshot],
) -> list[Balance]:
    """Write the answer to GET /balances, one row per currency; newer rows stay as they are.

    ``before``: snapshots by currency, taken before sending; a currency without one was not mirrored. One transaction,
    with five statements for any number of currencies if no amount changed.
    """
    listed = list(resources)

    def write() -> list[Balance]:
        at, seconds = ordering.when_read(answered_at, provider_time(account), duration)
        known = {row.currency: row for row in locked(Balance.objects.filter(account=account)).order_by("currency")}
        counts = _balance_events(account)
        writes = _Writes()
        for resource in listed:
            row, snapshot = known.get(resource.currency), before.get(resource.currency, ABSENT)
            unchanged = snapshot == Snapshot(row.version if row else None, counts[resource.currency])
            # A currency may be listed twice.
            known[resource.currency] = _put(account, resource, row, at, seconds, unchanged, writes)
        writes.execute()
        return [known[resource.currency] for resource in listed]

    return repeatable(write, using=router.db_for_write(Event))


def mark_gone(account: str, kind: str, object_id: str) -> None:
    """Record that the provider answered 404. The row is kept."""
    here = rows.model_of(kind)._default_manager.filter(**_identity(kind, account, object_id))
    # Not the row of another account's object, which a refund of this account may name.
    here = here.filter(account=account, gone_at=None)
    updated(here, gone_at=timezone.now(), synced_at=timezone.now())


def _earliest_time(resource: schemas.AnyResource) -> datetime:
    """The earliest time at which an object can have had this content."""
    return getattr(resource, "created_at", None) or timezone.now()


def _write(
    account: str, resource: schemas.AnyResource, answered_at: datetime | None, duration: float, before: Snapshot
) -> Any:
    kind, object_id = rows.KIND_OF[type(resource)], rows.object_id_of(resource)
    row = _locked(kind, account, object_id)
    facts = _facts(kind, account, object_id)
    answered_at, duration = ordering.when_read(answered_at, facts.provider_time, duration)
    unchanged = row is not None and before == Snapshot(row.version, facts.events)
    writes = _Writes()
    row = _put(account, resource, row, answered_at, duration, unchanged, writes, facts)
    writes.execute()
    return row


def _put(
    account: str,
    resource: schemas.AnyResource,
    row: Any | None,
    answered_at: datetime,
    duration: float,
    unchanged: bool,
    writes: _Writes,
    facts: _Facts | None = None,
) -> Any:
    """Apply an answer to a locked row (None: insert one). An update is collected in ``writes``.

    ``facts``: of an object with a status.
    """
    kind, object_id = rows.KIND_OF[type(resource)], rows.object_id_of(resource)
    if row is None:
        # A stored event that is not applied yet will be ordered against this row.
        is_synced = facts is None or facts.is_synced
        latest_change = facts.latest_change if facts is not None else None
        row = _insert(account, resource, answered_at, duration, latest_change=latest_change, is_synced=is_synced)
        notice_unknown_operations([row])
        return row
    _same_account(row, account)
    differs = rows.differences(row, resource)
    if not differs and _orders_better(row, answered_at, duration):
        writes.confirmed.append(row)
        return row
    if not unchanged or (
        row.state_by == StateBy.EVENT and not ordering.answer_may_replace_event(answered_at, duration, row.state_at)
    ):
        if differs:
            request_refresh(account, kind, object_id, RefreshReason.CHANGED_MEANWHILE)
        return row
    previous_status, previous_at = rows.status_of(row), row.state_at
    writes.searched.setdefault(row, searched(row))
    amounts = rows.balance_amounts(row) if isinstance(row, Balance) else ()
    rows.assign(row, rows.row_values(resource))
    rows.stamp(row, at=answered_at, by=StateBy.ANSWER, duration=duration)
    writes.changed.append(row)
    changed_at = max(answered_at, previous_at)
    if facts is not None and not facts.is_synced and history.is_history(account, previous_at):
        # Old events wrote the row, so the change may be as old as they are.
        changed_at = max(_own_time(row, answered_at), previous_at)
    _record(row, previous_status, amounts, at=changed_at, latest_change=facts.latest_change if facts else None)
    if isinstance(resource, schemas.Refund) and differs:
        request_refresh(account, Kind.PAYMENT, resource.payment_id, RefreshReason.REFUND_CHANGED)
    return row


def _same_account(row: Mirror, account: str) -> None:
    if row.account != account:
        raise schemas.WireError("the object belongs to another account")


def _insert(
    account: str,
    resource: schemas.AnyResource,
    at: datetime,
    duration: float,
    *,
    latest_change: datetime | None = None,
    may_be_erased: bool = True,
    is_ours: bool = False,
    is_synced: bool = True,
) -> Any:
    """``is_ours``: an operation of ours created it. ``is_synced``: the first full resync was complete before."""
    is_erased = may_be_erased and bool(keep_erased([(account, resource)]))
    row = rows.new_row(
        account, resource, rows.row_values(resource), at=at, by=StateBy.ANSWER, duration=duration, is_erased=is_erased
    )
    row.save(force_insert=True)
    write_terms([row])
    changed_at = at if is_ours or is_synced else _own_time(row, at)
    _record(row, "", (), at=changed_at, latest_change=latest_change, is_ours=is_ours)
    mirror_written([row])
    if isinstance(resource, schemas.Refund):
        request_refresh(account, Kind.PAYMENT, resource.payment_id, RefreshReason.REFUND_CHANGED)
    return row


def _own_time(row: Mirror, answered_at: datetime) -> datetime:
    """When the object of an answer came into its status, as far as it says."""
    return min(rows.own_time(row) or answered_at, answered_at)


def _record(
    row: Mirror,
    previous_status: str,
    amounts: tuple[int, ...],
    *,
    at: datetime,
    latest_change: datetime | None,
    is_ours: bool = False,
) -> None:
    if isinstance(row, Balance):
        if rows.balance_amounts(row) != amounts:
            rows.balance_change(row, at=at).save(force_insert=True)
    elif change := rows.status_change(row, previous_status, at=at, event=None):
        # A Date has whole seconds, so an answer that confirmed the row may have set its time back by part of a second.
        # The change must still be dispatched after the one before it.
        change.at = max(at, latest_change) if latest_change is not None else at
        if not is_ours:
            _set_history_aside(row.account, [change])
        change.save(force_insert=True)


def _set_history_aside(account: str, changes: Iterable[StatusChange]) -> None:
    """Have unsaved changes from before the installation count as done, except those of our own operations' objects."""
    old = [
        change for change in changes if change.state == EventState.APPLIED and history.is_history(account, change.at)
    ]
    ours = history.ours(account, (change.object_id for change in old))
    for change in old:
        if change.object_id not in ours:
            change.state = EventState.DONE


def _orders_better(row: Mirror, answered_at: datetime, duration: float) -> bool:
    """Whether the row's time is more precise than that of an answer with the same content.

    An event's time is exact, and any time is more precise than that of an undated answer.
    """
    if duration >= ordering.UNDATED:
        return True
    is_clearly_newer = answered_at - timedelta(seconds=duration) - ordering.MARGIN > row.state_at
    return row.state_by == StateBy.EVENT and not is_clearly_newer


def _locked(kind: str, account: str, object_id: str) -> Any | None:
    return locked(rows.model_of(kind)._default_manager.filter(**_identity(kind, account, object_id))).first()


def _identity(kind: str, account: str, object_id: str) -> dict[str, str]:
    return {"account": account, "currency": object_id} if kind == Kind.BALANCE else {"pk": object_id}


def _balance_events(account: str) -> Counter[str]:
    """The number of stored events of each balance, by currency."""
    mine = Event.objects.filter(account=account, object_kind=Kind.BALANCE)
    return Counter(dict(mine.values_list("object_id").annotate(Count("pk"))))


def _number_of_events(kind: str, account: str, object_id: str) -> Subquery:
    """Null instead of 0."""
    mine = Event.objects.filter(account=account, object_kind=kind, object_id=object_id)
    return Subquery(mine.order_by().values("object_id").annotate(number=Count("pk")).values("number"))


class _Facts(NamedTuple):
    """What decides about an answer, together with the object's row."""

    provider_time: datetime
    #: The number of stored events of the object.
    events: int
    #: The time of its latest change of status.
    latest_change: datetime | None
    #: Whether the account's first full resync is complete.
    is_synced: bool


def _facts(kind: str, account: str, object_id: str) -> _Facts:
    """Call it after the row was locked: what came until then is in it. One statement."""
    changes = StatusChange.objects.filter(account=account, object_kind=kind, object_id=object_id).order_by("-at")
    offset, events, latest_change, is_synced = statements.values_of(
        router.db_for_write(Event),
        clock_offset(account),
        _number_of_events(kind, account, object_id),
        Subquery(changes.values("at")[:1]),
        _is_synced(account),
    )
    return _Facts(_ahead(offset), events or 0, latest_change, bool(is_synced))


def _is_synced(account: str) -> Exists:
    return Exists(AccountState.objects.filter(account=account, first_synced_at__isnull=False))


def _facts_of_new(account: str, resource: schemas.AnyResource) -> tuple[datetime, bool]:
    """The provider's present time, and whether the new object may have to be kept erased; one statement."""
    keys = rows.erasing_keys(account, resource)
    is_erased = Exists(Erasure.objects.filter(of_objects(keys))) if keys else Value(False)
    offset, may_be_erased = statements.values_of(router.db_for_write(Event), clock_offset(account), is_erased)
    return _ahead(offset), bool(may_be_erased)


def clock_offset(account: str | OuterRef) -> Subquery:
    """The provider's clock minus ours in seconds; null if it is not known."""
    return Subquery(AccountState.objects.filter(account=account).values("clock_offset")[:1])


def _ahead(offset: float | None) -> datetime:
    return timezone.now() + timedelta(seconds=offset or 0)


def times_and_owners(
    accounts: Iterable[str], objects: Iterable[tuple[str, str]]
) -> tuple[dict[str, datetime], dict[tuple[str, str], str]]:
    """The provider's present time, by account; and the account of each object that is mirrored, by kind and id.

    One statement.
    """
    names, ids = set(accounts), defaultdict(set)
    for kind, object_id in objects:
        ids[kind].add(object_id)
    found = AccountState.objects.filter(account__in=names).values_list(
        "account", Value("", CharField()), Value("", CharField()), "clock_offset"
    )
    mirrored = [
        rows.model_of(kind)
        ._default_manager.filter(pk__in=wanted)
        .values_list("account", Value(kind, CharField()), "pk", Value(0.0, FloatField()))
        for kind, wanted in sorted(ids.items())
    ]
    offsets: dict[str, float] = {}
    owners: dict[tuple[str, str], str] = {}
    for account, kind, object_id, offset in found.union(*mirrored, all=True) if mirrored else found:
        if kind:
            owners[kind, object_id] = account
        else:
            offsets[account] = offset
    return {account: _ahead(offsets.get(account)) for account in names}, owners


def provider_time(account: str) -> datetime:
    return times_and_owners([account], ())[0][account]
