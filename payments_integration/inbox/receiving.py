"""Store events: each event once, however often a webhook or reconciliation brings it.

A signed body that cannot be understood is stored in quarantine. Answering 4xx again and again would get the endpoint
disabled, and without a copy the event would be lost.
"""

from __future__ import annotations

import enum
import hashlib
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from django.db import IntegrityError, router
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables

from payments_integration import conf, schemas, telemetry
from payments_integration.attention import call_attention
from payments_integration.db import statements
from payments_integration.db.refusals import condemns, described
from payments_integration.db.transactions import deleted, first_run, insert_and_commit, repeatable
from payments_integration.enums import Kind
from payments_integration.models import Event, EventSource, EventState
from payments_integration.projection import object_id_of, storable
from payments_integration.signals import Reason

#: Ids of quarantined bodies begin with this.
QUARANTINE_PREFIX = "quarantine_"


class _Known(NamedTuple):
    """The columns that show if a stored event is the same as a new one with its id."""

    id: str
    account: str
    content_hash: str


class Receipt(enum.Enum):
    #: Stored now, as PENDING.
    NEW = "new"
    #: Stored before, with the same content.
    KNOWN = "known"
    #: Stored now, as QUARANTINED.
    QUARANTINED = "quarantined"


@sensitive_variables()
def receive(account: str, body: bytes, *, source: str = EventSource.WEBHOOK) -> Receipt:
    """Store one signed body. The event is committed when this returns.

    Takes one INSERT for a new event, two statements for a known one. An event whose values the database refuses is
    quarantined. Any other database error is raised. Raises ImproperlyConfigured for an account that the settings lack.
    """
    conf.account(account)
    event = read(account, body, source=source)
    try:
        _store(event)
    except IntegrityError:
        return _receive_known(event)
    except Exception as error:
        if not condemns(error):
            raise
        return _receive_refused(event, body, error)
    return _told(event, _receipt(event))


@sensitive_variables()
def receive_many(account: str, bodies: Iterable[bytes], *, source: str, are_new: bool = False) -> Counter[Receipt]:
    """Store many bodies: one SELECT, then one INSERT for the new ones in a transaction.

    ``are_new``: probably all are new, so the SELECT is made only if the INSERT finds a key taken. If the database
    refuses the values of one body, they are stored one by one.
    """
    events: dict[str, Event] = {}
    contradicting: list[bytes] = []
    repeated: list[Event] = []
    for body in bodies:
        event = read(account, body, source=source)
        first = events.setdefault(event.id, event)
        if first.content_hash != event.content_hash:
            contradicting.append(body)
        elif first is not event:
            repeated.append(event)

    def store() -> tuple[list[Event], dict[str, Event]]:
        # If a webhook stored one of them since, its key is taken. The retry reads the known events again.
        fresh, contradictions = found if is_first_run() else _sort(events)
        rows = [*fresh, *contradictions.values()]
        statements.insert_many(rows)
        for event in rows:
            if event.state == EventState.QUARANTINED:
                report_quarantined(event)
        return fresh, contradictions

    fresh, contradictions = found = (list(events.values()), {}) if are_new else _sort(events)
    is_first_run = first_run()
    if fresh or contradictions:
        try:
            fresh, contradictions = repeatable(store, using=router.db_for_write(Event), durable=True)
        except Exception as error:
            if isinstance(error, IntegrityError) or not condemns(error):
                raise
            bodies = [bytes(event.body or b"") for event in events.values()]
            counts = Counter(receive(account, body, source=source) for body in (*bodies, *contradicting))
            counts.update(_told(event, Receipt.KNOWN) for event in repeated)
            return counts
    new = {event.id for event in fresh}
    known = [event for event in events.values() if event.id not in new and event.id not in contradictions]
    counts = Counter(_told(event, _receipt(event)) for event in (*fresh, *contradictions.values()))
    counts.update(_told(event, Receipt.KNOWN) for event in (*known, *repeated))
    # Bodies that share an id: the first is stored by now, and each of the others is compared with it.
    counts.update(receive(account, body, source=source) for body in contradicting)
    return counts


def receive_unread(account: str, event_id: str, span: tuple[datetime, datetime] | None, *, source: str) -> Receipt:
    """Quarantine an event that the provider lists but that cannot be read: keep its id or the time of its creation.

    The next pass finds the same event and makes the same row.
    """
    if event_id and Event.objects.filter(pk=event_id).exists():
        return Receipt.KNOWN
    place = {"id": event_id} if span is None else {"created_from": span[0], "created_to": span[1]}
    reason = "the event cannot be read from the provider's list; the body here says which one it is"
    row = _unread(account, place, source=source, reason=reason)
    try:
        _store(row)
    except IntegrityError:
        return Receipt.KNOWN
    return _told(row, Receipt.QUARANTINED)


def _unread(account: str, place: dict[str, Any], *, source: str, reason: str) -> Event:
    """Return an unsaved quarantine row that names an event instead of holding its body."""
    return quarantined(account, schemas.encode({"account": account, "unread": place}), source=source, reason=reason)


def read(account: str, body: bytes, *, source: str) -> Event:
    """Return an unsaved row for these bytes, quarantined if they cannot be understood."""
    try:
        event = schemas.decode_event(body)
        if event.id.startswith(QUARANTINE_PREFIX):
            raise schemas.WireError("$.id has a prefix that is reserved for quarantined bodies")
        resource = schemas.event_resource(event)
    except schemas.WireError as error:
        return quarantined(account, body, source=source, reason=str(error))
    kind, object_id = (resource.object, object_id_of(resource)) if resource else _foreign_identity(event)
    return new_event(
        id=event.id,
        account=account,
        type=storable(event.type),
        created_at=event.created_at,
        object_kind=kind,
        object_id=object_id,
        source=source,
        body=body,
        content_hash=hashlib.sha256(schemas.canonical(event)).hexdigest(),
        traceparent=telemetry.traceparent(),
    )


def quarantined(account: str, body: bytes, *, source: str, reason: str) -> Event:
    """Return an unsaved row that keeps bytes for a person to examine."""
    digest = hashlib.sha256(body).hexdigest()
    return new_event(
        id=f"{QUARANTINE_PREFIX}{digest}",
        account=account,
        type="",
        created_at=timezone.now(),
        object_kind="",
        object_id="",
        source=source,
        body=body,
        content_hash=digest,
        state=EventState.QUARANTINED,
        error=storable(reason),
    )


def new_event(
    *,
    id: str,
    account: str,
    type: str,
    created_at: datetime,
    object_kind: str,
    object_id: str,
    source: str,
    body: bytes,
    content_hash: str,
    state: str = EventState.PENDING,
    error: str = "",
    traceparent: str = "",
) -> Event:
    """Return an unsaved row. Positional arguments take the constructor a third of the time."""
    received_at, previous_status, dispatched_at, attempts = timezone.now(), "", None, 0
    return Event(
        id, account, type, created_at, object_kind, object_id, received_at, source, body, content_hash,
        state, previous_status, dispatched_at, attempts, error, traceparent,
    )  # fmt: skip


def read_again(row: Event) -> bool:
    """Parse a quarantined body again, for example after an upgrade. Returns True if it left the quarantine."""
    body = bytes(row.body or b"")
    if read(row.account, body, source=row.source).state == EventState.QUARANTINED:
        return False
    if receive(row.account, body, source=row.source) is Receipt.QUARANTINED:
        return False
    deleted(Event.objects.filter(pk=row.pk, state=EventState.QUARANTINED))
    return True


def _store(event: Event) -> None:
    """Insert and commit the row. Raises IntegrityError if the id is taken or the database refuses the row."""
    then = partial(report_quarantined, event) if event.state == EventState.QUARANTINED else None
    insert_and_commit(event, using=router.db_for_write(Event), then=then)


def _receive_refused(event: Event, body: bytes, error: Exception) -> Receipt:
    """Quarantine an event whose values the database refuses, without its body if that is too large."""
    account, source, reason = event.account, event.source, f"the database refuses it: {described(error)}"
    copy = quarantined(account, body, source=source, reason=reason)
    where = "; its body is too large to be stored, and the one here names the event"
    for row in (copy, _unread(account, {"id": event.id}, source=source, reason=reason + where)):
        try:
            _store(row)
        except IntegrityError:
            return _told(row, Receipt.KNOWN)
        except Exception as refusal:
            if not condemns(refusal):
                raise
        else:
            return _told(row, Receipt.QUARANTINED)
    raise error


def _receive_known(event: Event) -> Receipt:
    using = router.db_for_write(Event)
    found = statements.values_by_key(Event, event.id, "account", "content_hash", using=using)
    if found is None:
        # The other delivery was rolled back, or the error had another cause. The provider sends the event again.
        raise IntegrityError(f"event {event.id} could be neither stored nor found")
    other = _contradiction(event, _Known(event.id, *found))
    if other is None:
        return _told(event, Receipt.KNOWN)
    with suppress(IntegrityError):  # it is stored already
        _store(other)
    return _told(other, Receipt.QUARANTINED)


def _contradiction(event: Event, known: _Known) -> Event | None:
    """Return a row for the quarantine if the id is known with another account or other content."""
    if event.state == EventState.QUARANTINED:
        return None
    if known.account != event.account:
        reason = "this event id belongs to another account"
    elif known.content_hash != event.content_hash:
        reason = "this event id came before with other content; the first is kept"
    else:
        return None
    return quarantined(event.account, bytes(event.body or b""), source=event.source, reason=reason)


def _sort(events: dict[str, Event]) -> tuple[list[Event], dict[str, Event]]:
    """Return the new events; and by id, quarantine rows for events that are known with other content."""
    known = {row.id: row for row in _known(events)}
    fresh = [event for event in events.values() if event.id not in known]
    contradictions = {
        event.id: other
        for event in events.values()
        if event.id in known and (other := _contradiction(event, known[event.id]))
    }
    if contradictions:
        there = {row.id for row in _known([other.id for other in contradictions.values()])}
        contradictions = {event_id: other for event_id, other in contradictions.items() if other.id not in there}
    return fresh, contradictions


def _known(ids: Iterable[str]) -> Iterable[_Known]:
    stored = Event.objects.filter(id__in=list(ids)).values_list("id", "account", "content_hash")
    return map(_Known._make, stored)


def _receipt(event: Event) -> Receipt:
    return Receipt.QUARANTINED if event.state == EventState.QUARANTINED else Receipt.NEW


def _told(event: Event, receipt: Receipt) -> Receipt:
    """Report the receipt to observers and return it. For a contradicting body, ``event`` is its quarantine row."""
    telemetry.happened(telemetry.Received(event.account, event.source, event.type, receipt.value, event.id))
    return receipt


def report_quarantined(event: Event) -> None:
    """Call ``attention``, in the transaction that stores the event."""
    call_attention(event, Reason.EVENT_QUARANTINED, f"{event.pk}: {event.error}")


def _foreign_identity(event: schemas.Event) -> tuple[str, str]:
    """Return kind and id of an unmirrored object, for the order of dispatch; the event's if invalid."""
    kind, object_id = event.data.get("object"), event.data.get("id")
    is_valid = (
        isinstance(kind, str)
        and isinstance(object_id, str)
        and 0 < len(kind) <= 64
        and 0 < len(object_id) <= 255
        and f"{kind}{object_id}".isascii()
        and f"{kind}{object_id}".isprintable()
        # Some databases compare without case or blanks at the end.
        and kind == kind.lower().strip()
        and kind not in Kind.values
    )
    return (str(kind), str(object_id)) if is_valid else ("event", event.id)
