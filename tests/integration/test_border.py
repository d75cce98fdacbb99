"""The border with the merchant's code: what its handlers, and the callbacks of their commits, may do to dispatch."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.db import DatabaseError, Error, OperationalError, connection, connections, transaction
from django.db.models.signals import post_delete, post_save
from django.db.transaction import TransactionManagementError
from django.test import TestCase
from django.utils import timezone, translation
from django.utils.connection import ConnectionDoesNotExist

from payments_integration import inbox, reconciliation, services, signals, telemetry, wakeup
from payments_integration.attention import call_attention
from payments_integration.db import statements
from payments_integration.db.border import closed_blocks
from payments_integration.db.transactions import repeatable
from payments_integration.exceptions import OutcomeUnknown
from payments_integration.inbox import calling
from payments_integration.inbox.receiving import read_again
from payments_integration.models import (
    Balance,
    DoublePayment,
    DueAttention,
    DueRefresh,
    Event,
    EventState,
    ObjectDispatch,
    Operation,
    Payment,
    ReconciliationRun,
    StatusChange,
)
from payments_integration.reconciliation import due
from payments_integration.signals import Reason, SynchronousSignal, event_received, status_changed
from payments_integration.testing import ProviderSandbox
from tests import factories
from tests.databases import DRIVER, LEVELS, MARIADB, POSTGRES, SQLITE, at_once, set_level
from tests.factories import rows
from tests.factories.receivers.models import ReceiverCall
from tests.grouping import grouped, pytest_generate_tests  # noqa: F401  (the tests run with both)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("woken"), pytest.mark.promise(6)]

NAMES = [f"pay_{number}" for number in range(6)]


@contextmanager
def connected(handler: Callable[..., None]) -> Iterator[None]:
    event_received.connect(handler)
    try:
        yield
    finally:
        event_received.disconnect(handler)


def take_in(*names: str, events: int = 2) -> None:
    for name in names:
        for item in factories.life(name)[:events]:
            inbox.receive("default", factories.body(item))
    inbox.process()


def count(event: Event, **_: Any) -> None:
    ReceiverCall.objects.create(what=event.id, object_id=event.object_id)


def counted() -> dict[str, int]:
    """How often each event's work is committed."""
    found = ReceiverCall.objects.values_list("what", flat=True)
    return {what: list(found).count(what) for what in set(found)}


def everything_once(*names: str, events: int = 2) -> dict[str, int]:
    return {item["id"]: 1 for name in names for item in factories.life(name)[:events]}


def conflict() -> OperationalError:
    """What the database in use says of a lock that was not free in time."""
    cause: Any = {
        "sqlite": Exception("database is locked"),
        "postgresql": Exception("deadlock detected"),
        "mysql": Exception(1205, "Lock wait timeout exceeded"),
    }[connection.vendor]
    cause.sqlstate = "40P01"
    error = OperationalError(*cause.args)
    error.__cause__ = cause
    return error


class Told(telemetry.Observer):
    def __init__(self) -> None:
        self.facts: list[telemetry.Fact] = []

    def happened(self, fact: telemetry.Fact) -> None:
        self.facts.append(fact)

    def of(self, kind: type[Any]) -> list[Any]:
        return [fact for fact in self.facts if isinstance(fact, kind)]


@pytest.fixture
def told() -> Iterator[Told]:
    observer = Told()
    telemetry.observe(observer)
    yield observer
    telemetry.forget(observer)


@pytest.mark.skipif(not POSTGRES, reason="elsewhere a session's zone changes no stored time")
def test_a_handler_that_sets_the_time_zone_makes_no_newer_event_look_older(caplog: pytest.LogCaptureFixture) -> None:
    def report(event: Event, **kwargs: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET TIME ZONE 'Asia/Tokyo'")

    name = NAMES[0]
    with connected(report):
        for item in factories.life(name)[:3]:
            inbox.receive("default", factories.body(item))
            inbox.process()
            inbox.dispatch()
    assert Payment.objects.get().status == factories.life(name)[2]["data"]["status"]
    assert "TimeZone of the database session was Asia/Tokyo; it is set back" in caplog.messages


SETTINGS = {
    "postgresql": ["client_encoding = 'LATIN1'", "client_encoding = 'SQL_ASCII'", "datestyle = 'German'"],
    "mysql": ["NAMES latin1", "SESSION character_set_client = latin1", "CHARACTER SET latin1"],
}


@pytest.mark.parametrize("setting", SETTINGS.get(connection.vendor, []))
def test_a_handler_that_prepares_an_export_garbles_no_text_and_sends_no_event_to_quarantine(setting: str) -> None:
    def export(event: Event, **kwargs: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET {setting}")

    with connected(export):
        for number in range(3):
            for name in NAMES[:2]:
                item = factories.life(name)[number]
                item["data"]["merchant_reference"] = f"camión {name} \N{DELIVERY TRUCK}"
                inbox.receive("default", factories.body(item))
            inbox.process()
            inbox.dispatch()
    connection.close()
    assert set(Event.objects.values_list("state", "error")) == {("done", "")}
    status = factories.life("pay_1")[2]["data"]["status"]
    assert set(Payment.objects.values_list("status", "merchant_reference")) == {
        (status, f"camión {name} \N{DELIVERY TRUCK}") for name in NAMES[:2]
    }


@pytest.mark.skipif(not POSTGRES, reason="elsewhere these are other settings")
@pytest.mark.parametrize("sql", ["SET search_path TO nowhere", "BEGIN"])
def test_a_callback_that_leaves_the_session_unusable_costs_no_other_object_an_attempt(sql: str) -> None:
    left: list[str] = []

    def leave() -> None:
        left.append(sql)
        with connection.cursor() as cursor:
            cursor.execute(sql)

    def handler(event: Event, **_: Any) -> None:
        count(event)
        if not left:
            transaction.on_commit(leave)

    with connected(handler):
        take_in(*NAMES, events=1)
        with suppress(DatabaseError):
            inbox.dispatch()
        connection.close()  # as a worker does after a pass that failed
        assert not ObjectDispatch.objects.exclude(claim_token="").exists()
        inbox.dispatch()
    assert counted() == everything_once(*NAMES, events=1)
    assert set(Event.objects.values_list("state", "attempts")) == {("done", 0)}


@pytest.mark.case(120)
@pytest.mark.skipif(DRIVER != "psycopg", reason="elsewhere it ends the pass, and the connection with it")
def test_a_callback_that_leaves_a_row_factory_costs_at_most_the_next_item_an_attempt(unlogged: None) -> None:
    def set_row_factory() -> None:
        session: Any = connection.connection
        session.row_factory = importlib.import_module("psycopg.rows").dict_row

    def handler(event: Event, **_: Any) -> None:
        count(event)
        if event.object_id == "pay_0":
            transaction.on_commit(set_row_factory)

    with connected(handler):
        take_in(*NAMES, events=1)
        with suppress(Exception):
            inbox.dispatch()
        connection.close()  # as a worker does after a pass that failed
        assert Event.objects.filter(attempts__gt=0).count() <= 1
        ObjectDispatch.objects.update(next_attempt_at=None)
        inbox.dispatch()
    assert counted() == everything_once(*NAMES, events=1)


@pytest.mark.case(120)
def test_a_callback_that_outlasts_the_claim_costs_no_other_item_an_attempt() -> None:
    """Another worker takes the page over, while the first waits for a mail server."""

    def wait() -> None:
        taken = ObjectDispatch.objects.exclude(claim_token="")
        taken.update(claimed_until=timezone.now() - timedelta(seconds=1))
        at_once(inbox.dispatch)

    waits = [*factories.life("pay_2")[:1], *factories.life("pay_4")[:1]]

    def handler(event: Event, **_: Any) -> None:
        count(event)
        if event.id in [item["id"] for item in waits]:
            transaction.on_commit(wait)

    with connected(handler):
        take_in(*NAMES)
        inbox.dispatch()
    assert counted() == everything_once(*NAMES)
    assert set(Event.objects.values_list("state", "attempts")) == {("done", 0)}


@pytest.mark.one_by_one
@pytest.mark.case(120)
def test_a_death_over_a_callback_would_be_charged_to_no_item_and_a_later_one_to_its_own() -> None:
    in_hand: list[str] = []

    def look() -> str:
        """What another worker would see."""
        rows = ObjectDispatch.objects.exclude(claim_token="").order_by("turn")
        return rows.values_list("event_in_hand", flat=True)[0]

    def handler(event: Event, **_: Any) -> None:
        in_hand.append(f"{event.id} {at_once(look)[0]}")
        if event.object_id == NAMES[0]:
            transaction.on_commit(lambda: in_hand.append(f"callback {look()}"))

    with connected(handler):
        take_in(*NAMES[:2])
        inbox.dispatch()
    events = [item["id"] for name in NAMES[:2] for item in factories.life(name)[:2]]
    assert in_hand == [
        f"{events[0]} {events[0]}",
        "callback ",
        f"{events[1]} {events[1]}",
        "callback ",
        f"{events[2]} {events[2]}",
        f"{events[3]} {events[3]}",
    ]


@pytest.mark.one_by_one
@pytest.mark.skipif(SQLITE, reason="it has one writer at a time")
@pytest.mark.parametrize("level", LEVELS)
def test_a_handler_that_outlasts_its_claim_costs_no_item_an_attempt(level: str) -> None:
    """Its worker writes to objects that another has taken, and may lose its transaction by that on MariaDB."""

    def take_over() -> None:
        taken = ObjectDispatch.objects.exclude(claim_token="").exclude(object_id=NAMES[0])
        taken.update(claimed_until=timezone.now() - timedelta(seconds=1))
        inbox.dispatch()

    def handler(event: Event, **_: Any) -> None:
        count(event)
        if event.object_id == NAMES[0] and not took_over:
            took_over.append(event.id)
            at_once(take_over)
        transaction.on_commit(list)

    took_over: list[str] = []
    with connected(handler):
        take_in(*NAMES, events=1)
        set_level(level)
        inbox.dispatch()
    connection.close()  # no later test has the level
    assert counted() == everything_once(*NAMES, events=1)
    assert set(Event.objects.values_list("state", "attempts")) == {("done", 0)}


def test_what_a_handler_sets_on_the_event_changes_nothing_of_its_dispatch() -> None:
    def handler(event: Event, **_: Any) -> None:
        count(event)
        event.id, event.type = factories.life("pay_5")[1]["id"], "shop.paid"
        event.created_at = event.created_at.replace(tzinfo=None)

    def on_status(event: Event, status_change: StatusChange, **_: Any) -> None:
        assert status_change.event is event
        status_change.pk = None
        status_change.at = status_change.at.replace(tzinfo=None)

    with connected(handler):
        status_changed.connect(on_status)
        take_in(*NAMES)
        assert inbox.dispatch() == 12
        status_changed.disconnect(on_status)
    assert counted() == everything_once(*NAMES)
    assert set(Event.objects.values_list("state", "attempts")) == {("done", 0)}


@pytest.mark.case(119)
def test_a_callback_that_meets_a_conflict_does_not_repeat_the_handler(
    caplog: pytest.LogCaptureFixture, told: Told
) -> None:
    def callback() -> None:
        raise conflict()

    def handler(event: Event, **_: Any) -> None:
        count(event)
        transaction.on_commit(callback)

    with connected(handler):
        take_in("pay_1", events=4)
        assert inbox.dispatch() == 4
    assert counted() == everything_once("pay_1", events=4)
    assert set(Event.objects.values_list("state", "attempts")) == {("done", 0)}
    records = [record for record in caplog.records if record.name == "payments_integration.db.border"]
    assert [record.event_id for record in records] == list(everything_once("pay_1", events=4))  # type: ignore[attr-defined]
    assert all(record.levelno == logging.ERROR and record.exc_info for record in records)
    assert [fact.account for fact in told.of(telemetry.CallbackFailed)] == ["default"] * 4


@pytest.mark.case(120)
@pytest.mark.parametrize(
    "error", [ConnectionError("no broker"), asyncio.CancelledError(), BaseException("a time-out")]
)
def test_callbacks_that_fail_cost_no_other_object_anything(error: BaseException) -> None:
    after: list[str] = []

    def fail() -> None:
        raise error

    def handler(event: Event, **_: Any) -> None:
        count(event)
        if event.object_id in NAMES[::2]:
            transaction.on_commit(fail)
        transaction.on_commit(lambda: after.append(event.id))

    with connected(handler):
        take_in(*NAMES)
        reconciliation.process_due()
    assert counted() == everything_once(*NAMES)
    assert set(Event.objects.values_list("state", "attempts")) == {("done", 0)}
    assert sorted(after) == sorted(everything_once(*NAMES)), "the callbacks after the one that failed are called"
    assert not ObjectDispatch.objects.exclude(claim_token="", next_attempt_at=None).exists()


def test_what_a_handler_activates_is_its_own_and_its_callbacks(grouped: bool) -> None:  # noqa: F811
    """The next customer's mail would be in this one's language, and on another day in this one's time zone."""
    seen: list[tuple[str, str | None, str]] = []

    def active() -> tuple[str | None, str]:
        return translation.get_language(), timezone.get_current_timezone_name()  # noqa: TID251  (as handlers do)

    def note(what: str) -> None:
        seen.append((what, *active()))

    def activate(zone: str, language: str) -> None:
        timezone.activate(zone)
        translation.activate(language)

    def handler(event: Event, **_: Any) -> None:
        note("handler")
        transaction.on_commit(lambda: note("callback"))
        transaction.on_commit(partial(activate, "Asia/Tokyo", "ja"))
        activate("America/Sao_Paulo", "pt-br")

    usual = active()
    with connected(handler):
        take_in(*NAMES[:2], events=2)
        # A person who presses a button reads Spanish; the handler may translate what it asks for.
        with translation.override("es"), timezone.override("America/Bogota"):
            inbox.dispatch()
            assert active() == ("es", "America/Bogota")
    assert Counter(seen) == {("handler", *usual): 4, ("callback", "pt-br", "America/Sao_Paulo"): 4}


def test_a_handler_that_is_repeated_begins_with_the_usual_language() -> None:
    begun_with: list[str | None] = []

    def handler(event: Event, **_: Any) -> None:
        begun_with.append(translation.get_language())
        translation.activate("pt-br")

    take_in(NAMES[0], events=1)
    inbox.dispatch()  # imports what the mock must not reach
    with connected(handler), mock.patch.object(calling, "mark", side_effect=[conflict(), conflict(), None]):
        take_in(NAMES[1], events=1)
        inbox.dispatch()
    assert begun_with == [translation.get_language()] * 3


def test_what_a_receiver_of_attention_activates_is_its_own(attentions: list[dict[str, Any]]) -> None:
    usual, seen = translation.get_language(), []

    def handler(**_: Any) -> None:
        seen.append(translation.get_language())
        translation.activate("ja")

    signals.attention.connect(handler)
    try:
        with translation.override("es"):
            call_attention(Event(account="default"), Reason.ENDPOINT, "gone")
            assert translation.get_language() == "es"
    finally:
        signals.attention.disconnect(handler)
    assert attentions
    assert seen == [usual]


@pytest.mark.case(120)
def test_an_async_callback_is_logged_because_nothing_awaits_it(caplog: pytest.LogCaptureFixture, told: Told) -> None:
    async def kick() -> None: ...

    def handler(event: Event, **_: Any) -> None:
        count(event)
        transaction.on_commit(kick)

    with connected(handler):
        take_in(NAMES[0], events=1)
        inbox.dispatch()
    assert counted() == everything_once(NAMES[0], events=1)
    assert "nothing awaits it" in caplog.text
    assert [type(fact.error) for fact in told.of(telemetry.CallbackFailed)] == [TypeError]


def test_a_callback_may_be_a_mock_of_a_function(caplog: pytest.LogCaptureFixture) -> None:
    """Its name is no text, as of an object that answers for any attribute, such as a method of an RPC client."""
    callback = mock.Mock(spec=count)

    def handler(event: Event, **_: Any) -> None:
        count(event)
        transaction.on_commit(callback)

    with connected(handler):
        take_in(NAMES[0], events=1)
        inbox.dispatch()
    assert counted() == everything_once(NAMES[0], events=1), caplog.text
    assert callback.call_count == 1


class _Mail:
    """Its repr shows a payer, as the row of an order may."""

    def __repr__(self) -> str:
        return "<mail to ana@example.com>"

    def send(self, *to: str) -> None:
        raise ConnectionError("no mail server")

    __call__ = send


@pytest.mark.parametrize(
    ("callback", "name"),
    [
        (partial(_Mail.send, _Mail(), "ana@example.com"), "_Mail.send"),
        (partial(partial(_Mail().send), "ana@example.com"), "_Mail.send"),
        (_Mail().send, "_Mail.send"),
        (_Mail(), "_Mail"),
        (partial(int, "ana@example.com"), "builtins.int"),
    ],
)
def test_the_log_of_a_callback_that_failed_shows_no_payer(
    callback: Callable[[], object], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Celery's ``delay_on_commit`` is a partial of the task's arguments."""

    def handler(event: Event, **_: Any) -> None:
        transaction.on_commit(callback)

    with connected(handler):
        take_in(NAMES[0], events=1)
        inbox.dispatch()
    [message] = [record.message for record in caplog.records if "callback" in record.message]
    assert message.endswith(name)
    assert "ana@" not in message


def _close_in_a_block() -> None:
    transaction.atomic().__enter__()
    connection.close()


@pytest.mark.case(120)
@pytest.mark.parametrize(
    "begin",
    [lambda: transaction.atomic().__enter__(), lambda: transaction.set_autocommit(False), _close_in_a_block],
)
def test_a_callback_that_leaves_a_block_open_costs_no_other_object_anything(
    begin: Callable[[], object], caplog: pytest.LogCaptureFixture
) -> None:
    """A generator that stops inside a block leaves it open."""

    def leave() -> None:
        begin()
        with suppress(Error):
            ReceiverCall.objects.create(what="left", object_id="pay_1")

    def handler(event: Event, **_: Any) -> None:
        count(event)
        if event.object_id == "pay_1":
            transaction.on_commit(leave)

    with connected(handler):
        take_in(*NAMES, events=1)
        assert inbox.dispatch() == len(NAMES)
        connection.close()
    assert counted() == everything_once(*NAMES, events=1)
    assert "or a block of transaction.atomic open" in caplog.text


def test_a_block_left_open_at_the_end_of_a_pass_ends_no_later_pass(caplog: pytest.LogCaptureFixture) -> None:
    def leave(**_: Any) -> None:
        transaction.atomic().__enter__()

    signals.pass_ended.connect(leave)
    try:
        with connected(count):
            for name in NAMES:
                take_in(name, events=1)
                reconciliation.process_due()
    finally:
        signals.pass_ended.disconnect(leave)
    assert counted() == everything_once(*NAMES, events=1)
    assert "or a block of transaction.atomic open" in caplog.text


@pytest.mark.parametrize("is_overdue", [False, True])
def test_a_block_that_a_receiver_of_attention_leaves_open_ends_no_pass(
    is_overdue: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def leave(**_: Any) -> None:
        transaction.atomic().__enter__()

    signals.attention.connect(leave)
    try:
        with connected(count):
            take_in("pay_1", events=1)
            if is_overdue:
                about = {"account": "default", "reason": signals.Reason.DATABASE, "message": "full", "sender": "event"}
                DueAttention.objects.create(**about)
            else:
                call_attention(Event(account="default"), signals.Reason.DATABASE, "full")
            reconciliation.process_due()
    finally:
        signals.attention.disconnect(leave)
    assert counted() == everything_once("pay_1", events=1)
    assert transaction.get_autocommit()
    assert not DueAttention.objects.exists()
    assert "or a block of transaction.atomic open" in caplog.text


@pytest.mark.parametrize("signal", [signals.attention, signals.pass_ended])
def test_a_block_that_a_receiver_leaves_open_takes_no_other_receiver_s_work(signal: SynchronousSignal) -> None:
    def leave(**_: Any) -> None:
        transaction.atomic().__enter__()

    def write(**_: Any) -> None:
        ReceiverCall.objects.create(what="written", object_id="")

    receivers = (leave, write)
    for receiver in receivers:
        signal.connect(receiver)
    try:
        if signal is signals.attention:
            call_attention(Event(account="default"), signals.Reason.DATABASE, "full")
        else:
            reconciliation.process_due()
    finally:
        for receiver in receivers:
            signal.disconnect(receiver)
    assert ReceiverCall.objects.exists()


@pytest.fixture(params=["connected", "not used yet"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The alias of another database."""
    sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "shop"), "OPTIONS": {}}
    monkeypatch.setitem(connections.settings, "shop", {**connections.settings["default"], **sqlite})
    if request.param == "connected":
        connections["shop"].connect()
    yield "shop"
    connections["shop"].close()
    del connections["shop"]


@pytest.mark.case(121)
@pytest.mark.parametrize("shop", ["connected"], indirect=True)
def test_a_call_in_a_transaction_of_another_database_runs_no_handlers_in_it(shop: str) -> None:
    """It may roll back, and with it what a handler did there for another customer, whose event would be done."""
    with connections[shop].cursor() as cursor:
        cursor.execute("CREATE TABLE paid (id text)")

    def handler(instance: Any, status: str, **_: Any) -> None:
        with connections[shop].cursor() as cursor:
            cursor.execute("INSERT INTO paid VALUES (%s)", [f"{instance.pk} {status}"])

    def call() -> str:
        return services.create_payment(amount=10_000, currency="CLP", country="CL", method_code="cl_webpay_card").pk

    status_changed.connect(handler)
    with ProviderSandbox() as sandbox:
        recorded = wakeup.set_hook(None)
        first = call()
        sandbox.engine.pay(first)
        sandbox.deliver()
        wakeup.set_hook(wakeup._on_wake)
        with suppress(LookupError), transaction.atomic(using=shop):  # ATOMIC_REQUESTS of the shop's database
            call()
            raise LookupError("the view fails")
        assert not StatusChange.objects.filter(dispatched_at__isnull=False).exists()
        with transaction.atomic(using=shop):
            call()
            assert not StatusChange.objects.filter(dispatched_at__isnull=False).exists()
        wakeup.set_hook(recorded)
    with connections[shop].cursor() as cursor:
        cursor.execute("SELECT id FROM paid")
        found = sorted(row[0] for row in cursor.fetchall())
    done = StatusChange.objects.filter(dispatched_at__isnull=False)
    assert found == sorted(f"{change.object_id} {change.status}" for change in done)
    assert f"{first} succeeded" in found


@pytest.mark.case(121)
@pytest.mark.parametrize(
    "leave",
    [lambda using: transaction.atomic(using).__enter__(), lambda using: transaction.set_autocommit(False, using)],
)
def test_a_block_left_open_on_another_database_costs_its_own_item_an_attempt(
    unlogged: None, shop: str, leave: Callable[[str], object]
) -> None:
    """Otherwise this worker would never again commit there."""

    def handler(event: Event, **_: Any) -> None:
        count(event)
        if event.object_id == "pay_2":
            if connections[shop].connection is None:
                connections[shop].connect()
            leave(shop)

    with connected(handler):
        take_in(*NAMES, events=1)
        inbox.dispatch()
    assert list(Event.objects.exclude(state=EventState.DONE).values_list("object_id", "attempts")) == [("pay_2", 1)]
    assert not connections[shop].in_atomic_block
    assert connections[shop].get_autocommit()


@pytest.mark.case(121)
@pytest.mark.parametrize("fails", [False, True])
def test_a_generator_of_a_handler_that_ends_later_ends_no_other_transaction(unlogged: None, fails: bool) -> None:
    """The garbage collector may end it at any line, such as between a mirror row and the mark of its event."""
    left: list[Iterator[None]] = []

    def lock_orders() -> Iterator[None]:
        with transaction.atomic():
            yield

    def handler(event: Event, **_: Any) -> None:
        left.append(lock_orders())
        next(left[-1])
        if fails:
            raise LookupError("no such order")

    def end_them(rows: Sequence[Any]) -> None:
        while left:
            with pytest.raises(ConnectionDoesNotExist):
                left.pop().close()  # type: ignore[attr-defined]

    with connected(handler):
        take_in("pay_1", events=1)
        inbox.dispatch()
        signals.on_mirror_written(end_them)
        take_in("pay_2", events=1)
    assert set(Event.objects.values_list("object_id", "attempts")) == {("pay_1", 1), ("pay_2", 0)}
    assert Payment.objects.count() == 2


@pytest.mark.case(121)
def test_the_block_of_a_decorated_handler_is_not_taken_for_the_generator_s(unlogged: None) -> None:
    """Django forgets the newest block first, so the decorator's is the one that seems to be left open."""
    left: list[Iterator[None]] = []

    def lock_orders() -> Iterator[None]:
        with transaction.atomic():
            yield

    @transaction.atomic
    def handler(event: Event, **_: Any) -> None:
        count(event)
        if event.object_id == "pay_1" and not left:
            left.append(lock_orders())
            next(left[-1])

    with connected(handler):
        take_in(*NAMES, events=1)
        inbox.dispatch()
        with transaction.atomic():
            Event.objects.update(error="kept")
            with pytest.raises(ConnectionDoesNotExist):
                left[-1].close()  # type: ignore[attr-defined]
            assert connection.in_atomic_block
        assert not Event.objects.exclude(error="kept").exists()
        ObjectDispatch.objects.update(next_attempt_at=None)
        inbox.dispatch()
    assert counted() == everything_once(*NAMES, events=1)
    assert transaction.get_autocommit()


@pytest.mark.case(121)
def test_a_generator_that_was_left_open_costs_no_caller_of_a_decorated_function_its_block(unlogged: None) -> None:
    """A decorator has one block for all calls, and for all threads."""
    left: list[Iterator[None]] = []

    def lock_orders() -> Iterator[None]:
        with transaction.atomic():
            yield

    @transaction.atomic
    def decorated(body: Callable[[], object] | None = None) -> None:
        if body is not None:
            body()

    def receiver() -> None:
        with closed_blocks():
            decorated()
            left.append(lock_orders())
            next(left[-1])

    def caller() -> None:
        with pytest.raises(TransactionManagementError):
            receiver()
        Event.objects.create(id="evt_1", account="default", type="payment.created", created_at=timezone.now())

    decorated(caller)
    assert transaction.get_autocommit()
    assert Event.objects.exists()
    with pytest.raises(ConnectionDoesNotExist):
        left[-1].close()  # type: ignore[attr-defined]


@pytest.mark.case(120)
def test_an_interruption_by_a_callback_is_raised_after_the_commit_and_the_release() -> None:
    def handler(event: Event, **_: Any) -> None:
        count(event)
        if event.object_id == "pay_1":
            transaction.on_commit(interrupt)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with connected(handler):
        take_in(*NAMES, events=1)
        with pytest.raises(KeyboardInterrupt):
            inbox.dispatch()
        assert Event.objects.get(object_id="pay_1").state == EventState.DONE
        assert not ObjectDispatch.objects.exclude(claim_token="", next_attempt_at=None).exists()
        inbox.dispatch()
    assert counted() == everything_once(*NAMES, events=1)
    assert not Event.objects.filter(attempts__gt=0).exists()


def _roll_back() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ROLLBACK")


def _commit() -> None:
    with connection.cursor() as cursor:
        cursor.execute("COMMIT")


def _raise(error: BaseException) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it


def _close_the_drivers_connection() -> None:
    raw: Any = connection.connection
    raw.close()


class _Closed:
    """A closed connection of PyMySQL, whose errors are of other classes than those of mysqlclient."""

    def close(self) -> None:
        raise connection.Database.Error("Already closed")  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return _raise(connection.Database.InterfaceError(0, ""))  # type: ignore[attr-defined]


def _close_as_pymysql() -> None:
    _close_the_drivers_connection()
    connection.connection = _Closed()  # type: ignore[assignment]


def test_a_callback_that_closes_the_drivers_connection_costs_no_other_object_an_attempt() -> None:
    closed: list[str] = []

    def close() -> None:
        closed.append("once")
        _close_the_drivers_connection()

    def handler(event: Event, **_: Any) -> None:
        count(event)
        if not closed:
            transaction.on_commit(close)

    with connected(handler):
        take_in(*NAMES, events=1)
        with suppress(Error):
            inbox.dispatch()
        # As a worker does after a pass that failed. MariaDB's driver refuses to close twice.
        with suppress(Error):
            connection.close()
        assert set(Event.objects.values_list("attempts", flat=True)) == {0}
        ObjectDispatch.objects.update(claimed_until=None, claim_token="")
        inbox.dispatch()
    assert counted() == everything_once(*NAMES, events=1)
    assert set(Event.objects.values_list("state", "attempts")) == {("done", 0)}


def _leave_the_session_unusable() -> None:
    sql = {"mysql": "SET SESSION TRANSACTION READ ONLY", "postgresql": "SET search_path TO nowhere"}
    with connection.cursor() as cursor:
        cursor.execute(sql.get(connection.vendor, "SELECT * FROM nowhere"))
    raise LookupError("after it")


MISTAKES: dict[str, Callable[[], Any]] = {
    "CancelledError": _raise(asyncio.CancelledError()),
    "another BaseException": _raise(BaseException("gevent.Timeout")),
    "names a file that is not UTF-8": _raise(FileNotFoundError("recib\udcf3.pdf")),
    "closes its connection": connection.close,
    "closes the driver's connection": _close_the_drivers_connection,
    "marks for rollback": lambda: transaction.set_rollback(True),
    "rolls back by hand": _roll_back,
    "leaves the session unusable": _leave_the_session_unusable,
    "leaves a block open": lambda: transaction.atomic().__enter__(),
    "has the item marked": lambda: Event.objects.filter(object_id="pay_2").update(state=EventState.DONE),
}
if MARIADB:
    MISTAKES["closes the connection of PyMySQL"] = _close_as_pymysql


@pytest.fixture
def unlogged() -> Iterator[None]:
    """pytest-xdist cannot send a report whose log has half of a surrogate pair."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.case(121)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_a_handler_does_costs_its_own_item_alone_an_attempt(unlogged: None, mistake: str) -> None:
    wrong = [True]
    bad = factories.life("pay_2")[0]["id"]

    def handler(event: Event, **_: Any) -> None:
        count(event)
        if event.id == bad and wrong:
            MISTAKES[mistake]()

    with connected(handler):
        take_in(*NAMES)
        reconciliation.process_due()
        others = [name for name in NAMES if name != "pay_2"]
        assert counted() == everything_once(*others), "the others are dispatched at once"
        assert list(Event.objects.filter(attempts__gt=0).values_list("pk", "attempts", "state")) == [
            (bad, 1, "applied")
        ]
        assert not ObjectDispatch.objects.exclude(claim_token="").exists()
        wrong.clear()
        ObjectDispatch.objects.update(next_attempt_at=None)
        inbox.dispatch()
    assert counted() == everything_once(*NAMES)


@pytest.mark.case(121)
def test_no_other_handler_runs_after_one_that_rolled_back_by_hand(unlogged: None) -> None:
    """On SQLite each statement of the other one would be committed at once, and again with the next attempt."""

    def handler(event: Event, **_: Any) -> None:
        if event.object_id == "pay_2":
            _roll_back()

    with connected(handler), connected(count):
        take_in(*NAMES, events=1)
        inbox.dispatch()
    assert counted() == everything_once(*(name for name in NAMES if name != "pay_2"), events=1)
    assert Event.objects.get(object_id="pay_2").attempts == 1


@pytest.mark.case(121)
def test_a_handler_that_commits_by_hand_is_not_called_again_and_again(unlogged: None) -> None:
    """Its commit has released the object, and in a group all of them, which the next pass dispatches one by one."""

    def handler(event: Event, **_: Any) -> None:
        count(event)
        if event.object_id == "pay_2":
            _commit()

    with connected(handler):
        take_in(*NAMES, events=1)
        for _ in range(3):
            inbox.dispatch()
    bad = Event.objects.get(object_id="pay_2")
    assert (bad.state, bad.attempts) == (EventState.APPLIED, 1)
    assert ObjectDispatch.objects.get(object_id="pay_2").next_attempt_at is not None
    assert set(Event.objects.exclude(pk=bad.pk).values_list("state", "attempts")) == {("done", 0)}


@pytest.mark.case(121)
@pytest.mark.parametrize("interruption", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_interruption_is_raised_again_after_the_release(interruption: type[BaseException]) -> None:
    wrong = [True]
    bad = factories.life("pay_2")[0]["id"]

    def handler(event: Event, **_: Any) -> None:
        count(event)
        if event.id == bad and wrong:
            raise interruption

    with connected(handler):
        take_in(*NAMES)
        with pytest.raises(interruption):
            reconciliation.process_due()
        assert list(Event.objects.filter(attempts__gt=0).values_list("pk", "attempts")) == [(bad, 1)]
        assert not ObjectDispatch.objects.exclude(claim_token="").exists()
        wrong.clear()
        inbox.dispatch()
        assert counted() == everything_once(*(name for name in NAMES if name != "pay_2"))
        ObjectDispatch.objects.update(next_attempt_at=None)
        inbox.dispatch()
    assert counted() == everything_once(*NAMES)


@pytest.mark.case(121)
def test_a_time_limit_between_two_lines_of_ours_releases_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery's SoftTimeLimitExceeded comes at any line, also in the middle of a COMMIT."""

    class TimeLimit(Exception):
        pass

    real, left = connection.commit, [True]

    def commit() -> None:
        if left and Event.objects.filter(state=EventState.DONE).exists():
            left.clear()
            raise TimeLimit
        real()

    with connected(lambda event, **_: count(event)):
        take_in(*NAMES)
        monkeypatch.setattr(connection, "commit", commit)
        with suppress(DatabaseError):  # PostgreSQL's driver says that the connection is in a transaction
            inbox.dispatch()
        assert not ObjectDispatch.objects.exclude(claim_token="").exists()
        ObjectDispatch.objects.update(next_attempt_at=None)
        inbox.dispatch()
    assert not left
    assert counted() == everything_once(*NAMES)


@pytest.mark.one_by_one
@pytest.mark.case(119)
def test_an_item_that_is_not_waiting_any_more_is_not_handled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker with an expired claim, or a person, has finished it since the page was loaded."""
    first, second = factories.life("pay_1")[:2]

    def handler(event: Event, **_: Any) -> None:
        count(event)
        if event.id == first["id"]:
            transaction.on_commit(lambda: Event.objects.filter(pk=second["id"]).update(state=EventState.DONE))

    with connected(handler):
        take_in("pay_1")
        assert inbox.dispatch() == 1
    assert counted() == {first["id"]: 1}
    assert not ObjectDispatch.objects.exclude(claim_token="", next_attempt_at=None).exists()


@contextmanager
def failing_receivers() -> Iterator[None]:
    """Another app has a receiver of every row of every app, and it fails for ours."""

    def index(sender: type[Any], **_: Any) -> None:
        if sender._meta.app_label == Event._meta.app_label:
            raise ConnectionError("the search index does not answer")

    for signal in (post_save, post_delete):
        signal.connect(index)
    try:
        yield
    finally:
        for signal in (post_save, post_delete):
            signal.disconnect(index)


class TestReceiversOfAllRows:
    @pytest.fixture(autouse=True)
    def failing(self) -> Iterator[None]:
        with failing_receivers():
            yield

    def test_an_item_that_is_parked_does_not_stop_the_other_objects(self, settings: Any) -> None:
        settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "RECEIVER_RETRIES": []}

        def handler(event: Event, **_: Any) -> None:
            count(event)
            if event.object_id == "pay_1":
                raise LookupError("no order")

        with connected(handler):
            take_in("pay_1", "pay_2", events=1)
            inbox.dispatch()
        assert counted() == everything_once("pay_2", events=1)
        assert Event.objects.get(object_id="pay_1").state == EventState.PARKED
        assert not DueAttention.objects.exists()

    def test_an_object_that_was_read_does_not_stop_the_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(due.sync, "read", lambda *args, **kwargs: None)
        to_be_read("pay_1", "pay_2")
        assert reconciliation.refresh_due() == 2
        assert not DueRefresh.objects.exists()

    def test_an_object_that_cannot_be_inserted_does_not_stop_the_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def read(kind: str, account: str, object_id: str, **_: Any) -> None:
            if object_id == "pay_1":
                statements.insert_like_save(rows.unsaved_payment(id=object_id))

        monkeypatch.setattr(due.sync, "read", read)
        to_be_read("pay_1", "pay_2")
        assert reconciliation.refresh_due() == 1
        [left] = DueRefresh.objects.all()
        assert (left.object_id, left.attempts, "ConnectionError" in left.error) == ("pay_1", 1, True)

    @pytest.mark.parametrize("error", [asyncio.CancelledError(), ValueError("no such order")])
    def test_whatever_reading_raises_is_counted_and_others_are_read(
        self, error: BaseException, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def read(kind: str, account: str, object_id: str, **_: Any) -> None:
            if object_id == "pay_1":
                raise error

        monkeypatch.setattr(due.sync, "read", read)
        to_be_read("pay_1", "pay_2")
        assert reconciliation.refresh_due() == 1
        [left] = DueRefresh.objects.all()
        assert (left.object_id, left.attempts, left.claimed_until) == ("pay_1", 1, None)

    def test_an_object_is_free_when_its_read_is_interrupted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its handlers wait for the read, and the next worker may start a second later."""

        def read(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        to_be_read("pay_1")
        monkeypatch.setattr(due.sync, "read", read)
        with pytest.raises(KeyboardInterrupt):
            reconciliation.refresh_due()
        monkeypatch.setattr(due.sync, "read", lambda *args, **kwargs: None)
        assert reconciliation.refresh_due() == 1

    def test_an_event_that_is_quarantined_does_not_stop_the_others(self) -> None:
        for name in ("pay_1", "pay_2"):
            inbox.receive("default", factories.body(factories.life(name)[0]))
        valid = Event.objects.filter(object_id="pay_1").values_list("body", flat=True).get()
        Event.objects.filter(object_id="pay_1").update(body=b"{")
        inbox.process()
        assert list(Payment.objects.values_list("pk", flat=True)) == ["pay_2"]
        quarantine = Event.objects.filter(state=EventState.QUARANTINED)
        quarantine.update(body=valid)
        assert read_again(quarantine.get())
        assert not quarantine.exists()


@pytest.mark.case(120)
@pytest.mark.parametrize("fails", [False, True])
def test_a_block_that_a_receiver_of_all_rows_leaves_open_keeps_no_later_transaction_from_its_commit(
    fails: bool,
) -> None:
    left: list[Any] = []

    def index(sender: type[Any], **_: Any) -> None:
        if sender is Payment and not left:
            left.append(transaction.atomic())
            left[-1].__enter__()
            if fails:
                raise ConnectionError("the search index does not answer")

    post_save.connect(index)
    try:
        with ProviderSandbox():
            with pytest.raises(OutcomeUnknown):  # its answer cannot be written
                pay("A-1")
            assert transaction.get_autocommit()
            pay("A-2")
            Operation.objects.update(next_attempt_at=None, claimed_until=None, claim_token="")
            reconciliation.process_due()
    finally:
        post_save.disconnect(index)
    assert set(Payment.objects.values_list("merchant_reference", flat=True)) == {"A-1", "A-2"}


@pytest.mark.parametrize("is_by_schedule", [False, True])
@pytest.mark.parametrize("error", [asyncio.CancelledError(), BaseException("a time-out")])
def test_whatever_a_receiver_raises_for_an_answer_other_deferred_calls_are_sent(
    error: BaseException, is_by_schedule: bool
) -> None:
    called: list[bool] = []

    def index(sender: type[Any], instance: Any, **_: Any) -> None:
        if sender is Payment and instance.merchant_reference == "A-1":
            raise error

    post_save.connect(index)
    try:
        with ProviderSandbox():
            with transaction.atomic():
                for reference in ("A-1", "A-2"):
                    services.defer(services.create_payment, **arguments(reference))
                if is_by_schedule:
                    connection.run_on_commit.clear()
                transaction.on_commit(lambda: called.append(True))
            if is_by_schedule:
                assert services.resume_operations() == {"failed": 1, "done": 1}
    finally:
        post_save.disconnect(index)
    assert called
    assert list(Operation.objects.order_by("created_at").values_list("state", flat=True)) == ["unknown", "done"]


def test_a_full_resync_ends_although_receivers_of_all_rows_fail() -> None:
    with ProviderSandbox() as sandbox:
        for _ in range(2):
            sandbox.engine.pay(pay("A-1").pk)
        with failing_receivers():
            run = reconciliation.reconcile_objects(full=True)
    assert (run.state, run.error) == ("done", "")
    assert ReconciliationRun.objects.get(pk=run.pk).finished_at == run.finished_at
    assert Balance.objects.filter(currency="CLP").exists()
    assert DoublePayment.objects.filter(merchant_reference="A-1").exists()


def pay(reference: str) -> Payment:
    return services.create_payment(**arguments(reference))


def arguments(reference: str) -> dict[str, Any]:
    return {
        "amount": 1_000,
        "currency": "CLP",
        "country": "CL",
        "method_code": "cl_webpay_card",
        "merchant_reference": reference,
    }


def to_be_read(*names: str) -> None:
    DueRefresh.objects.bulk_create(
        [DueRefresh(account="default", object_kind="payment", object_id=name, reason="x") for name in names]
    )


class TestRepeatable:
    """Callbacks of every transaction of ours, also those that receivers of other apps register on our rows."""

    def test_a_callback_of_another_app_on_our_rows_stays_outside(self) -> None:
        def index(sender: Any, **_: Any) -> None:
            transaction.on_commit(_raise(conflict()))

        post_save.connect(index, sender=ReceiverCall)
        try:
            repeatable(lambda: ReceiverCall.objects.create(what="once", object_id=""), using="default", durable=True)
            repeatable(lambda: ReceiverCall.objects.create(what="twice", object_id=""), using="default")
        finally:
            post_save.disconnect(index, sender=ReceiverCall)
        assert counted() == {"once": 1, "twice": 1}

    def test_in_a_callers_transaction_callbacks_are_the_callers(self) -> None:
        def inner() -> None:
            transaction.on_commit(_raise(LookupError("the caller's own")))

        with pytest.raises(LookupError), transaction.atomic():
            repeatable(inner, using="default")

    def test_callbacks_of_an_attempt_that_is_rolled_back_are_not_called(self) -> None:
        calls: list[int] = []

        def attempt() -> None:
            number = len(attempts)
            attempts.append(number)
            transaction.on_commit(lambda: calls.append(number))
            if not number:
                raise conflict()

        attempts: list[int] = []
        repeatable(attempt, using="default", durable=True)
        assert (attempts, calls) == ([0, 1], [1])

    def test_a_rollback_without_an_error_is_an_error(self) -> None:
        def lose() -> None:
            ReceiverCall.objects.create(what="lost", object_id="")
            transaction.set_rollback(True)

        with pytest.raises(transaction.TransactionManagementError):
            repeatable(lose, using="default", durable=True)
        assert counted() == {}


@pytest.mark.django_db
class TestInATestCase:
    """Merchants' tests see the callbacks, because Django still decides about them."""

    pytestmark = pytest.mark.django_db

    def test_capture_on_commit_callbacks(self) -> None:
        calls: list[str] = []
        with TestCase.captureOnCommitCallbacks(execute=True) as callbacks:
            repeatable(lambda: transaction.on_commit(lambda: calls.append("called")), using="default", durable=True)
            repeatable(lambda: transaction.on_commit(_raise(ConnectionError())), using="default", durable=True)
        assert len(callbacks) == 2
        assert calls == ["called"]
