"""Write the provider's answers to mirror rows. An answer never overwrites a newer state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, partial
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from django.db import connections, router
from django.db.models import Exists, Subquery
from django.db.models.functions import Coalesce
from django.db.models.sql import Query
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables

from payments_integration import schemas
from payments_integration.db import sizes, statements
from payments_integration.db.refusals import condemns, described, in_halves
from payments_integration.db.transactions import locked, repeatable, updated
from payments_integration.enums import RefundStatus
from payments_integration.models import (
    MIRRORS,
    AccountState,
    Balance,
    Erasure,
    Event,
    EventState,
    Mirror,
    RefreshReason,
    Refund,
    StateBy,
    StatusChange,
    WebhookEndpoint,
)
from payments_integration.projection import history, ordering, rows
from payments_integration.projection.ordering import Order
from payments_integration.projection.reads import (
    ABSENT,
    Snapshot,
    balance_events,
    linked_reads,
    number_of_events,
    request_refresh,
    request_refreshes,
)
from payments_integration.projection.rows import keep_erased
from payments_integration.signals import has_listeners, mirror_written, status_changed


@dataclass(slots=True)
class _Writes:
    """Updates of locked rows of one kind, at most two statements."""

    #: Rows whose content the answer confirms.
    confirmed: list[Any] = field(default_factory=list)
    changed: list[Any] = field(default_factory=list)

    def execute(self) -> None:
        if self.confirmed:
            seen = type(self.confirmed[0])._default_manager.filter(pk__in=[row.pk for row in self.confirmed])
            seen.update(synced_at=timezone.now(), gone_at=None)
        changed = list(dict.fromkeys(self.changed))
        statements.update_many(changed)
        # What a confirmed payment implies may have changed with its refunds.
        mirror_written([*self.confirmed, *changed])


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
    """Write the answer to a GET, or to a POST that was sent once. Returns the row as it is now.

    The answer is written only if the object is still as it was ``before`` sending. Otherwise a refresh is requested if
    the content differs. ``duration`` is in seconds. Joins the caller's transaction or makes its own.

    ``is_new``: the request created the object, so skip the look-up. Only within a transaction. An IntegrityError means
    that an event of the object was faster: repeat the transaction without ``is_new``.
    """
    if is_new:
        now, may_be_erased = _facts_of_new(account, resource)
        at, seconds = ordering.when_read(answered_at, now, duration)
        return _insert(account, resource, at, seconds, may_be_erased=may_be_erased, is_ours=True)

    def write() -> Any:
        return _write(account, resource, answered_at, duration, before)

    return repeatable(write, using=router.db_for_write(Event))


def leaves_work(row: Mirror, known: Mirror | None = None) -> bool:
    """Return True if the write of an answer left something to do: a change to dispatch, or a payment to read.

    ``known`` is the object as the caller knew it before; None: it is new. The schedule does the rest of its work.
    """
    if known is not None and rows.status_of(row) == rows.status_of(known):
        return False
    # The first event of a refund that has moved nothing yet, or the schedule, has its payment read soon enough.
    has_moved = isinstance(row, Refund) and row.status not in (RefundStatus.CREATED, RefundStatus.PROCESSING)
    return has_moved or has_listeners(status_changed, type(row), rows.status_of(row))


@sensitive_variables()  # a report of an error would show payers
def write_new(
    account: str, resources: Sequence[schemas.AnyResource], *, answered_at: datetime | None, duration: float
) -> dict[str, str]:
    """Insert the objects of one kind that a list shows and that are not mirrored.

    Takes one transaction with a few statements, for any number of objects. If another process inserted one of them
    meanwhile, or the database refuses one, they are written in halves. Returns why each refused object was left out,
    by its id.
    """
    refused: dict[str, str] = {}

    def write(resources: Sequence[schemas.AnyResource]) -> None:
        offset, is_synced = statements.values_of(
            router.db_for_write(Event), history.clock_offset(account), _is_synced(account)
        )
        at, seconds = ordering.when_read(answered_at, ordering.time_by(offset), duration)
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
            # The same order in every process. Otherwise two that insert the same objects would wait for each other.
            for resource in sorted(resources, key=rows.object_id_of)
        ]
        statements.insert_many(new)
        changes = [
            change
            for row in new
            if (change := rows.status_change(row, "", at=at if is_synced else _own_time(row, at), event=None))
        ]
        recorded = rows.recorded_statuses(change.object_key for change in changes)
        changes = [change for change in changes if rows.changes_object(change, recorded.get(change.object_key), None)]
        _set_history_aside(changes)
        statements.insert_many(changes, keys=False)
        mirror_written(new)
        rows.notice_unexpected(new)
        request_refreshes(dict(chain.from_iterable(linked_reads(account, each).items() for each in resources)))

    def write_together(resources: Sequence[schemas.AnyResource]) -> None:
        repeatable(partial(write, resources), using=router.db_for_write(Event), lost_races=False)

    def write_alone(resource: schemas.AnyResource) -> None:
        try:
            write_answer(account, resource, answered_at=answered_at, duration=duration, before=ABSENT)
        except Exception as error:
            if not condemns(error):
                raise
            refused[rows.object_id_of(resource)] = f"the database refuses it: {described(error)}"

    try:
        write_together(resources)
    except Exception as error:
        if not condemns(error):
            raise
        in_halves(resources, write_together, write_alone)
    return refused


@sensitive_variables()  # a report of an error would show payers
def record_identity(account: str, resource: schemas.AnyResource, *, is_current: bool = False) -> Any:
    """Take the answer to a repeated POST. It may be old, and proves only that the object exists.

    Inserts the object if it is absent, and always requests a refresh. Returns the row as it is now. ``is_current``: a
    look-up just listed the object, so events since its creation may be older than that.
    """

    def write() -> Any:
        kind, object_id = rows.KIND_OF[type(resource)], rows.object_id_of(resource)
        row = _locked(kind, account, object_id)
        if row is None:
            facts = _facts(kind, account, object_id)
            # Dated at its creation, the earliest time at which it can have been read. All events since then are newer.
            at = getattr(resource, "created_at", None) or timezone.now()
            seconds = ordering.MAX_AHEAD.total_seconds()
            if is_current:
                # It was read at some time since its creation: events of that time leave the order to the refresh.
                now = max(facts.provider_time, at)
                at, seconds = now, seconds + (now - at).total_seconds()
            row = _insert(account, resource, at, seconds, recorded=facts.recorded, is_ours=True)
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
    """Write the answer to GET /balances, one row per currency. Newer rows stay as they are; others are marked as gone.

    ``before`` holds snapshots by currency, taken before sending; a currency without one was not mirrored. Takes one
    transaction, with five statements for any number of currencies if no amount changed.
    """
    listed = list(resources)

    def write() -> list[Balance]:
        at, seconds = ordering.when_read(answered_at, history.provider_time(account), duration)
        known = {row.currency: row for row in locked(Balance.objects.filter(account=account)).order_by("currency")}
        counts = balance_events(account)
        writes = _Writes()
        for resource in listed:
            row, snapshot = known.get(resource.currency), before.get(resource.currency, ABSENT)
            unchanged = snapshot == Snapshot(row.version if row else None, counts[resource.currency])
            # A currency may be listed twice.
            known[resource.currency] = _put(account, resource, row, at, seconds, unchanged, writes)
        writes.execute()
        names = {resource.currency for resource in listed}
        unlisted = [row for name, row in known.items() if name not in names and row.gone_at is None]
        gone = [
            row.pk for row in unlisted if ordering.against_answer(row.state_at, at, seconds) is ordering.Order.OLDER
        ]
        if gone:
            Balance.objects.filter(pk__in=gone).update(gone_at=timezone.now())
        return [known[resource.currency] for resource in listed]

    return repeatable(write, using=router.db_for_write(Event))


def mark_gone(account: str, kind: str, object_id: str, *, before: Snapshot) -> None:
    """Record that the provider answered 404. The row is kept, and so is the time of the first 404.

    Does nothing if the row was written since ``before``, which was taken before sending.
    """
    # A refund of this account may name another account's object: leave that row alone.
    here = rows.rows_of(kind, account, object_id).filter(account=account, version=before.version)
    now = timezone.now()
    updated(here, gone_at=Coalesce("gone_at", now), synced_at=now)


def _write(
    account: str, resource: schemas.AnyResource, answered_at: datetime | None, duration: float, before: Snapshot
) -> Any:
    kind, object_id = rows.KIND_OF[type(resource)], rows.object_id_of(resource)
    row = _locked(kind, account, object_id)
    facts = _facts(kind, account, object_id)
    at, seconds = ordering.when_read(answered_at, facts.provider_time, duration)
    unchanged = row is not None and before == Snapshot(row.version, facts.events)
    writes = _Writes()
    row = _put(account, resource, row, at, seconds, unchanged, writes, facts)
    writes.execute()
    return row


def _put(
    account: str,
    resource: schemas.AnyResource,
    row: Any | None,
    answered_at: datetime,
    duration: float | None,
    unchanged: bool,
    writes: _Writes,
    facts: _Facts | None = None,
) -> Any:
    """Apply an answer to a locked row (None: insert one). Collects an update in ``writes``.

    ``facts`` is given for an object with a status.
    """
    if row is None:
        # A stored event that is not applied yet will be ordered against this row.
        is_synced = facts is None or facts.is_synced
        recorded = facts.recorded if facts is not None else None
        row = _insert(account, resource, answered_at, duration, recorded=recorded, is_synced=is_synced)
        rows.notice_unexpected([row])
        return row
    _same_account(row, account)
    values = rows.row_values(resource)
    differs = rows.differing(row, values)
    by_event, order = row.state_by == StateBy.EVENT, ordering.against_answer(row.state_at, answered_at, duration)
    # With the same content, the more precise time stays: an event's is exact, and an undated answer has none.
    if not differs and (duration is None or (by_event and order is not Order.OLDER)):
        writes.confirmed.append(row)
        return row
    if not unchanged or (by_event and order is Order.NEWER):
        if differs:
            request_refresh(account, row.kind, row.object_id, RefreshReason.CHANGED_MEANWHILE)
        return row
    previous_status, previous_at = rows.status_of(row), row.state_at
    rows.assign(row, values)
    rows.stamp(row, at=answered_at, by=StateBy.ANSWER, duration=duration)
    writes.changed.append(row)
    changed_at = max(answered_at, previous_at)
    if facts is not None and not facts.is_synced and history.is_history(account, previous_at):
        # Old events wrote the row, so the change may be as old as they are.
        changed_at = max(_own_time(row, answered_at), previous_at)
    recorded = facts.recorded if facts is not None else None
    _record(row, previous_status, at=changed_at, recorded=recorded, row_at=previous_at)
    if differs:
        request_refreshes(linked_reads(account, resource))
    return row


def _same_account(row: Mirror, account: str) -> None:
    if row.account != account:
        raise schemas.WireError("the object belongs to another account")


def _insert(
    account: str,
    resource: schemas.AnyResource,
    at: datetime,
    duration: float | None,
    *,
    recorded: rows.Recorded | None = None,
    may_be_erased: bool = True,
    is_ours: bool = False,
    is_synced: bool = True,
) -> Any:
    """Insert a row. ``is_ours``: our operation made it. ``is_synced``: the first full resync was complete."""
    is_erased = may_be_erased and bool(keep_erased([(account, resource)]))
    row = rows.new_row(
        account, resource, rows.row_values(resource), at=at, by=StateBy.ANSWER, duration=duration, is_erased=is_erased
    )
    sizes.refuse_too_large_row(row)
    if isinstance(row, Balance | WebhookEndpoint):
        # A pass writes them, so no receiver of another app is called, which could end it.
        statements.insert_many([row])
    else:
        statements.insert_like_save(row)
    changed_at = at if is_ours or is_synced else _own_time(row, at)
    _record(row, "", at=changed_at, recorded=recorded, row_at=None, is_ours=is_ours)
    mirror_written([row])
    request_refreshes(linked_reads(account, resource))
    return row


def _own_time(row: Mirror, answered_at: datetime) -> datetime:
    """Return when the object of an answer came into its status, as far as it says."""
    return min(history.own_time(row) or answered_at, answered_at)


def _record(
    row: Mirror,
    previous_status: str,
    *,
    at: datetime,
    recorded: rows.Recorded | None,
    row_at: datetime | None,
    is_ours: bool = False,
) -> None:
    change = rows.status_change(row, previous_status, at=at, event=None)
    if change and rows.changes_object(change, recorded, row_at):
        # A Date has whole seconds, so an answer that confirmed the row may have set its time back by part of a second.
        # The change must still be dispatched after the one before it.
        change.at = max(at, recorded.at) if recorded is not None else at
        if not is_ours:
            _set_history_aside([change])
        statements.insert_many([change], keys=False)


def _set_history_aside(changes: Iterable[StatusChange]) -> None:
    """Count unsaved changes from before the installation as done, except for objects of our own operations."""
    waiting = [change for change in changes if change.state == EventState.APPLIED]
    for change in history.before_installation(waiting, attrgetter("at")):
        change.state = EventState.DONE


def _locked(kind: str, account: str, object_id: str) -> Any | None:
    model: Any = MIRRORS[kind]
    keys, using = rows.identity(model, [(kind, account, object_id)]), router.db_for_write(model)
    found = statements.rows_in(model, keys, using, lock=True, wait=True)
    return statements.from_values(model, found[0], using) if found else None


class _Facts(NamedTuple):
    """What decides about an answer, in addition to the object's row."""

    provider_time: datetime
    events: int
    #: Its latest change of status.
    recorded: rows.Recorded | None
    #: True if the account's first full resync is complete.
    is_synced: bool


def _facts(kind: str, account: str, object_id: str) -> _Facts:
    """Read the facts in one statement. Call after the row was locked: they include what came until then."""
    given = statements.about(account, object_id)
    [(offset, events, status, at, is_synced)] = _read_facts(kind, using=router.db_for_write(Event), given=given)
    recorded = rows.Recorded(status, at) if at is not None else None
    return _Facts(ordering.time_by(offset), events or 0, recorded, bool(is_synced))


@statements.built_once
def _read_facts(kind: str) -> Query:
    account, object_id = statements.ACCOUNT, statements.OBJECT
    changes = StatusChange.objects.filter(account=account, object_kind=kind, object_id=object_id)
    changes = changes.order_by("-at", "-pk")
    return statements.values_query(
        history.clock_offset(account),
        number_of_events(kind, account, object_id),
        Subquery(changes.values("status")[:1]),
        Subquery(changes.values("at")[:1]),
        _is_synced(account),
    )


def _is_synced(account: str) -> Exists:
    return Exists(AccountState.objects.filter(account=account, first_synced_at__isnull=False))


def _facts_of_new(account: str, resource: schemas.AnyResource) -> tuple[datetime, bool]:
    """Return the provider's present time, and True if the new object may have to be kept erased. One statement."""
    keys, using = rows.erasing_keys(account, resource), router.db_for_write(Event)
    with connections[using].cursor() as cursor:
        cursor.execute(_new_sql(using, len(keys)), [account, *chain.from_iterable(keys)])
        offset, may_be_erased = cursor.fetchone()
    return ordering.time_by(offset), bool(may_be_erased)


@cache
def _new_sql(using: str, number_of_keys: int) -> str:
    quote = connections[using].ops.quote_name
    state, erasure = quote(AccountState._meta.db_table), quote(Erasure._meta.db_table)
    offset = f"(SELECT clock_offset FROM {state} WHERE account = %s)"  # noqa: S608  (names of ours)
    one = "(account = %s AND object_kind = %s AND object_id = %s)"
    which = " OR ".join([one] * number_of_keys)
    return f"SELECT {offset}, " + (f"EXISTS(SELECT 1 FROM {erasure} WHERE {which})" if which else "1 = 0")  # noqa: S608
