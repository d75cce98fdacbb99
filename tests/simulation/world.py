"""One world: the provider, the network, the merchant's processes, the broker and the clock, for one schedule."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import socket
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import Any
from unittest import mock

from django.conf import settings
from django.db import connections
from django.db.models.signals import post_delete, post_save
from django.test import RequestFactory, override_settings
from django.utils import timezone

from payments_integration import conf, sync, tasks, wakeup, webhooks
from payments_integration.client import resources, transport
from payments_integration.exceptions import INTERRUPTIONS
from payments_integration.inbox import claiming, release, releasing
from payments_integration.inbox.loading import Item
from payments_integration.models import (
    AccountState,
    DueRefresh,
    Event,
    EventState,
    ObjectDispatch,
    Operation,
    StatusChange,
)
from payments_integration.projection import endpoints, history
from payments_integration.reconciliation import events as event_passes, objects as object_passes
from payments_integration.sandbox import Engine
from payments_integration.sandbox.deliveries import signature
from payments_integration.signals import attention, event_received, status_changed
from payments_integration.sync import project_keys
from tests.simulation.clock import START, ProviderClock, Time, simulated
from tests.simulation.database import BrokenConnection
from tests.simulation.faults import FAMILIES
from tests.simulation.fetching import ahead
from tests.simulation.limits import HardTimeLimit, SoftTimeLimit, raising
from tests.simulation.merchant import DESTINATION, Intent, Merchant, mark_of
from tests.simulation.network import Attempt, Network, Post
from tests.simulation.scheduler import CRASH, GO, WAIT, Actor, Fault, Killed, Plan, Process, Scheduler
from tests.simulation.watching import Watch

ACCOUNT = "default"
#: What the account is called for a while.
RENAMED = "renamed"
#: How the name of an actor begins who replays an item.
REPLAY = "replay"
API_KEY = "sk_test_simulation"
#: The keys of other projects of the merchant's: of the same kind, and a live one.
OTHER_KEYS = ("sk_test_another", "sk_live_another")
#: A later key of our own project.
RENEWED_KEY = "sk_test_renewed"
#: So few objects are compared with a new key that a schedule has as many.
COMPARED = 2
SECRET = "whsec_simulation"
#: Another of the merchant's accounts, whose events may name objects of the first.
SECOND = "second"
SECOND_SECRET = "whsec_second"
FUNDS = 50_000
#: A payout of so much needs a second person.
LARGE = 4000
#: A request reaches the provider within so many seconds, or never.
LATEST = 60.0
#: A process stands still for no longer between its last look at the clock and its request: who slept a day there would
#: send under a key that the provider has forgotten, and nothing on this side can prevent it.
STANDSTILL = timedelta(minutes=30)
#: Events wait no longer for the pass that holds them.
LONGEST_HOLD = timedelta(hours=1)
#: Handlers wait so long for a read, as our clock says. If the wait ends much later than that, the clock was set back.
LONGEST_WAIT, CLOCK_SET_BACK = timedelta(minutes=1), timedelta(minutes=6)
#: A wake-up expires: the sweeper does the same every half minute.
MESSAGE_LIFE = timedelta(seconds=60)


class Violation(AssertionError):
    """Something that must always hold did not."""

    @classmethod
    def of(cls, invariant: str, message: str) -> Violation:
        """Of a type of its own per invariant: what shrinks goes on to violate the same one."""
        kind = _VIOLATIONS.setdefault(invariant, type("Violation", (cls,), {}))
        found: Violation = kind(f"{invariant}: {message}")
        return found


_VIOLATIONS: dict[str, type[Violation]] = {}


class World:
    """Everything there is during one schedule; ``close`` puts the process back as it was."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        mode: str,
        pays: str = "",
        is_stubborn: bool = False,
        is_observed: bool = False,
        database_only: bool = False,
        window: int = 0,
        approvals: bool = False,
        begins_at: datetime = START,
        since: datetime | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.pays, self.is_stubborn = pays, is_stubborn
        #: Another app has receivers on our rows.
        self.is_observed = is_observed
        self.window = window
        #: DISPATCH_SINCE of the account.
        self.since = since
        #: Large payouts need a second person.
        self.approvals = approvals
        #: Ids of operations that a second person has rejected.
        self.rejected: set[str] = set()
        #: Ids of events of the second account that name objects of the first.
        self.foreign_events: set[str] = set()
        #: Refunds made in the provider's dashboard, by their payment.
        self.refunded_elsewhere: defaultdict[str, list[str]] = defaultdict(list)
        self.time = Time(begins_at)
        self.plan = Plan()
        self.trace: list[str] = []
        self.counts: Counter[str] = Counter()
        self.violations: list[Violation] = []
        self.intents: dict[str, Intent] = {}
        self.attentions: list[tuple[str, Any]] = []
        self.acknowledged: set[str] = set()
        #: Events that were let go before the pass that held them had completed their window.
        self.overdue: set[str] = set()
        #: Events and changes that people have replayed.
        self.replays: set[str] = set()
        #: The marks of intents of which a restored ledger lacks a call.
        self.lost: set[str] = set()
        #: Events that a person has marked as done.
        self.finished: set[str] = set()
        #: Events that were old enough to be deleted.
        self.pruned: set[str] = set()
        #: The marks of operations by their ids. An operation on an object whose payer was erased loses its arguments
        #: soon.
        self.marks: dict[str, str | None] = {}
        #: What receivers have done and committed, until the last callback of that commit is called; and who it was.
        self._callbacks_due: dict[str, Actor] = {}
        #: What was called back in the scheduler's thread, whose commits are not watched.
        self._called_back: set[str] = set()
        self.waiting: list[Actor] = []
        self.messages: list[tuple[str, datetime]] = []
        names = ("web-1", "web-2", "worker-1", "worker-2")
        self.processes = {name: Process(name, API_KEY, mode, ACCOUNT, database_only) for name in names}
        #: The newest key of our project.
        self.key = API_KEY
        self._receivers: list[Any] = []
        self._digest = hashlib.sha256()
        self._stack = simulated(self.time, self.sleep, seed=1)
        self.engine = Engine(API_KEY, clock=ProviderClock(self.time), rate_limits=False)
        self.engine.limiter._monotonic = self.time.monotonic
        #: The ids of the objects that each other project has from the start, by its API key.
        self.elsewhere_held: dict[str, list[str]] = {}
        self.watch = Watch(self.engine)
        self.network = Network(self)
        self.post = Post(self)
        self.merchant = Merchant(self)
        self.endpoint_id: str = self.engine.add_endpoint("https://shop.example/payments/webhook/", secret=SECRET)["id"]
        self.engine.fund("CLP", FUNDS)
        self._observe = connections["default"]
        self._observe.inc_thread_sharing()
        self._stack.callback(self._observe.dec_thread_sharing)
        self._wire(self._stack)
        for key in OTHER_KEYS:
            self._add_project(key)

    # at boundaries, in the thread of an actor

    def at(self, point: str, *, may_wait: bool = True, method: str = "") -> str:
        """Pass a boundary: the planned fault happens, or is returned for the caller to do."""
        actor = self._actor()
        if actor is None:
            return GO
        self.check_alive()
        kind = self._decide(actor, point, may_wait=may_wait, method=method)
        while kind == WAIT:
            actor.point, actor.since = point, self.time.now
            self.waiting.append(actor)
            self.scheduler.pause()
            self.check_alive()
            kind = self._decide(actor, point, may_wait=may_wait, method=method)
        return kind

    def _decide(self, actor: Actor, point: str, *, may_wait: bool, method: str) -> str:
        kind = self.plan.take(point, may_wait=may_wait, method=method)
        self.counts[f"passed {point}"] += 1
        self._digest.update(f"{actor.name} {point} {kind}\n".encode())
        if kind == GO:
            return GO
        if kind != "conflict":
            # What meets a conflict is repeated: it has no excuse to leave anything undone.
            actor.met.add("wait" if kind == WAIT else point)
        self.counts[f"{point} {kind}"] += 1
        self.counts["faults of a POST"] += method == "POST"
        self.note(f"{kind.upper()} at {point}")
        if kind == CRASH:
            self.kill(actor.process)
            raise Killed
        return kind

    def check_alive(self) -> None:
        actor = self._actor()
        if actor is not None and actor.process.is_dead:
            raise Killed

    def committed(self, tables: set[str]) -> None:
        """The database has new rows: what the mirror shows now must be what the provider has been."""
        actor = self._actor()
        with self._observe.cursor() as cursor:
            for message in self.watch.mirror_changed(cursor, tables):
                self.violated("no status goes back", message)
            for message in self.watch.ledger_changed(cursor, tables):
                self.violated("no more is refunded than was received", message)
            for what in self.watch.inbox_changed(cursor, tables):
                if actor is not None and what not in self._called_back:
                    self._callbacks_due[what] = actor
            if actor is not None and actor.name.startswith(REPLAY):
                for item in self.watch.let_go:
                    self.violated("a person replays what is parked or done", item)
            for message in self.watch.charged(cursor, tables):
                self.violated("a failure costs the item in hand an attempt", message)
            claims, wrong = self.watch.claims_changed(cursor, tables, set() if actor is None else actor.claims)
            for message in wrong:
                self.violated("after a death in a group its objects are dispatched alone", message)
            if actor is not None:
                actor.claims |= claims
            self._note_marks(cursor, tables)

    def _note_marks(self, cursor: Any, tables: set[str]) -> None:
        table = Operation._meta.db_table
        if table in tables:
            cursor.execute(f"SELECT id, arguments FROM {table}")
            for pk, arguments in cursor.fetchall():
                if pk not in self.marks and (given := json.loads(arguments)):
                    self.marks[pk] = mark_of(given)

    # by the merchant's receivers

    def receives(self, event: Event, instance: Any) -> None:
        """A handler sees the state that its event brought, or a newer one, unless the read that would tell failed for
        a minute.
        """
        self._must_be_told(event, event.created_at)
        if instance is None or not self.watch.is_behind(event.id, instance):
            return
        key = {name: getattr(event, name) for name in ("account", "object_kind", "object_id")}
        until = DueRefresh.objects.filter(**key).values_list("dispatch_waits_until", flat=True).first()
        now = timezone.now()
        if until is None or now < until <= now + CLOCK_SET_BACK:
            self.violated("a handler sees what its event brought", f"{event}: {instance.status}, waits until {until}")

    def receives_change(self, change: StatusChange) -> None:
        """A handler is called for a change that an answer has brought."""
        if (changed_at := self.watch.changed_at(change.object_kind, change.object_id)) is not None:
            self._must_be_told(change, changed_at)

    def _must_be_told(self, item: Item, happened_at: datetime) -> None:
        """What the provider dates more than an hour before the first contact is history, except of our operations."""
        border = self.history_ends_at
        is_history = (border is None or happened_at < border) and item.object_id not in made_by_us()
        if is_history and str(item.pk) not in self.replays:
            self.violated("no handler is called for history", f"{item} of {happened_at}, the border is {border}")

    def fails(self, item: Item) -> None:
        self.watch.fails(str(item.pk))

    def pass_slowly(self, seconds: float) -> None:
        """Time goes on while the merchant's code runs, beyond its worker's turn."""
        if (actor := self._actor()) is not None:
            actor.met.add("wait")
        self.time.advance(seconds)

    def called_back(self, what: str) -> None:
        """The last callback of a commit."""
        self.check_alive()
        if self._actor() is None:
            self._called_back.add(what)
        elif self._callbacks_due.pop(what, None) is None:
            self.violated("callbacks follow their commit", f"{what} was not committed, or called back before")

    # in the thread of an actor or of the scheduler

    def sleep(self, seconds: float) -> None:
        """A process waits: time goes on, for everybody."""
        if self._actor() is None:
            return
        self.time.advance(max(seconds, 0.001))
        self.at("sleep", may_wait=False)

    def provider_acted(self) -> None:
        self.watch.provider_acted()
        while self.watch.doubled:
            self.violated("one attempt at a time pays an order", self.watch.doubled.pop())

    def violated(self, invariant: str, message: str) -> None:
        self.note(f"VIOLATION {invariant}: {message}")
        self.violations.append(Violation.of(invariant, message))

    def note(self, text: str) -> None:
        """A line of the readable schedule."""
        actor = self._actor()
        who = f"{actor.process.name} {actor.name}: " if actor is not None else ""
        line = f"{self.time.now:%d %H:%M:%S}.{self.time.now.microsecond // 1000:03} {who}{text}"
        self.trace.append(line)
        self._digest.update(line.encode())

    @property
    def left_to_people(self) -> set[str]:
        """Operations for which attention was sent."""
        return {pk for reason, pk in self.attentions if reason == "operation_needs_resolution"}

    @property
    def parked(self) -> set[Any]:
        """Events and changes whose receivers failed for so long that they were left out of their order."""
        return {pk for reason, pk in self.attentions if reason == "dispatch_parked"}

    @property
    def digest(self) -> str:
        """Of everything that happened, in its order."""
        return self._digest.hexdigest()

    # by the scheduler

    def step(self, name: str, faults: Iterable[Fault] = ()) -> None:
        """Begin a step of the schedule."""
        faults = list(faults)
        self.plan.add(faults)
        self.note(f"-- {name}{''.join(f' [{fault}]' for fault in faults)}")

    def start(
        self, process: str, name: str, job: Callable[[], Any], then: Callable[[Actor], None] | None = None
    ) -> Actor:
        """Have a process do something, until it waits or has ended."""
        actor = Actor(name, self.processes[process], job, then, self.time.monotonic())
        self._act(actor)
        return actor

    def resume(self, index: int) -> None:
        """Let one of those that wait go on."""
        actor = self.waiting.pop(index % len(self.waiting))
        self.note(f"{actor.process.name} {actor.name} goes on from {actor.point}")
        self._act(actor)

    def resume_dead(self, actor: Actor) -> None:
        """The thread of an actor whose process was killed comes to its end."""
        self._act(actor)

    def kill(self, process: Process) -> None:
        """kill -9; another process takes its place at once."""
        self.note(f"{process.name} is killed")
        self.counts["kills"] += 1
        process.is_dead = True
        now = self.processes[process.name]
        self.processes[process.name] = Process(now.name, now.key, now.mode, now.alias, now.database_only)

    def deploy(self, names: Iterable[str], **news: Any) -> None:
        """These processes are ended, as by kill -9, and begin again with these values. Nothing else is new to them."""
        for name in names:
            process = self.processes[name]
            if vars(process) != vars(process) | news:
                vars(process).update(news)
                self.end(process)
        self.counts["key of another project"] += news.get("key") in OTHER_KEYS

    def end(self, process: Process) -> None:
        """Kill the process with all that it does; another one, new to everything, takes its place."""
        self.kill(process)
        self._bury(process)

    @property
    def history_ends_at(self) -> datetime | None:
        """DISPATCH_SINCE, or an hour before the account's first contact with the provider, which was not before the
        schedule began.
        """
        state = AccountState.objects.filter(account__in=(ACCOUNT, RENAMED)).first()
        contact = None if state is None else state.first_contact_at
        border = None if contact is None else max(contact, START - timedelta(seconds=1)) - timedelta(hours=1)
        return self.since or border

    @property
    def has_another_key(self) -> bool:
        """Whether a process was deployed with the key of another project."""
        return any(process.key in OTHER_KEYS for process in self.processes.values())

    def switch_off(self) -> None:
        """All of the merchant's processes end; the broker's messages expire."""
        self.messages.clear()
        while self.waiting:
            actor = self.waiting.pop(0)
            self.kill(actor.process)
            self.resume_dead(actor)

    def advance(self, seconds: float) -> None:
        """Time passes; the provider does what is due by then."""
        until = self.time.now + timedelta(seconds=seconds)
        self._bring_stragglers(seconds)
        while late := [actor for actor in self.waiting if actor.point == "send" and actor.since < until - STANDSTILL]:
            self.resume(self.waiting.index(late[0]))
            # What it sent may be under way now.
            self._bring_stragglers(seconds)
        self.time.advance(seconds)
        self.engine.tick()
        self.provider_acted()
        self.post.lose_patience()

    def _bring_stragglers(self, seconds: float) -> None:
        """Before that time passes: a request is late by seconds, not by the day after which its key is forgotten."""
        while self.network.stragglers and seconds >= LATEST:
            self.network.arrive(0)

    def task(self, process: str, name: str) -> Actor:
        """A worker runs one of the tasks."""

        def run() -> None:
            self.at("task")
            if name == "prune":
                border = timezone.now() - timedelta(days=conf.MIN_EVENT_DAYS)
                old = Event.objects.filter(state=EventState.DONE, created_at__lt=border, received_at__lt=border)
                self.pruned |= set(old.values_list("pk", flat=True))
            getattr(tasks, name)(account=self.processes[process].alias)
            if name == "process_events":
                tasks.process_events(account=SECOND)

        return self.start(process, name, run)

    def limited(self, process: str, name: str, error: type[BaseException], at_line: int, part: str) -> None:
        """A worker runs out of time at the so manieth line of a part of the app."""

        def fired(where: str) -> None:
            actor = self._actor()
            assert actor is not None
            actor.met.add("limit")
            self.note(f"{error.__name__} at {where}")
            self.counts["time limits"] += 1
            for in_hand in self.watch.in_hand(actor.claims):
                self.watch.fails(in_hand)

        def run() -> None:
            with raising(error, at_line, part, fired):
                getattr(tasks, name)(account=ACCOUNT)

        self.start(process, f"{name} until its time limit", run)

    def deliver(self, process: str, attempt: Attempt, name: str = "webhook") -> Actor:
        """A delivery reaches one of the web processes."""
        request = RequestFactory().post(
            "/payments/webhook/",
            data=attempt.body,
            content_type="application/json",
            headers={"Service-Signature": attempt.signature},
        )

        def respond() -> int:
            status: int = webhooks.webhook(request, account=ACCOUNT).status_code
            return 0 if self.at("respond", may_wait=False) == "lost" else status

        def answered(actor: Actor) -> None:
            acknowledged = not actor.was_killed and actor.error is None and 200 <= (actor.result or 0) < 300
            if acknowledged:
                self._acknowledged(attempt.delivery.event_id)
            self.post.settle(attempt, acknowledged=acknowledged)

        return self.start(process, f"{name} {attempt.delivery.event_type}", respond, answered)

    def elsewhere(self, path: str, body: dict[str, Any]) -> str:
        """A request of the provider's dashboard that is not ours; returns the id of what it makes, or nothing."""
        key = f"dashboard-{self.counts['refunds elsewhere']}"
        self.counts["refunds elsewhere"] += 1
        account = dataclasses.replace(conf.account(ACCOUNT), api_key=self.key)
        answer = self.network.carry_out(
            self.network.request(account, "POST", path, None, json.dumps(body).encode(), key)
        )
        self.note(f"answered {answer.status}")
        return str(json.loads(answer.body)["id"]) if answer.status == 201 else ""

    def refund_elsewhere(self, payment_id: str, body: dict[str, Any]) -> str:
        """A refund that is not ours."""
        made = self.elsewhere("/refunds", body)
        if made:
            self.refunded_elsewhere[payment_id].append(made)
        return made

    def deliver_foreign(self, process: str, event: dict[str, Any]) -> Actor:
        """A delivery to the second account."""
        self.foreign_events.add(event["id"])
        body = json.dumps(event).encode()
        signed = signature(body, [SECOND_SECRET], int(self.time.now.timestamp()))
        request = RequestFactory().post(
            f"/payments/webhook/{SECOND}/",
            data=body,
            content_type="application/json",
            headers={"Service-Signature": signed},
        )
        return self.start(process, "foreign webhook", lambda: webhooks.webhook(request, account=SECOND))

    def publish(self, account: str) -> None:
        """Stands for the publisher's: a message to the broker, from a thread of its own."""
        kind = self.at("publish", may_wait=False)
        if kind != "drop":
            self.messages.extend([(account, self.time.now)] * (2 if kind == "twice" else 1))

    def wake_up(self, account: str | None) -> None:
        """Stands for the task's own message, for the rest of its work."""
        kind = self.at("publish", may_wait=False)
        if kind == "drop":
            raise ConnectionError("The broker is away")
        self.messages.extend([(account or ACCOUNT, self.time.now)] * (2 if kind == "twice" else 1))

    def _connects(self, *_: object) -> None:
        self.violated("nothing leaves the simulation", "a socket was to be connected")
        raise ConnectionRefusedError

    def consume(self, process: str, index: int) -> None:
        """A worker takes one of the broker's messages, in any order."""
        _, sent = self.messages.pop(index % len(self.messages))
        if self.time.now - sent <= MESSAGE_LIFE:
            self.task(process, "process_events")

    def close(self) -> None:
        """End what still runs, and put everything back."""
        self.plan.clear()
        for process in list(self.processes.values()):
            process.is_dead = True
        while self.waiting:
            self._act(self.waiting.pop(0))
        self._stack.close()

    def _add_project(self, key: str) -> None:
        """Another project, in which money has moved as well."""
        project = self.engine.add_project(key, clock=ProviderClock(self.time))
        project.fund("CLP", FUNDS)
        account = dataclasses.replace(conf.account(ACCOUNT), api_key=key)
        made = {"amount": 1000, "currency": "CLP", "country": "CL"}
        for path, body in (
            ("/payments", made | {"method_code": "cl_webpay_card"}),
            ("/payouts", made | {"method_code": "cl_bank_transfer", "destination": DESTINATION}),
        ):
            self.engine.handle(
                self.network.request(account, "POST", path, None, json.dumps(body).encode(), f"{key}{path}")
            )
        self.elsewhere_held[key] = self.held_by(key)

    def held_by(self, key: str) -> list[str]:
        """Ids of what a project holds."""
        project = self.engine.projects[key]
        kinds = (project.payments, project.payouts, project.refunds, project.deposit_references)
        return sorted(pk for items in kinds for pk in items)

    def _act(self, actor: Actor) -> None:
        endpoints._secrets = actor.process.memory.setdefault("secrets", {})
        resources._clients = actor.process.memory.setdefault("clients", {})
        history._contacts = actor.process.memory.setdefault("contacts", {})
        for name in ("_known", "_put_off", "_not_known"):
            setattr(project_keys, name, actor.process.memory.setdefault(f"keys{name}", {}))
        setattr(settings, conf.NAME, self._options(actor.process))
        for receiver in self._receivers:
            receiver.database_only = actor.process.database_only
        self.scheduler.act(actor)
        if actor.is_done:
            if actor.then is not None:
                actor.then(actor)
            if isinstance(actor.error, INTERRUPTIONS) and not actor.was_killed:
                self.note(f"{actor.process.name} exits")
                self._ended(actor)
                self.kill(actor.process)
            elif actor.error is not None and not actor.was_killed:
                self._failed(actor, actor.error)
            else:
                self._ended(actor)
            for what in [what for what, mine in self._callbacks_due.items() if mine is actor]:
                del self._callbacks_due[what]
        if actor.process.is_dead:
            self._bury(actor.process)

    def _bury(self, process: Process) -> None:
        """What else the dead process was doing ends, too."""
        while others := [other for other in self.waiting if other.process is process]:
            self.waiting.remove(others[0])
            self._act(others[0])

    def _acknowledged(self, event_id: str) -> None:
        self.acknowledged.add(event_id)
        with self._observe.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM payments_integration_event WHERE id = %s", [event_id])
            if cursor.fetchone() != (1,):
                self.violated("what was acknowledged is there", event_id)

    def _ended(self, actor: Actor) -> None:
        """A process has done what it was to do; whether it has left anything undone, where the database allowed it."""
        if actor.process.is_dead or actor.met & (FAMILIES["database"] | {"limit"}):
            return
        if actor.process.key != API_KEY:
            return  # its events wait, or may wait for a comparison
        for claim in sorted(actor.claims & self.watch.claims):
            self.violated("a pass releases what it has claimed", claim)
        for what in [what for what, mine in self._callbacks_due.items() if mine is actor]:
            self.violated("callbacks follow their commit", f"{what} is committed and was not called back")
        # A worker that a slow callback keeps beyond its turn publishes a message for the rest.
        had_time = "wait" not in actor.met and self.time.monotonic() - actor.began < tasks.TURN_SECONDS
        if actor.name == "process_events" and had_time and actor.error is None:
            for event in self._left_over():
                self.violated("the other objects of a page go on", f"{event} waits for nothing")

    def _left_over(self) -> Iterable[Event]:
        """Events that a whole pass has left, although their objects have not failed and wait for nothing."""
        waiting, names = set(), ("object_kind", "object_id")
        waits: tuple[Any, ...] = (
            ObjectDispatch.objects.exclude(claim_token="", next_attempt_at=None),
            Event.objects.filter(state__in=(EventState.HELD, EventState.PENDING)),
            # An object whose item was parked in this pass goes on in the next one.
            Event.objects.filter(state=EventState.PARKED),
            StatusChange.objects.filter(state=EventState.PARKED),
            DueRefresh.objects.exclude(dispatch_waits_until=None),
        )
        for rows in waits:
            waiting |= set(rows.filter(account=ACCOUNT).values_list(*names))
        left = Event.objects.filter(account=ACCOUNT, state=EventState.APPLIED)
        return [event for event in left if (event.object_kind, event.object_id) not in waiting]

    def _failed(self, actor: Actor, error: BaseException) -> None:
        self.note(f"{actor.name} ended with {type(error).__name__}: {error}")
        if not isinstance(error, BrokenConnection | SoftTimeLimit | HardTimeLimit):
            self.violated("no unexpected error", f"{actor.name}: {type(error).__name__}: {error}")

    def _actor(self) -> Actor | None:
        return getattr(threading.current_thread(), "actor", None)

    def _options(self, process: Process) -> dict[str, Any]:
        """The app's settings in a process."""
        return {
            "ACCOUNTS": {
                process.alias: {
                    "BASE_URL": "https://provider.example",
                    "API_KEY": process.key,
                    "WEBHOOK_SECRETS": [SECRET],
                    "DISPATCH_SINCE": self.since,
                },
                SECOND: {
                    "BASE_URL": "https://provider.example",
                    "API_KEY": "sk_test_second",
                    "WEBHOOK_SECRETS": [SECOND_SECRET],
                },
            },
            "PROCESSING": process.mode,
            "REORDER_WINDOW": self.window,
            "EVENT_DAYS": conf.MIN_EVENT_DAYS,
            "EVENT_BODY_DAYS": conf.MIN_EVENT_DAYS,
            "APPROVAL_LIMITS": {"CLP": LARGE} if self.approvals else {},
        }

    def _wire(self, stack: ExitStack) -> None:
        """Put the simulation in where the app meets the outside."""
        stack.enter_context(override_settings(**{conf.NAME: self._options(self.processes["web-1"])}))
        for module in (project_keys, sync):
            stack.enter_context(mock.patch.object(module, "COMPARED", COMPARED))
        for name in ("_known", "_put_off", "_not_known"):
            stack.enter_context(mock.patch.object(project_keys, name, {}))
        # Several pages, even for the few objects of a schedule.
        stack.enter_context(mock.patch.object(claiming, "FIRST_PAGE", 3))
        stack.enter_context(mock.patch.object(transport, "Transport", self.network.transport))
        stack.enter_context(mock.patch.object(resources, "_clients", {}))
        stack.enter_context(mock.patch.object(endpoints, "_secrets", {}))
        stack.enter_context(mock.patch.object(history, "_contacts", {}))
        # In Django's test environment there is no history.
        stack.enter_context(mock.patch.object(conf, "in_test_environment", return_value=False))
        stack.enter_context(mock.patch.object(wakeup, "_publisher", self))
        stack.enter_context(mock.patch.object(tasks, "wake_up", self.wake_up))
        stack.enter_context(mock.patch.object(socket.socket, "connect", self._connects))
        stack.enter_context(mock.patch.object(releasing, "release", self._release))
        for module in (event_passes, object_passes):
            stack.enter_context(mock.patch.object(module, "fetched_ahead", ahead(self.time.monotonic)))
        receivers: tuple[tuple[Any, list[Callable[..., Any]]], ...] = (
            (event_received, [self._declared(self.merchant.on_event)]),
            (status_changed, [self._declared(self.merchant.on_status)]),
            (attention, [self._on_attention]),
        )
        if self.is_observed:
            receivers += tuple((signal, [self.merchant.on_saved]) for signal in (post_save, post_delete))
        for signal, mine in receivers:
            stack.callback(_restore, signal, signal.receivers)
            signal.receivers = []
            signal.sender_receivers_cache.clear()
            for receiver in mine:
                signal.connect(receiver, weak=False)

    def _declared(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """As the decorators of ``handlers`` declare it, in each process."""

        def receiver(*args: Any, **kwargs: Any) -> Any:
            return handler(*args, **kwargs)

        self._receivers.append(receiver)
        return receiver

    def _release(self, account: str) -> int:
        """Stands for the release of all held events, of which one is overdue by our clock."""
        now = timezone.now()
        held = dict(Event.objects.filter(account=account, state=EventState.HELD).values_list("pk", "received_at"))
        if held and not any(abs(now - received_at) >= LONGEST_HOLD for received_at in held.values()):
            self.violated("events are held for their pass", f"{sorted(held)} are released at {now}")
        self.overdue |= held.keys()
        return release(account)

    def _on_attention(self, sender: type[Any], reason: str, instance: Any = None, **kwargs: Any) -> None:
        self.note(f"attention: {reason}: {kwargs.get('message', '')}")
        self.attentions.append((reason, None if instance is None else instance.pk))
        self.merchant.on_attention()


def made_by_us() -> set[str]:
    """The objects that operations have made or changed."""
    return set(Operation.objects.values_list("result_id", flat=True))


def _restore(signal: Any, receivers: list[Any]) -> None:
    signal.receivers = receivers
    signal.sender_receivers_cache.clear()
