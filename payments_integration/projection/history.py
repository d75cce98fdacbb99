"""Tell history from news: what is too old, or was before the installation, is mirrored but not dispatched.

``is_history`` decides, by the provider's clock. The border is DISPATCH_SINCE of the account. Without that option it is
an hour before the account's first contact: the first answer, or the first delivery with a valid signature. What one of
our own operations made or changed has no history.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from django.core.signals import setting_changed
from django.db import connections, router
from django.db.models import OuterRef, Subquery
from django.utils import timezone

from payments_integration import conf
from payments_integration.db import statements
from payments_integration.db.transactions import repeatable
from payments_integration.models import (
    AccountState,
    Event,
    EventSource,
    Mirror,
    Operation,
    ReconciliationRun,
    RunKind,
    RunState,
    StatusChange,
)
from payments_integration.projection.ordering import MAX_DATE_OFF, time_by

#: Dispatch what happened this shortly before the first contact: the provider retries deliveries, and clocks differ.
BEFORE_CONTACT = timedelta(hours=1)
#: Events and objects that are found later than this are stored but not dispatched.
TOO_OLD_TO_DISPATCH = timedelta(days=conf.MIN_EVENT_DAYS)
#: How long a process trusts the first contact that it read. It changes only if the account is forgotten.
CONTACT_CACHE_SECONDS = 60.0

Dated = TypeVar("Dated", Event, StatusChange)

#: Until when the process trusts it, the first contact, and True if it is known whose key fills the mirror.
_contacts: dict[str, tuple[float, datetime | None, bool]] = {}
_installed_at: dict[str, datetime] = {}


def is_history(account: str, at: datetime) -> bool:
    """Return True if something that the provider dates at this time was before the installation."""
    begins_at = dispatch_begins_at(account)
    return begins_at is not None and at < begins_at


def dispatch_begins_at(account: str) -> datetime | None:
    """Return the provider's time from which on changes are dispatched; None: all are.

    Takes at most one statement, which a process repeats after a minute. In Django's test environment all changes are
    dispatched unless DISPATCH_SINCE is set.
    """
    if _has_no_history(account):
        return None
    configured = conf.current().ACCOUNTS.get(account)
    if configured is not None and configured.dispatch_since is not None:
        return configured.dispatch_since
    contact, _ = _known(account)
    return None if contact is None else contact - BEFORE_CONTACT


def _has_no_history(account: str) -> bool:
    """Return True in Django's test environment without DISPATCH_SINCE: tests deliver events with fixed dates."""
    configured = conf.current().ACCOUNTS.get(account)
    return conf.in_test_environment() and (configured is None or configured.dispatch_since is None)


def before_installation(items: Iterable[Dated], time_of: Callable[[Dated], datetime]) -> list[Dated]:
    """Return the events or changes that are history. An object of an operation of ours has none."""
    old: dict[str, list[Dated]] = defaultdict(list)
    for item in items:
        if is_history(item.account, time_of(item)):
            old[item.account].append(item)
    found = []
    for account, of_account in old.items():
        known = ours(account, {item.object_id for item in of_account})
        found += [item for item in of_account if item.object_id not in known]
    return found


def ours(account: str, object_ids: Iterable[str]) -> set[str]:
    """Return the objects that an operation of this installation created or changed. They have no history."""
    ids = list(object_ids)
    made = Operation.objects.filter(account=account, result_id__in=ids).values_list("result_id", flat=True)
    return set(made) if ids else set()


def found_too_late(events: Iterable[Event]) -> set[str]:
    """Return the ids of events that are found too late to be dispatched.

    If a pass found an event, the watermark must say so as well. It is the provider's time, and our clock may be
    weeks ahead. A delivery, which is signed minutes ago, shows that our clock is right.
    """
    old = [event for event in events if event.received_at - event.created_at > TOO_OLD_TO_DISPATCH]
    late = [event for event in old if not _has_no_history(event.account)]
    listed = {event.account for event in late if event.source == EventSource.RECONCILIATION}
    states = AccountState.objects.filter(pk__in=listed) if listed else []
    watermarks = {state.account: state.watermark for state in states}

    def is_late(event: Event) -> bool:
        watermark = watermarks.get(event.account) if event.source == EventSource.RECONCILIATION else None
        return watermark is None or watermark - event.created_at > TOO_OLD_TO_DISPATCH

    return {event.id for event in late if is_late(event)}


def is_too_old(row: Mirror) -> bool:
    """Return True if an object that is new to the mirror is as old as events that are no longer dispatched."""
    created_at = getattr(row, "created_at", None)
    is_old = created_at is not None and timezone.now() - created_at > TOO_OLD_TO_DISPATCH
    return is_old and not _has_no_history(row.account)


def own_time(row: Mirror) -> datetime | None:
    """Return when the object came into its status, by its own times: ``succeeded_at`` if it fits, or its creation."""
    succeeded_at: datetime | None = getattr(row, "succeeded_at", None)
    is_succeeded = getattr(row, "status", "") == "succeeded"
    return succeeded_at if succeeded_at and is_succeeded else getattr(row, "created_at", None)


def installed_at(app: str) -> datetime | None:
    """Return when the first migration of one of our apps was applied, by our clock.

    None if that is not known, and in Django's test environment: tests have dates of their own.
    """
    if conf.in_test_environment():
        return None
    if app not in _installed_at:
        from django.db.migrations.recorder import MigrationRecorder  # noqa: PLC0415  (few processes need it)

        applied = MigrationRecorder(connections[router.db_for_write(Event)]).applied_migrations()
        times = [each.applied for (label, _), each in applied.items() if label == app]
        if not times:
            return None  # not kept: the app may be migrated while this process runs
        _installed_at[app] = min(times)
    return _installed_at[app]


def note_contact(account: str, at: datetime | None, *, proves_key: bool = True) -> None:
    """Store the account's first contact, and the first API key that worked. A process that knows both asks nothing.

    ``at`` is the Date of an answer or the ``t`` of a valid signature, never a time in an event, which may be old. A
    signature or a refusal does not prove the key. In Django's test environment the first contact decides nothing and
    is not stored.
    """
    if at is None or conf.in_test_environment():
        return
    # A wrong Date a year ahead would make everything of that year history. A later answer has a right one.
    if abs(at - timezone.now()) > MAX_DATE_OFF:
        return
    contact, is_key_known = _known(account)
    if contact is not None and (is_key_known or not proves_key):
        return
    repeatable(partial(_store_contact, account, at, proves_key), using=router.db_for_write(AccountState))
    _contacts.pop(account, None)
    _known(account)  # from now on


def _store_contact(account: str, at: datetime, proves_key: bool) -> None:
    state = AccountState.objects.filter(pk=account).first()
    values: dict[str, Any] = {}
    if state is None or state.first_contact_at is None:
        values["first_contact_at"] = min([at, *_earlier_contacts(account, state)])
    if proves_key and (state is None or state.has_test_key is None):
        # The first pass may come late: without a worker, a test key fills the mirror before it.
        values |= key_values(account)
    if state is None:
        statements.insert_many([AccountState(account=account, **values)])
    elif values:
        as_read = {"first_contact_at": state.first_contact_at, "has_test_key": state.has_test_key}
        AccountState.objects.filter(pk=account, **as_read).update(**values)


def key_values(account: str) -> dict[str, Any]:
    """Return what ``AccountState`` stores of the key that filled the mirror."""
    return {"has_test_key": conf.account(account).is_test, "key_hash": conf.key_hash(account)}


def _earlier_contacts(account: str, state: AccountState | None) -> Iterator[datetime]:
    """Yield times at which there was contact already: an earlier version did not store it, or the state was lost.

    What was missed since then is no history.
    """
    if state is not None and state.watermark is not None:
        yield state.watermark
    passes = ReconciliationRun.objects.filter(account=account, kind=RunKind.EVENTS, state=RunState.DONE)
    yield from passes.order_by("started_at").values_list("started_at", flat=True)[:1]
    events = Event.objects.filter(account=account)
    yield from events.order_by("created_at", "pk").values_list("received_at", flat=True)[:1]


def _known(account: str) -> tuple[datetime | None, bool]:
    """Return the first contact, and True if it is known whose key fills the mirror."""
    until, contact, is_key_known = _contacts.get(account, (0.0, None, False))
    if time.monotonic() >= until:
        stored = AccountState.objects.filter(pk=account, first_contact_at__isnull=False)
        found = stored.values_list("first_contact_at", "has_test_key").first()
        if found is None:
            return None, False
        contact, is_key_known = found[0], found[1] is not None
        _contacts[account] = (time.monotonic() + CONTACT_CACHE_SECONDS, contact, is_key_known)
    return contact, is_key_known


def provider_time(account: str) -> datetime:
    """Return the provider's present time, by the difference of the clocks that a pass measured."""
    return time_by(AccountState.objects.filter(pk=account).values_list("clock_offset", flat=True).first())


def clock_offset(account: str | OuterRef) -> Subquery:
    """Return the provider's clock minus ours in seconds; null if it is not known."""
    return Subquery(AccountState.objects.filter(account=account).values("clock_offset")[:1])


def forget_contacts(**_: object) -> None:
    """Clear this process's cache of first contacts."""
    _contacts.clear()


setting_changed.connect(forget_contacts, dispatch_uid="payments_integration.forget_contacts")
