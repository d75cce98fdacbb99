"""Passes over pages and items that are larger than the client reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
import time_machine
from django.utils import timezone

from payments_integration import inbox, reconciliation
from payments_integration.client import first_item, transport
from payments_integration.exceptions import NoAnswer
from payments_integration.models import AccountState, Event, EventState, Payment, ReconciliationRun
from payments_integration.testing import ProviderSandbox
from tests.conftest import Receiver
from tests.integration.reconciling import after_each_page, pass_time, pay

pytestmark = [pytest.mark.django_db, pytest.mark.promise(4)]

#: The client reads so much of an answer here.
MOST = 256 * 1024
LONG_KEY = 12_000
TOO_LONG = MOST + 1000


@pytest.fixture(autouse=True)
def read_less() -> Iterator[None]:
    with mock.patch.object(transport, "MAX_ANSWER_BYTES", MOST):
        yield


@pytest.fixture
def limits() -> Iterator[list[int]]:
    """The sizes of the pages of events that were asked for."""
    real, asked = transport.Transport.exchange, []

    def exchange(self: Any, method: str, path: str, **rest: Any) -> Any:
        if path == "/events":
            asked.append(int(rest["params"]["limit"]))
        return real(self, method, path, **rest)

    with mock.patch.object(transport.Transport, "exchange", exchange):
        yield asked


def without_ids() -> Any:
    """As if each item began with its long metadata."""
    return mock.patch.object(first_item, "first_id", return_value=b"")


def make(sandbox: ProviderSandbox, key: int = 1) -> str:
    """A payment with a metadata key of so many bytes; the next one is made ten seconds later."""
    asked = {"amount": 10000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
    made = sandbox.project.state.payments.create({**asked, "metadata": {"k" * key: "v"}})
    pass_time(sandbox, seconds=10)
    return str(made["id"])


def missing(sandbox: ProviderSandbox) -> list[str]:
    """The objects whose events are not here."""
    known = set(Event.objects.values_list("id", flat=True))
    return [event["data"]["id"] for event in sandbox.project.events if event["id"] not in known]


def assert_complete(run: ReconciliationRun) -> None:
    assert (run.state, run.error) == ("done", "")
    watermark = AccountState.objects.get().watermark
    assert watermark is not None
    assert abs(watermark - timezone.now()) < timedelta(hours=1)


def quarantined() -> list[dict[str, Any]]:
    """What is known of the events that could not be read."""
    rows = Event.objects.filter(state=EventState.QUARANTINED)
    return [json.loads(bytes(row.body or b""))["unread"] for row in rows]


@pytest.mark.case(96)
class TestEvents:
    def test_a_page_that_is_too_large_is_read_in_smaller_ones(
        self, sandbox: ProviderSandbox, limits: list[int], attentions: list[dict[str, Any]]
    ) -> None:
        for _ in range(100):
            make(sandbox, LONG_KEY)
        assert_complete(reconciliation.reconcile_events())
        assert missing(sandbox) == []
        assert Payment.objects.count() == 100
        assert attentions == []
        assert limits[limits.index(10) - 1] == 100
        assert limits.count(10) == 10

    def test_an_item_that_is_too_large_is_named(
        self, sandbox: ProviderSandbox, attentions: list[dict[str, Any]]
    ) -> None:
        """Also the newest, of which a pass first learns the provider's time, and two in a row."""
        sizes = [1, TOO_LONG, TOO_LONG, 1, TOO_LONG]
        made = [make(sandbox, size) for size in sizes]
        large = [pk for pk, size in zip(made, sizes, strict=True) if size == TOO_LONG]
        for again in range(2):
            run = reconciliation.reconcile_events()
            assert_complete(run)
            assert sorted(missing(sandbox)) == sorted(large)
            ids = [event["id"] for event in sandbox.project.events if event["data"]["id"] in large]
            assert sorted(item["id"] for item in quarantined()) == sorted(ids)
            assert [seen["reason"] for seen in attentions] == ["event_quarantined"] * 3
            assert not again or run.recovered == 0

    def test_an_item_without_a_readable_id_is_left_out_by_its_time(
        self, sandbox: ProviderSandbox, attentions: list[dict[str, Any]]
    ) -> None:
        sizes = [1, TOO_LONG, 1, 1, TOO_LONG, TOO_LONG, 1, 1]
        made = [make(sandbox, size) for size in sizes]
        large = [pk for pk, size in zip(made, sizes, strict=True) if size == TOO_LONG]
        with without_ids():
            for again in range(2):
                run = reconciliation.reconcile_events()
                assert_complete(run)
                assert sorted(missing(sandbox)) == sorted(large)
                assert [seen["reason"] for seen in attentions] == ["event_quarantined"] * 3
                assert not again or run.recovered == 0
        spans = sorted((span["created_from"], span["created_to"]) for span in quarantined())
        times = sorted(event["created_at"] for event in sandbox.project.events if event["data"]["id"] in large)
        assert len(spans) == len(times)
        assert all(begin < at < end for (begin, end), at in zip(spans, times, strict=True))

    def test_a_delivered_event_that_is_too_large_to_be_listed_is_known(
        self, sandbox: ProviderSandbox, attentions: list[dict[str, Any]]
    ) -> None:
        make(sandbox, TOO_LONG)
        (event,) = sandbox.project.events
        inbox.receive("default", json.dumps(event).encode())
        run = reconciliation.reconcile_events()
        assert_complete(run)
        assert run.recovered == 0
        assert (quarantined(), attentions) == ([], [])

    def test_an_event_that_is_not_json_stops_no_other(
        self, sandbox: ProviderSandbox, attentions: list[dict[str, Any]]
    ) -> None:
        made = [make(sandbox) for _ in range(15)]
        event = next(event for event in sandbox.project.state.events.items if event["data"]["id"] == made[7])
        event["data"]["metadata"] = {"k": float("nan")}
        for again in range(2):
            run = reconciliation.reconcile_events()
            assert_complete(run)
            assert missing(sandbox) == [made[7]]
            (row,) = Event.objects.filter(state=EventState.QUARANTINED)
            assert repr(json.loads(bytes(row.body or b""))) == repr(event)
            assert [seen["reason"] for seen in attentions] == ["event_quarantined"]
            assert not again or run.recovered == 0

    def test_polling_goes_on_too(self, sandbox: ProviderSandbox) -> None:
        since = timezone.now() - timedelta(minutes=1)
        made = [make(sandbox), make(sandbox, TOO_LONG), make(sandbox)]
        reconciliation.poll("default", since=since)
        assert missing(sandbox) == [made[1]]
        assert len(quarantined()) == 1


@pytest.mark.case(96)
class TestObjects:
    """A sweep reads objects that no event brought."""

    @pytest.mark.parametrize("is_named", [True, False])
    def test_a_payment_that_is_too_large_hides_no_other(self, sandbox: ProviderSandbox, is_named: bool) -> None:
        made = [make(sandbox, size) for size in (1, LONG_KEY, TOO_LONG, 1)]
        with nullcontext() if is_named else without_ids():
            run = reconciliation.reconcile_objects(full=True)
        assert set(Payment.objects.values_list("pk", flat=True)) == {made[0], made[1], made[3]}
        assert "an item cannot be read" in run.error
        assert (made[2] in run.error) == is_named

    def test_a_list_without_times_ends_at_an_item_without_a_readable_id(self, sandbox: ProviderSandbox) -> None:
        pay(sandbox)
        sandbox.engine.fund("CLP", 1_000_000)
        destination = {
            "type": "bank_account",
            "account_number": "123456789",
            "holder_name": "Ana Rojas",
            "holder_document": {"type": "RUT", "number": "12.345.678-5"},
        }
        sandbox.engine.whitelist("123456789")
        asked = {"amount": 5000, "currency": "CLP", "country": "CL", "method_code": "cl_bank_transfer"}
        sandbox.project.state.payouts.create({**asked, "destination": destination, "metadata": {"k" * TOO_LONG: "v"}})
        with without_ids():
            run = reconciliation.reconcile_objects(full=True)
        assert run.error == "an item cannot be read (its id is unknown)"
        assert Payment.objects.exists()


@pytest.mark.case(97)
@pytest.mark.promise(6)
class TestHeldEvents:
    """A pass that keeps failing after it stored events delays handlers by an hour at most."""

    def fails(self, sandbox: ProviderSandbox) -> tuple[Payment, list[str]]:
        """A pass stores the newer events of a payment and fails; then its last event is delivered."""
        payment = pay(sandbox)
        pass_time(sandbox, seconds=10)
        events = [event for event in sandbox.project.events if event["data"].get("id") == payment.pk]
        real, oldest = inbox.receive_many, events[0]["id"].encode()

        def newer(account: str, bodies: Any, **how: Any) -> Any:
            return real(account, [body for body in bodies if oldest not in body], **how)

        with mock.patch.object(inbox, "receive_many", newer), after_each_page(_breaks_off):
            assert reconciliation.reconcile_events().state == "failed"
        sandbox.engine.chargeback(payment.pk)
        (last,) = (event for event in sandbox.project.events if event["type"] == "payment.chargeback")
        inbox.receive("default", json.dumps(last).encode())
        return payment, [event["id"] for event in [*events, last]]

    @pytest.mark.parametrize("by", ["the sweeper", "the next pass"])
    def test_they_are_dispatched_in_order_after_an_hour(
        self,
        sandbox: ProviderSandbox,
        clock: time_machine.Traveller,
        receiver: Receiver,
        attentions: list[dict[str, Any]],
        by: str,
    ) -> None:
        payment, ids = self.fails(sandbox)

        def act() -> None:
            if by == "the sweeper":
                reconciliation.process_due()
            else:
                with after_each_page(_breaks_off):
                    reconciliation.reconcile_events()

        clock.shift(timedelta(minutes=50))
        reconciliation.process_due()
        assert not receiver.events
        clock.shift(timedelta(minutes=11))
        act()
        own = [call for call in receiver.events if call[0] in ids]
        expected = ids if by == "the next pass" else ids[1:]
        assert own == [(event_id, False) for event_id in expected]
        assert [seen["reason"] for seen in attentions] == ["events_held"]
        # What a complete pass finds later is older than what was dispatched.
        del receiver.events[:]
        assert reconciliation.reconcile_events().state == "done"
        late = [call for call in receiver.events if call[0] in ids]
        assert late == [(event_id, True) for event_id in ids if event_id not in expected]
        assert [seen["reason"] for seen in attentions] == ["events_held"]
        assert Payment.objects.get(pk=payment.pk).status == "chargeback"

    def test_a_clock_that_was_ahead_holds_no_event_for_longer(
        self, sandbox: ProviderSandbox, clock: time_machine.Traveller, receiver: Receiver
    ) -> None:
        self.fails(sandbox)
        Event.objects.filter(state=EventState.HELD).update(received_at=timezone.now() + timedelta(days=1))
        reconciliation.process_due()
        assert receiver.events


def _breaks_off(page: int) -> None:
    raise NoAnswer("the answer is too large")
