"""Healing and draining: what the product itself does once the trouble is over. Nothing here repairs anything."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from django.core.exceptions import ValidationError
from django.db.models import Max, QuerySet

from payments_integration import services
from payments_integration.db.claims import CLOCK_SLACK
from payments_integration.inbox import replay
from payments_integration.models import (
    AccountState,
    DueAttention,
    DueRefresh,
    Event,
    EventState,
    Operation,
    OperationState,
    ReconciliationRun,
    Refund,
    RunKind,
    RunState,
    StatusChange,
)
from payments_integration.outbox.resolution import MAY_STILL_RUN
from tests.simulation.accounting import CANCELS, MADE_BY, executions, mark_of_operation, objects_by_mark
from tests.simulation.merchant import Intent, mark_of
from tests.simulation.world import World

#: Seconds until the next round: claims, backoffs and the receivers' retries all lie within.
ROUNDS = (1, 12, 31, 65, 95, 130, 310, 610, 1000, 1200, 1200, 3700, 3700, 3700)
#: Deliveries that arrive in each round.
DELIVERED = 3
A_DAY = 25 * 3600.0
#: As precise as the Date of an answer is.
SECONDS = timedelta(seconds=5)
_UNDISPATCHED = (EventState.APPLIED, EventState.HELD)


def heal(world: World) -> None:
    """No more faults: clocks are right, waiting processes go on, and late deliveries arrive."""
    world.step("everything is healed")
    world.plan.clear()
    world.is_stubborn = False
    world.time.set_skew(0)
    while world.waiting:
        world.resume(0)
    world.deploy(world.processes, key=world.key)
    while world.network.stragglers:
        world.network.arrive(0)
    world.provider_acted()


def drain(world: World, *, operations: bool = True) -> None:
    """Rounds of what the schedule does by itself, until nothing is left to do and every event has been looked for.

    ``operations``: also of unknown ones; one that was refused after an unknown attempt is open for 23 hours.
    """
    last = ReconciliationRun.objects.aggregate(last=Max("pk"))["last"] or 0
    for wait in ROUNDS:
        world.advance(wait)
        deliver_due(world)
        world.messages.clear()  # hints: the sweeper does the same
        world.task("worker-1", "process_events")
        # What a round sends makes events that the pass before it could not see.
        if not _all_looked_for(world, since=last) or _resyncs().exists():
            world.task("worker-1", "reconcile_events")
        # A pass finds the claim of one that was killed for fifteen seconds.
        if _all_looked_for(world, since=last) and not _unfinished(operations=operations):
            return
    world.violated("everything comes to an end", "; ".join(_unfinished(operations=operations)) or "no pass does")


def a_day_passes(world: World) -> None:
    """Everything that is due once a day or after hours of silence comes round."""
    world.step("a day passes")
    world.advance(A_DAY)
    for task in ("reconcile_objects", "sync_balances"):
        world.task("worker-1", task)
    drain(world)


def replay_parked(world: World) -> bool:
    """Replay what is parked, because the receivers work again; returns whether there was any."""
    found = False
    for model in (Event, StatusChange):
        for item in model.objects.filter(state=EventState.PARKED):
            if ("dispatch_parked", item.pk) not in world.attentions:
                world.violated("a parked item was dispatched", str(item))
            replay(item)
            found = True
    return found


def last_delivery(world: World) -> None:
    """With any history of secrets, deliveries of the provider are accepted now."""
    world.step("one more delivery")
    if world.engine.endpoint(world.endpoint_id).status != "active":
        return
    while world.post.due:
        attempt = world.post.begin(world.post.due[0])
        if attempt is not None:
            world.post.settle(attempt, acknowledged=True)
    world.engine.fund("CLP", 1)
    world.advance(1)
    attempt = world.post.begin(world.post.due[0])
    assert attempt is not None
    world.deliver("web-1", attempt)
    if attempt.delivery.event_id not in world.acknowledged:
        world.violated("deliveries are accepted", f"{attempt.delivery.event_type} was refused")
    if world.window:
        world.advance(world.window + 1)
    world.task("worker-1", "process_events")


def deliver_due(world: World, *, all_of_them: bool = False) -> None:
    """The provider sends what is due: the first ones arrive, the others were given up and are found by the pass."""
    left = len(world.post.due) if all_of_them else DELIVERED
    while due := world.post.due:
        attempt = world.post.begin(due[0])
        if attempt is None:
            continue
        if left:
            world.deliver("web-1", attempt)
        else:
            world.post.settle(attempt, acknowledged=True)
        left -= bool(left)


def of_intent(intent: Intent) -> list[Operation]:
    """The operations that the ledger has of an intent."""
    found = Operation.objects.filter(operation=intent.function).order_by("created_at", "pk")
    return [operation for operation in found if mark_of(operation.arguments) == intent.mark]


def awaiting_approval() -> list[Operation]:
    return list(Operation.objects.filter(state=OperationState.AWAITING_APPROVAL).order_by("created_at", "pk"))


def callers_ask_again(world: World) -> bool:
    """A caller who was refused for access or rate makes the same call when that is mended: it is sent, or answered.

    Returns whether there was any.
    """
    keyed = {intent.arguments.get("idempotency_key"): intent for intent in world.intents.values()}
    closed = Operation.objects.filter(
        state=OperationState.CLOSED, error__isnull=False, idempotency_key__in=list(keyed)
    )
    asked = list(closed.order_by("created_at", "pk"))
    for operation in asked:
        intent = keyed[operation.idempotency_key]
        world.start("web-1", f"{intent} once more", partial(world.merchant.call, intent))
        operation.refresh_from_db()
        if operation.state == OperationState.CLOSED and not isinstance(intent.errors[-1], ValidationError):
            world.violated("a passing refusal uses up no key", f"{intent}: {intent.errors[-1]!r}")
    return bool(asked)


def people_approve(world: World) -> bool:
    """Nothing waits for a second person any more: who cannot approve rejects. Returns whether there was anything."""
    waiting = awaiting_approval()
    for operation in waiting:
        world.start("web-1", f"approve {operation.pk}", partial(world.merchant.approve, operation, False))
    for operation in awaiting_approval():
        world.start("web-1", f"reject {operation.pk}", partial(world.merchant.approve, operation, True))
    return bool(waiting)


def people_decide(world: World) -> bool:
    """A person looks into the provider's dashboard for what the app cannot know; whether there was anything."""
    waiting = list(Operation.objects.filter(state=OperationState.NEEDS_PERSON).order_by("created_at", "pk"))
    if not all("mark_never_happened" in services.possible_resolutions(operation) for operation in waiting):
        world.advance(MAY_STILL_RUN.total_seconds())
    # What happened comes first: an object that is not linked yet keeps others like it from being closed.
    for operation in sorted(waiting, key=lambda operation: not executed_as(world, operation)):
        if operation.pk not in world.left_to_people:
            world.violated("attention is called for every decision", f"{operation}: {operation.note}")
        object_id = executed_as(world, operation)
        world.note(f"a person decides on {operation.operation}: {object_id or 'never happened'}")
        try:
            if object_id:
                services.mark_happened(operation, object_id, "Ana", "seen in the dashboard")
            elif fitting := _made_elsewhere(world, operation):
                # Refunds have no reference: one of the dashboard stands for ours, which was never made.
                services.mark_happened(operation, fitting, "Ana", "made in the dashboard instead")
            elif operation.operation == "rotate_webhook_secret" and operation.may_have_run:
                # The dashboard shows no secret, so a person cannot tell. The app rotates again.
                services.look_up(operation, "Ana")
            else:
                _close_as_never_happened(operation)
        except ValidationError as error:
            world.violated("what a person finds can be linked", f"{operation}, {object_id}: {error}")
    if _given_up_rotations().exists():
        # The deliveries' secret is in doubt, and a rotation costs nothing.
        world.start("web-1", "a new rotation", lambda: services.rotate_webhook_secret(world.endpoint_id))
    return bool(waiting)


def _close_as_never_happened(operation: Operation) -> None:
    """Say that objects of a lost ledger, which fit as well, are others if they keep it from being closed."""
    try:
        services.mark_never_happened(operation, "Ana", "not in the dashboard")
    except ValidationError:
        fitting = services.fitting_objects(operation)
        if not fitting or "mark_others" not in services.possible_resolutions(operation):
            raise
        services.mark_others(operation, fitting, "Ana", "an older backup knew them")
        services.mark_never_happened(operation, "Ana", "not in the dashboard")


def _made_elsewhere(world: World, operation: Operation) -> str:
    """A refund of the dashboard that may be this operation's, as far as the app can know; empty if there is none."""
    ids = world.refunded_elsewhere.get(operation.target_id, [])
    taken = set(Operation.objects.filter(result_id__in=ids).values_list("result_id", flat=True))
    since = operation.sent_after or (operation.first_sent_at or operation.created_at) - CLOCK_SLACK
    fitting = Refund.objects.filter(pk__in=set(ids) - taken, amount=operation.amount, created_at__gte=since - SECONDS)
    return str(fitting.first().pk) if fitting.exists() else ""


def _given_up_rotations() -> QuerySet[Operation]:
    """Operations of the app itself that were refused, or left to a person with attention called."""
    over = (OperationState.REJECTED, OperationState.CLOSED)
    return Operation.objects.filter(operation="rotate_webhook_secret", deferred=True, state__in=over)


def executed_as(world: World, operation: Operation) -> str:
    """The object that the provider made or changed for this operation; empty where it did nothing.

    A cancel has happened, whichever of two cancels was carried out: the person sees a canceled object.
    """
    if operation.operation not in MADE_BY:
        is_done = executions(world).get(operation.idempotency_key) or _is_canceled(world, operation)
        return operation.target_id if is_done else ""
    made = objects_by_mark(world).get((operation.operation, mark_of_operation(world, operation) or ""), [])
    return made[0] if made else ""


def _is_canceled(world: World, operation: Operation) -> bool:
    if operation.operation not in CANCELS:
        return False
    items = getattr(world.engine.default_project, CANCELS[operation.operation])
    return bool(items[operation.target_id]["status"] == "canceled")


def _all_looked_for(world: World, *, since: int) -> bool:
    """Whether a pass after the run ``since`` reached past the provider's newest event, and came to its end."""
    passes = ReconciliationRun.objects.filter(kind=RunKind.EVENTS, state=RunState.DONE, pk__gt=since)
    newest = max((event["created_at"] for event in world.engine.default_project.events), default=None)
    return passes.filter(**({"window_to__gt": datetime.fromisoformat(newest)} if newest else {})).exists()


def _resyncs() -> QuerySet[AccountState]:
    """The full resyncs that a long gap has made due."""
    return AccountState.objects.exclude(resync_due_at=None)


def _unfinished(*, operations: bool) -> list[str]:
    """What the product has still to do, in words."""
    open_states = (OperationState.DUE, OperationState.UNKNOWN) if operations else (OperationState.DUE,)
    return [
        *(
            f"{row} is {row.state} until {row.next_attempt_at}: {row.note}"
            for row in Operation.objects.filter(state__in=open_states)
        ),
        *(
            f"event {row} is {row.state}"
            for row in Event.objects.filter(state__in=(*_UNDISPATCHED, EventState.PENDING))
        ),
        *(f"change {row} is {row.state}" for row in StatusChange.objects.filter(state__in=_UNDISPATCHED)),
        *(f"a full resync is due at {row.resync_due_at}" for row in _resyncs()),
        *(f"{row} is to be read at {row.due_at}: {row.error}" for row in DueRefresh.objects.all()),
        *(f"attention is to be sent from {row.claimed_until} on: {row}" for row in DueAttention.objects.all()),
    ]
