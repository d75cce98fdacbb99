"""Missed events are found, an interrupted pass continues, and one pass runs at a time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count, groupby, pairwise
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from payments_integration import inbox, projection, reconciliation, services
from payments_integration.db.claims import ClaimLost
from payments_integration.inbox import releasing
from payments_integration.models import (
    AccountState,
    Event,
    EventState,
    Payment,
    Payout,
    ReconciliationRun,
)
from payments_integration.reconciliation import events, runs
from payments_integration.sandbox import Fault
from payments_integration.sync import get_client
from payments_integration.testing import ProviderSandbox
from tests.conftest import Receiver
from tests.integration.mirror import assert_mirror_equals_provider
from tests.integration.reconciling import after_each_page, pass_time, pay

pytestmark = [pytest.mark.django_db, pytest.mark.promise(4)]


@pytest.mark.promise(4)
def test_missed_events_are_found_applied_and_dispatched(sandbox: ProviderSandbox, receiver: Receiver) -> None:
    payments = [pay(sandbox) for _ in range(3)]
    sandbox.deliver()
    assert not Event.objects.exists()
    pass_time(sandbox, seconds=10)
    run = reconciliation.reconcile_events()
    assert (run.state, run.error) == ("done", "")
    assert run.recovered == len(sandbox.project.events) == Event.objects.count()
    assert sorted(event_id for event_id, _ in receiver.events) == sorted(
        event["id"] for event in sandbox.project.events
    )
    reconciliation.process_due()
    assert set(Payment.objects.filter(pk__in=[p.pk for p in payments]).values_list("status", flat=True)) == {
        "succeeded"
    }
    assert_mirror_equals_provider(sandbox)
    again = reconciliation.reconcile_events()
    assert (again.recovered, again.state) == (0, "done")


def test_the_watermark_moves_only_to_where_events_are_complete(
    sandbox: ProviderSandbox, clock: time_machine.Traveller
) -> None:
    pay(sandbox)
    pass_time(sandbox, seconds=10)
    reconciliation.reconcile_events()
    first = AccountState.objects.get().watermark
    assert first is not None
    assert abs((first - sandbox.engine.clock.now()).total_seconds()) < 60
    clock.shift(timedelta(hours=3))
    pay(sandbox)
    sandbox.engine.faults.add(Fault("html", operation="list_events", times=None))
    run = reconciliation.reconcile_events()
    assert run.state == "failed"
    assert "NoAnswer" in run.error
    assert AccountState.objects.get().watermark == first
    sandbox.engine.faults.clear()
    pass_time(sandbox, seconds=5)
    assert reconciliation.reconcile_events().recovered > 0
    assert AccountState.objects.get().watermark > first  # type: ignore[operator]


def test_reading_a_range_does_not_move_the_watermark(sandbox: ProviderSandbox) -> None:
    pay(sandbox)
    pass_time(sandbox, seconds=10)
    run = reconciliation.reconcile_events(since=timezone.now() - timedelta(hours=1))
    assert run.recovered > 0
    assert AccountState.objects.get().watermark is None


@pytest.mark.case(65)
def test_an_event_that_is_listed_late_is_found_by_the_next_pass(
    sandbox: ProviderSandbox, clock: time_machine.Traveller
) -> None:
    pass_time(sandbox, seconds=1)
    pay(sandbox)
    hidden = sandbox.project.state.events.items
    late = next(item for item in sandbox.project.events if item["type"] == "payment.succeeded")
    pass_time(sandbox, seconds=10)
    with mock.patch.object(inbox, "receive_many", side_effect=_without(late["id"])):
        reconciliation.reconcile_events()
    assert not Event.objects.filter(id=late["id"]).exists()
    assert late["id"] in hidden
    clock.shift(timedelta(minutes=20))
    reconciliation.reconcile_events()
    assert Event.objects.filter(id=late["id"]).exists()


def _without(event_id: str) -> Any:
    real = inbox.receive_many

    def receive(account: str, bodies: Iterator[bytes], **how: Any) -> Any:
        return real(account, [body for body in bodies if event_id.encode() not in body], **how)

    return receive


@pytest.mark.case(52)
def test_an_interrupted_pass_continues_at_its_page(sandbox: ProviderSandbox, clock: time_machine.Traveller) -> None:
    for _ in range(60):
        pay(sandbox)
    total = len(sandbox.project.events)
    assert total > 200
    clock.shift(timedelta(hours=2))
    with after_each_page(_dies_after(2)), pytest.raises(KeyboardInterrupt):
        reconciliation.reconcile_events()
    state = AccountState.objects.get()
    assert state.cursor
    assert state.watermark is not None  # the earlier, empty windows are complete
    assert state.watermark < sandbox.engine.clock.now() - timedelta(minutes=1)
    assert Event.objects.count() == 200
    before = len(sandbox.engine.requests)
    run = reconciliation.reconcile_events()
    assert run.state == "done"
    assert Event.objects.count() == total
    # The first page is not read again: the request for the clock, two pages, and events that were listed late.
    pages = [request for request in sandbox.engine.requests[before:] if request["operation"] == "list_events"]
    assert run.seen < total
    assert len(pages) <= 1 + run.pages + 1


def _dies_after(pages: int) -> Callable[[int], None]:
    def act(stored: int) -> None:
        if stored == pages:
            raise KeyboardInterrupt

    return act


@pytest.mark.case(65)
def test_an_event_that_is_listed_late_behind_a_saved_cursor_is_found(
    sandbox: ProviderSandbox, clock: time_machine.Traveller
) -> None:
    for _ in range(60):
        pay(sandbox)
    late = sandbox.project.events[-1]["id"]
    newest = sandbox.project.state.events.items
    clock.shift(timedelta(seconds=10))
    with (
        mock.patch.object(inbox, "receive_many", _without(late)),
        after_each_page(_dies_after(2)),
        pytest.raises(KeyboardInterrupt),
    ):
        reconciliation.reconcile_events()
    assert late in newest
    clock.shift(timedelta(days=2))
    reconciliation.reconcile_events()
    assert Event.objects.filter(id=late).exists()


@pytest.mark.case(64)
def test_an_unknown_cursor_starts_the_window_again(sandbox: ProviderSandbox) -> None:
    pay(sandbox)
    pass_time(sandbox, seconds=10)
    now = sandbox.engine.clock.now().replace(microsecond=0)
    values = {
        "watermark": now - timedelta(minutes=30),
        "window_from": now - timedelta(hours=1),
        "window_to": now - timedelta(seconds=1),
        "cursor": "evt_unknown",
    }
    AccountState.objects.update_or_create(account="default", defaults=values)
    run = reconciliation.reconcile_events()
    assert (run.state, run.error) == ("done", "")
    assert run.recovered == len(sandbox.project.events)


@pytest.mark.case(75)
def test_one_event_pass_runs_at_a_time(sandbox: ProviderSandbox) -> None:
    with runs.claimed("default"):
        run = reconciliation.reconcile_events()
    assert run.state == "skipped"
    assert reconciliation.reconcile_events().state == "done"


@pytest.mark.case(42)
@pytest.mark.case(75)
def test_a_lost_claim_writes_nothing_more() -> None:
    with runs.claimed("default") as lost:
        AccountState.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
        with runs.claimed("default") as held:
            with pytest.raises(ClaimLost):
                lost.write(watermark=timezone.now())
            held.renew()
    assert AccountState.objects.get().watermark is None


def test_the_claim_of_a_dead_process_is_free_after_15_seconds() -> None:
    with time_machine.travel(datetime.now(UTC), tick=False) as clock:
        holder = runs.claimed("default")
        holder.__enter__()
        clock.shift(14)
        with pytest.raises(runs.AlreadyRunning), runs.claimed("default"):
            pass
        clock.shift(2)
        with runs.claimed("default"):
            pass


@pytest.mark.case(78)
def test_a_claim_that_was_taken_while_the_clock_was_ahead_is_free_after_the_step_back() -> None:
    with time_machine.travel(datetime.now(UTC), tick=False) as clock:
        holder = runs.claimed("default")
        holder.__enter__()
        clock.shift(-30)  # no more than CLOCK_SLACK allows
        with pytest.raises(runs.AlreadyRunning), runs.claimed("default"):
            pass
        clock.shift(-3600)
        with runs.claimed("default"):
            pass


@pytest.mark.case(42)
def test_the_claim_is_kept_with_a_slow_database(sandbox: ProviderSandbox, clock: time_machine.Traveller) -> None:
    pay(sandbox)
    pass_time(sandbox, seconds=10)
    real, rest = inbox.process, [1, 1, 1, 0]

    def slow(account: str | None = None, *, deadline: float | None = None, **rest_of_it: Any) -> int:
        """Batches that together take much longer than a claim."""
        if rest:
            assert deadline is not None
            assert deadline - time.monotonic() < 5
            clock.shift(10)
            with pytest.raises(runs.AlreadyRunning), runs.claimed("default"):
                pass
            return rest.pop(0)
        return real(account, deadline=deadline, **rest_of_it)

    with mock.patch.object(inbox, "process", slow):
        assert reconciliation.reconcile_events().state == "done"
    assert not rest


def test_windows_overlap_by_a_second(sandbox: ProviderSandbox) -> None:
    """Otherwise a provider that excludes both ends of a range would hide events between two windows."""
    events = get_client("default").events
    with mock.patch.object(type(events), "pages", autospec=True, side_effect=type(events).pages) as pages:
        reconciliation.reconcile_events()
    spans = [(call.kwargs["created_from"], call.kwargs["created_to"]) for call in pages.call_args_list]
    assert len(spans) >= 30
    assert all(start < end for (_, end), (start, _) in pairwise(spans))


def test_a_page_of_100_known_events_costs_at_most_three_statements(sandbox: ProviderSandbox) -> None:
    for _ in range(60):
        pay(sandbox)
    assert len(sandbox.project.events) > 200
    pass_time(sandbox, seconds=10)
    reconciliation.reconcile_events()
    since = timezone.now() - timedelta(hours=1)

    def cost() -> tuple[int, int]:
        with CaptureQueriesContext(connection) as queries:
            run = reconciliation.reconcile_events(since=since)
        return len(queries), run.pages

    statements, pages = cost()
    assert pages >= 3
    # The fixed cost of a pass is measured with an empty range; the pages cause the rest.
    with CaptureQueriesContext(connection) as empty:
        reconciliation.reconcile_events(since=since, until=since + timedelta(seconds=1))
    assert statements - len(empty) <= 3 * (pages - 1)


def test_only_a_page_after_an_entirely_new_one_is_stored_without_a_look(sandbox: ProviderSandbox) -> None:
    for _ in range(60):
        pay(sandbox)
    pass_time(sandbox, seconds=10)
    since = timezone.now() - timedelta(hours=1)
    for expected in ({False, True}, {False}):
        with mock.patch.object(inbox, "receive_many", wraps=inbox.receive_many) as receive:
            reconciliation.reconcile_events(since=since)
        first, *others = [call.kwargs["are_new"] for call in receive.call_args_list]
        assert not first
        assert len(others) >= 2
        assert {first, *others} == expected


def statements(queries: CaptureQueriesContext) -> list[str]:
    """The statements without those of transactions. SQLite splits long INSERTs; the parts count as one.

    A hint to the planner does not count: psycopg 3 sends it with its statement, and psycopg2 sends it alone.
    """
    found = [query["sql"][:60] for query in queries.captured_queries]
    found = [sql for sql in found if not sql.startswith(("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE", "SET LOCAL"))]
    return [sql for sql, parts in groupby(found) for sql in ([sql] if sql.startswith("INSERT") else parts)]


def test_a_new_event_costs_at_most_a_tenth_of_a_statement(sandbox: ProviderSandbox) -> None:
    """The event is fetched, stored and applied, not dispatched; the fixed cost of the pass is included."""
    asked = {"amount": 10000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
    for _ in range(250):
        sandbox.engine.pay(sandbox.project.state.payments.create(asked)["id"])
    pass_time(sandbox, seconds=10)
    with CaptureQueriesContext(connection) as queries:
        run = reconciliation.reconcile_events(since=timezone.now() - timedelta(hours=1))
    assert run.recovered == len(sandbox.project.events) >= 1000
    assert Payment.objects.filter(status="succeeded").count() == 250
    assert not Event.objects.exclude(state="done").exists()
    found = statements(queries)
    # The promise is a tenth; an additional statement per page would exceed this limit. The INSERTs of pages between
    # which nothing else is written count as one.
    assert len(found) <= 0.042 * run.seen, Counter(found)


@pytest.mark.case(75)
def test_a_long_pass_over_a_range_renews_its_claim(sandbox: ProviderSandbox) -> None:
    asked = {"amount": 10000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
    for _ in range(75):
        sandbox.engine.pay(sandbox.project.state.payments.create(asked)["id"])
    ends: list[datetime | None] = []

    def look(page: int) -> None:
        ends.append(AccountState.objects.get().claimed_until)
        AccountState.objects.update(claimed_until=None)

    seconds = count(time.monotonic(), runs.HEARTBEAT_SECONDS)
    with mock.patch.object(events, "time", SimpleNamespace(monotonic=partial(next, seconds))), after_each_page(look):
        run = reconciliation.reconcile_events(since=timezone.now() - timedelta(hours=1))
    assert run.pages == len(ends) >= 3
    assert None not in ends


@pytest.mark.case(75)
def test_a_pass_over_many_days_renews_its_claim(sandbox: ProviderSandbox) -> None:
    """Each day's only page comes fast, but all of them together may take longer than the claim lasts."""
    ends: list[datetime | None] = []

    def look(run: ReconciliationRun) -> None:
        ends.append(AccountState.objects.get().claimed_until)
        AccountState.objects.update(claimed_until=None)

    run = reconciliation.reconcile_events(since=timezone.now() - timedelta(days=5), progress=look)
    assert run.pages == len(ends) >= 5
    assert None not in ends


@pytest.mark.case(59)
@pytest.mark.promise(4)
class TestOrderOfDispatch:
    """Pages come newest first; events are dispatched oldest first, also if a worker runs meanwhile."""

    @pytest.fixture
    def first(self, sandbox: ProviderSandbox) -> Payment:
        payment = pay(sandbox)
        for _ in range(40):
            pay(sandbox)
        sandbox.engine.chargeback(payment.pk)
        pass_time(sandbox, seconds=10)
        return payment

    def test_no_event_is_dispatched_before_its_window_is_complete(
        self, sandbox: ProviderSandbox, receiver: Receiver, first: Payment
    ) -> None:
        dispatched: list[int] = []

        def sweep(stored: int) -> None:
            reconciliation.process_due()
            dispatched.append(len(receiver.events))

        with after_each_page(sweep):
            reconciliation.reconcile_events()
        assert len(dispatched) >= 2
        assert not any(dispatched)
        events = list(Event.objects.order_by("created_at", "pk"))
        assert len(receiver.events) == len(events)
        of_first = {event.id for event in events if event.object_id == first.pk}
        assert [call for call in receiver.events if call[0] in of_first] == [
            (event.id, False) for event in events if event.id in of_first
        ]

    def test_a_pass_that_fails_in_a_window_dispatches_none_of_its_events(
        self, sandbox: ProviderSandbox, receiver: Receiver, first: Payment
    ) -> None:
        with after_each_page(_dies_after(1)), pytest.raises(KeyboardInterrupt):
            reconciliation.reconcile_events()
        reconciliation.process_due()
        assert not receiver.events
        reconciliation.reconcile_events()
        assert len(receiver.events) == len(sandbox.project.events)
        assert not any(stale for _, stale in receiver.events)

    def test_events_of_a_failed_pass_wait_for_their_own_window(
        self, sandbox: ProviderSandbox, receiver: Receiver, first: Payment
    ) -> None:
        with after_each_page(_dies_after(1)), pytest.raises(KeyboardInterrupt):
            reconciliation.reconcile_events()
        inbox.process()
        assert Event.objects.filter(state=EventState.HELD).exists()
        before = first.created_at - timedelta(minutes=1)
        assert reconciliation.reconcile_events(since=before - timedelta(hours=1), until=before).state == "done"
        reconciliation.process_due()
        assert not receiver.events
        reconciliation.reconcile_events()
        assert len(receiver.events) == len(sandbox.project.events)
        assert not any(stale for _, stale in receiver.events)

    def test_a_range_behind_a_gap_dispatches_nothing_before_the_gap_is_read(
        self, sandbox: ProviderSandbox, receiver: Receiver, first: Payment
    ) -> None:
        """Events that a person reads early, and those that an interrupted pass holds, wait for older ones."""
        with after_each_page(_dies_after(1)), pytest.raises(KeyboardInterrupt):
            reconciliation.reconcile_events()
        last = max(datetime.fromisoformat(event["created_at"]) for event in sandbox.project.events)
        assert reconciliation.reconcile_events(since=last).state == "done"
        reconciliation.process_due()
        assert not receiver.events
        reconciliation.reconcile_events()
        assert len(receiver.events) == len(sandbox.project.events)
        assert not any(stale for _, stale in receiver.events)

    def test_a_window_may_take_longer_than_an_hour(
        self, sandbox: ProviderSandbox, receiver: Receiver, first: Payment, attentions: list[dict[str, Any]]
    ) -> None:
        def an_hour_later(page: int) -> None:
            with mock.patch.object(releasing, "LONGEST_HOLD", timedelta(0)):
                reconciliation.process_due()

        with after_each_page(an_hour_later):
            reconciliation.reconcile_events()
        assert len(receiver.events) == len(sandbox.project.events)
        assert not any(stale for _, stale in receiver.events)
        assert not attentions

    def test_polling_dispatches_only_what_it_has_read(
        self, sandbox: ProviderSandbox, receiver: Receiver, first: Payment
    ) -> None:
        """The rest waits for older events that a pass, which is running or was interrupted, has yet to read."""

        def poll_nothing(stored: int = 0) -> None:
            assert not reconciliation.poll("default", since=timezone.now() + timedelta(hours=1)).events

        with after_each_page(_dies_after(1)), pytest.raises(KeyboardInterrupt):
            reconciliation.reconcile_events()
        poll_nothing()
        held = Event.objects.filter(state=EventState.HELD)
        count = held.count()
        assert count
        assert not receiver.events
        since = timezone.now()
        pass_time(sandbox, seconds=10)
        payment = pay(sandbox)
        found = reconciliation.poll("default", since=since).events
        assert payment.pk in {event.object_id for event in found}
        assert receiver.events
        assert held.count() == count
        with after_each_page(poll_nothing):
            reconciliation.reconcile_events()
        assert len(receiver.events) == len(sandbox.project.events)
        assert not any(stale for _, stale in receiver.events)

    def test_polling_dispatches_oldest_first(
        self, sandbox: ProviderSandbox, receiver: Receiver, first: Payment
    ) -> None:
        with after_each_page(lambda stored: reconciliation.process_due()):
            reconciliation.poll("default", since=timezone.now() - timedelta(hours=1))
        assert len(receiver.events) == len(sandbox.project.events)
        assert not any(stale for _, stale in receiver.events)

    @pytest.mark.parametrize("pages", [1, 2])
    def test_a_listener_after_one_that_was_stopped_dispatches_oldest_first(
        self, sandbox: ProviderSandbox, receiver: Receiver, pages: int
    ) -> None:
        payment = pay(sandbox)
        for _ in range(60):
            pass_time(sandbox, seconds=20)
            pay(sandbox)
        sandbox.engine.chargeback(payment.pk)
        with after_each_page(_dies_after(pages)), pytest.raises(KeyboardInterrupt):
            reconciliation.poll("default", since=timezone.now() - timedelta(hours=1))
        pass_time(sandbox, minutes=5)
        reconciliation.poll("default", since=reconciliation.polled_from("default", timezone.now()))
        assert len(receiver.events) == len(sandbox.project.events)
        assert not any(stale for _, stale in receiver.events)


def test_polling_puts_events_into_the_inbox(sandbox: ProviderSandbox, receiver: Receiver) -> None:
    since = timezone.now() - timedelta(minutes=1)
    pay(sandbox)
    poll = reconciliation.poll("default", since=since)
    assert [event.type for event in poll.events if event.object_kind == "payment"][-1] == "payment.succeeded"
    assert receiver.events
    assert reconciliation.poll("default", since=poll.next_since).events == []


def test_polling_skips_no_event_that_is_created_meanwhile(
    sandbox: ProviderSandbox, clock: time_machine.Traveller
) -> None:
    payment = pay(sandbox)
    for _ in range(40):
        pay(sandbox)
    since = timezone.now() - timedelta(hours=1)
    pass_time(sandbox, seconds=10)

    def happen(*page: Any) -> None:
        if "payment.chargeback" not in [event["type"] for event in sandbox.project.events]:
            clock.shift(1)
            sandbox.engine.chargeback(payment.pk)
            clock.shift(120)  # so long do the other pages take

    with mock.patch.object(projection, "note_contact", happen):
        poll = reconciliation.poll("default", since=since)
    clock.shift(120)
    missed = reconciliation.poll("default", since=poll.next_since).events
    assert "payment.chargeback" in [event.type for event in missed]


@pytest.mark.case(59)
def test_the_mirror_equals_the_provider_after_an_outage(sandbox: ProviderSandbox) -> None:
    """No event of the payments, refunds, payout and deposit is delivered; one pass repairs the mirror."""
    sandbox.engine.fund("CLP", 1_000_000)
    card, bank = pay(sandbox), pay(sandbox, method_code=_bank_method(sandbox))
    pass_time(sandbox, seconds=10)
    reconciliation.reconcile_events()
    reconciliation.process_due()
    destination = {
        "type": "bank_account",
        "account_number": "123456789",
        "holder_name": "Ana Rojas",
        "holder_document": {"type": "RUT", "number": "12.345.678-5"},
    }
    sandbox.engine.whitelist("123456789")
    refund = services.create_refund(card, amount=2500, reason="wrong size")
    by_payout = services.create_refund(bank, destination=destination)
    payout = services.create_payout(
        amount=5000, currency="CLP", country="CL", method_code=_payout_method(sandbox), destination=destination
    )
    for move in (sandbox.engine.process_refund, sandbox.engine.succeed_refund):
        move(refund.pk)
        move(by_payout.pk)
    sandbox.engine.process_payout(payout.pk)
    sandbox.engine.succeed_payout(payout.pk)
    sandbox.deliver()
    pass_time(sandbox, minutes=10)
    assert reconciliation.reconcile_events().state == "done"
    reconciliation.process_due()
    reconciliation.reconcile_balances()
    assert_mirror_equals_provider(sandbox)
    assert Payment.objects.get(pk=card.pk).refunded_amount == 2500
    assert Payout.objects.get(refund_id=by_payout.pk).status == "succeeded"
    assert sandbox.project.audit() == []


def _bank_method(sandbox: ProviderSandbox) -> str:
    return next(
        method.code
        for method in services.list_payment_methods(country="CL", currency="CLP")
        if method.extra.get("family", method.extra.get("method_family")) == "bank_transfer"
    )


def _payout_method(sandbox: ProviderSandbox) -> str:
    return _bank_method(sandbox)
