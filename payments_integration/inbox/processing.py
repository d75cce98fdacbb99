"""Apply stored events to the mirror, hundreds per transaction."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any

from django.db import DatabaseError, connections, router
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables

from payments_integration import conf, schemas, telemetry
from payments_integration.attention import call_attention, name_trouble
from payments_integration.db import statements
from payments_integration.db.claims import CLOCK_SLACK, long_ago
from payments_integration.db.refusals import condemns, described, in_halves
from payments_integration.db.statements import are_there, filter_account_last, in_index_order, placeholders
from payments_integration.db.transactions import WriterPauses, deleted, locked, repeatable
from payments_integration.inbox.receiving import quarantined, report_quarantined
from payments_integration.models import MIRRORS, Event, EventSource, EventState, StatusChange
from payments_integration.projection import BatchResult, apply_events, before_installation, erased, found_too_late
from payments_integration.runtime import stopping
from payments_integration.runtime.logs import get_logger
from payments_integration.signals import Reason, event_received, has_listeners, status_changed
from payments_integration.sync import waiting_accounts

logger = get_logger(__name__)

#: Bugs of ours that one event triggers. Other events go on, and an upgrade applies this one.
_MISTAKES = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError, ValueError)
#: How many events that could not be applied each pass retries, one by one.
_STUCK_PAGE = 50
#: An event that took longer than this to arrive may be a second copy whose first row was lost.
_AS_IT_HAPPENS = timedelta(minutes=1)
#: Seconds to wait for rows that another transaction has locked. The next pass takes what is still locked after that.
_POSTPONED_WAITS = (0.05, 0.1, 0.2, 0.4)


def process(
    account: str | None = None,
    *,
    deadline: float | None = None,
    hurry: bool = False,
    most: int | None = None,
    since: datetime | None = None,
) -> int:
    """Apply all pending events batch by batch, and return how many.

    Safe to run at any time, in several processes at once. No batch is started after ``deadline``
    (``time.monotonic()``). ``hurry``: a request waits, so the schedule is left to retry events that failed before.
    A pass that just stored events gives ``most``, their number, and ``since``, their earliest creation. Then no check
    for further events follows, because it would read all dead index entries of earlier ones.
    """
    try:
        done = _process(account, deadline, most, since)
        return done if hurry or most is not None else done + _retry_stuck(account, deadline)
    except DatabaseError as error:
        name_trouble(error, account)
        raise


def _process(account: str | None, deadline: float | None, most: int | None, since: datetime | None) -> int:
    done, pauses = 0, WriterPauses(router.db_for_write(Event))
    waits = iter(_POSTPONED_WAITS)
    while not stopping.is_over(deadline):
        count, postponed = process_batch(account, since=since)
        done += count
        pauses.pause_if_due()
        if most is not None and done >= most:
            return done
        if count + postponed < conf.current().BATCH_SIZE and not postponed:
            break
        if not count:
            wait = next(waits, None)
            if wait is None:
                break
            time.sleep(wait)
    return done


def _retry_stuck(account: str | None, deadline: float | None) -> int:
    if not any(are_there((Event, EventState.PENDING), using=router.db_for_write(Event))):
        return 0
    done = 0
    for event_id in list(unapplied(account, stuck=True).values_list("pk", flat=True)[:_STUCK_PAGE]):
        if deadline is None or time.monotonic() < deadline:
            done += _apply_alone(account, event_id)
    return done


def process_batch(account: str | None = None, *, since: datetime | None = None) -> tuple[int, int]:
    """Lock and apply one batch in one transaction; a crash rolls it back.

    Returns how many events were finished, and how many were postponed because another transaction has locked their
    objects. One bad event does not affect the rest of its batch, which is retried in halves. An event that the
    database refuses goes to quarantine; one that triggers a bug of ours stays pending and is retried alone. An error
    that is about no event, such as a full disk, is raised.
    """
    try:
        return _batch(account, since=since)
    except Exception as error:
        if not _is_about_an_event(error):
            raise
        # Without the message: a database error may contain the row.
        logger.error(
            "A batch of events failed with %s; retrying it in halves", described(error), extra={"account": account}
        )
    done = postponed = 0

    def apply(ids: Sequence[str]) -> None:
        nonlocal done, postponed
        more, later = _batch(account, only=ids)
        done, postponed = done + more, postponed + later

    def apply_alone(event_id: str) -> None:
        nonlocal done
        done += _apply_alone(account, event_id)

    ids = list(unapplied(account).values_list("pk", flat=True)[: conf.current().BATCH_SIZE])
    if ids:
        in_halves(ids, apply, apply_alone, _is_about_an_event)
    return done, postponed


def _is_about_an_event(error: BaseException) -> bool:
    """Return True if a smaller batch may succeed. A batch that exceeds memory is halved too."""
    return condemns(error) or isinstance(error, (*_MISTAKES, MemoryError))


@sensitive_variables()  # an error report would show the payer
def _batch(
    account: str | None, *, only: Sequence[str] | None = None, since: datetime | None = None
) -> tuple[int, int]:
    using = router.db_for_write(Event)

    def batch() -> tuple[list[Event], int, int]:
        if only is None:
            events = _next_events(account, since, using)
        else:
            pending = Event.objects.filter(pk__in=only, state=EventState.PENDING).order_by("created_at", "id")
            events = list(locked(pending, skip_locked=True))
        if not events:
            return [], 0, 0
        with telemetry.during(telemetry.Batch(events)):
            refused, postponed = _apply(events)
        applied = [event for event in events if event.id not in refused and event.id not in postponed]
        return applied, len(refused), len(postponed)

    applied, refused, postponed = repeatable(batch, using=using)
    if applied:
        telemetry.happened(telemetry.Applied(applied))
    return len(applied) + refused, postponed


def _next_events(account: str | None, since: datetime | None, using: str) -> list[Event]:
    """Lock and return the next batch of pending events, created at ``since`` or later."""
    now, refused, size, window = timezone.now(), tuple(waiting_accounts(account)), conf.current().BATCH_SIZE, _window()
    sql, parameters = _next_events_sql(account, since is not None, refused, window, size, using)
    prepared = connections[using].ops.adapt_datetimefield_value
    times = {_SINCE: since, _NOW - window: now - window, _NOW + CLOCK_SLACK: now + CLOCK_SLACK}
    given = {prepared(placeholder): prepared(time) for placeholder, time in times.items()}
    found = in_index_order(sql, [given.get(value, value) for value in parameters], using=using)
    return [statements.from_values(Event, values, using) for values in found]


#: Placeholders for the times of a call, in a statement that is built once.
_NOW, _SINCE = datetime(1970, 3, 1, tzinfo=UTC), datetime(1969, 3, 1, tzinfo=UTC)


@lru_cache(maxsize=64)
def _next_events_sql(
    account: str | None, has_since: bool, refused: tuple[str, ...], window: timedelta, size: int, using: str
) -> tuple[str, tuple[Any, ...]]:
    """Build the statement once: Django takes longer to build it than to apply an event."""
    pending = _unapplied(account, refused=refused, window=window, now=_NOW)
    if has_since:
        pending = pending.filter(created_at__gte=_SINCE)
    sql, parameters = locked(pending, skip_locked=True)[:size].query.get_compiler(using=using).as_sql()
    return str(sql), tuple(parameters)


def _apply_alone(account: str | None, event_id: str) -> int:
    try:
        return _batch(account, only=[event_id])[0]
    except Exception as error:
        if condemns(error):
            _set_aside(event_id, f"the database refuses it: {described(error)}")
            return 1
        if not isinstance(error, _MISTAKES):
            raise
        logger.exception("Event %s could not be applied", event_id, extra={"event_id": event_id})
        _note_mistake(event_id, error)
        return 0


def unapplied(account: str | None = None, *, stuck: bool = False) -> QuerySet[Event]:
    """Return events to be applied now, oldest first. ``stuck``: events that failed before, instead."""
    refused = waiting_accounts(account)
    return _unapplied(account, refused=refused, window=_window(), now=timezone.now(), stuck=stuck)


def _window() -> timedelta:
    """Return how long deliveries are held back, so that late ones are sorted in."""
    settings = conf.current()
    return timedelta(seconds=settings.REORDER_WINDOW if settings.PROCESSING == "celery" else 0)


def _unapplied(
    account: str | None, *, refused: Collection[str], window: timedelta, now: datetime, stuck: bool = False
) -> QuerySet[Event]:
    events = Event.objects.filter(state=EventState.PENDING)
    events = events.filter(attempts__gt=0) if stuck else events.filter(attempts=0)
    # Their events wait while the account's API key may be of another project.
    events = filter_account_last(events, account).exclude(account__in=refused)
    if window:
        long_enough = long_ago("received_at", window, now=now)
        # Events of a reconciliation pass are held until their window is complete, and are sorted then.
        events = events.filter(long_enough | Q(source=EventSource.RECONCILIATION))
    return events.order_by("created_at", "id")


def _apply(events: list[Event]) -> tuple[set[str], set[str]]:
    """Apply locked events and mark them. Returns the ids of the quarantined and of the postponed ones."""
    readable: list[tuple[Event, Any]] = []
    unreadable: dict[str, str] = {}
    foreign: list[Event] = []
    for event in events:
        try:
            resource = schemas.event_resource(schemas.decode_event(bytes(event.body or b"")))
        except schemas.WireError as error:  # an older version understood it
            unreadable[event.id] = str(error)
            continue
        if resource is None:
            foreign.append(event)
        else:
            readable.append((event, resource))
    applied = apply_events(readable)
    refused = {**applied.refused, **unreadable}
    left_out = refused.keys() | applied.postponed
    _mark(
        [event for event, _ in readable if event.id not in left_out] + foreign,
        applied,
        applied.erased | _erased(foreign),
    )
    _quarantine([event for event in events if event.id in refused], refused)
    return set(refused), applied.postponed


def _erased(foreign: list[Event]) -> set[str]:
    """Return the ids of events about unmirrored objects whose personal data was erased."""
    keys = erased(event.object_key for event in foreign)
    return {event.id for event in foreign if event.object_key in keys}


def _mark(events: list[Event], applied: BatchResult, erased_ids: set[str]) -> None:
    """Record the outcome of each event, with one UPDATE per state: a few for any batch size.

    An event that no receiver wants is done, and never makes another event stale. The body of an event about an erased
    object is deleted.
    """
    outcomes: dict[tuple[str, bool], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    wanted = cache(is_wanted)
    too_late = found_too_late(events)
    waiting = [
        event
        for event in events
        if event.id not in too_late and wanted(event.object_kind, event.type, applied.new_status.get(event.id))
    ]
    history = {event.id for event in before_installation(waiting, attrgetter("created_at"))}
    undispatched = {event.id for event in waiting} - history - _dispatched_before(waiting)
    for event in events:
        state = EventState.DONE
        if event.id in undispatched:
            held = event.source == EventSource.RECONCILIATION
            state = EventState.HELD if held else EventState.APPLIED
        previous_status = applied.previous_status.get(event.id, "")
        outcomes[state, event.id in erased_ids][previous_status].append(event.id)
    using = router.db_for_write(Event)
    table = connections[using].ops.quote_name(Event._meta.db_table)
    for (outcome, is_erased), by_status in sorted(outcomes.items()):
        # The largest group is the default, so that the statement names few ids twice.
        *others, (most, _) = sorted(by_status.items(), key=lambda group: len(group[1]))
        cases = " ".join(f"WHEN id IN ({placeholders(len(ids))}) THEN %s" for _, ids in others)
        previous = f"CASE {cases} ELSE %s END" if cases else "%s"
        gone = ", body = NULL" if is_erased else ""
        marked = list(chain.from_iterable(by_status.values()))
        sql = f"UPDATE {table} SET state = %s, previous_status = {previous}, attempts = 0, error = ''{gone}"  # noqa: S608  (names of ours)
        parameters = [str(outcome), *chain.from_iterable((*ids, status) for status, ids in others), most, *marked]
        with connections[using].cursor() as cursor:
            cursor.execute(f"{sql} WHERE id IN ({placeholders(len(marked))})", parameters)


def _dispatched_before(events: list[Event]) -> set[str]:
    """Return the ids of events that came again after their rows were lost, and whose status change was dispatched.

    Their receivers were called. Events that came as they happened need no statement.
    """
    late = [event.id for event in events if event.received_at - event.created_at > _AS_IT_HAPPENS]
    if not late:
        return set()
    told = StatusChange.objects.filter(event__in=late, dispatched_at__isnull=False)
    return set(told.values_list("event", flat=True))


def _quarantine(events: list[Event], reasons: dict[str, str]) -> None:
    """Move events to the quarantine, which frees their ids for a valid copy."""
    moved = [
        quarantined(event.account, bytes(event.body or b""), source=event.source, reason=reasons[event.id])
        for event in events
    ]
    if moved:
        there = set(Event.objects.filter(id__in=[row.id for row in moved]).values_list("id", flat=True))
        moved = [row for row in moved if row.id not in there]
        StatusChange.objects.filter(event__in=events).update(event=None)
        deleted(Event.objects.filter(pk__in=[event.id for event in events]))
        statements.insert_many(moved)
    for event in moved:
        report_quarantined(event)


def _set_aside(event_id: str, reason: str) -> None:
    def move() -> None:
        _quarantine(list(locked(Event.objects.filter(pk=event_id), skip_locked=True)), {event_id: reason})

    repeatable(move, using=router.db_for_write(Event))


def _note_mistake(event_id: str, error: Exception) -> None:
    def note() -> None:
        event = locked(Event.objects.filter(pk=event_id, state=EventState.PENDING)).first()
        if event is None:
            return
        event.attempts, event.error = event.attempts + 1, f"it cannot be applied: {type(error).__name__}"
        Event.objects.filter(pk=event_id).update(attempts=event.attempts, error=event.error)
        if event.attempts == 1 and not before_installation([event], attrgetter("created_at")):
            call_attention(event, Reason.EVENT_NOT_APPLIED, f"{event}: {event.error}")

    repeatable(note, using=router.db_for_write(Event))


def is_wanted(kind: str, event_type: str | None, new_status: str | None) -> bool:
    """Return True if a receiver wants this event or its status change. If not, there is nothing to dispatch.

    ``event_type`` is None if an answer brought the change.
    """
    model = MIRRORS.get(kind, Event)
    return (event_type is not None and has_listeners(event_received, model, event_type)) or (
        new_status is not None and has_listeners(status_changed, model, new_status)
    )
