"""Calling merchant code: once, in order, exactly with its database work."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from payments_integration import inbox, services, telemetry
from payments_integration.handlers import on_event, on_status
from payments_integration.inbox import claiming, dispatching, processing
from payments_integration.models import (
    AccountState,
    DueRefresh,
    Event,
    EventState,
    ObjectDispatch,
    Payment,
    StatusChange,
    deletion_allowed,
)
from payments_integration.projection import erase_row
from payments_integration.signals import cause, event_received, status_changed
from tests import factories
from tests.conftest import Receiver
from tests.databases import DRIVER, built_queries
from tests.factories import body, event
from tests.factories.receivers.models import ReceiverCall
from tests.fake_provider import Fake, payment
from tests.grouping import grouped, pytest_generate_tests  # noqa: F401  (the tests run with both)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("woken"), pytest.mark.promise(6)]


def take_in(*events: dict[str, Any]) -> None:
    for item in events:
        inbox.receive("default", body(item))
    inbox.process()


@contextmanager
def death(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What raises SystemExit within ends the process."""
    with monkeypatch.context() as patched:
        release_nothing(patched)
        try:
            yield
        except SystemExit:
            return
    pytest.fail("the process has not died")


def release_nothing(patched: pytest.MonkeyPatch) -> None:
    """A process that dies counts no failure and keeps its claims."""
    patched.setattr(dispatching, "release_after_error", lambda *args: None)
    patched.setattr(dispatching, "_record_failure", lambda *args, **values: None)


def dispatch_unread() -> int:
    """Dispatch what waits for a read as well, as after a minute in which the provider did not answer."""
    DueRefresh.objects.update(dispatch_waits_until=None)
    return inbox.dispatch()


@contextmanager
def told() -> Iterator[list[telemetry.Fact]]:
    """What observers are told meanwhile."""
    facts: list[telemetry.Fact] = []
    observer = telemetry.Observer()
    observer.happened = facts.append  # type: ignore[method-assign]
    telemetry.observe(observer)
    yield facts
    telemetry.forget(observer)


def ids(events: list[dict[str, Any]]) -> list[str]:
    return [item["id"] for item in events]


def later(**wait: float) -> None:
    """As if so much time had passed."""
    for name in ("next_attempt_at", "claimed_until"):
        for row in ObjectDispatch.objects.exclude(**{name: None}):
            ObjectDispatch.objects.filter(pk=row.pk).update(**{name: getattr(row, name) - timedelta(**wait)})


def test_events_are_dispatched_in_order_and_once(receiver: Receiver) -> None:
    events = factories.life()
    take_in(*reversed(events))
    assert inbox.dispatch() == 5
    assert inbox.dispatch() == 0
    assert receiver.events == [(item["id"], False) for item in events]
    assert receiver.previous == ["", "created", "requires_action", "processing", "succeeded"]
    assert receiver.statuses == [("", "chargeback")]
    assert set(Event.objects.values_list("state", flat=True)) == {"done"}
    assert StatusChange.objects.get().dispatched_at is not None


@pytest.mark.skipif(DRIVER != "psycopg", reason="others have no prepare_threshold")
def test_the_lock_and_the_mark_are_prepared_if_the_project_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, receiver: Receiver
) -> None:
    take_in(*factories.life()[:1])
    with connection.cursor() as cursor, monkeypatch.context() as patch:
        patch.setattr(connection.connection, "prepare_threshold", 0)
        assert inbox.dispatch() == 1
        cursor.execute(
            "SELECT count(*) FROM pg_prepared_statements"
            " WHERE statement ~ 'RETURNING.*EXISTS|dispatched_at' AND statement !~ '^INSERT'"  # of other tests
        )
        assert cursor.fetchone()[0] == 2
    assert Event.objects.get().state == EventState.DONE


@pytest.mark.skipif(DRIVER != "psycopg", reason="others have no schemas of tenants")
def test_a_receiver_may_read_in_another_schema(monkeypatch: pytest.MonkeyPatch, receiver: Receiver) -> None:
    """The backend of django-tenants chooses the schema with each cursor: the mark was looked for in the receiver's."""
    database: Any = connection
    plain, schema = database._cursor, "public"

    def choosing(name: str | None = None) -> Any:
        cursor = plain(name)
        cursor.execute(f"SET LOCAL search_path = {schema}")
        return cursor

    def read(_: str) -> bool:
        nonlocal schema
        schema = "pg_catalog"
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        schema = "public"
        return False

    receiver.fail = read
    events = factories.life()
    take_in(*events)
    monkeypatch.setattr(connection, "_cursor", choosing)
    assert inbox.dispatch() == len(events)


def test_each_change_is_dispatched_batch_by_batch(receiver: Receiver) -> None:
    for item in factories.life():
        take_in(item)
        inbox.dispatch()
    assert receiver.statuses == [
        ("", "created"),
        ("created", "requires_action"),
        ("requires_action", "processing"),
        ("processing", "succeeded"),
        ("succeeded", "chargeback"),
    ]


def test_a_late_event_is_dispatched_as_stale(receiver: Receiver) -> None:
    events = factories.life()
    take_in(events[3])
    inbox.dispatch()
    take_in(events[1])
    inbox.dispatch()
    assert receiver.events == [(events[3]["id"], False), (events[1]["id"], True)]
    assert receiver.statuses == [("", "succeeded")]


@pytest.mark.case(79)
def test_an_event_from_tomorrow_makes_no_other_event_stale(receiver: Receiver) -> None:
    tomorrow = (timezone.now() - factories.T0 + timedelta(days=1)).total_seconds()
    take_in(event(factories.payment(), seconds=tomorrow))
    inbox.dispatch()
    take_in(factories.life()[1])
    assert inbox.dispatch() == 0, "the order of the two is not clear, so the second waits for a read"
    dispatch_unread()
    assert [is_stale for _, is_stale in receiver.events] == [False, False]


def dated(minutes: float, *, status: str = "created", number: int = 1) -> dict[str, Any]:
    """An event that is dated so many minutes from now."""
    seconds = (timezone.now() - factories.T0 + timedelta(minutes=minutes)).total_seconds()
    return event(factories.payment(status=status), seconds=seconds, id=f"evt_{number}")


@pytest.mark.case(103)
@pytest.mark.parametrize("minutes", [6, 30, 59])
@pytest.mark.parametrize("at_once", [True, False], ids=["one page", "two pages"])
def test_an_event_minutes_ahead_makes_no_other_event_stale(receiver: Receiver, minutes: int, at_once: bool) -> None:
    take_in(dated(minutes, number=1))
    dispatch_unread()
    true = [dated(0, status="processing", number=2), dated(0.1, status="succeeded", number=3)]
    if at_once:
        take_in(*true)
        dispatch_unread()
    else:
        for item in true:
            take_in(item)
            dispatch_unread()
    assert receiver.events == [("evt_1", False), ("evt_2", False), ("evt_3", False)]


@pytest.mark.case(103)
@pytest.mark.parametrize(
    ("offset", "minutes", "makes_stale"),
    [(600.0, 14, True), (600.0, 16, False), (-600.0, 4, True), (-600.0, 6, False)],
)
def test_ahead_is_measured_with_the_providers_clock(
    receiver: Receiver, offset: float, minutes: int, makes_stale: bool
) -> None:
    AccountState.objects.create(account="default", clock_offset=offset)
    take_in(dated(minutes, number=1))
    dispatch_unread()
    take_in(dated(minutes - 1, number=2))
    dispatch_unread()
    assert receiver.events == [("evt_1", False), ("evt_2", makes_stale)]


def test_a_clock_of_ours_that_is_set_forward_makes_no_earlier_event_one_of_the_future(receiver: Receiver) -> None:
    take_in(dated(0, number=1))
    dispatch_unread()
    AccountState.objects.create(account="default", clock_offset=-600.0)
    take_in(dated(-1, number=2))
    dispatch_unread()
    assert receiver.events == [("evt_1", False), ("evt_2", True)]


def test_events_of_unknown_kinds_have_no_instance(receiver: Receiver) -> None:
    seen: list[Any] = []

    def note(sender: Any, event: Event, instance: Any, **kwargs: Any) -> None:
        seen.append((sender, event.id, instance))

    event_received.connect(note, sender=Event)
    try:
        take_in(
            {
                **event(factories.payment()),
                "type": "dispute.created",
                "data": {"object": "dispute", "id": "d_1"},
            }
        )
        inbox.dispatch()
    finally:
        event_received.disconnect(note, sender=Event)
    assert seen == [(Event, "evt_pay_1_created_0", None)]


@pytest.mark.parametrize("kinds", [("dispute", "Dispute"), ("payment", "Payment"), ("dispute", "dispute ")])
def test_unknown_kinds_that_differ_by_case_stop_no_dispatch(receiver: Receiver, kinds: tuple[str, str]) -> None:
    """A database may compare without case or blanks at the end: the two would claim one row of their object."""
    for number, kind in enumerate(kinds):
        data = factories.payment(id="x_1") if kind == "payment" else {"object": kind, "id": "x_1"}
        take_in({**event(data, id=f"evt_{number}"), "type": "notice.opened"})
    take_in(event(factories.payment(), id="evt_other"))
    inbox.dispatch()
    assert {"evt_0", "evt_1", "evt_other"} <= {*receiver.dispatched}
    assert kinds[1] not in list(Event.objects.values_list("object_kind", flat=True))


@pytest.mark.case(94)
def test_a_failing_receiver_delays_only_its_own_object(receiver: Receiver) -> None:
    one, two = factories.life("pay_1"), factories.life("pay_2")
    receiver.fail = lambda what: what == one[3]["id"]
    take_in(*one, *two)
    inbox.dispatch()
    assert ids(one[:3]) == [item for item in receiver.dispatched if item in ids(one)]
    assert ids(two) == [item for item in receiver.dispatched if item in ids(two)]
    failed = Event.objects.get(id=one[3]["id"])
    assert (failed.state, failed.attempts) == ("applied", 1)
    assert "RuntimeError: receiver fails" in failed.error
    assert "Traceback" in failed.error
    # Its database work was rolled back, and nothing is tried again before its time.
    assert not ReceiverCall.objects.filter(what=one[3]["id"]).exists()
    assert inbox.dispatch() == 0
    receiver.fail = lambda what: False
    later(seconds=11)
    assert inbox.dispatch() == 2
    assert [item for item in receiver.dispatched if item in ids(one)] == ids(one)


@pytest.mark.case(94)
def test_an_event_is_parked_after_the_last_attempt_and_replayed_as_stale(
    receiver: Receiver, attentions: list[dict[str, Any]]
) -> None:
    events = factories.life()
    receiver.fail = lambda what: what == events[3]["id"]
    take_in(*events)
    for _ in range(6):
        inbox.dispatch()
        later(hours=1)
    parked = Event.objects.get(id=events[3]["id"])
    assert (parked.state, parked.attempts) == ("parked", 6)
    assert [seen["reason"] for seen in attentions] == ["dispatch_parked"]
    assert inbox.dispatch() == 1
    assert receiver.dispatched[-1] == events[4]["id"]
    receiver.fail = lambda what: False
    inbox.replay(parked)
    assert inbox.dispatch() == 1
    assert receiver.events[-1] == (events[3]["id"], True)


@pytest.mark.parametrize("outcome", ["waits", "fails", "is parked", "is parked and waits", "succeeds"])
def test_an_older_event_is_stale_whatever_becomes_of_the_replay_of_a_newer_one(
    receiver: Receiver, outcome: str
) -> None:
    older, newer = factories.life()[2:4]
    take_in(newer)
    inbox.dispatch()
    inbox.replay(Event.objects.get(id=newer["id"]))
    receiver.fail = lambda what: what == newer["id"]
    if outcome == "fails":
        inbox.dispatch()
        later(hours=1)
    elif outcome.startswith("is parked"):
        for _ in range(6):
            inbox.dispatch()
            later(hours=1)
        assert Event.objects.get().state == EventState.PARKED
        if outcome == "is parked and waits":
            inbox.replay(Event.objects.get())
    elif outcome == "succeeds":
        receiver.fail = lambda what: False
        inbox.dispatch()
    take_in(older)
    inbox.dispatch()
    assert (older["id"], True) in receiver.events
    assert (newer["id"], True) not in receiver.events


def test_an_event_that_was_only_ever_parked_makes_no_other_event_stale(receiver: Receiver) -> None:
    older, newer = factories.life()[2:4]
    receiver.fail = lambda what: what == newer["id"]
    take_in(newer)
    for _ in range(6):
        inbox.dispatch()
        later(hours=1)
    take_in(older)
    inbox.replay(Event.objects.get(id=newer["id"]))
    receiver.fail = lambda what: False
    inbox.dispatch()
    assert receiver.events == [(older["id"], False), (newer["id"], False)]


def test_a_replayed_status_change_is_stale(receiver: Receiver) -> None:
    seen: list[tuple[str, bool]] = []

    def note(status: str, is_stale: bool, **kwargs: Any) -> None:
        seen.append((status, is_stale))

    status_changed.connect(note)
    try:
        for item in factories.life()[2:4]:
            take_in(item)
        inbox.dispatch()
        inbox.replay(Event.objects.get(id=factories.life()[2]["id"]))
        inbox.dispatch()
    finally:
        status_changed.disconnect(note)
    assert seen == [("processing", False), ("succeeded", False), ("processing", True)]


def test_receivers_know_by_one_name_what_they_run_for(fake: Fake) -> None:
    """A change has the same name if an event or an answer brings it. The second one to a status has another name."""
    names: list[tuple[str, str]] = []

    def note(**kwargs: Any) -> None:
        found = cause()
        assert found is not None
        assert found.name is not None
        names.append((kwargs.get("status", ""), found.name()))

    first = factories.life()[0]
    status_changed.connect(note)
    event_received.connect(note)
    try:
        take_in(first)
        for statuses in (["succeeded", "chargeback", "succeeded"], ["succeeded"]):
            for status in statuses:
                services.refresh(fake.add(payment(id="pay_2", status=status)).id)
                inbox.dispatch()
            with deletion_allowed():
                StatusChange.objects.filter(object_id="pay_2").delete()
                Payment.objects.filter(pk="pay_2").delete()
        take_in(event(factories.payment(id="pay_2", status="succeeded"), id="evt_2"))
        inbox.dispatch()
    finally:
        status_changed.disconnect(note)
        event_received.disconnect(note)
    assert [name for status, name in names if not status] == [first["id"], "evt_2"]
    succeeded = [name for status, name in names if status == "succeeded"]
    assert succeeded == [f"payment pay_2 succeeded {place}" for place in (0, 1, 0, 0)]
    assert cause() is None


def test_a_failing_status_receiver_rolls_back_the_whole_dispatch(receiver: Receiver) -> None:
    receiver.fail = lambda what: what == "created"
    take_in(factories.life()[0])
    inbox.dispatch()
    assert not ReceiverCall.objects.exists()
    assert Event.objects.get().attempts == 1


def test_the_log_names_the_object_of_a_change_whose_receiver_failed(
    receiver: Receiver, fake: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.fail = lambda what: what == "succeeded"
    services.refresh(fake.add(payment(id="pay_2", status="succeeded")).id)
    inbox.dispatch()
    assert "A receiver failed for pay_2 " in caplog.text


def test_events_of_a_pass_are_dispatched_when_their_window_is_complete(receiver: Receiver) -> None:
    events = factories.life()
    inbox.receive_many("default", [body(item) for item in events[2:]], source="reconciliation")
    inbox.process()
    assert inbox.dispatch() == 0
    assert Payment.objects.get().status == "chargeback"
    # A webhook of the same object waits behind it, one of another object does not.
    take_in({**events[4], "id": "evt_later", "created_at": factories.iso(factories.T0 + timedelta(seconds=50))})
    take_in(factories.life("pay_2")[0])
    assert inbox.dispatch() == 1
    inbox.receive_many("default", [body(item) for item in events[:2]], source="reconciliation")
    inbox.process()
    # The last of them is of the moment at which the window ends: the next one's.
    [*older, last] = Event.objects.filter(state=EventState.HELD).order_by("created_at")
    assert inbox.release("default", before=last.created_at) == len(older) == 4
    assert inbox.release("default", before=last.created_at + timedelta(seconds=1)) == 1
    inbox.dispatch()
    assert [call for call in receiver.events if "pay_2" not in call[0]] == [
        *((item["id"], False) for item in events),
        ("evt_later", False),
    ]


@pytest.mark.one_by_one
def test_a_receiver_that_kills_its_process_delays_no_other_object(
    receiver: Receiver, attentions: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    events = factories.life("pay_1")[:1]

    def deadly(sender: Any, event: Event, **kwargs: Any) -> None:
        if event.id == events[0]["id"]:
            raise SystemExit

    take_in(*events, factories.life("pay_2")[0])
    event_received.connect(deadly)
    deaths = 0
    try:
        for _ in range(20):
            with monkeypatch.context() as patched:
                release_nothing(patched)
                try:
                    inbox.dispatch()
                except SystemExit:
                    deaths += 1
            later(hours=1)
    finally:
        event_received.disconnect(deadly)
    assert factories.life("pay_2")[0]["id"] in receiver.dispatched
    parked = Event.objects.get(id=events[0]["id"])
    assert (parked.state, parked.attempts, deaths) == ("parked", 6, 6)
    assert "the process died" in parked.error
    assert "dispatch_parked" in [seen["reason"] for seen in attentions]


def test_a_stored_event_is_dispatched_before_a_newer_one_that_is_applied(receiver: Receiver) -> None:
    """Two workers share a backlog in batches, and the one with the newer events is done first."""
    events = factories.life()[:3]
    for item in events:
        inbox.receive("default", body(item))
    for item in events[1:]:
        processing._batch("default", only=item["id"])
    assert inbox.dispatch() == 0
    page = claiming.claim({("default", "payment", "pay_1")}, "default")
    assert page.objects == []
    inbox.process()
    assert inbox.dispatch() == 3
    assert receiver.events == [(item["id"], False) for item in events]


def test_an_event_that_only_an_upgrade_can_apply_delays_no_other(receiver: Receiver) -> None:
    events = factories.life()[:2]
    for item in events:
        inbox.receive("default", body(item))
    Event.objects.filter(pk=events[0]["id"]).update(attempts=1)
    processing._batch("default", only=[events[1]["id"]])
    assert inbox.dispatch() == 1
    assert receiver.dispatched == [events[1]["id"]]


@pytest.mark.one_by_one
def test_a_crash_after_the_last_dispatch_is_no_failed_attempt(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, dispatched = dispatching.call_receivers, []

    def call_receivers(page: Any, work: Any) -> None:
        real(page, work)
        dispatched.append(work.items[0].pk)
        if len(dispatched) == 2:
            raise SystemExit

    first, second, third, *_ = factories.life()[:3]
    take_in(first, second)
    with monkeypatch.context() as patched, death(monkeypatch):
        patched.setattr(dispatching, "call_receivers", call_receivers)
        inbox.dispatch()
    assert dispatched == ids([first, second])
    later(hours=1)
    take_in(third)
    assert inbox.dispatch() == 1
    assert receiver.dispatched == ids([first, second, third])
    assert Event.objects.get(pk=third["id"]).attempts == 0


@pytest.mark.one_by_one
@pytest.mark.case(117)
def test_a_process_that_dies_costs_only_the_event_in_hand_an_attempt(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a page of claimed objects: the dead one's item, not the next one's, and not one that came since."""
    lives = [factories.life(f"pay_{number}") for number in range(4)]
    deadly = lives[1][2]["id"]

    def die(sender: Any, event: Event, **kwargs: Any) -> None:
        if event.id == deadly:
            raise SystemExit

    take_in(*(item for life in lives for item in life if item["id"] != lives[1][0]["id"]))
    event_received.connect(die)
    try:
        with death(monkeypatch):
            inbox.dispatch()
        take_in(lives[1][0])  # it goes before the deadly one
        assert inbox.dispatch() == 0, "all of them are claimed"
        later(seconds=11)
        with told() as facts:
            inbox.dispatch()
    finally:
        event_received.disconnect(die)
    assert [fact.item.pk for fact in facts if isinstance(fact, telemetry.DispatchFailed)] == [deadly]
    assert list(Event.objects.filter(attempts__gt=0).values_list("id", "attempts")) == [(deadly, 1)]
    later(seconds=11)
    inbox.dispatch()
    assert sorted(receiver.dispatched) == sorted(item["id"] for life in lives for item in life)
    for number, life in enumerate(lives):
        late = [life[0]["id"]] if number == 1 else []
        mine = [item for item in receiver.dispatched if item in ids(life) and item not in late]
        assert mine == [item for item in ids(life) if item not in late]
    assert not ObjectDispatch.objects.exclude(claim_token="").exists()


@pytest.mark.one_by_one
@pytest.mark.case(117)
def test_after_a_death_the_rest_of_a_large_page_costs_nobody_an_attempt(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next worker takes the dead one's objects over in several smaller pages."""
    take_in(*(factories.life(f"pay_{number}")[0] for number in range(9)))

    def die(sender: Any, **kwargs: Any) -> None:
        raise SystemExit

    event_received.connect(die)
    try:
        with death(monkeypatch):
            inbox.dispatch()
    finally:
        event_received.disconnect(die)
    later(seconds=11)
    monkeypatch.setattr(claiming, "FIRST_PAGE", 2)
    assert inbox.dispatch() == 8
    assert Event.objects.filter(attempts=1).count() == 1


def after_the_load(monkeypatch: pytest.MonkeyPatch, happen: Callable[[], object]) -> None:
    """Have something happen between the load of the first page and the dispatch of its first item."""
    real = claiming.claim

    def claim(*args: Any) -> Any:
        page = real(*args)
        monkeypatch.setattr(claiming, "claim", real)
        happen()
        return page

    monkeypatch.setattr(claiming, "claim", claim)


def test_an_earlier_event_that_comes_after_the_load_goes_first(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third, *_ = factories.life()[:3]
    take_in(second, third)
    after_the_load(monkeypatch, lambda: take_in(first))
    assert inbox.dispatch() == 3
    assert receiver.events == [(item["id"], False) for item in (first, second, third)]


def test_a_receiver_gets_the_row_as_it_is_now(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer event is applied between the load of a page and the dispatch."""
    *older, newest = factories.life()
    take_in(*older)
    seen: list[tuple[str, int, int]] = []

    def note(instance: Payment, **kwargs: Any) -> None:
        seen.append((instance.status, instance.version, Payment.objects.get().version))

    after_the_load(monkeypatch, lambda: take_in(newest))
    event_received.connect(note)
    try:
        assert inbox.dispatch() == 5
    finally:
        event_received.disconnect(note)
    assert {status for status, _, _ in seen} == {"chargeback"}
    assert all(given == stored for _, given, stored in seen)
    assert receiver.statuses == [("", "succeeded"), ("succeeded", "chargeback")]


def test_a_receiver_gets_no_personal_data_that_was_erased_since_the_load(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_in(event(factories.payment(payer={"name": "Ana Soto"})))
    seen: list[Any] = []

    def erase() -> None:
        with transaction.atomic():
            erase_row("default", "payment", "pay_1")

    def note(instance: Payment, **kwargs: Any) -> None:
        seen.append(instance.payer)

    after_the_load(monkeypatch, erase)
    event_received.connect(note)
    try:
        assert inbox.dispatch() == 1
    finally:
        event_received.disconnect(note)
    assert seen == [None]


def test_more_events_than_a_page_loads_stay_in_order(receiver: Receiver, settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "BATCH_SIZE": 3}
    lives = [factories.life(f"pay_{number}") for number in range(3)]
    take_in(*(item for life in lives for item in life))
    assert inbox.dispatch() == 15
    for life in lives:
        assert [item for item in receiver.dispatched if item in ids(life)] == ids(life)


@pytest.mark.one_by_one
def test_a_slow_page_is_released_and_claimed_again(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """No item is started in the second half of a claim: other workers may soon take it for a dead one's."""
    take_in(*(factories.life(f"pay_{number}")[0] for number in range(3)))
    pages: list[Any] = []
    real = claiming.claim

    def claim(*args: Any) -> Any:
        pages.append(real(*args))
        return pages[-1]

    def slow(**kwargs: Any) -> None:
        pages[-1].until = 0.0
        others = ObjectDispatch.objects.exclude(claim_token="").count()
        left.append(others)

    left: list[int] = []
    monkeypatch.setattr(claiming, "claim", claim)
    event_received.connect(slow)
    try:
        assert inbox.dispatch() == 3
    finally:
        event_received.disconnect(slow)
    assert [len(page.objects) for page in pages if page.objects] == [3, 2, 1]
    assert left == [2, 1, 0]
    assert not ObjectDispatch.objects.exclude(claim_token="").exists()
    assert not Event.objects.filter(attempts__gt=0).exists()


def test_a_worker_that_has_lost_its_claim_dispatches_nothing(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_in(*factories.life()[:2])
    stolen: list[Any] = []

    def steal() -> None:
        later(seconds=11)
        stolen.append(claiming.claim({("default", "payment", "pay_1")}, "default"))

    after_the_load(monkeypatch, steal)
    assert inbox.dispatch() == 0
    assert receiver.dispatched == []
    assert len(stolen) == 1


def test_an_event_that_no_handler_wants_is_done_and_makes_no_other_stale(receiver: Receiver) -> None:
    calls: list[tuple[str, bool]] = []
    event_received.disconnect(receiver.on_event)
    status_changed.disconnect(receiver.on_status)

    @on_event("payment.succeeded")
    def handle(event: Event, is_stale: bool, **kwargs: Any) -> None:
        calls.append((event.type, is_stale))

    @on_status(Payment, "succeeded")
    def fulfil(payment: Payment, status: str, **kwargs: Any) -> None:
        calls.append((status, kwargs["is_stale"]))

    *_, succeeded, chargeback = factories.life()
    try:
        take_in(chargeback)
        assert (Event.objects.get().state, Event.objects.get().dispatched_at) == ("done", None)
        take_in(succeeded)
        assert inbox.dispatch() == 1
        take_in(factories.life("pay_2")[1], factories.life("pay_2")[3])
        assert list(Event.objects.filter(object_id="pay_2", state="applied").values_list("type", flat=True)) == [
            "payment.succeeded"
        ]
        inbox.dispatch()
    finally:
        _disconnect(event_received, Payment, ("on_event", handle, ("payment.succeeded",)))
        _disconnect(status_changed, Payment, ("on_status", fulfil, ("succeeded",)))
    assert calls == [("payment.succeeded", False), ("payment.succeeded", False), ("succeeded", False)]


def test_statements_per_event(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the work of pages, and without the receivers' own two."""
    monkeypatch.setattr(claiming, "_PAGE_SECONDS", math.inf)  # a slow machine takes smaller pages
    take_in(*(item for number in range(50) for item in factories.life(f"pay_{number}")[:4]))
    count = Counter[str]()

    def note(execute: Any, sql: str, *rest: Any) -> Any:
        count["receiver" if "receivercall" in sql else "app"] += 1
        return execute(sql, *rest)

    with connection.execute_wrapper(note):
        assert inbox.dispatch() == 200
    each = {"postgresql": 2, "sqlite": 6, "mysql": 6}[connection.vendor]
    # In a test case, each transaction is a savepoint in the test's: SAVEPOINT and RELEASE instead of BEGIN and COMMIT.
    pages = 60
    assert count["app"] <= 200 * (each + 2) + pages


def test_a_database_error_of_a_receiver_counts_as_its_failure(receiver: Receiver) -> None:
    def broken(sender: Any, **kwargs: Any) -> None:
        raise OperationalError("database is locked")

    event_received.connect(broken)
    try:
        take_in(factories.life()[0])
        inbox.dispatch()
    finally:
        event_received.disconnect(broken)
    assert Event.objects.get().attempts == 1


def test_two_workers_do_not_dispatch_one_object(receiver: Receiver) -> None:
    take_in(*factories.life())
    ObjectDispatch.objects.create(
        account="default",
        object_kind="payment",
        object_id="pay_1",
        claim_token="of another worker",
        claimed_until=timezone.now() + timedelta(seconds=5),
    )
    assert inbox.dispatch() == 0


def test_objects_that_another_process_has_dispatched_are_not_claimed(receiver: Receiver) -> None:
    """Workers share a backlog: each reads the list, and may find that others have done a part of it meanwhile."""
    take_in(*(factories.life(f"pay_{number}")[0] for number in range(20)))
    keys = {("default", "payment", f"pay_{number}") for number in range(20)}
    assert inbox.dispatch() == 20
    with CaptureQueriesContext(connection) as queries:
        assert claiming.claim(keys, "default").objects == []
    assert len(queries) <= 10
    assert not [query for query in queries if query["sql"].startswith("UPDATE")]


def test_the_queries_that_dispatch_an_event_are_built_once(receiver: Receiver) -> None:
    """Django takes longer to build them than a database to answer them."""
    first, second, third, *_ = factories.life()
    take_in(first)
    inbox.dispatch()
    take_in(second)
    inbox.dispatch()
    take_in(third)
    with built_queries() as built:
        assert inbox.dispatch() == 1
    assert built == []


def test_the_order_of_accounts_in_a_page_costs_no_query(receiver: Receiver) -> None:
    def dispatch(*accounts: str) -> list[str]:
        for account in accounts:
            name = f"pay_{account}_before_{accounts[-1]}"
            ObjectDispatch.objects.create(account=account, object_kind="payment", object_id=name)
            inbox.receive(account, body(factories.life(name)[0]))
        inbox.process()
        with built_queries() as built:
            assert inbox.dispatch() == 2
        return built

    dispatch("default", "second")
    assert dispatch("second", "default") == []


@pytest.mark.parametrize("accounts", [("default",), ("default", "second")])
def test_pages_of_other_shapes_do_not_share_their_queries(receiver: Receiver, accounts: tuple[str, ...]) -> None:
    for size in (1, 3, 2):
        for account in accounts:
            for number in range(size):
                inbox.receive(account, body(factories.life(f"pay_{account}_{size}_{number}")[0]))
        inbox.process()
        assert inbox.dispatch() == size * len(accounts)
    called = set(ReceiverCall.objects.values_list("object_id", flat=True))
    assert called == {f"pay_{account}_{size}_{n}" for account in accounts for size in (1, 2, 3) for n in range(size)}


def test_a_callback_of_the_last_item_costs_no_statement(receiver: Receiver) -> None:
    def dispatch_one(number: int) -> int:
        take_in(factories.life(f"pay_{number}")[0])
        with CaptureQueriesContext(connection) as queries:
            assert inbox.dispatch() == 1
        return len(queries)

    without = dispatch_one(1)
    receiver.fail = lambda _: transaction.on_commit(lambda: None) or False  # type: ignore[func-returns-value]
    assert dispatch_one(2) == without
    assert connection.run_on_commit


def test_a_receivers_database_work_is_committed_with_the_mark(receiver: Receiver) -> None:
    def broken(sender: Any, event: Event, **kwargs: Any) -> None:
        Payment.objects.create(id=None)  # its IntegrityError breaks the transaction

    event_received.connect(broken)
    try:
        take_in(factories.life()[0])
        inbox.dispatch()
    finally:
        event_received.disconnect(broken)
    assert not ReceiverCall.objects.exists()
    assert Event.objects.get().state == "applied"


def test_without_receivers_nothing_waits_for_dispatch() -> None:
    take_in(*factories.life())
    assert set(Event.objects.values_list("state", flat=True)) == {"done"}
    assert not ObjectDispatch.objects.exists()


def test_an_event_that_is_too_old_is_not_dispatched(receiver: Receiver, dispatching_since: None) -> None:
    take_in(event(factories.payment(), seconds=-38 * 86400))
    assert inbox.dispatch() == 0
    assert Event.objects.get().state == "done"
    assert Payment.objects.get().status == "created"


def test_dispatch_of_one_account_leaves_the_others_alone(receiver: Receiver) -> None:
    take_in(factories.life()[0])
    assert inbox.dispatch("second") == 0
    assert inbox.dispatch("default") == 1


def test_no_dispatch_is_started_after_the_deadline(receiver: Receiver) -> None:
    take_in(factories.life()[0])
    assert inbox.dispatch(deadline=0.0) == 0


def test_an_object_that_waits_does_not_hide_the_work_of_others(receiver: Receiver) -> None:
    take_in(*factories.life("pay_1"))
    account, kind, object_id = ("default", "payment", "pay_1")
    ObjectDispatch.objects.create(
        account=account,
        object_kind=kind,
        object_id=object_id,
        next_attempt_at=timezone.now() + timedelta(hours=1),
    )
    take_in(*factories.life("pay_2"))
    assert inbox.dispatch() == 5


class TestHandlers:
    def test_on_event(self) -> None:
        calls: list[tuple[str, bool]] = []

        @on_event("payment.succeeded", "payment.charge*")
        def handle(event: Event, instance: Payment, is_stale: bool, **kwargs: Any) -> None:
            assert instance.pk == "pay_1"
            calls.append((event.type, is_stale))

        @on_event("payment.*", include_stale=True)
        def every(event: Event, is_stale: bool, **kwargs: Any) -> None:
            calls.append((f"every {event.type}", is_stale))

        try:
            events = factories.life()
            take_in(events[4])
            inbox.dispatch()
            take_in(events[3])
            inbox.dispatch()
        finally:
            _disconnect(event_received, Payment, ("on_event", handle, ("payment.succeeded", "payment.charge*")))
            _disconnect(event_received, Payment, ("on_event", every, ("payment.*",)))
        assert calls == [
            ("payment.chargeback", False),
            ("every payment.chargeback", False),
            ("every payment.succeeded", True),
        ]

    def test_on_status(self) -> None:
        calls: list[tuple[str, str]] = []

        @on_status(Payment, "succeeded")
        def handle(payment: Payment, previous_status: str, status: str, **kwargs: Any) -> None:
            calls.append((previous_status, status))

        try:
            for item in factories.life():
                take_in(item)
            inbox.dispatch()
        finally:
            _disconnect(status_changed, Payment, ("on_status", handle, ("succeeded",)))
        assert calls == [("processing", "succeeded")]

    def test_events_of_kinds_that_are_not_mirrored_from_events(self) -> None:
        calls: list[str] = []

        @on_event("deposit_reference.*", "webhook_endpoint.*", "dispute.*")
        def handle(event: Event, **kwargs: Any) -> None:
            calls.append(event.type)

        try:
            for kind in ("deposit_reference", "webhook_endpoint", "dispute"):
                data = {"object": kind, "id": f"{kind}_1"}
                take_in({**event(factories.payment()), "id": f"evt_{kind}", "type": f"{kind}.new", "data": data})
            inbox.dispatch()
        finally:
            uid = ("on_event", handle, ("deposit_reference.*", "webhook_endpoint.*", "dispute.*"))
            _disconnect(event_received, None, uid)
        assert sorted(calls) == ["deposit_reference.new", "dispute.new", "webhook_endpoint.new"]

    @pytest.mark.case(24)
    def test_a_later_type_of_event_with_a_mirrored_object(self) -> None:
        """``data.object`` says what the event carries (spec, "Event"), not its type."""
        calls: list[tuple[str, str]] = []

        @on_event("dispute.*")
        def handle(instance: Payment, previous_status: str, **kwargs: Any) -> None:
            calls.append((previous_status, instance.status))

        try:
            for number, status in enumerate(("processing", "chargeback")):
                take_in(event(factories.payment(status=status), seconds=number, type="dispute.opened"))
            inbox.dispatch()
        finally:
            _disconnect(event_received, None, ("on_event", handle, ("dispute.*",)))
        assert calls == [("", "chargeback"), ("processing", "chargeback")]
        assert Payment.objects.get().status == "chargeback"

    def test_wrong_arguments_raise_at_import(self) -> None:
        with pytest.raises(TypeError, match="event types"):
            on_event()
        with pytest.raises(TypeError, match="event types"):
            on_event(len)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="takes a mirrored model with a status"):
            on_status("succeeded")  # type: ignore[arg-type]


def _disconnect(signal: Any, sender: Any, uid: Any) -> None:
    assert signal.disconnect(sender=sender, dispatch_uid=uid)
