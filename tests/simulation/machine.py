"""The schedules: what the world and the merchant do, in any order, with faults at the boundaries on the way."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar

from django.contrib.auth.models import User
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from example_project.shop.models import Order
from payments_integration import services
from payments_integration.models import (
    OPEN_OPERATION_STATES,
    AccountState,
    Event,
    EventState,
    ObjectDispatch,
    Operation,
    OperationState,
    Payment,
    Payout,
    StatusChange,
)
from payments_integration.reconciliation import rename_account
from payments_integration.sandbox import SandboxError
from payments_integration.sync import newest_objects
from tests import factories
from tests.simulation import draining, invariants, restoring
from tests.simulation.clock import START
from tests.simulation.faults import ALL, ENDED, FAMILIES, KINDS, REFUSALS, REQUESTS, family
from tests.simulation.limits import LIMITS, PARTS
from tests.simulation.merchant import (
    AMOUNTS,
    BOSS,
    DESTINATION,
    PAYMENT_METHODS,
    PAYS,
    REFERENCES,
    Intent,
    deposit_intent,
    payment_intent,
    payout_intent,
    refund_intent,
)
from tests.simulation.scheduler import CRASH, WAIT, Fault, Scheduler
from tests.simulation.tables import empty, forget_object
from tests.simulation.watching import ORDER
from tests.simulation.world import ACCOUNT, COMPARED, LARGE, OTHER_KEYS, RENAMED, RENEWED_KEY, REPLAY, World

#: Few of each, so that things meet.
MOST_INTENTS = 12
WEBS = ("web-1", "web-2")
WORKERS = ("worker-1", "worker-2")
TASKS = (
    "process_events",
    "resume_operations",
    "reconcile_events",
    "process_events",
    "reconcile_objects",
    "sync_balances",
    "prune",
)
#: Seconds that pass: between requests, beyond claims, backoffs, the key's 24 hours.
JUMPS = (1, 4, 11, 31, 65, 130, 400, 1000, 3700, 6 * 3600, 12 * 3600, 23.5 * 3600, 25 * 3600)
DAY = 24 * 3600.0
#: What happens so many seconds after an answer is clearly newer: handlers wait for no read.
NO_READ_AFTER = 7
#: Until a worker looks again: within the minute for which handlers wait for a read, and after it.
NEXT_LOOKS = st.sampled_from((1, 11, 31, 61, 65))
#: Days for which none of our machines runs: longer than the provider keeps events, and until they are too old for
#: handlers. The provider still has the last event of the gap, so many days later.
GAPS = (31, 40)
STILL_KEPT = 10
#: How long before the installation the provider's objects changed.
AGES = (timedelta(days=40), timedelta(days=10), timedelta(hours=3), timedelta(minutes=20))
SKEWS = (0, -600, -240, -30, 30, 240, 600, 1.5 * 3600, 3 * 3600, 6 * 3600, -7800, -6 * 3600)

_MOVES: dict[str, tuple[str, ...]] = {
    "payments": ("pay", "pay", "pay", "open_checkout", "process", "fail", "expire", "hold", "chargeback"),
    "payouts": ("succeed_payout", "process_payout", "fail_payout", "return_payout", "hold_payout", "delay_payout"),
    "refunds": ("succeed_refund", "succeed_refund", "process_refund", "fail_refund", "return_refund", "cancel_refund"),
}

INDEX = st.integers(0, 7)


def _fault(place: tuple[str, str], nth: int, of_post: bool) -> Fault:
    """``of_post``: a fault of a request waits for the next POST. Otherwise a GET often consumes it."""
    point, kind = place
    return Fault(point, kind, method="POST") if of_post and point in REQUESTS else Fault(point, kind, nth)


FAULTS = st.one_of(
    st.just([]),
    st.lists(
        st.builds(_fault, st.sampled_from(ALL), st.sampled_from((0, 0, 0, 1, 2, 4)), st.booleans()),
        min_size=1,
        max_size=3,
    ),
)

#: Where an earlier attempt may have run, it proves nothing.
REFUSAL = st.just([Fault("send", "refuse", method="POST")])
#: Before a request leaves, before its answer is read, before the outcome is written.
PAUSES = st.sampled_from(
    (
        Fault("send", WAIT, method="POST"),
        Fault("answer", WAIT, method="POST"),
        Fault("committed", WAIT),
        Fault("begin", WAIT, 1),
    )
)
#: What receivers, their callbacks and other apps do wrong.
MISTAKES = st.sampled_from([(point, kind) for point in ("receiver", "callback", "saved") for kind in KINDS[point]])
#: What becomes of the reads that follow, in which a handler's object is.
NO_READS = st.lists(st.sampled_from(("drop", "error", "page", "limit")), max_size=3)
#: Of an approval: before the balance is read, and before the decision is written.
LOOKS = st.sampled_from((Fault("send", WAIT), Fault("begin", WAIT), Fault("begin", WAIT, 1)))
#: Of an operation's page.
BUTTONS = ("retry", "look_up", "mark_happened", "mark_never_happened", "mark_others", "approve", "reject")
#: The processes that are deployed together.
PLACES = st.sampled_from(
    ((*WEBS, *WORKERS), (*WEBS, *WORKERS), WEBS, WORKERS, (WEBS[1], WORKERS[1]), (WEBS[0], WORKERS[0]))
)
LOSSES = st.sampled_from((Fault("answer", "lost", method="POST"), Fault("send", "drop", method="POST")))


class Schedule(RuleBasedStateMachine):
    """One schedule. ``scheduler`` and ``finished`` are set by who runs it."""

    scheduler: ClassVar[Scheduler]
    #: Called with the world of every schedule that was run and checked.
    finished: ClassVar[Callable[[World], object]]
    #: The world of the schedule that was run last, for the report.
    last: ClassVar[World | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None
        self.families: set[str] = set()
        self.has_gaps = self.has_projects = False
        self.backup: restoring.Backup | None = None
        #: The key in the form that a payer has open, by the order's reference.
        self.forms: dict[str, str] = {}
        self.is_broken = False

    @initialize(
        mode=st.sampled_from(("inline", "celery")),
        pays=st.sampled_from(PAYS),
        database_only=st.booleans(),
        families=st.sets(st.sampled_from(sorted(FAMILIES)), min_size=2),
        sold=st.sampled_from((2, 0, 1)),
        window=st.sampled_from((0, 0, 5)),
        approvals=st.booleans(),
        has_gaps=st.sampled_from((False, False, True)),
        is_new=st.sampled_from((False, False, True)),
        is_stubborn=st.sampled_from((False, False, True)),
        is_observed=st.sampled_from((False, False, True)),
        has_projects=st.sampled_from((True, True, False)),
        since=st.sampled_from((None, None, START - AGES[1] * 2)),
    )
    def begin(
        self,
        mode: str,
        pays: str,
        database_only: bool,
        families: set[str],
        sold: int,
        window: int,
        approvals: bool,
        has_gaps: bool,
        is_new: bool = False,
        is_stubborn: bool = False,
        is_observed: bool = False,
        has_projects: bool = False,
        since: datetime | None = None,
    ) -> None:
        """``is_new``: the provider has had objects for weeks when the app is installed. ``has_projects``: somebody may
        configure the key of another project.
        """
        empty()
        User.objects.create(username=BOSS, is_superuser=True, is_staff=True)
        if not is_new:
            known = {"first_contact_at": START, "first_synced_at": START}
            AccountState.objects.create(account=ACCOUNT, watermark=START, clock_offset=0.0, swept_at=START, **known)
        self.families, self.has_gaps, self.has_projects = families, has_gaps, has_projects
        self.world = World(
            self.scheduler,
            mode=mode,
            pays=pays,
            is_stubborn=is_stubborn,
            is_observed=is_observed,
            database_only=database_only,
            window=window,
            approvals=approvals,
            begins_at=START - AGES[0] if is_new else START,
            since=since,
        )
        Schedule.last = self.world
        of_receivers = f"{f'pay out ({pays}), ' * bool(pays)}{'in groups, ' * database_only}"
        of_receivers += f"{'fail for one object, ' * is_stubborn}{'and others on our rows, ' * is_observed}"
        self.world.note(f"{mode}, {of_receivers}{sorted(families)}")
        if is_new:
            self._happened_before()
        for number in range(sold):
            self._sell(number)
        self.back_up()

    # what the merchant does

    @rule(web=INDEX, method=INDEX, amount=INDEX, reference=INDEX, keyed=st.booleans(), faults=FAULTS)
    def create_payment(
        self, web: int, method: int, amount: int, reference: int, keyed: bool, faults: list[Fault]
    ) -> None:
        self._ask(
            payment_intent(self._mark, _pick(PAYMENT_METHODS, method), *_what(amount, reference)), web, keyed, faults
        )

    @rule(web=INDEX, amount=INDEX, reference=INDEX, keyed=st.booleans(), faults=FAULTS)
    def create_payout(self, web: int, amount: int, reference: int, keyed: bool, faults: list[Fault]) -> None:
        self._ask(payout_intent(self._mark, *_what(amount, reference)), web, keyed, faults)

    @rule(web=INDEX, payment=INDEX, amount=st.sampled_from((None, 400, 600, 1000)), keyed=st.booleans(), faults=FAULTS)
    def create_refund(self, web: int, payment: int, amount: int | None, keyed: bool, faults: list[Fault]) -> None:
        rows = self._paid()
        if rows:
            row = _pick(rows, payment)
            intent = refund_intent(self._mark, row.pk, amount, by_card=row.method_family == "card")
            self._ask(intent, web, keyed, faults)

    @rule(web=INDEX, kind=INDEX, amount=INDEX, reference=INDEX, rolls_back=st.booleans(), faults=FAULTS)
    def defer(self, web: int, kind: int, amount: int, reference: int, rolls_back: bool, faults: list[Fault]) -> None:
        rows = self._paid()
        if kind % 2 and rows:
            row = _pick(rows, reference)
            amounts = (400, 600, 1000)
            intent = refund_intent(self._mark, row.pk, _pick(amounts, amount), by_card=row.method_family == "card")
        else:
            intent = payout_intent(self._mark, *_what(amount, reference))
        self._ask(intent, web, False, faults, in_transaction=True, rolls_back=rolls_back and web % 2 == 1)

    @rule(web=INDEX, index=INDEX, faults=FAULTS)
    def ask_again(self, web: int, index: int, faults: list[Fault]) -> None:
        """A double click, a caller who did not hear, or a job after a restored backup: the same call, the same key."""
        world = self._step("the same call again", faults)
        keyed = [
            intent
            for intent in world.intents.values()
            if "idempotency_key" in intent.arguments
            # A second payment or deposit reference may be made: it does no harm if nobody pays it.
            and (intent.function in ("create_payout", "create_refund") or intent.mark not in world.lost)
        ]
        if keyed:
            intent = _pick(keyed, index)
            world.start(_pick(WEBS, web), f"{intent} again", lambda: world.merchant.call(intent))

    @rule(
        number=INDEX,
        is_reopened=st.booleans(),
        methods=st.lists(st.sampled_from(PAYMENT_METHODS), min_size=1, max_size=2),
        pause=st.one_of(st.just([]), PAUSES.map(lambda pause: [pause])),
        move=st.sampled_from(("fail", "expire", "pay", "")),
        faults=FAULTS,
    )
    def pay_order(
        self, number: int, is_reopened: bool, methods: list[str], pause: list[Fault], move: str, faults: list[Fault]
    ) -> None:
        """A payer presses the button of an order's page, which may be old, maybe in two tabs; then pays, or fails."""
        world, order = self._step("an order is paid", [*pause, *faults]), Order(amount=1000, currency="CLP")
        order.reference = f"{ORDER}{number % 2}"
        if len(world.intents) >= MOST_INTENTS or any(order.reference in mark for mark in world.lost):
            return
        if is_reopened or order.reference not in self.forms:
            self.forms[order.reference] = order.signed_attempt_key()
        for web, method in zip(WEBS, methods, strict=False):
            job = partial(world.merchant.pay, order, method, self.forms[order.reference])
            world.start(web, f"pay {order.reference}", job)
        for payment in [*world.engine.default_project.payments.values()][-1:]:
            if move and payment.get("merchant_reference") == order.reference:
                self._move(f"{move} {payment['id']}", partial(getattr(world.engine, move), payment["id"]))
                draining.deliver_due(world, all_of_them=True)
                world.task("worker-1", "process_events")

    @rule(web=INDEX, index=INDEX, payout=st.booleans(), faults=FAULTS)
    def cancel(self, web: int, index: int, payout: bool, faults: list[Fault]) -> None:
        world = self._world
        name = "payouts" if payout else "payments"
        ids = list(getattr(world.engine.default_project, name))
        if ids:
            function = f"cancel_{name[:-1]}"
            arguments = {name[:-1]: _pick(ids, index)}
            self._ask(_positional(self._mark, function, arguments), web, False, faults)

    @rule(web=INDEX, faults=FAULTS)
    def rotate_secret(self, web: int, faults: list[Fault]) -> None:
        arguments = {"endpoint": self._world.endpoint_id}
        self._ask(_positional(self._mark, "rotate_webhook_secret", arguments), web, False, faults)

    @rule(jumps=st.lists(st.sampled_from((11, 12 * 3600, 25 * 3600)), min_size=1, max_size=3))
    def rotate_under_way(self, jumps: list[float]) -> None:
        """The secret is rotated again and again, each time while a delivery is under way to both web processes."""
        self.set_clock(0)
        world = self._step("the secret is rotated, and deliveries arrive")
        world.plan.clear()
        is_known = False
        for jump in jumps:
            world.engine.fund("CLP", 1)
            self.pass_time(11)  # a process reads the secrets of the others
            intent = _positional(self._mark, "rotate_webhook_secret", {"endpoint": world.endpoint_id})
            attempt = world.post.begin(world.post.due[0])
            rotations = Operation.objects.filter(operation=intent.function, state__in=OPEN_OPERATION_STATES)
            if attempt is None or world.waiting or world.network.stragglers or rotations.exists():
                return
            before = world.deliver(WEBS[0], attempt)
            is_known |= before.result == 200
            self._ask(intent, 0, False, [])
            for actor in (before, *(world.deliver(web, attempt) for web in WEBS)):
                if is_known and actor.result != 200:
                    world.violated("every secret that is valid is accepted", f"{actor.process.name}: {actor.result}")
            if not intent.returned:
                return
            self.resume_later(jump, 0, [])

    @rule(web=INDEX, amount=INDEX, faults=FAULTS)
    def deposit(self, web: int, amount: int, faults: list[Fault]) -> None:
        references = list(self._world.engine.default_project.deposit_references)
        if references and amount:
            self._move("transfer", lambda: self._world.engine.transfer(references[0], _pick(AMOUNTS, amount)))
        elif not references:
            self._ask(deposit_intent(self._mark), web, True, faults)

    @rule(web=INDEX, index=INDEX, rejects=st.booleans(), faults=FAULTS)
    def approve(self, web: int, index: int, rejects: bool, faults: list[Fault]) -> None:
        """A second person decides about one of those that wait."""
        world = self._step("a second person decides", faults)
        waiting = draining.awaiting_approval()
        if waiting:
            operation = _pick(waiting, index)
            world.start(
                _pick(WEBS, web), f"approve {operation.pk}", partial(world.merchant.approve, operation, rejects)
            )

    @rule(index=INDEX, look=LOOKS)
    def decide_at_once(self, index: int, look: Fault) -> None:
        """One person approves, and another one rejects it meanwhile."""
        world = self._step("two people decide", [look])
        waiting = draining.awaiting_approval()
        if waiting:
            operation = _pick(waiting, index)
            for web, rejects in zip(WEBS, (False, True), strict=True):
                name = f"{'reject' if rejects else 'approve'} {operation.pk}"
                world.start(web, name, partial(world.merchant.approve, operation, rejects))

    # what payers, banks and the provider do

    @rule(payment=INDEX, amount=st.sampled_from((400, 600, 1000)))
    def refund_elsewhere(self, payment: int, amount: int) -> None:
        """Somebody refunds in the provider's dashboard."""
        rows = self._paid()
        if rows:
            row = _pick(rows, payment)
            body: dict[str, Any] = {"payment_id": row.pk, "amount": amount}
            if row.method_family != "card":
                body["destination"] = DESTINATION
            world = self._step(f"in the dashboard: refund {amount} of {row.pk}")
            world.refund_elsewhere(row.pk, body)

    @rule(kind=st.sampled_from(("payments", "payments", "payouts", "refunds")), index=INDEX, move=INDEX)
    def happen(self, kind: str, index: int, move: int) -> None:
        ids = list(getattr(self._world.engine.default_project, kind))
        if ids:
            name, object_id = _pick(_MOVES[kind], move), _pick(ids, index)
            self._move(f"{name} {object_id}", lambda: getattr(self._world.engine, name)(object_id))

    @rule(index=INDEX, move=INDEX)
    def refund_happens(self, index: int, move: int) -> None:
        self.happen("refunds", index, move)

    @rule(index=INDEX, move=INDEX)
    def happen_again(self, index: int, move: int) -> None:
        self.happen("payments", index, move)

    @rule(
        count=st.integers(1, 4),
        picks=st.lists(INDEX, min_size=4, max_size=4),
        fate=st.sampled_from(("arrive", "arrive", "arrive", "twice", "drop", "vanish")),
        web=INDEX,
        faults=FAULTS,
    )
    def deliver(self, count: int, picks: list[int], fate: str, web: int, faults: list[Fault]) -> None:
        """The provider sends some of what is due, in any order."""
        world = self._step(f"deliver, {fate}", faults)
        for number in range(count):
            if not world.post.due:
                break
            attempt = world.post.begin(_pick(world.post.due, picks[number]))
            if attempt is None:
                continue
            if fate == "drop" or fate == "vanish":
                # Never sent: the provider believes that it arrived, or not.
                world.counts[f"delivery {fate}"] += 1
                world.note(f"{attempt.delivery.event_type} is lost on its way")
                world.post.settle(attempt, acknowledged=fate == "vanish")
                continue
            world.deliver(_pick(WEBS, web), attempt)
            if fate == "twice":
                world.counts["delivery twice"] += 1
                world.deliver(_pick(WEBS, web + 1), attempt, "webhook again")

    @rule(index=INDEX, web=INDEX, faults=FAULTS)
    def deliver_one(self, index: int, web: int, faults: list[Fault]) -> None:
        self.deliver(1, [index], "arrive", web, faults)

    @rule(web=INDEX, payment=INDEX, of_refund=st.booleans(), faults=FAULTS)
    def foreign_event(self, web: int, payment: int, of_refund: bool, faults: list[Fault]) -> None:
        """An event of another account names one of our payments."""
        rows = self._paid()
        if not rows:
            return
        world = self._step("an event of another account", faults)
        row, now = _pick(rows, payment), factories.iso(world.time.now)
        number = len(world.foreign_events)
        if of_refund:
            data = factories.refund(
                id=f"ref_foreign_{number}", payment_id=row.pk, amount=400, status="succeeded", created_at=now
            )
        else:
            data = factories.payment(id=row.pk, status="chargeback", created_at=now)
        world.deliver_foreign(_pick(WEBS, web), factories.event(data, id=f"evt_foreign_{number}", created_at=now))

    @rule(index=INDEX)
    def straggle(self, index: int) -> None:
        """A request that was given up reaches the provider."""
        world = self._step("a late request arrives")
        if world.network.stragglers:
            world.network.arrive(index)

    # what the merchant's machines do

    @rule(name=st.sampled_from(TASKS), worker=INDEX, faults=FAULTS)
    def run_task(self, name: str, worker: int, faults: list[Fault]) -> None:
        world = self._step(f"beat: {name}", faults)
        world.task(_pick(WORKERS, worker), name)

    @rule(index=INDEX, worker=INDEX, wipe=st.integers(0, 15), faults=FAULTS)
    def consume(self, index: int, worker: int, wipe: int, faults: list[Fault]) -> None:
        world = self._step("a worker takes a message", faults)
        if wipe == 15:
            world.counts["broker wiped"] += bool(world.messages)
            world.messages.clear()
        elif world.messages:
            world.consume(_pick(WORKERS, worker), index)

    @rule(wait=st.sampled_from((65, 130, 400, 1300)), worker=INDEX, faults=st.one_of(FAULTS, REFUSAL))
    def resume_later(self, wait: float, worker: int, faults: list[Fault]) -> None:
        """Claims and backoffs have run out; what is open is sent again or looked up."""
        self.pass_time(wait)
        world = self._step("beat: resume_operations", faults)
        world.task(_pick(WORKERS, worker), "resume_operations")

    @rule(wait=st.sampled_from((1, 400, 3 * 3600, 25 * 3600)), worker=INDEX, faults=FAULTS)
    def reconcile_later(self, wait: float, worker: int, faults: list[Fault]) -> None:
        """A pass, perhaps after an outage, perhaps not to its end."""
        self.pass_time(wait)
        world = self._step("beat: reconcile_events", faults)
        world.task(_pick(WORKERS, worker), "reconcile_events")

    @rule(
        days=st.sampled_from(GAPS),
        moves=st.lists(st.tuples(st.sampled_from(sorted(_MOVES)), INDEX, INDEX), min_size=2, max_size=4),
        given_up=st.booleans(),
        then=st.sampled_from(("reconcile_events", "reconcile_events", "reconcile_objects", "")),
        faults=FAULTS,
    )
    @precondition(lambda self: self.has_gaps)
    def long_gap(
        self, days: float, moves: list[tuple[str, int, int]], given_up: bool, then: str, faults: list[Fault]
    ) -> None:
        """The merchant's machines are off for longer than the provider keeps events. Then a pass, if any.

        ``given_up``: what was due before the gap is never delivered, so those events cannot be found any more.
        """
        world = self._step("our machines are switched off")
        world.switch_off()
        for kind, index, move in moves[:-1]:
            self.happen(kind, index, move)
        self.pass_time(1)
        if given_up:
            self._give_up_deliveries()
        self.pass_time((days - STILL_KEPT) * DAY)
        self.happen(*moves[-1])
        self.pass_time(STILL_KEPT * DAY)
        world.counts["long gap"] += 1
        if then:
            world = self._step(f"beat: {then}", faults)
            world.task("worker-1", then)

    @rule(amount=INDEX, reversed_after=st.booleans(), fault=st.sampled_from((WAIT, CRASH)), nth=st.integers(2, 3))
    def interrupted_pass(self, amount: int, reversed_after: bool, fault: str, nth: int) -> None:
        """Nothing was delivered for a while; a pass stops between two pages, and a worker comes by."""
        self._step("deliveries fail")
        moves = ("open_checkout", "process", "pay", "chargeback") if reversed_after else ("process", "pay")
        for _ in range(2):
            self._pay(amount, moves)
        self._give_up_deliveries()
        world = self._step("beat: reconcile_events")
        world.plan.add([Fault("send", fault, nth)])
        world.task("worker-1", "reconcile_events")
        world.task("worker-2", "process_events")

    @rule(fates=st.lists(LOSSES, min_size=2, max_size=3), amounts=INDEX, payout=st.booleans(), worker=INDEX)
    def bad_day(self, fates: list[Fault], amounts: int, payout: bool, worker: int) -> None:
        """Calls with one reference, each without an answer, that are only looked up when their keys are forgotten."""
        for number, fate in enumerate(fates):
            amount = _pick(AMOUNTS, amounts * number)
            if payout:
                intent = payout_intent(self._mark, amount, "order-1")
            else:
                intent = payment_intent(self._mark, "cl_webpay_card", amount, "order-1")
            self._ask(intent, number, False, [fate])
        self.pass_time(23.5 * 3600)
        world = self._step("beat: resume_operations")
        world.task(_pick(WORKERS, worker), "resume_operations")

    @rule(payout=st.booleans(), move=INDEX, worker=INDEX)
    def answered_again(self, payout: bool, move: int, worker: int) -> None:
        """An answer is lost, and the object goes on before the same request brings that answer again."""
        if payout:
            intent = payout_intent(self._mark, 1000, None)
        else:
            intent = payment_intent(self._mark, "cl_webpay_card", 1000, None)
        self._ask(intent, 0, False, [Fault("answer", "lost", method="POST")])
        self.happen("payouts" if payout else "payments", -1, move)
        self.resume_later(65, worker, [])

    @rule(ahead=st.sampled_from((1.5, 3.0, -2.2)), fate=LOSSES, back_at=st.sampled_from((0.1, 12.0)), worker=INDEX)
    def wrong_clock(self, ahead: float, fate: Fault, back_at: float, worker: int) -> None:
        """Our clock is wrong when a payout without an answer leaves, or is set back later; the provider is away until
        it has forgotten the key.
        """
        hour = 3600.0
        world = self._step("the provider has a bad day")
        skews = (0.0, ahead) if ahead < 0 else (ahead, 0.0)
        self.set_clock(skews[0] * hour)
        self._ask(payout_intent(self._mark, 1000, "order-2"), 0, False, [fate])
        self.pass_time(back_at * hour)
        self.set_clock(skews[1] * hour)
        self.pass_time((24.2 - back_at) * hour)
        world = self._step("beat: resume_operations")
        world.task(_pick(WORKERS, worker), "resume_operations")
        self.set_clock(0)

    @rule(behind=st.sampled_from((20, 60, 240)), fate=LOSSES, worker=INDEX)
    def another_server(self, behind: float, fate: Fault, worker: int) -> None:
        """An answer is lost, and the next one comes from a server of the provider whose clock is behind."""
        world = self._step("the provider has two servers")
        world.plan.clear()
        intent = payout_intent(self._mark, 1000, None)
        self._ask(intent, 0, False, [fate])
        world.network.behind = behind
        self.resume_later(65, worker, [])
        world.network.behind = 0.0
        for operation in draining.of_intent(intent):
            if operation.state == OperationState.NEEDS_PERSON and operation.sent_after is not None:
                world.violated("two clocks of the provider need no person", f"{operation}: {operation.note}")

    @rule(ended=st.sampled_from(ENDED), then=st.sampled_from((*REFUSALS, "drop")), payout=st.booleans())
    def forgotten_connection(self, ended: str, then: str, payout: bool) -> None:
        """The first call after a quiet time finds its connection reset, and the client's repetition is refused."""
        world = self._step("a call after a quiet time")
        world.plan.clear()
        intent = payout_intent(self._mark, 1000, None)
        if not payout:
            intent = payment_intent(self._mark, "cl_webpay_card", 1000, None)
        faults = [Fault("send", kind, method="POST") for kind in (ended, then)]
        self._ask(intent, 0, False, faults)

    @rule(wait=st.sampled_from((65, 130)), worker=INDEX)
    def slow_connection(self, wait: float, worker: int) -> None:
        """A process stands still while it connects. Its claim ends, and another worker takes the operation."""
        world = self._step("a process connects")
        world.plan.clear()
        self._ask(payout_intent(self._mark, 1000, None), 0, False, [Fault("connect", WAIT, method="POST")])
        self.resume_later(wait, worker, [])
        for index in reversed(range(len(world.waiting))):
            if world.waiting[index].point == "connect":
                world.resume(index)

    @rule(fate=LOSSES, worker=INDEX)
    def trimmed_reference(self, fate: Fault, worker: int) -> None:
        """A reference ends with a blank, which the provider strips; the answer is lost, and the key is forgotten."""
        world = self._step("the provider strips references")
        world.network.trims = True
        self._ask(payout_intent(self._mark, 1000, "order-3 "), 0, False, [fate])
        world.network.trims = False
        self.pass_time(23.5 * 3600)
        world = self._step("beat: resume_operations")
        world.task(_pick(WORKERS, worker), "resume_operations")

    @rule(
        kind=st.sampled_from(("payout", "payment", "refund")),
        hours=st.sampled_from((2, 26)),
        approves=st.booleans(),
        forgets=st.booleans(),
        by_hand=st.booleans(),
        worker=INDEX,
    )
    def restored_ledger(
        self, kind: str, hours: float, approves: bool, forgets: bool, by_hand: bool, worker: int
    ) -> None:
        """The ledger is restored to a time at which money waited, and since then it was sent.

        ``forgets``: the mirror is restored, too, and the inbox.
        """
        world, paid = self._step(f"a {kind} waits"), self._paid()
        world.plan.clear()
        approves = approves and kind == "payout" and world.approvals
        if kind == "payment":
            intent = payment_intent(self._mark, "cl_webpay_card", 1000, None)
        elif kind == "refund" and paid:
            intent = refund_intent(self._mark, paid[0].pk, 400, by_card=paid[0].method_family == "card")
        else:
            intent = payout_intent(self._mark, LARGE if approves else 1000, None)
        if not approves:
            world.plan.add([Fault("send", "refuse", method="POST")])
        self._ask(intent, 0, False, [], in_transaction=not approves)
        backup = [operation for operation in draining.of_intent(intent) if not operation.may_have_run]
        for operation in backup:
            if operation.state == OperationState.AWAITING_APPROVAL:
                world.start("web-1", f"approve {operation.pk}", partial(world.merchant.approve, operation, False))
            else:
                self.resume_later(65, worker, [])
        for operation in backup:
            made = Operation.objects.get(pk=operation.pk)
            if made.state != OperationState.DONE:
                continue
            self._step("the ledger is restored")
            operation.save_base(raw=True)  # as the backup has it
            if forgets:
                forget_object(made.result_kind, made.result_id)
                world.watch.restored(made.result_kind, made.result_id)
            self.pass_time(hours * 3600.0)
            if operation.state == OperationState.AWAITING_APPROVAL:
                world.start("web-1", f"approve {operation.pk}", partial(world.merchant.approve, operation, False))
            else:
                if not by_hand:
                    self.resume_later(65, worker, [])
                press = partial(world.merchant.press, "retry", operation, "Ana")
                world.start("web-1", f"send {operation.pk} again", press)

    @rule()
    def back_up(self) -> None:
        """The whole database is dumped."""
        world = self._step("a backup")
        if not world.has_another_key:
            self.backup = restoring.back_up(world) or self.backup

    @rule(worker=INDEX, rejects=st.booleans())
    @precondition(lambda self: self.backup is not None)
    def restore(self, worker: int, rejects: bool) -> None:
        """The database is lost, and restored as the runbook says."""
        world, backup, self.backup = self._world, self.backup, None
        assert backup is not None
        age = world.time.now - backup.at
        if world.has_another_key or age > restoring.OLDEST:
            return
        self._step(f"the backup of {backup.at:%d %H:%M:%S} is restored")
        world.plan.clear()
        world.time.set_skew(0)
        world.counts["backups restored"] += 1
        restoring.restore(world, backup, _pick(WORKERS, worker), rejects=rejects)

    @rule(deferred=st.booleans(), hours=st.sampled_from((0, 2, 26)), worker=INDEX)
    def other_amount_after_a_restore(self, deferred: bool, hours: float, worker: int) -> None:
        """A call is refused, and made after a backup. That is restored, and the key comes with another amount."""
        world, intent = self._step("a key is used after a backup"), payout_intent(self._mark, 1000, None)
        world.plan.clear()
        self.backup = None
        world.plan.add([Fault("send", "refuse", method="POST")])
        self._ask(intent, 0, True, [])
        self.back_up()
        world.plan.clear()
        if self.backup is None or intent.mark not in world.intents:
            return
        world.start("web-1", f"{intent} again", partial(world.merchant.call, intent))
        self.restore(worker, False)
        self.pass_time(hours * 3600)
        world.start("web-1", f"{intent} otherwise", partial(world.merchant.call_otherwise, intent, deferred=deferred))
        self.resume_later(65, worker, [])

    @rule(ahead=st.sampled_from((1.5, 3.0, 6.0)), corrected=st.booleans(), amount=INDEX)
    def pass_with_a_fast_clock(self, ahead: float, corrected: bool, amount: int) -> None:
        """Our clock is ahead during a pass. What happens after it is never delivered, and the next pass comes when
        that clock's time has come.
        """
        hour = 3600.0
        self.set_clock(ahead * hour)
        world = self._step("beat: reconcile_events")
        world.task("worker-1", "reconcile_events")
        if corrected:
            self.set_clock(0)
        self._pay(amount, ("process", "pay"))
        self._give_up_deliveries()
        self.pass_time(ahead * hour)
        world = self._step("beat: reconcile_events")
        world.task("worker-1", "reconcile_events")
        self.set_clock(0)

    @rule(payment=INDEX, amounts=st.sampled_from(((None, None), (600, 1000), (None, 600))), nth=st.integers(0, 3))
    def refund_twice(self, payment: int, amounts: tuple[int | None, ...], nth: int) -> None:
        """Two people refund one payment; one of them is between looking and recording."""
        rows = self._paid()
        if not rows:
            return
        row = _pick(rows, payment)
        for number, amount in enumerate(amounts):
            intent = refund_intent(self._mark, row.pk, amount, by_card=row.method_family == "card")
            self._ask(intent, number, False, [Fault("begin", WAIT, nth)] if not number else [])
        if self._world.waiting:
            self.go_on(len(self._world.waiting) - 1, False, [])

    @rule(payment=INDEX, amount=st.sampled_from((400, 600)))
    def refund_goes_through(self, payment: int, amount: int) -> None:
        """A refund is made, and succeeds at the provider."""
        rows = self._paid()
        if rows:
            row = _pick(rows, payment)
            intent = refund_intent(self._mark, row.pk, amount, by_card=row.method_family == "card")
            self._ask(intent, 0, False, [])
            for refund_id in intent.returned:
                succeed = partial(self._world.engine.succeed_refund, refund_id)
                self._move(f"succeed_refund {refund_id}", succeed)

    @rule(payment=INDEX, move=st.sampled_from(("chargeback", "hold")))
    def read_while_it_changes(self, payment: int, move: str) -> None:
        """A payment is read for a refund; before the answer is taken in, it changes, and the event is applied."""
        rows = self._paid()
        if not rows:
            return
        row = _pick(rows, payment)
        intent = refund_intent(self._mark, row.pk, None, by_card=row.method_family == "card")
        world = self._world
        self._ask(intent, 0, False, [Fault("answer", WAIT)])
        self._move(f"{move} {row.pk}", partial(getattr(world.engine, move), row.pk))
        draining.deliver_due(world, all_of_them=True)
        world.task("worker-1", "process_events")
        if world.waiting:
            self.go_on(len(world.waiting) - 1, False, [])

    @rule(index=INDEX, nth=st.integers(2, 9), reversed_after=st.booleans(), outlasts=st.booleans())
    @precondition(lambda self: self.world is not None and self.world.processes[WEBS[0]].mode != "inline")
    def page_in_hand(self, index: int, nth: int, reversed_after: bool, outlasts: bool) -> None:
        """A worker stands still between two events of a page. Meanwhile, an object of the page changes again, or the
        claim runs out and another worker takes over.
        """
        world = self._world
        intent = self._pay(index, ("open_checkout", "process", "pay"), after=NO_READ_AFTER)
        draining.deliver_due(world, all_of_them=True)
        world.plan.clear()
        self._step("a worker has a page in hand")
        world.plan.add([Fault("begin", WAIT, nth)])
        worker = world.task("worker-1", "process_events")
        if worker not in world.waiting:
            return
        if outlasts:
            for wait in (11, 65):
                self.pass_time(wait)
                world.task("worker-2", "process_events")
        else:
            for payment_id in intent.returned:
                move = "chargeback" if reversed_after else "hold"
                self._move(f"{move} {payment_id}", partial(getattr(world.engine, move), payment_id))
            self.pass_time(1)
            draining.deliver_due(world, all_of_them=True)
            world.task("worker-2", "process_events")
        if worker in world.waiting:
            self.go_on(world.waiting.index(worker), False, [])

    @rule(index=INDEX, nth=st.integers(2, 9), which=INDEX)
    @precondition(lambda self: self.world is not None and self.world.processes[WEBS[0]].mode != "inline")
    def finish_by_hand(self, index: int, nth: int, which: int) -> None:
        """A worker stands still between two events of a page; a person marks one that it has in hand as done."""
        world = self._world
        for _ in range(2):
            self._pay(index, ("process", "pay"), after=NO_READ_AFTER)
        draining.deliver_due(world, all_of_them=True)
        world.plan.clear()
        self._step("a worker has a page in hand, and a person marks one of its events as done")
        world.plan.add([Fault("begin", WAIT, nth)])
        worker = world.task("worker-1", "process_events")
        in_hand = ObjectDispatch.objects.exclude(claim_token="").exclude(event_in_hand="").order_by("turn", "pk")
        if ids := list(in_hand.values_list("event_in_hand", flat=True)):
            event = Event.objects.filter(pk=_pick(ids, which), state=EventState.APPLIED)
            for pk in event.values_list("pk", flat=True):
                if world.watch.reopened[pk]:
                    world.watch.reopened[pk] -= 1  # it waited because somebody had replayed it
                else:
                    world.finished.add(pk)
            event.update(state=EventState.DONE)
        if worker in world.waiting:
            self.go_on(world.waiting.index(worker), False, [])

    @rule(index=INDEX, mistakes=st.lists(st.tuples(MISTAKES, st.integers(0, 5)), min_size=1, max_size=3))
    def mistakes_at_the_border(self, index: int, mistakes: list[tuple[tuple[str, str], int]]) -> None:
        """Several objects are dispatched together, and the merchant's code is wrong for some of their items."""
        for _ in range(3):
            self._pay(index, ("process", "pay"), after=NO_READ_AFTER)
        world = self._step("the merchant's code makes mistakes")
        world.plan.add([Fault(point, kind, nth) for (point, kind), nth in mistakes])
        draining.deliver_due(world, all_of_them=True)
        world.task("worker-1", "process_events")

    @rule(kind=st.sampled_from(KINDS["attention"]), refusal=st.sampled_from(("unprocessable", "refuse")), worker=INDEX)
    def attention_fails(self, kind: str, refusal: str, worker: int) -> None:
        """A receiver of attention is wrong: in a process that calls, in a worker, and in a pass with a wrong clock."""
        world = self._step("receivers of attention make mistakes")
        world.plan.clear()
        for first in ((), (Fault("committed", CRASH),)):
            world.plan.add([*first, Fault("send", refusal, method="POST"), Fault("attention", kind)])
            self._ask(payout_intent(self._mark, 1000, None), 0, False, [], in_transaction=True)
            self.resume_later(65, worker, [])
        # Outside a transaction.
        self.set_clock(3 * 3600)
        world.plan.add([Fault("attention", kind)])
        world.task(_pick(WORKERS, worker), "reconcile_events")
        self.set_clock(0)

    @rule(
        index=INDEX,
        nths=st.lists(st.integers(0, 9), min_size=1, max_size=4),
        task=st.sampled_from(("process_events", "process_events", "reconcile_events", "resume_operations")),
    )
    def busy_cluster(self, index: int, nths: list[int], task: str) -> None:
        """Another node is faster: COMMITs are refused while events are stored, applied and dispatched, and a call is
        recorded and answered. No caller hears of it, and no item counts an attempt.
        """
        for _ in range(2):
            self._pay(index, ("process", "pay"), after=NO_READ_AFTER)
        world = self._step("another node is faster")
        conflicts = [Fault("certify", "conflict", nth) for nth in nths]
        world.plan.add(conflicts)
        if task == "reconcile_events":
            self._give_up_deliveries()
        draining.deliver_due(world, all_of_them=True)
        world.task("worker-1", task)
        self._step("another node is faster again")
        world.plan.add(conflicts)
        self._ask(payout_intent(self._mark, 1000, None), index, index % 2 == 1, [])
        world.task("worker-1", "process_events")

    @rule(
        task=st.sampled_from(("process_events", "process_events", "resume_operations", "reconcile_events")),
        limit=st.sampled_from(LIMITS),
        at_line=st.integers(1, 400),
        part=st.sampled_from(PARTS),
    )
    def time_limit(self, task: str, limit: type[BaseException], at_line: int, part: str) -> None:
        """A time limit ends a worker's turn at any line."""
        world = self._step(f"{task} until a time limit")
        if task == "process_events":
            for _ in range(2):
                self._pay(0, ("process", "pay"), after=NO_READ_AFTER)
            draining.deliver_due(world, all_of_them=True)
        world.plan.clear()
        world.limited("worker-1", task, limit, at_line, part)

    @rule(index=INDEX, buttons=st.lists(st.sampled_from(BUTTONS), min_size=2, max_size=3), look=LOOKS)
    def press_every_button(self, index: int, buttons: list[str], look: Fault) -> None:
        """People press the buttons of one operation; the first one is between looking and writing."""
        self._step(f"people press {', '.join(buttons)}", [look])
        operations = list(Operation.objects.order_by("created_at", "pk"))
        if not operations:
            return
        operation = _pick(operations, index)
        for number, button in enumerate(buttons):
            self._press(operation, button, _pick(WEBS, number))

    def _press(self, operation: Operation, button: str, web: str) -> None:
        """A person who knows what the provider's dashboard shows presses one of an operation's buttons."""
        world, rest = self._world, list[Any](["Ana"])
        if button == "mark_happened":
            made = draining.executed_as(world, operation)
            linked = Operation.objects.filter(operation=operation.operation).exclude(result_id="")
            known = made or linked.values_list("result_id", flat=True).first()
            if not known:
                return
            rest = [known, "Ana", "seen in the dashboard"]
        elif button == "mark_never_happened":
            # The outcome of a request on its way is not known. What is due has none: who sends it claims it first.
            is_due = Operation.objects.filter(pk=operation.pk, state=OperationState.DUE).exists()
            is_certain = not world.network.stragglers and (is_due or not world.waiting)
            if not is_certain or draining.executed_as(world, operation):
                return
            rest = ["Ana", "not in the dashboard"]
        elif button == "mark_others":
            made = draining.executed_as(world, operation)
            others = [object_id for object_id in services.fitting_objects(operation) if object_id != made]
            if not others:
                return
            rest = [others, "Ana", "of another order"]
        if button in ("approve", "reject"):
            press = partial(world.merchant.approve, operation, button == "reject")
        else:
            press = partial(world.merchant.press, button, operation, *rest)
        world.start(web, f"{button} {operation.pk}", press)

    @rule(
        loss=st.one_of(LOSSES, REFUSAL.map(lambda faults: faults[0])),
        pause=PAUSES,
        buttons=st.lists(st.sampled_from(BUTTONS), min_size=1, max_size=3),
        outlasts=st.booleans(),
        is_slow=st.booleans(),
        refund=st.booleans(),
    )
    def press_while_held(
        self, loss: Fault, pause: Fault, buttons: list[str], outlasts: bool, is_slow: bool, refund: bool
    ) -> None:
        """A worker has a call in hand that was refused or lost; people press its buttons, and press them again when
        the claim has run out. Then the worker goes on, and last of all a person who stood still (``is_slow``).
        """
        world, paid = self._step("a call that a worker has to finish"), self._paid()
        world.plan.clear()
        if refund and paid:
            intent = refund_intent(self._mark, paid[0].pk, 400, by_card=paid[0].method_family == "card")
        else:
            intent = payout_intent(self._mark, 1000, None)
        world.plan.add([loss])
        self._ask(intent, 0, False, [], in_transaction=True)
        for operation in draining.of_intent(intent):
            self.pass_time(65)
            self._step(f"people press {', '.join(buttons)}")
            world.plan.add([pause])
            worker = world.task("worker-1", "resume_operations")
            for press in range(1 + outlasts):
                if press:
                    self.pass_time(130)
                if is_slow:
                    world.plan.add([Fault("write", WAIT)])
                for button in buttons:
                    self._press(operation, button, WEBS[press])
            if worker in world.waiting:
                self.go_on(world.waiting.index(worker), False, [])

    @rule(index=INDEX, kind=st.sampled_from(("payment", "payout")), pause=PAUSES)
    def cancel_at_once(self, index: int, kind: str, pause: Fault) -> None:
        """Two people cancel the same, one of them while the other one's request is on its way."""
        ids = list(getattr(self._world.engine.default_project, f"{kind}s"))
        if not ids:
            return
        self._world.plan.clear()
        for number in range(2):
            arguments = {kind: _pick(ids, index)}
            intent = _positional(self._mark, f"cancel_{kind}", arguments)
            self._ask(intent, number, False, [] if number else [pause])
        if self._world.waiting:
            self.go_on(len(self._world.waiting) - 1, False, [])

    @rule(
        index=INDEX,
        presses=st.integers(1, 2),
        pause=st.sampled_from((Fault("write", WAIT), Fault("written", WAIT), Fault("begin", WAIT, 3))),
        which=st.sampled_from(("parked", "waiting", "any")),
    )
    def replay(self, index: int, presses: int, pause: Fault, which: str) -> None:
        """People replay one event, or change, at any time: one of them stands still over it, and a worker comes by."""
        if which == "waiting":
            self._pay(index, ("process", "pay"), after=NO_READ_AFTER)
            draining.deliver_due(self._world, all_of_them=True)
        world = self._step("people replay")
        waiting = (EventState.PENDING, EventState.HELD, EventState.APPLIED)
        states = {"parked": (EventState.PARKED,), "waiting": waiting, "any": tuple(EventState)}[which]
        items: list[Event | StatusChange] = [
            *Event.objects.filter(account=ACCOUNT, state__in=states).order_by("created_at", "pk"),
            *StatusChange.objects.filter(account=ACCOUNT, state__in=states, event=None).order_by("pk"),
        ]
        if not items:
            return
        item = _pick(items, index)
        world.plan.add([pause])
        for number in range(presses):
            world.start(_pick(WEBS, number), f"{REPLAY} {item.pk}", partial(world.merchant.replay, item))
        world.task("worker-1", "process_events")

    @rule(index=INDEX, pause=st.one_of(st.none(), PAUSES), faults=FAULTS)
    def erase(self, index: int, pause: Fault | None, faults: list[Fault]) -> None:
        """A person has a payer's data erased, while a worker has something in hand."""
        world = self._step("a payer is erased", faults)
        ids = [
            pk
            for model in (Payment, Payout)
            for pk in model.objects.order_by("created_at").values_list("pk", flat=True)
        ]
        if not ids:
            return
        if pause is not None:
            world.plan.add([pause])
            world.task("worker-1", "process_events")
        world.start("web-1", f"erase {_pick(ids, index)}", partial(world.merchant.erase, _pick(ids, index)))
        world.counts["erasures"] += 1

    @rule(where=PLACES, database_only=st.booleans())
    def declare(self, where: tuple[str, ...], database_only: bool) -> None:
        """Some processes, or all, are deployed with receivers that share transactions, or do so no more."""
        world = self._step(
            f"in {', '.join(where)}, receivers are declared {'' if database_only else 'not '}database_only"
        )
        world.deploy(where, database_only=database_only)

    @rule(where=PLACES, mode=st.sampled_from(("inline", "celery", "worker")))
    def process_otherwise(self, where: tuple[str, ...], mode: str) -> None:
        """Some processes, or all, are deployed with another PROCESSING."""
        self._step(f"{', '.join(where)} work {mode}").deploy(where, mode=mode)

    @rule(index=INDEX, web=INDEX)
    def key_of_another_call(self, index: int, web: int) -> None:
        """A form's key comes again with another amount."""
        world = self._step("another call under the same key")
        world.plan.clear()
        # A key whose call was rolled back, or closed, is free for the other call.
        taken = set(Operation.objects.filter(state=OperationState.DONE).values_list("idempotency_key", flat=True))
        keyed = [
            intent
            for intent in world.intents.values()
            if intent.arguments.get("idempotency_key") in taken
            and intent.function in ("create_payment", "create_payout")
        ]
        if keyed:
            intent = _pick(keyed, index)
            world.start(_pick(WEBS, web), f"{intent} otherwise", partial(world.merchant.call_otherwise, intent))

    @rule(kind=st.sampled_from(("payment", "payout", "refund")), index=INDEX, fates=NO_READS, wait=NEXT_LOOKS)
    def succeed_at_once(self, kind: str, index: int, fates: list[str], wait: float) -> None:
        """What was just made succeeds, so that its event leaves the order unclear. The read may fail."""
        rows = self._paid()
        if kind == "payment":
            intent, move = payment_intent(self._mark, "cl_webpay_card", _pick(AMOUNTS, index), None), "pay"
        elif kind == "payout" or not rows:
            intent, move = payout_intent(self._mark, 700, None), "succeed_payout"
        else:
            row = _pick(rows, index)
            intent, move = (
                refund_intent(self._mark, row.pk, 400, by_card=row.method_family == "card"),
                "succeed_refund",
            )
        self._ask(intent, 0, False, [])
        world = self._world
        for object_id in intent.returned:
            self._move(f"{move} {object_id}", partial(getattr(world.engine, move), object_id))
        world.plan.add([Fault("send", fate, method="GET") for fate in fates])
        draining.deliver_due(world, all_of_them=True)
        world.task("worker-1", "process_events")
        self.pass_time(wait)
        world.task("worker-1", "process_events")

    @rule(
        which=INDEX,
        where=PLACES,
        seconds=st.sampled_from((0, 0, 6, 65)),
        then=st.sampled_from(("call", "call", "resume_operations", "sync_balances", "")),
        faults=FAULTS,
    )
    @precondition(lambda self: self.has_projects)
    def another_projects_key(
        self, which: int, where: tuple[str, ...], seconds: float, then: str, faults: list[Fault]
    ) -> None:
        """Some processes, or all, are deployed with the API key of another project, where passes have been."""
        world = self._step("beat: reconcile_events")
        world.task("worker-1", "reconcile_events")
        known = AccountState.objects.filter(account=ACCOUNT).exclude(has_test_key=None).exists()
        if not known or len(newest_objects(ACCOUNT)) < COMPARED:
            return
        self._step(f"{', '.join(where)} get the key of another project")
        world.deploy(where, key=_pick(OTHER_KEYS, which))
        if seconds:
            self.pass_time(seconds)
        for name in where:
            if then == "call":
                self._ask(payout_intent(self._mark, 1000, None), WEBS.index(name) if name in WEBS else 0, True, faults)
            elif then:
                world.task(name, then)

    @rule(where=PLACES)
    @precondition(lambda self: self.world is not None and self.world.has_another_key)
    def right_key(self, where: tuple[str, ...]) -> None:
        """The key is put back."""
        world = self._step(f"{', '.join(where)} get the right key back")
        world.deploy(where, key=world.key)

    # Tests of their own play the next two, and no schedule: other rules expect one alias and one API key.

    def rename(self, index: int) -> None:
        """Everything stops, and begins again with another alias of the account; later it gets its own alias back."""
        world = self._step("the account is renamed")
        world.plan.clear()
        if world.has_another_key or not AccountState.objects.filter(account=ACCOUNT).exists():
            return
        asked = (each for each in world.intents.values() if each.function in ("create_payment", "create_payout"))
        keyed = [each for each in asked if "idempotency_key" in each.arguments and each.mark not in world.lost]
        for old, new in ((ACCOUNT, RENAMED), (RENAMED, ACCOUNT)):
            world.deploy(world.processes, alias=new)
            self.pass_time(1000)
            world.start("worker-1", f"rename {old}", partial(rename_account, old, new))
            world.task("worker-1", "process_events")
            if keyed:
                intent = dataclasses.replace(_pick(keyed, index))
                intent.arguments = {**intent.arguments, "account": new}
                world.start("web-1", f"{intent} again", partial(world.merchant.call, intent))

    def renew_key(self, where: tuple[str, ...], loss: Fault, revoked: bool, worker: int) -> None:
        """Some processes, or all, are deployed with a new key of our project while a call has no answer."""
        world = self._step("the API key is renewed")
        world.plan.clear()
        world.plan.add([loss])
        self._ask(payout_intent(self._mark, 1000, None), 0, False, [])
        world.key = RENEWED_KEY
        world.engine.default_project.add_key(RENEWED_KEY)
        world.deploy(where, key=RENEWED_KEY)
        if revoked:
            world.engine.default_project.revoke_key()
        self.resume_later(65, worker, [])

    @rule(pause=PAUSES, first=st.one_of(st.just([]), REFUSAL), keyed=st.booleans(), faults=FAULTS)
    def overtake(self, pause: Fault, first: list[Fault], keyed: bool, faults: list[Fault]) -> None:
        """A process stands still over a call until others have taken over, then goes on with what it knew."""
        self._ask(payout_intent(self._mark, 1000, None), 0, keyed, [*first, pause])
        if self._world.waiting:
            self.go_on(len(self._world.waiting) - 1, True, faults)

    @rule(index=INDEX, late=st.booleans(), faults=st.one_of(FAULTS, REFUSAL))
    @precondition(lambda self: self.world is not None and self.world.waiting)
    def go_on(self, index: int, late: bool, faults: list[Fault]) -> None:
        """One of those that wait goes on; ``late``: when others have taken over."""
        if late:
            self.resume_later(65, index, [])
        world = self._step("somebody goes on", faults)
        if world.waiting:
            world.resume(index)

    @rule(jump=st.sampled_from(JUMPS))
    def pass_time(self, jump: float) -> None:
        world = self._step(f"{jump:g} s pass")
        world.advance(jump)
        world.counts["clock jumps"] += jump > 60

    @rule(skew=st.sampled_from(SKEWS))
    def set_clock(self, skew: float) -> None:
        """The merchant's clocks are set: wrong, or right again."""
        world = self._step(f"our clocks are {skew:g} s ahead")
        world.time.set_skew(skew)
        world.counts["clock set wrong"] += skew != 0

    @rule(which=INDEX)
    @precondition(lambda self: self.world is not None and self.world.waiting)
    def kill(self, which: int) -> None:
        """A process is killed while it waits."""
        world = self._step("kill -9")
        if world.waiting:
            actor = world.waiting.pop(which % len(world.waiting))
            world.counts[f"{actor.point} killed while waiting"] += 1
            world.kill(actor.process)
            world.resume_dead(actor)

    def teardown(self) -> None:
        if self.world is None:
            return
        try:
            if not self.is_broken:
                self._finish(self.world)
        finally:
            self.world.close()

    # inside

    @property
    def _world(self) -> World:
        assert self.world is not None
        return self.world

    @property
    def _mark(self) -> str:
        return f"i{len(self._world.intents)}"

    def _step(self, name: str, faults: list[Fault] | tuple[Fault, ...] = ()) -> World:
        world = self._world
        if world.violations:
            self.is_broken = True
            raise world.violations[0]
        world.counts["steps"] += 1
        world.step(name, [fault for fault in faults if family(fault.point, fault.kind) in self.families])
        return world

    def _ask(
        self,
        intent: Intent,
        web: int,
        keyed: bool,
        faults: list[Fault],
        *,
        in_transaction: bool = False,
        rolls_back: bool = False,
    ) -> None:
        world = self._step(f"{intent}{' deferred' if in_transaction else ''} {_shown(intent.arguments)}", faults)
        if len(world.intents) >= MOST_INTENTS:
            return
        if keyed:
            intent.arguments["idempotency_key"] = f"key-{intent.mark}"
        world.intents[intent.mark] = intent
        if in_transaction:
            job: Callable[[], object] = lambda: world.merchant.defer(intent, rolls_back=rolls_back)  # noqa: E731
        else:
            job = lambda: world.merchant.call(intent)  # noqa: E731
        world.start(_pick(WEBS, web), str(intent), job)

    def _pay(self, amount: int, moves: tuple[str, ...], *, after: float = 0) -> Intent:
        """A payment is made by card, and goes on at the provider, each time ``after`` so many seconds."""
        intent = payment_intent(self._mark, "cl_webpay_card", _pick(AMOUNTS, amount), None)
        self._ask(intent, 0, False, [])
        for payment_id in intent.returned:
            for move in moves:
                if after:
                    self.pass_time(after)
                self._move(f"{move} {payment_id}", partial(getattr(self._world.engine, move), payment_id))
        if after:
            self.pass_time(1)  # its events have a time of their own, and are due then
        return intent

    def _move(self, name: str, move: Callable[[], Any]) -> None:
        world = self._step(f"at the provider: {name}")
        try:
            move()
        except SandboxError as error:
            world.note(f"not now: {error}")
        world.provider_acted()

    def _sell(self, number: int) -> None:
        """A payment that was made, paid and delivered before any trouble began."""
        world = self._world
        intent = payment_intent(self._mark, _pick(PAYMENT_METHODS, number), 1000, None)
        self._ask(intent, number, False, [])
        (payment_id,) = intent.returned
        self._move(f"pay {payment_id}", lambda: world.engine.pay(payment_id))
        draining.deliver_due(world, all_of_them=True)
        world.task("worker-1", "process_events")

    def _happened_before(self) -> None:
        """Money moves at the provider before the app is installed; no delivery arrives."""
        world = self._world
        made = {"currency": "CLP", "country": "CL"}
        payment = made | {"amount": 1000, "method_code": "cl_webpay_card"}
        payout = made | {"amount": 700, "method_code": "cl_bank_transfer", "destination": DESTINATION}
        for age in AGES:
            self.pass_time((START - age - world.time.now).total_seconds())
            for path, body, move in (
                ("/payments", payment, "pay"),
                ("/payments", payment, ""),
                ("/payouts", payout, "succeed_payout"),
            ):
                object_id = world.elsewhere(path, body)
                if object_id and move:
                    self._move(f"{move} {object_id}", partial(getattr(world.engine, move), object_id))
                if object_id and move == "pay":
                    world.refund_elsewhere(object_id, {"payment_id": object_id, "amount": 400})
        self.pass_time(AGES[-1].total_seconds())
        self._give_up_deliveries()

    def _give_up_deliveries(self) -> None:
        """None of what is due arrives, ever."""
        post = self._world.post
        while post.due:
            attempt = post.begin(post.due[0])
            if attempt is not None:
                self._world.counts["delivery vanish"] += 1
                post.settle(attempt, acknowledged=True)

    def _paid(self) -> list[Payment]:
        return list(Payment.objects.filter(amount_received__gt=0).order_by("created_at"))

    def _finish(self, world: World) -> None:
        """Heal, drain, check; then a day passes, and everything is checked."""
        draining.heal(world)
        draining.drain(world, operations=False)
        for message in invariants.mirror_after_events(world):
            world.violated("the mirror follows from the events", message)
        draining.a_day_passes(world)
        asked = draining.callers_ask_again(world)
        approved = draining.people_approve(world)
        decided = draining.people_decide(world)
        if draining.replay_parked(world) or decided or approved or asked:
            draining.drain(world)
        draining.last_delivery(world)
        for name, check in invariants.AT_THE_END.items():
            for message in check(world):
                world.violated(name, message)
        if world.violations:
            raise world.violations[0]
        Schedule.finished(world)


def _pick(choices: Any, index: int) -> Any:
    return choices[index % len(choices)]


def _what(amount: int, reference: int) -> tuple[int, str | None]:
    return _pick(AMOUNTS, amount), _pick(REFERENCES, reference)


def _positional(mark: str, function: str, arguments: dict[str, Any]) -> Intent:
    return Intent(mark, function, arguments)


def _shown(arguments: dict[str, Any]) -> str:
    names = ("payment", "payout", "endpoint", "amount", "merchant_reference", "method_code", "idempotency_key")
    return ", ".join(f"{name}={arguments[name]}" for name in names if name in arguments)
