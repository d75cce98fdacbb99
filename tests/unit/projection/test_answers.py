"""Answers never overwrite a newer state, and say when the order is unclear."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from payments_integration import inbox, projection, schemas
from payments_integration.enums import Kind
from payments_integration.models import (
    Balance,
    DueRefresh,
    Event,
    Payment,
    Refund,
    StatusChange,
    WebhookEndpoint,
)
from payments_integration.projection import ABSENT, Snapshot, forget_secrets
from payments_integration.reconciliation.due import READ
from tests import factories
from tests.conftest import Receiver
from tests.factories import T0, body, event

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("woken"), pytest.mark.promise(3)]


def payment(**fields: Any) -> schemas.Payment:
    return schemas.parse_resource(factories.payment(**fields), schemas.Payment)


def refund(**fields: Any) -> schemas.Refund:
    return schemas.parse_resource(factories.refund(**fields), schemas.Refund)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def write(
    resource: Any,
    *,
    seconds: float | None = 0,
    duration: float = 0.1,
    before: Snapshot | None = None,
    account: str = "default",
) -> Any:
    before = before or projection.snapshot(resource.object, account, getattr(resource, "id", "CLP"))
    with time_machine.travel(at(seconds or 0), tick=False):
        return projection.write_answer(
            account,
            resource,
            answered_at=None if seconds is None else at(seconds),
            duration=duration,
            before=before,
        )


def arrive(*events: dict[str, Any]) -> None:
    for item in events:
        inbox.receive("default", body(item))
    inbox.process()


def marks() -> list[str]:
    return list(DueRefresh.objects.order_by("pk").values_list("reason", flat=True))


def test_a_first_answer_inserts_the_row() -> None:
    row = write(payment())
    assert (row.pk, row.status, row.state_by, row.state_at) == ("pay_1", "created", "answer", T0)
    assert StatusChange.objects.get().event is None
    assert not marks()


def test_a_newer_answer_replaces_an_older_one() -> None:
    write(payment())
    row = write(payment(status="processing"), seconds=60)
    assert (row.status, row.version, row.state_at) == ("processing", 2, at(60))
    assert list(StatusChange.objects.order_by("pk").values_list("previous_status", "status")) == [
        ("", "created"),
        ("created", "processing"),
    ]


@pytest.mark.case(45)
def test_an_answer_is_dropped_if_the_row_changed_meanwhile() -> None:
    arrive(factories.life()[0])
    before = projection.snapshot(Kind.PAYMENT, "default", "pay_1")
    arrive(factories.life()[3])
    row = write(payment(status="processing"), seconds=60, before=before)
    assert row.status == "succeeded"
    assert marks() == ["changed_meanwhile"]


@pytest.mark.case(45)
def test_an_answer_is_dropped_if_an_event_was_stored_meanwhile() -> None:
    arrive(factories.life()[0])
    before = projection.snapshot(Kind.PAYMENT, "default", "pay_1")
    inbox.receive("default", body(factories.life()[3]))
    row = write(payment(status="processing"), seconds=60, before=before)
    assert row.status == "created"
    assert marks() == ["changed_meanwhile"]


def test_an_answer_read_before_the_rows_event_is_dropped() -> None:
    arrive(factories.life()[3])
    row = write(payment(status="processing"), seconds=20)
    assert row.status == "succeeded"
    assert marks() == ["changed_meanwhile"]


def test_an_answer_with_the_same_content_leaves_the_events_exact_time() -> None:
    arrive(factories.life()[0])
    row = write(payment(), seconds=5)
    assert (row.state_by, row.state_at, row.version) == ("event", T0, 1)


def test_a_clearly_newer_answer_confirms_the_state() -> None:
    """A late event from before the answer would take the row back in time."""
    arrive(factories.life()[0])
    write(payment(), seconds=400)
    arrive(event(factories.payment(status="on_hold"), seconds=30))
    assert Payment.objects.get().status == "created"
    assert not marks()


@pytest.mark.case(61)
def test_an_event_before_the_posts_answer_is_one_row() -> None:
    arrive(factories.life()[0])
    assert write(payment(), before=ABSENT).pk == "pay_1"
    assert Payment.objects.count() == 1
    assert StatusChange.objects.count() == 1
    assert not marks()


class TestEventsAfterAnswers:
    @pytest.mark.parametrize(
        ("seconds", "status", "asked"),
        [
            (106, "succeeded", []),
            (103, "created", ["order_unclear"]),
            (97, "created", ["order_unclear"]),
            (93, "created", ["order_unclear"]),
            (-199, "created", ["order_unclear"]),
            (-201, "created", []),
        ],
    )
    def test_an_answer_is_compared_with_the_rows_event_by_time(
        self, seconds: float, status: str, asked: list[str]
    ) -> None:
        write(payment(), seconds=100, duration=1)
        arrive(event(factories.payment(status="succeeded"), seconds=seconds))
        assert Payment.objects.get().status == status
        assert marks() == asked

    @pytest.mark.parametrize("seconds", [-100, 99, 101])
    def test_the_same_content_needs_no_answer(self, seconds: int) -> None:
        write(payment(), seconds=100)
        arrive(event(factories.payment(), seconds=seconds))
        assert not marks()

    @pytest.mark.parametrize(
        ("before", "after", "seconds", "is_applied"),
        [
            ("succeeded", "processing", 106, False),
            ("partially_paid", "requires_action", 400, False),
            ("expired", "created", 400, False),
            ("expired", "created", 401, True),
            ("succeeded", "on_hold", 106, True),
            ("on_hold", "succeeded", 106, True),
            ("requires_action", "created", 106, True),
        ],
    )
    def test_an_event_that_takes_the_status_back_to_the_beginning_is_not_believed(
        self, before: str, after: str, seconds: int, is_applied: bool
    ) -> None:
        write(payment(status=before), seconds=100)
        arrive(event(factories.payment(status=after), seconds=seconds))
        assert Payment.objects.get().status == (after if is_applied else before)
        assert marks() == ([] if is_applied else ["order_unclear"])
        assert DueRefresh.objects.filter(projection.is_awaited()).exists() is not is_applied

    @pytest.mark.case(78)
    @pytest.mark.parametrize("seconds", [-86_400, -290, 0, 290, 400])
    @pytest.mark.parametrize("off", [0, 840, -840])
    def test_without_a_date_everything_is_unclear(self, seconds: int, off: int) -> None:
        """Our clock may have been set by minutes since it was last compared with the provider's."""
        with time_machine.travel(at(off), tick=False):
            projection.write_answer("default", payment(), answered_at=None, duration=0.1, before=projection.ABSENT)
        with time_machine.travel(at(max(seconds, 0)), tick=False):
            arrive(event(factories.payment(status="succeeded"), seconds=seconds))
        assert Payment.objects.get().status == "created"
        assert marks() == ["order_unclear"]

    def test_without_a_date_the_same_content_changes_nothing(self) -> None:
        write(payment(), seconds=100)
        row = write(payment(), seconds=None)
        assert (row.state_at, row.answer_seconds) == (at(100), 0.1)
        arrive(event(factories.payment(status="succeeded"), seconds=106))
        assert Payment.objects.get().status == "succeeded"
        assert not marks()

    def test_without_a_date_different_content_is_written(self) -> None:
        arrive(event(factories.payment(), seconds=30))
        assert write(payment(status="succeeded"), seconds=None).status == "succeeded"
        [change] = StatusChange.objects.filter(status="succeeded")
        assert change.at == at(30)  # dispatched after the change before it
        assert not marks()

    @pytest.mark.case(78)
    @pytest.mark.parametrize("off", [3600, -3600])
    def test_an_impossible_date_counts_as_missing(self, off: int) -> None:
        with time_machine.travel(at(0), tick=False):
            projection.write_answer("default", payment(), answered_at=at(off), duration=0.1, before=projection.ABSENT)
        arrive(event(factories.payment(status="succeeded"), seconds=60))
        assert marks() == ["order_unclear"]

    @pytest.mark.case(78)
    @pytest.mark.promise(3)
    @pytest.mark.parametrize("off", [600, -600])
    def test_a_wrong_local_clock_does_not_let_an_older_event_win(self, off: int) -> None:
        canceled = payment(status="canceled")
        with time_machine.travel(at(off), tick=False):
            projection.write_answer("default", canceled, answered_at=at(0), duration=0.1, before=projection.ABSENT)
        arrive(event(factories.payment(status="created"), seconds=-30))
        assert Payment.objects.get().status == "canceled"
        assert marks() == ["order_unclear"]


@pytest.mark.case(89)
class TestRepeatedPost:
    def test_the_answer_of_a_repeated_post_does_not_change_a_known_row(self) -> None:
        arrive(*factories.life()[:4])
        row = projection.record_identity("default", payment())
        assert row.status == "succeeded"
        assert marks() == ["repeated_post"]

    def test_an_absent_object_is_inserted_and_read(self) -> None:
        assert projection.record_identity("default", payment()).status == "created"
        assert marks() == ["repeated_post"]


@pytest.mark.case(31)
def test_a_change_of_a_refund_refreshes_its_payment() -> None:
    write(refund())
    assert [(mark.object_kind, mark.object_id) for mark in DueRefresh.objects.all()] == [("payment", "pay_1")]
    assert Refund.objects.get().payment_id == "pay_1"


@pytest.mark.parametrize(
    ("fields", "linked"),
    [
        ({"status": "canceled", "refund_id": "ref_1"}, [("refund", "ref_1", "payout_canceled")]),
        ({"status": "processing", "refund_id": "ref_1"}, []),
        ({"status": "canceled"}, []),
    ],
)
@pytest.mark.parametrize("by", ["event", "answer", "change", "list"])
def test_a_canceled_payout_refreshes_the_refund_that_it_executes(
    fields: dict[str, Any], linked: list[tuple[str, str, str]], by: str
) -> None:
    found = schemas.parse_resource(factories.payout(**fields), schemas.Payout)
    if by == "event":
        arrive(event(factories.payout(**fields)))
    elif by == "list":
        projection.write_new("default", [found], answered_at=T0, duration=0.1)
    else:
        if by == "change":
            write(schemas.parse_resource(factories.payout(), schemas.Payout))
        write(found, seconds=60)
    marks = DueRefresh.objects.values_list("object_kind", "object_id", "reason")
    assert [mark for mark in marks if mark[0] == "refund"] == linked


@pytest.mark.case(93)
def test_an_object_of_another_account_is_refused() -> None:
    write(payment())
    with pytest.raises(schemas.WireError, match="another account"):
        write(payment(status="failed"), seconds=60, account="second")
    with pytest.raises(schemas.WireError, match="another account"):
        projection.record_identity("second", payment())
    assert Payment.objects.get().status == "created"


@pytest.mark.case(87)
def test_erased_data_stays_erased_and_does_not_count_as_drift() -> None:
    row = write(payment(payer={"name": "Ana"}))
    Payment.objects.update(payer=None, erased_at=timezone.now())
    row.refresh_from_db()
    assert projection.differences(row, payment(payer={"name": "Ana"})) == {}
    assert write(payment(payer={"name": "Ana"}, status="failed"), seconds=60).payer is None


def test_a_balance_has_one_row() -> None:
    def balances(available: int) -> list[schemas.Balance]:
        return [schemas.parse_resource(factories.balance(available=available), schemas.Balance)]

    def write_all(available: int, seconds: int) -> Balance:
        before = {"CLP": projection.snapshot(Kind.BALANCE, "default", "CLP")}
        with time_machine.travel(at(seconds), tick=False):
            (row,) = projection.write_balances(
                "default", balances(available), answered_at=at(seconds), duration=0, before=before
            )
        return row

    write_all(5, 0)
    write_all(5, 60)
    assert write_all(6, 120).available == 6
    assert Balance.objects.count() == 1


def a_list(**available: int) -> list[schemas.Balance]:
    return [
        schemas.parse_resource(factories.balance(currency=currency, available=amount), schemas.Balance)
        for currency, amount in available.items()
    ]


def test_any_number_of_balances_takes_the_same_statements() -> None:
    def cost(seconds: int, **available: int) -> int:
        with time_machine.travel(at(seconds), tick=False), CaptureQueriesContext(connection) as queries:
            before = projection.balance_snapshots("default")
            projection.write_balances(
                "default", a_list(**available), answered_at=at(seconds), duration=0, before=before
            )
        return len(queries)

    cost(0, CLP=1, USD=1, MXN=1, PEN=1)
    cost(60, CLP=1)
    assert cost(120, CLP=1) == cost(180, CLP=1, USD=1, MXN=1, PEN=1)
    assert set(Balance.objects.values_list("state_at", "gone_at")) == {(at(180), None)}


def test_a_balance_that_is_no_longer_listed_is_gone() -> None:
    with time_machine.travel(at(0), tick=False):
        projection.write_balances("second", a_list(USD=7), answered_at=at(0), duration=0, before={})
        projection.write_balances("default", a_list(CLP=1, USD=1, MXN=1), answered_at=at(0), duration=0, before={})
        before = projection.balance_snapshots("default")
    arrive(event(factories.balance(currency="MXN", available=900), seconds=60))
    with time_machine.travel(at(60), tick=False):
        projection.write_balances("default", a_list(CLP=1), answered_at=at(60), duration=1, before=before)
    gone = Balance.objects.exclude(gone_at=None).values_list("account", "currency", "available")
    assert list(gone) == [("default", "USD", 1)]
    arrive(event(factories.balance(currency="USD", available=5), seconds=120))
    assert not Balance.objects.exclude(gone_at=None).exists()


def test_each_balance_of_an_answer_is_ordered_by_itself() -> None:
    with time_machine.travel(at(0), tick=False):
        projection.write_balances("second", a_list(CLP=7), answered_at=at(0), duration=0, before={})
        projection.write_balances("default", a_list(CLP=1, USD=1, MXN=1), answered_at=at(0), duration=0, before={})
        before = projection.balance_snapshots("default")
    arrive(event(factories.balance(currency="USD", available=900), seconds=60))
    with time_machine.travel(at(60), tick=False):
        rows = projection.write_balances(
            "default", a_list(MXN=1, USD=2, PEN=3, CLP=4), answered_at=at(60), duration=1, before=before
        )
    amounts = {"MXN": 1, "USD": 900, "PEN": 3, "CLP": 4}
    assert {row.currency: row.available for row in rows} == amounts
    assert dict(Balance.objects.filter(account="default").values_list("currency", "available")) == amounts
    assert Balance.objects.get(account="second").available == 7
    assert marks() == ["changed_meanwhile"], "of the one that an event brought meanwhile"


def test_an_event_during_the_first_reading_of_a_balance_is_not_overwritten() -> None:
    arrive(event(factories.balance(available=900), seconds=1))
    resource = schemas.parse_resource(factories.balance(available=100), schemas.Balance)
    with time_machine.travel(at(1), tick=False):
        (row,) = projection.write_balances("default", [resource], answered_at=at(1), duration=1, before={})
    assert row.available == 900
    assert marks() == ["changed_meanwhile"]


def test_a_change_by_an_answer_is_dispatched_after_the_event_before_it(receiver: Receiver) -> None:
    """Dates are whole seconds, and the provider's parts may be a few apart."""
    arrive(event(factories.payment(status="processing"), seconds=10.4))
    write(payment(status="succeeded"), seconds=10)
    inbox.dispatch()
    assert receiver.statuses == [("", "processing"), ("processing", "succeeded")]


def test_a_refresh_requested_by_a_get_does_not_cancel_the_backoff() -> None:
    later = timezone.now() + timedelta(hours=1)
    DueRefresh.objects.create(
        account="default", object_kind="payment", object_id="pay_1", reason="x", due_at=later, attempts=4
    )
    projection.request_refresh("default", "payment", "pay_1", "changed_meanwhile")
    mark = DueRefresh.objects.get()
    assert (mark.attempts, mark.due_at, mark.marks) == (4, later, 2)
    projection.request_refresh("default", "payment", "pay_1", "refund_changed")
    mark.refresh_from_db()
    assert mark.attempts == 0
    assert mark.due_at < later


def test_a_request_ends_the_claim_of_a_read_that_is_under_way() -> None:
    """That read does not answer it, and its process may be dead."""
    projection.request_refresh("default", "payment", "pay_1", "first")
    read = READ.take(DueRefresh.objects.all())
    assert read is not None
    projection.request_refresh("default", "payment", "pay_1", "changed_meanwhile")
    assert not DueRefresh.objects.filter(READ.free()).exists()
    projection.request_refresh("default", "payment", "pay_1", "second")
    assert DueRefresh.objects.filter(READ.free(), due_at__lte=timezone.now()).exists()


def test_a_gone_object_keeps_its_row() -> None:
    row = write(payment())
    known = Snapshot(row.version, 0)
    with time_machine.travel(at(10), tick=False) as clock:
        projection.mark_gone("default", Kind.PAYMENT, "pay_1", before=known)
        clock.shift(90)
        projection.mark_gone("default", Kind.PAYMENT, "pay_1", before=known)
    assert Payment.objects.values_list("gone_at", "synced_at").get() == (at(10), at(100))
    assert write(payment(status="failed"), seconds=60).gone_at is None
    projection.mark_gone("default", Kind.PAYMENT, "pay_1", before=known)
    assert Payment.objects.get().gone_at is None, "it was written since the request began"


def test_a_repeated_refresh_request_counts_up_and_becomes_due() -> None:
    later = timezone.now() + timedelta(hours=1)
    projection.request_refresh("default", "payment", "pay_1", "first")
    DueRefresh.objects.update(due_at=later)
    projection.request_refresh("default", "payment", "pay_1", "second")
    mark = DueRefresh.objects.get()
    assert mark.marks == 2
    assert mark.due_at < later
    projection.request_refresh("default", "payment", "pay_1", "third")
    assert DueRefresh.objects.get().due_at == mark.due_at


def test_a_change_of_an_object_that_is_too_old_is_not_dispatched(receiver: Receiver, dispatching_since: None) -> None:
    old = factories.iso(datetime.now(UTC) - timedelta(days=40))
    write(payment(created_at=old, status="succeeded"))
    write(payment(id="pay_2", status="succeeded"))
    inbox.dispatch()
    assert receiver.statuses == [("", "succeeded")]


class TestSecrets:
    @pytest.fixture(autouse=True)
    def endpoint(self) -> WebhookEndpoint:
        resource = schemas.parse_resource(
            {"object": "webhook_endpoint", "id": "whk_1", "url": "https://x", "events": [], "status": "active"},
            schemas.WebhookEndpoint,
        )
        row: WebhookEndpoint = write(resource)
        return row

    def test_stored_secrets_verify(self) -> None:
        projection.store_secret("default", "whk_1", "whsec_a")
        assert projection.active_secrets("default") == ("whsec_default", "whsec_a")
        assert projection.active_secrets("second") == ("whsec_second",)

    def test_the_previous_secret_stays_valid_for_24_hours(self) -> None:
        projection.store_secret("default", "whk_1", "whsec_a")
        projection.store_secret("default", "whk_1", "whsec_b")
        assert set(projection.active_secrets("default")) == {"whsec_default", "whsec_a", "whsec_b"}
        WebhookEndpoint.objects.update(previous_secret_until=timezone.now() - timedelta(seconds=1))
        forget_secrets()
        assert set(projection.active_secrets("default")) == {"whsec_default", "whsec_b"}

    def test_storing_the_same_secret_again_changes_nothing(self) -> None:
        projection.store_secret("default", "whk_1", "whsec_a")
        projection.store_secret("default", "whk_1", "whsec_a")
        assert WebhookEndpoint.objects.get().previous_secret_token == ""

    def test_a_deleted_endpoint_signs_nothing(self) -> None:
        projection.store_secret("default", "whk_1", "whsec_a")
        projection.mark_endpoint_deleted("default", "whk_1")
        assert projection.active_secrets("default") == ("whsec_default",)

    @pytest.mark.case(85)
    def test_no_repr_shows_a_secret(self, endpoint: WebhookEndpoint) -> None:
        endpoint.secret = "whsec_hidden"  # type: ignore[attr-defined]
        assert "hidden" not in repr(endpoint)
        struct = schemas.WebhookEndpoint(
            id="whk_1", url="https://x", events=[], status="active", secret="whsec_hidden"
        )
        assert "hidden" not in repr(struct)


def test_snapshots_count_events_of_the_object_only() -> None:
    arrive(*factories.life("pay_1")[:2], factories.life("pay_2")[0])
    assert projection.snapshot(Kind.PAYMENT, "default", "pay_1") == Snapshot(
        Payment.objects.get(pk="pay_1").version, 2
    )
    assert projection.snapshot(Kind.PAYMENT, "second", "pay_1").events == 0
    assert projection.snapshot(Kind.PAYMENT, "default", "pay_3") == ABSENT
    assert Event.objects.count() == 3


@pytest.mark.promise(6)
def test_changes_within_one_second_are_dispatched_in_order(receiver: Receiver) -> None:
    created = {"created_at": factories.iso(at(0.82))}
    projection.record_identity("default", payment(**created))
    write(payment(**created), seconds=0)  # nothing new, and a Date before the object was made
    write(payment(status="canceled", **created), seconds=0)
    assert list(StatusChange.objects.order_by("at", "pk").values_list("status", flat=True)) == ["created", "canceled"]
    inbox.dispatch()
    assert receiver.statuses == [("", "created"), ("created", "canceled")]


@pytest.mark.promise(3)
def test_an_older_event_does_not_overwrite_what_a_look_up_has_listed(woken: list[str]) -> None:
    """A refund that succeeded is found in a list; its event from before that comes late."""
    listed = schemas.parse_resource(factories.payment(status="succeeded"), schemas.Payment)
    projection.record_identity("default", listed, is_current=True)
    inbox.receive("default", factories.body(factories.event(factories.payment(status="processing"), seconds=5)))
    inbox.process()
    assert Payment.objects.get().status == "succeeded"
    assert DueRefresh.objects.filter(object_id="pay_1").exists()
