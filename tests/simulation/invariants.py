"""What must hold at the end of every schedule: the provider's own records are the truth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q

from payments_integration.inbox import QUARANTINE_PREFIX
from payments_integration.models import (
    MIRRORS,
    OPEN_OPERATION_STATES,
    Balance,
    DepositReference,
    Event,
    EventSource,
    EventState,
    Operation,
    OperationState,
    Payment,
    Payout,
    Refund,
    StatusChange,
)
from payments_integration.signals import Reason
from tests.factories.receivers.models import ReceiverCall
from tests.integration.mirror import plain, row_plain
from tests.simulation.accounting import MADE_BY, executions, mark_of_operation, objects_by_mark
from tests.simulation.merchant import mark_of
from tests.simulation.world import ACCOUNT, LARGE, World, made_by_us

_KINDS: tuple[tuple[str, type[Any]], ...] = (
    ("payments", Payment),
    ("payouts", Payout),
    ("refunds", Refund),
    ("deposit_references", DepositReference),
)
#: The provider keeps events for so long (spec, "Delivery rules").
RETENTION = timedelta(days=30)
#: Events, and objects without an event, that are found later are stored and not dispatched (docs/operate.md).
TOO_OLD = timedelta(days=37)
#: An event further ahead of the provider's clock makes no other event stale (docs/architecture.md).
MAX_AHEAD = timedelta(minutes=5)
#: What we know of the provider's clock differs from ours by no more than this.
CREDIBLE = timedelta(minutes=15)
_BUCKETS = ("available", "pending", "reserve", "hold", "debt")
_NOTHING_HAPPENED = (OperationState.REJECTED, OperationState.CLOSED)

_NEVER, _EVER_ONCE = {0}, {1}
#: Also if it was erased.
_IN_QUARANTINE = Q(pk__startswith=QUARANTINE_PREFIX)

Check = Callable[[World], Iterator[str]]


def mirror_after_events(world: World) -> Iterator[str]:
    """All events are in and no sweep has helped: the mirror is equal but for what has no event."""
    for name, model in _KINDS[:3]:
        rows, theirs = _rows(world, name, model)
        for key, ours in rows.items():
            silent = theirs.get(key, {}).get("status") == "canceled" and name == "refunds"
            if not silent and ours != theirs.get(key):
                yield _differs(key, ours, theirs.get(key))
        for key in theirs.keys() - rows.keys():
            yield f"{key} is not mirrored"


def mirror_equals_provider(world: World) -> Iterator[str]:
    """Field by field."""
    project = world.engine.default_project
    for name, model in _KINDS:
        items = getattr(project, name)
        ours, theirs = _rows(world, name, model)
        for key in sorted(ours.keys() | theirs.keys()):
            if name == "deposit_references" and key not in ours and mark_of(items[key]) in world.lost:
                continue  # the provider has no list of them
            if ours.get(key) != theirs.get(key):
                yield _differs(key, ours.get(key), theirs.get(key))
    for currency, item in project.balances.items():
        row = Balance.objects.filter(account=ACCOUNT, currency=currency).first()
        if row is None:
            yield f"the {currency} balance is not mirrored"
        elif (shown := [getattr(row, name) for name in _BUCKETS]) != [item[name] for name in _BUCKETS]:
            yield f"the {currency} balance is {shown}, not {[item[name] for name in _BUCKETS]}"


def one_object_per_intent(world: World) -> Iterator[str]:
    """Exactly one where a call returned it or its operation is done; none where every call was refused."""
    made = objects_by_mark(world)
    operations = _operations_by_mark(world)
    for mark, intent in world.intents.items():
        objects, mine = made.pop((intent.function, mark), []), operations.get(mark, [])
        if mark in world.lost:
            if len(objects) > 1:
                yield f"more than once: {intent}, of which a backup knows no call, made {objects}"
            continue
        if intent.function not in MADE_BY or (not objects and any(_stands_in(world, each) for each in mine)):
            continue
        states = sorted(operation.state for operation in mine)
        text = f"{intent} ({', '.join(intent.outcomes)}; operations {states}) made {objects}"
        if len(objects) > 1:
            yield f"more than once: {text}"
        elif intent.returned and set(intent.returned) != set(objects):
            yield f"returned {set(intent.returned)}: {text}"
        elif objects and not mine:
            yield f"without an operation: {text}"
        elif not objects and any(state == OperationState.DONE for state in states):
            yield f"done and not there: {text}"
        elif objects and all(state in _NOTHING_HAPPENED for state in states):
            yield f"there although it was refused: {text}"
        elif objects and set(intent.outcomes) <= {"refused", "rolled back"}:
            yield f"there although every call raised: {text}"
        elif mine and set(intent.outcomes) <= {"rolled back"}:
            yield f"recorded although rolled back: {text}"
    for (function, mark), objects in made.items():
        yield f"no call asked for {function} [{mark}]: {objects}"


def no_operation_forgotten(world: World) -> Iterator[str]:
    """Each is over, and what the provider executed is linked to its operation."""
    made = objects_by_mark(world)
    executed = executions(world)
    for operation in Operation.objects.all():
        mark, runs = mark_of_operation(world, operation), executed.get(operation.idempotency_key, 0)
        objects = made.get((operation.operation, mark or ""), [])
        is_wrong = [operation.result_id] != objects and not (not objects and _stands_in(world, operation))
        if operation.state in OPEN_OPERATION_STATES:
            yield f"{operation} is {operation.state}"
        elif runs > 1:
            yield f"{operation} was executed {runs} times"
        elif operation.state in _NOTHING_HAPPENED and runs and mark not in world.lost:
            yield f"{operation} is {operation.state} and was executed"
        elif operation.operation in MADE_BY and operation.state == OperationState.DONE and is_wrong:
            yield f"{operation} is linked to {operation.result_id}, its object is {objects}"


def _stands_in(world: World, operation: Operation) -> bool:
    """Whether a refund of the dashboard was taken for ours: nothing tells them apart, and ours was never made."""
    return operation.result_id in world.refunded_elsewhere.get(operation.target_id, ())


def dispatched_once_and_in_order(world: World) -> Iterator[str]:
    """By the receivers' rows: every event once, and after a newer event of its object only as stale.

    One that is found when it is too old is not dispatched, and one that a person has marked as done.
    """
    dispatched: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    for row in ReceiverCall.objects.filter(what__startswith="event:").order_by("pk"):
        _, event_id, how = row.what.split(":")
        dispatched[event_id].append((row.object_id, how == "stale"))
    created = {row.pk: row for row in Event.objects.exclude(_IN_QUARANTINE)}
    allowed = _Allowed(world)
    for event_id in created.keys() | dispatched.keys():
        event, times = created.get(event_id), len(dispatched.get(event_id, ()))
        if event is None and event_id in world.pruned:
            continue
        if times not in (_EVER_ONCE if event is None else allowed.event(event)):
            yield f"event {event or event_id} was dispatched {times} times"
    newest: dict[tuple[str, str], Event] = {}
    # Of those whose time orders, and of those whose time may order.
    surely, perhaps = (_Latest(most_ahead) for most_ahead in (MAX_AHEAD, MAX_AHEAD + CREDIBLE))
    for event_id, calls in dispatched.items():
        event = created.get(event_id)
        if event is None:
            continue
        key, is_stale = (event.object_kind, event.object_id), calls[0][1]
        if not surely.is_after(event) <= is_stale <= perhaps.is_after(event):
            yield f"event {event} of {event.created_at} is dispatched as {'stale' if is_stale else 'fresh'}"
        surely.add(event)
        perhaps.add(event)
        other = newest.get(key)
        if other is None or event.created_at >= other.created_at:
            newest[key] = event
        elif event_id not in world.parked | world.replays and not _came_too_late(world, event, other):
            yield f"event {event} of {event.created_at} is dispatched after {other} of {other.created_at}"


class _Latest:
    """The latest time of each object's events so far, without those too far ahead of our clock when they came.

    An event five minutes ahead of the provider's clock makes no other event stale. That clock is known by ours and a
    difference of at most a quarter of an hour, so between the two limits either is right.
    """

    def __init__(self, most_ahead: timedelta) -> None:
        self._most_ahead = most_ahead
        self._times: dict[tuple[str, str], datetime] = {}

    def add(self, event: Event) -> None:
        key = (event.object_kind, event.object_id)
        if event.created_at - event.received_at < self._most_ahead:
            self._times[key] = max(event.created_at, self._times.get(key, event.created_at))

    def is_after(self, event: Event) -> bool:
        """Whether a later event was there before this one."""
        return self._times.get((event.object_kind, event.object_id), event.created_at) > event.created_at


def _is_found_too_late(event: Event) -> bool:
    """Whether it came so late that handlers do not want it."""
    return event.received_at - event.created_at > TOO_OLD


def _came_too_late(world: World, event: Event, newer: Event) -> bool:
    """Whether the newer one had been dispatched when this one came.

    Only a delivery can overtake another; or an event that was not held any longer, because its pass kept failing; or
    one that a pass found when the provider had forgotten this one.
    """
    was_there = world.watch.applied[event.pk] <= world.watch.dispatched[newer.pk]
    forgotten = world.watch.stored_at[newer.pk] - event.created_at > RETENTION
    return not was_there and (newer.source == EventSource.WEBHOOK or newer.pk in world.overdue or forgotten)


def events_complete(world: World) -> Iterator[str]:
    """What we acknowledge or the provider keeps is in the inbox, and nothing is in quarantine. Where the provider has
    forgotten an event before it was found, attention was sent.
    """
    held = set(Event.objects.values_list("pk", flat=True)) | world.pruned
    for event_id in sorted(world.acknowledged - held):
        yield f"{event_id} was acknowledged and is not there"
    for event in world.engine.default_project.events:
        if event["id"] not in held:
            yield f"{event['id']} ({event['type']}) was never found"
    border = world.history_ends_at
    lost = {key for key, at in world.watch.emitted.items() if key not in held and (border is None or at >= border)}
    if lost and not any(reason == Reason.GAP_TOO_LONG for reason, _ in world.attentions):
        yield f"{sorted(lost)} are lost, and attention was not sent"
    for row in Event.objects.filter(account=ACCOUNT).exclude(state=EventState.DONE):
        yield f"event {row} is {row.state}: {row.error}"


def accounts_apart(world: World) -> Iterator[str]:
    """An event of another account that names one of our objects is kept in quarantine, and nothing comes of it."""
    for row in Event.objects.exclude(account=ACCOUNT).exclude(_IN_QUARANTINE):
        yield f"event {row} of {row.account} is {row.state}"
    for _, model in _KINDS:
        for row in model.objects.exclude(account=ACCOUNT):
            yield f"{row.pk} of {row.account} is mirrored"


def projects_apart(world: World) -> Iterator[str]:
    """With a key of another project, nothing was written here or made there."""
    for key, held in world.elsewhere_held.items():
        if (now := world.held_by(key)) != held:
            yield f"the project of {key} holds {now}, before: {held}"
    for row in Event.objects.filter(account=ACCOUNT).exclude(_IN_QUARANTINE):
        if row.pk not in world.watch.emitted:
            yield f"event {row} was never made by our project"


def changes_form_chains(world: World) -> Iterator[str]:
    """Every change of status continues the one before it, was dispatched exactly once, and the last is the row's.

    One that was found when it was too old is not dispatched.
    """
    last: dict[str, str] = {}
    silent: dict[str, list[StatusChange]] = defaultdict(list)
    allowed = _Allowed(world)
    calls = list(ReceiverCall.objects.filter(what__startswith="status:").order_by("pk"))
    called = {int(row.what.split(":")[1]) for row in calls}
    for change in StatusChange.objects.select_related("event").order_by("pk"):
        if change.pk not in called and 0 in allowed.change(change):
            silent[change.object_id].append(change)
        if last.get(change.object_id, "") != change.previous_status:
            yield f"{change} does not follow {last.get(change.object_id, 'nothing')!r}"
        last[change.object_id] = change.status
    for _, model in _KINDS:
        for row in model.objects.all():
            if last.get(row.pk) != row.status:
                yield f"{row.pk} is {row.status}, its last change says {last.get(row.pk)}"
    dispatched: dict[str, list[str]] = defaultdict(list)
    chain: dict[str, str] = {}
    for row in calls:
        _, number, change = row.what.split(":")
        dispatched[number].append(change)
        if len(dispatched[number]) > 1:
            continue  # replayed, as often as is counted below
        before, after = change.split(">")
        while silent[row.object_id] and silent[row.object_id][0].pk < int(number):
            chain[row.object_id] = silent[row.object_id].pop(0).status
        if chain.get(row.object_id, "") != before and not world.parked and not world.replays:
            yield f"{row.object_id} was dispatched {change} after {chain.get(row.object_id, 'nothing')!r}"
        chain[row.object_id] = after
    for change in StatusChange.objects.select_related("event"):
        times = len(dispatched.pop(str(change.pk), ()))
        if times not in allowed.change(change):
            yield f"{change} was dispatched {times} times"
    for number in dispatched:
        yield f"a change was dispatched that does not exist: {number}"


class _Allowed:
    """How often each item may have been dispatched."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._history_ends_at = world.history_ends_at
        self._made_by_us = made_by_us()

    def event(self, event: Event) -> set[int]:
        """Not if it was found too late, or a person has marked it as done."""
        if _is_found_too_late(event) or event.pk in self._world.finished:
            return self._and_again(event.pk, _NEVER)
        return self._and_again(event.pk, self._of_history(event.created_at, event.object_id))

    def change(self, change: StatusChange) -> set[int]:
        """As often as its event. One that an answer brought: not if it shows an object that was found too late."""
        if change.event is not None:
            return self.event(change.event)
        if change.event_id in self._world.pruned:
            return self._and_again(change.event_id, _NEVER | _EVER_ONCE)
        if not change.previous_status:
            row = MIRRORS[change.object_kind]._default_manager.get(pk=change.object_id)
            if change.recorded_at - row.created_at > TOO_OLD:
                return self._and_again(change.pk, _NEVER)
        return self._and_again(change.pk, self._of_history(change.at, change.object_id))

    def _and_again(self, pk: Any, times: set[int]) -> set[int]:
        """Once more for each time that a person has replayed what was done."""
        again = self._world.watch.reopened[str(pk)] if str(pk) in self._world.replays else 0
        return {each + again for each in times}

    def _of_history(self, at: datetime, object_id: str) -> set[int]:
        """What was before the installation is not dispatched. An operation of ours ends the history of its object."""
        if self._history_ends_at is None or at >= self._history_ends_at:
            return _EVER_ONCE
        return _NEVER | _EVER_ONCE if object_id in self._made_by_us else _NEVER


def refunds_fit(world: World) -> Iterator[str]:
    """What is left of a payment is counted under lock: the provider never has to refuse a refund as too large."""
    for operation in Operation.objects.filter(operation="create_refund", state=OperationState.REJECTED):
        # A refund made elsewhere may come between our look and our request.
        if (
            operation.target_id not in world.refunded_elsewhere
            and (operation.error or {}).get("code") == "amount_out_of_range"
        ):
            yield f"{operation} of {operation.amount} was sent for {operation.target_id}"


def second_person_decides(world: World) -> Iterator[str]:
    """What needs a second person left with their approval only, and never after their rejection."""
    for operation in Operation.objects.filter(operation="create_payout").exclude(first_sent_at=None):
        if world.approvals and (operation.amount or 0) >= LARGE and not operation.approved_by:
            yield f"{operation} of {operation.amount} was sent, and nobody approved it"
        if operation.pk in world.rejected:
            yield f"{operation} was sent, and a second person had rejected it"


def books_add_up(world: World) -> Iterator[str]:
    """The provider's own audit."""
    yield from world.engine.default_project.audit()


#: In the order of the promises they belong to.
AT_THE_END: dict[str, Check] = {
    "the mirror equals the provider": mirror_equals_provider,
    "one object per intent": one_object_per_intent,
    "events are dispatched once and in order": dispatched_once_and_in_order,
    "changes are dispatched once, from old to new": changes_form_chains,
    "no operation is forgotten": no_operation_forgotten,
    "no refund exceeds what is left": refunds_fit,
    "a second person decides": second_person_decides,
    "the books add up": books_add_up,
    "what was acknowledged is there": events_complete,
    "accounts stay apart": accounts_apart,
    "projects stay apart": projects_apart,
}


def _rows(world: World, name: str, model: type[Any]) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """Our objects and the provider's, by id; of one that was erased, what is not personal."""
    theirs = {key: plain(item) for key, item in getattr(world.engine.default_project, name).items()}
    ours = {}
    for row in model.objects.filter(account=ACCOUNT):
        ours[row.pk] = row_plain(row)
        if row.erased_at is not None:
            kept = {"id", *row.mirrored} - {*row.personal}
            for items in (ours, theirs):
                items[row.pk] = {key: value for key, value in items.get(row.pk, {}).items() if key in kept}
    return ours, theirs


def _differs(key: str, ours: dict[str, Any] | None, theirs: dict[str, Any] | None) -> str:
    if ours is None or theirs is None:
        return f"{key} is {'not mirrored' if ours is None else 'not at the provider'}"
    names = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
    return f"{key}: " + "; ".join(f"{name} is {ours.get(name)!r}, not {theirs.get(name)!r}" for name in names)


def _operations_by_mark(world: World) -> dict[str, list[Operation]]:
    found: dict[str, list[Operation]] = defaultdict(list)
    for operation in Operation.objects.all():
        found[mark_of_operation(world, operation) or ""].append(operation)
    return dict(found)
