"""Groups: what is declared ``database_only`` shares transactions, and keeps every promise of a single item."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import (
    DatabaseError,
    DataError,
    IntegrityError,
    OperationalError,
    ProgrammingError,
    connection,
    transaction,
)

from payments_integration import inbox, telemetry
from payments_integration.handlers import on_event, on_status
from payments_integration.inbox import claiming, dispatching, groups
from payments_integration.models import Event, EventState, Grouping, ObjectDispatch, Payment, Refund, StatusChange
from payments_integration.signals import are_database_only, event_received, status_changed
from tests import factories
from tests.factories import body
from tests.factories.receivers.models import ReceiverCall
from tests.unit.inbox.test_dispatching import after_the_load, release_nothing

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("woken"), pytest.mark.promise(6)]

NAMES = [f"pay_{number}" for number in range(8)]


@contextmanager
def declared(handler: Callable[..., Any], *patterns: str, database_only: bool = True) -> Iterator[None]:
    before = event_received.receivers
    event_received.receivers = []
    event_received.sender_receivers_cache.clear()
    patterns = patterns or ("payment.*",)
    on_event(*patterns, include_stale=True, database_only=database_only)(handler)  # type: ignore[arg-type]
    try:
        yield
    finally:
        event_received.receivers = before
        event_received.sender_receivers_cache.clear()


def take_in(*names: str, events: int = 2) -> None:
    for name in names:
        for item in factories.life(name)[:events]:
            inbox.receive("default", body(item))
    inbox.process()


def count(event: Event, **_: Any) -> None:
    ReceiverCall.objects.create(what=event.id, object_id=event.object_id)


def counted() -> dict[str, int]:
    return dict(Counter(ReceiverCall.objects.values_list("what", flat=True)))


def once(*names: str, events: int = 2) -> dict[str, int]:
    return {item["id"]: 1 for name in names for item in factories.life(name)[:events]}


@pytest.fixture(autouse=True)
def _time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine, a group is as large as another time."""
    monkeypatch.setattr(groups, "MOST_SECONDS", 60.0)
    monkeypatch.setattr(claiming, "_PAGE_SECONDS", 60.0)


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many items each group has dispatched, in order."""
    sizes: list[int] = []
    real = groups.call_group

    def call_group(*args: Any) -> Any:
        done = real(*args)
        sizes.append(len(done))
        return done

    monkeypatch.setattr(dispatching, "call_group", call_group)
    return sizes


def test_declared_items_share_transactions(transactions: list[int]) -> None:
    seen: list[tuple[str, str, bool]] = []

    def handler(event: Event, instance: Payment, previous_status: str, is_stale: bool, **_: Any) -> None:
        count(event)
        seen.append((instance.pk, previous_status, is_stale))

    with declared(handler):
        take_in(*NAMES)
        assert inbox.dispatch() == 16
        assert inbox.dispatch() == 0
    assert transactions == [16]
    assert counted() == once(*NAMES)
    assert [each for each in seen if each[0] == "pay_3"] == [("pay_3", "", False), ("pay_3", "created", False)]
    assert not Event.objects.exclude(state=EventState.DONE, dispatched_at__isnull=False).exists()
    assert not ObjectDispatch.objects.exclude(claim_token="", grouping=Grouping.SINGLE).exists()


def test_statements_per_event() -> None:
    app = 0

    def note(execute: Any, sql: str, *rest: Any) -> Any:
        nonlocal app
        app += "receivercall" not in sql
        return execute(sql, *rest)

    with declared(count):
        take_in(*(f"pay_{number}" for number in range(100)), events=4)
        with connection.execute_wrapper(note):
            assert inbox.dispatch() == 400
    # BEGIN and COMMIT are counted too.
    assert app <= {"postgresql": 0.4, "sqlite": 0.5, "mysql": 0.5}[connection.vendor] * 400


def test_a_status_that_an_answer_brought_is_dispatched_in_a_group_too(transactions: list[int]) -> None:
    statuses: list[str] = []
    before, status_changed.receivers = status_changed.receivers, []
    status_changed.sender_receivers_cache.clear()
    try:

        @on_status(Payment, database_only=True)
        def handler(payment: Payment, *, status: str, **_: Any) -> None:
            statuses.append(status)

        with declared(count):
            take_in(*NAMES[:2], events=1)
            for name in NAMES[:2]:
                StatusChange.objects.create(
                    account="default",
                    object_kind="payment",
                    object_id=name,
                    previous_status="created",
                    status="expired",
                    at=Event.objects.get(object_id=name).created_at + timedelta(seconds=5),
                    state=EventState.APPLIED,
                )
            assert inbox.dispatch() == 4
    finally:
        status_changed.receivers = before
        status_changed.sender_receivers_cache.clear()
    assert transactions == [4]
    assert Counter(statuses) == {"created": 2, "expired": 2}
    assert set(StatusChange.objects.values_list("state", flat=True)) == {"done"}
    assert not StatusChange.objects.filter(dispatched_at=None).exists()


class TestWhatIsDeclared:
    def test_a_receiver_that_is_connected_directly_is_not(self, transactions: list[int]) -> None:
        def direct(**_: Any) -> None: ...

        with declared(count):
            event_received.connect(direct, sender=Payment)
            take_in(*NAMES)
            assert inbox.dispatch() == 16
        assert transactions == []

    def test_every_receiver_of_the_item_must_be(self, transactions: list[int]) -> None:
        with declared(count):
            on_event("payment.requires_action")(lambda **_: None)
            take_in(*NAMES, events=1)
            inbox.dispatch()
            assert transactions == [8], "it does not concern payment.created"
            take_in(*NAMES)
            inbox.dispatch()
        assert transactions == [8]

    def test_names(self) -> None:
        with declared(count, "payment.created"):
            assert are_database_only(event_received, Payment, "payment.created")
            on_event("payment.*")(lambda **_: None)
            assert not are_database_only(event_received, Payment, "payment.created")


class TestFailures:
    @pytest.mark.parametrize("error", [RuntimeError("a mistake"), BaseException("gevent.Timeout")])
    def test_only_the_item_that_fails_has_failed(self, error: BaseException, transactions: list[int]) -> None:
        wrong = [True]
        bad = factories.life("pay_2")[0]["id"]

        def handler(event: Event, **_: Any) -> None:
            count(event)
            if event.id == bad and wrong:
                raise error

        with declared(handler):
            take_in(*NAMES)
            assert inbox.dispatch() == 14
            assert transactions == []
            assert counted() == once(*(name for name in NAMES if name != "pay_2"))
            assert list(Event.objects.filter(attempts__gt=0).values_list("pk", "attempts")) == [(bad, 1)]
            assert not ObjectDispatch.objects.exclude(claim_token="").exists()
            wrong.clear()
            ObjectDispatch.objects.update(next_attempt_at=None)
            assert inbox.dispatch() == 2
        assert counted() == once(*NAMES)

    def test_a_conflict_is_not_tried_again_as_a_group(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: Counter[str] = Counter()
        real, left = connection.commit, [True]
        from tests.integration.test_border import conflict  # noqa: PLC0415

        def handler(event: Event, **_: Any) -> None:
            calls[event.id] += 1
            count(event)

        def commit() -> None:
            if left and sum(calls.values()) >= 16:
                left.clear()
                connection.rollback()
                raise conflict()
            real()

        with declared(handler):
            take_in(*NAMES)
            monkeypatch.setattr(connection, "commit", commit)
            assert inbox.dispatch() == 16
        assert not left
        assert set(calls.values()) == {2}
        assert counted() == once(*NAMES)
        assert not Event.objects.filter(attempts__gt=0).exists()

    @pytest.mark.parametrize("is_declared", [True, False])
    @pytest.mark.parametrize("refusal", [ProgrammingError("unbalanced"), DataError("unbalanced"), IntegrityError("x")])
    def test_a_commit_that_is_refused_is_a_failure_of_its_item_only(
        self, refusal: DatabaseError, is_declared: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A deferred constraint or trigger of the merchant's tables; PostgreSQL reports an exception by its code."""
        bad = factories.life("pay_2")[0]["id"]
        called: list[str] = []
        real = connection.commit

        def handler(event: Event, **_: Any) -> None:
            count(event)
            called.append(event.id)

        def commit() -> None:
            calls, called[:] = list(called), []
            if bad in calls:
                raise refusal
            real()

        with declared(handler, database_only=is_declared):
            take_in(*NAMES)
            monkeypatch.setattr(connection, "commit", commit)
            assert inbox.dispatch() == 14
        assert counted() == once(*(name for name in NAMES if name != "pay_2"))
        assert list(Event.objects.filter(attempts__gt=0).values_list("pk", "attempts")) == [(bad, 1)]
        assert not ObjectDispatch.objects.exclude(claim_token="").exists()

    def test_a_lost_connection_is_no_failure_of_an_item(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real, left = connection.commit, [True]

        def commit() -> None:
            if left and ReceiverCall.objects.exists():
                left.clear()
                raise OperationalError("the server closed the connection")
            real()

        with declared(count):
            take_in(*NAMES)
            monkeypatch.setattr(connection, "commit", commit)
            with pytest.raises(OperationalError):
                inbox.dispatch()
            assert inbox.dispatch() == 16
        assert counted() == once(*NAMES)
        assert not Event.objects.filter(attempts__gt=0).exists()

    def test_after_an_interruption_the_earlier_items_of_the_object_come_first(self) -> None:
        wrong = [True]
        first, second = factories.life("pay_2")[:2]

        def handler(event: Event, **_: Any) -> None:
            count(event)
            if event.id == second["id"] and wrong:
                raise SystemExit

        with declared(handler):
            take_in(*NAMES)
            for attempts in (1, 2):
                with pytest.raises(SystemExit):
                    inbox.dispatch()
                assert Event.objects.get(pk=second["id"]).attempts == attempts
                ObjectDispatch.objects.update(next_attempt_at=None)
            assert Event.objects.get(pk=first["id"]).state == EventState.DONE
            wrong.clear()
            inbox.dispatch()
        assert counted() == once(*NAMES)

    def test_callbacks_run_without_a_claim_on_what_is_dispatched_by_itself(self) -> None:
        """They may take longer than the claim, and another worker would take that for a death."""
        claimed: list[int] = []

        def handler(event: Event, **_: Any) -> None:
            count(event)
            transaction.on_commit(lambda: claimed.append(ObjectDispatch.objects.exclude(claim_token="").count()))

        with declared(handler):
            event_received.connect(lambda **_: None, sender=Refund, weak=False)
            take_in(*NAMES)
            inbox.receive("default", body(factories.event(factories.refund())))
            inbox.process()
            assert inbox.dispatch() == 17
        assert claimed == [0] * 16
        assert counted() == once(*NAMES)

    def test_an_interruption_charges_the_item_in_hand_and_marks_no_other(self) -> None:
        bad = factories.life("pay_2")[1]["id"]

        def handler(event: Event, **_: Any) -> None:
            count(event)
            if event.id == bad:
                raise SystemExit

        with declared(handler):
            take_in(*NAMES)
            with pytest.raises(SystemExit):
                inbox.dispatch()
        assert counted() == {}
        assert list(Event.objects.filter(attempts__gt=0).values_list("pk", "attempts")) == [(bad, 1)]
        assert not ObjectDispatch.objects.exclude(claim_token="").exists()
        assert list(ObjectDispatch.objects.filter(grouping=Grouping.ALONE).values_list("object_id", flat=True)) == [
            "pay_2"
        ]

    def test_a_callback_is_called_after_the_commit_and_fails_alone(self, caplog: pytest.LogCaptureFixture) -> None:
        after: list[str] = []
        bad = factories.life("pay_2")[0]["id"]

        def handler(event: Event, **_: Any) -> None:
            def callback() -> None:
                assert ReceiverCall.objects.count() == 16
                if event.id == bad:
                    raise ConnectionError("the broker is away")
                after.append(event.id)

            count(event)
            transaction.on_commit(callback)

        with declared(handler), caplog.at_level(logging.ERROR):
            take_in(*NAMES)
            assert inbox.dispatch() == 16
        assert sorted([*after, bad]) == sorted(once(*NAMES))
        [record] = caplog.records
        assert record.__dict__["event_id"] == bad
        assert counted() == once(*NAMES)

    def test_an_interruption_by_a_callback_comes_after_the_commit(self) -> None:
        def interrupt() -> None:
            raise KeyboardInterrupt

        def handler(event: Event, **_: Any) -> None:
            count(event)
            if event.object_id == "pay_1":
                transaction.on_commit(interrupt)

        with declared(handler):
            take_in(*NAMES, events=1)
            with pytest.raises(KeyboardInterrupt):
                inbox.dispatch()
            assert counted() == once(*NAMES, events=1)
            assert inbox.dispatch() == 0
        assert not ObjectDispatch.objects.exclude(claim_token="").exists()


class TestDeaths:
    def die_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The process dies: nothing is counted, nothing is released."""
        with monkeypatch.context() as patched:
            release_nothing(patched)
            with pytest.raises(SystemExit):
                inbox.dispatch()
        for row in ObjectDispatch.objects.exclude(claimed_until=None):
            ObjectDispatch.objects.filter(pk=row.pk).update(claimed_until=row.claimed_until - timedelta(minutes=1))

    def test_the_next_pass_dispatches_all_that_a_dead_worker_had_in_its_group(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def dies(event: Event, **_: Any) -> None:
            raise SystemExit

        with declared(dies):
            take_in(*NAMES)
            self.die_in(monkeypatch)
        # Also the object in hand: it has not failed, so it waits for nothing.
        with declared(count):
            assert inbox.dispatch() == 2 * len(NAMES)
        assert counted() == once(*NAMES)

    @pytest.mark.case(147)
    def test_the_first_death_charges_nobody_and_the_second_the_item_in_hand(
        self, monkeypatch: pytest.MonkeyPatch, transactions: list[int]
    ) -> None:
        bad = factories.life("pay_2")[1]["id"]
        facts: list[telemetry.Fact] = []
        observer = telemetry.Observer()
        observer.happened = facts.append  # type: ignore[method-assign]

        def handler(event: Event, **_: Any) -> None:
            count(event)
            if event.id == bad:
                raise SystemExit

        with declared(handler):
            take_in(*NAMES)
            self.die_in(monkeypatch)
            assert counted() == {}
            self.die_in(monkeypatch)
            assert transactions == []
            assert not Event.objects.filter(attempts__gt=0).exists()
            telemetry.observe(observer)
            try:
                inbox.dispatch()
            finally:
                telemetry.forget(observer)
            assert list(Event.objects.filter(attempts__gt=0).values_list("pk", "attempts")) == [(bad, 1)]
            assert [fact.item.pk for fact in facts if isinstance(fact, telemetry.DispatchFailed)] == [bad]
        others = {key: 1 for key in once(*NAMES) if key != bad}
        assert counted() == others
        assert list(ObjectDispatch.objects.exclude(grouping="").values_list("object_id", "grouping")) == [
            ("pay_2", Grouping.ALONE)
        ]
        with declared(count):
            ObjectDispatch.objects.update(next_attempt_at=None)
            assert inbox.dispatch() == 1
        assert counted() == once(*NAMES)
        assert not ObjectDispatch.objects.exclude(grouping="").exists()


class TestLimits:
    def test_a_group_ends_after_its_time(self, monkeypatch: pytest.MonkeyPatch, transactions: list[int]) -> None:
        """What it does not come to is claimed still, and the next groups are smaller."""
        monkeypatch.setattr(groups, "MOST_SECONDS", 0.0)
        claimed: list[int] = []

        def handler(event: Event, **_: Any) -> None:
            count(event)
            transaction.on_commit(lambda: claimed.append(ObjectDispatch.objects.exclude(claim_token="").count()))

        with declared(handler):
            take_in(*NAMES)
            assert inbox.dispatch() == 16
        assert transactions == [1], "the others are dispatched one by one"
        assert claimed[:3] == [8, 7, 7], "an object is released with its last item"
        assert counted() == once(*NAMES)
        assert not Event.objects.filter(attempts__gt=0).exists()

    def test_a_group_has_so_many_items(self, monkeypatch: pytest.MonkeyPatch, transactions: list[int]) -> None:
        monkeypatch.setattr(groups, "MOST_IN_GROUP", 5)
        real = claiming.Page

        def page(*args: Any, **kwargs: Any) -> Any:
            return real(*args, **kwargs, most_in_group=5)

        monkeypatch.setattr(claiming, "Page", page)
        with declared(count):
            take_in("pay_1", events=5)
            take_in("pay_2", "pay_3", events=4)
            assert inbox.dispatch() == 13
        assert transactions == [5, 5, 3]
        assert counted() == once("pay_1", events=5) | once("pay_2", "pay_3", events=4)

    def test_when_the_page_is_over_all_is_released(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pages: list[Any] = []
        real = claiming.claim

        def claim(*args: Any) -> Any:
            pages.append(real(*args))
            return pages[-1]

        def slow(event: Event, **_: Any) -> None:
            count(event)
            pages[-1].until = 0.0

        monkeypatch.setattr(claiming, "claim", claim)
        with declared(slow):
            take_in(*NAMES[:3], events=1)
            assert inbox.dispatch() == 3
        assert [len(page.objects) for page in pages if page.objects] == [3, 2, 1]
        assert counted() == once(*NAMES[:3], events=1)
        assert not ObjectDispatch.objects.exclude(claim_token="").exists()


class TestWhatChangesAfterTheLoad:
    def test_an_object_that_was_written_is_dispatched_by_itself(
        self, monkeypatch: pytest.MonkeyPatch, transactions: list[int]
    ) -> None:
        seen: list[tuple[str, str]] = []

        def handler(event: Event, instance: Payment, **_: Any) -> None:
            count(event)
            seen.append((instance.pk, instance.status))

        after_the_load(monkeypatch, lambda: take_in("pay_2", events=4))
        with declared(handler):
            take_in(*NAMES)
            assert inbox.dispatch() == 18
        assert transactions == [4, 10]
        assert counted() == once(*NAMES) | once("pay_2", events=4)
        assert {status for name, status in seen if name == "pay_2"} == {"succeeded"}

    def test_a_claim_that_another_worker_has_taken(
        self, monkeypatch: pytest.MonkeyPatch, transactions: list[int]
    ) -> None:
        def take_over() -> None:
            until = ObjectDispatch.objects.get(object_id="pay_2").claimed_until
            ObjectDispatch.objects.filter(object_id="pay_2").update(claim_token="another's", claimed_until=until)

        after_the_load(monkeypatch, take_over)
        with declared(count):
            take_in(*NAMES)
            assert inbox.dispatch() == 14
        assert counted() == once(*(name for name in NAMES if name != "pay_2"))
        [left] = ObjectDispatch.objects.exclude(claim_token="").values_list("object_id", "claim_token")
        assert left == ("pay_2", "another's")

    def test_an_item_that_is_done_already(self, monkeypatch: pytest.MonkeyPatch) -> None:
        bad = factories.life("pay_2")[0]["id"]
        after_the_load(monkeypatch, lambda: Event.objects.filter(pk=bad).update(state=EventState.DONE))
        with declared(count):
            take_in(*NAMES)
            assert inbox.dispatch() == 15
        assert counted() == {key: 1 for key in once(*NAMES) if key != bad}
        assert not Event.objects.filter(attempts__gt=0).exists()
