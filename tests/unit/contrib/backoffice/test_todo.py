"""The to-do list: each kind of row, how it leaves, who sees it, and what people do with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Permission, User
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import translation
from django.utils.html import strip_tags

from example_project.shop.models import Order, Product
from payments_integration import conf, reconciliation, signals
from payments_integration.contrib.backoffice import handling, todo
from payments_integration.contrib.backoffice.handling import report_unpaid
from payments_integration.contrib.backoffice.todo import Kind, Thing, mirrored, orders
from payments_integration.models import Operation, OperationState, Payment
from payments_integration.signals import Reason
from tests.caches import DOWN, JSON
from tests.factories import rows
from tests.unit.admin.conftest import page, url
from tests.unit.contrib.backoffice.test_overview import DASHBOARD, section, text

NOW = datetime(2026, 5, 20, 12, 0, tzinfo=UTC)
TODO = "/admin/payments_backoffice/todo/"
ALL = tuple(Kind)


@pytest.fixture(autouse=True)
def _now(db: None) -> Iterator[None]:
    with time_machine.travel(NOW, tick=False):
        yield


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


def became(obj: Any, status: str, at: datetime | None = None, **fields: Any) -> Any:
    """The row with another status since then, by a status change."""
    at = at or ago(hours=2)
    type(obj).objects.filter(pk=obj.pk).update(status=status, synced_at=at, **fields)
    rows.change(obj, status=status, at=at)
    obj.refresh_from_db()
    return obj


def things(**asked: Any) -> list[Thing]:
    values = {"account": "default", "kinds": ALL, "others": ALL, "order_models": [Order], **asked}
    return todo.things(todo.Asked(**values), todo.differences_of("default", ago(days=30)))


def kinds() -> list[str]:
    return [thing.kind.value for thing in things()]


def ordered(reference: str, **fields: Any) -> Order:
    product, _ = Product.objects.get_or_create(slug="tea", defaults={"name": "Tea"})
    values = {"amount": 1050, "currency": "USD", "country": "EC", "method_code": "ec_card", "name": "Ana"}
    return Order.objects.create(
        submission=reference, reference=reference, product=product, **{**values, "email": "ana@shop.example", **fields}
    )


def paid(reference: str, **fields: Any) -> Payment:
    values = {"created_at": ago(hours=1), "succeeded_at": ago(hours=1), "synced_at": NOW, **fields}
    return rows.payment(merchant_reference=reference, status="succeeded", **values)


def paid_and_deleted(reference: str) -> Payment:
    """An attempt pays for an order, and the order is deleted."""
    order = ordered(reference)
    key = order.attempt_key()
    payment = paid(reference, amount=1050, amount_received=1050)
    rows.operation(
        state=OperationState.DONE,
        operation="create_payment",
        result_id=payment.pk,
        merchant_reference=reference,
        idempotency_key=key,
    )
    order.delete()
    return payment


def user(name: str, *codenames: str) -> User:
    found = User.objects.create_user(name, is_staff=True)
    labels = ("payments_integration", "payments_backoffice", "shop")
    for codename in codenames:
        found.user_permissions.add(Permission.objects.get(codename=codename, content_type__app_label__in=labels))
    return User.objects.get(pk=found.pk)


def lines(client: Client, address: str = TODO) -> list[str]:
    found = re.findall(r'pi-todo-line">(.*?)</p>', page(client, address), re.DOTALL)
    return [" ".join(text(line).split()) for line in found]


def form(client: Client, address: str = TODO, number: int = 0) -> dict[str, str]:
    """The hidden fields of a row's form."""
    html = page(client, address).split('<li class="pi-todo')[number + 1].split("</form>")[0]
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', html)
    return {name: value.replace("&amp;", "&") for name, value in found if name != "csrfmiddlewaretoken"}


def press(client: Client, given: dict[str, str], **further: str) -> str:
    """The message after a form was sent."""
    shown = client.post(TODO, {**given, **further}, follow=True)
    assert shown.status_code == 200
    found = re.findall(r'<li class="(?:success|warning|error)">(.*?)</li>', shown.content.decode())
    assert len(found) == 1, found
    return str(text(found[0])).strip()


# Each kind of row, and how it leaves.


@pytest.mark.parametrize("status", ["failed", "returned"])
def test_a_payout_that_did_not_arrive_leaves_when_it_is_paid_again(status: str) -> None:
    first = became(rows.payout(created_at=ago(days=80), merchant_reference="salary-1"), status)
    assert kinds() == ["payout"]
    # A refused attempt changes nothing; the next one does, as long as it may still happen.
    rows.operation(idempotency_key=todo.again_key(first.pk, 1), state=OperationState.REJECTED)
    assert kinds() == ["payout"]
    rows.operation(idempotency_key=todo.again_key(first.pk, 2), state=OperationState.DUE)
    assert kinds() == []


def test_each_attempt_to_pay_again_is_looked_up_by_its_key() -> None:
    """MariaDB uses no index for IN with columns of the outer row."""
    first = became(rows.payout(created_at=ago(days=80)), "failed")
    rows.operation(idempotency_key=todo.again_key(first.pk, 9), state=OperationState.DUE)
    with CaptureQueriesContext(connection) as captured:
        assert kinds() == []
    [read] = [query["sql"] for query in captured.captured_queries if "again-" in query["sql"]]
    assert not re.search(r"idempotency_key\W IN", read)


def test_a_payout_leaves_when_a_later_one_has_its_reference() -> None:
    became(rows.payout(created_at=ago(days=3), merchant_reference="salary-1"), "failed", ago(days=3))
    rows.payout(created_at=ago(days=2), merchant_reference="salary-1", status="canceled")
    rows.payout(created_at=ago(days=2), merchant_reference="salary-1", status="succeeded", account="second")
    assert kinds() == ["payout"]
    rows.payout(created_at=ago(days=1), merchant_reference="salary-1", status="processing")
    assert kinds() == []


def recipient(number: str | None, document: str | None, name: str | None = "Ana") -> dict[str, Any]:
    return {"account_number": number, "holder_document": {"type": "RUT", "number": document}, "holder_name": name}


def test_a_payout_stays_when_others_of_the_same_payroll_arrive() -> None:
    ana = {"merchant_reference": "payroll-5", "destination": recipient("000111", "11111111-1")}
    became(rows.payout(created_at=ago(days=3), **ana), "failed", ago(days=2))
    bea = {"merchant_reference": "payroll-5", "destination": recipient("000222", "22222222-2", "Bea")}
    rows.payout(created_at=ago(days=1), status="succeeded", **bea)
    rows.payout(created_at=ago(days=3), status="succeeded", **ana)
    assert kinds() == ["payout"]
    corrected = {**ana, "destination": recipient("000333", "11111111-1", "Ann")}
    rows.payout(created_at=ago(days=1), status="processing", **corrected)
    assert kinds() == []


def asked(reference: str, destination: dict[str, Any], **fields: Any) -> Operation:
    """A payout that waits for approval."""
    return rows.operation(
        operation="create_payout",
        merchant_reference=reference,
        state=OperationState.AWAITING_APPROVAL,
        arguments={"amount": 500, "destination": destination},
        **fields,
    )


@pytest.mark.parametrize(
    "destination",
    [
        {"account_number": "000111"},
        recipient("000111", "22222222-2", "Bea"),
        recipient("000333", "11111111-1", "Bea"),
        recipient("000333", "111111111", "ANA"),
        recipient(None, "22222222-2", "Bea"),
        recipient("", "22222222-2", "Bea"),
        recipient("000222", None, "Bea"),
        recipient("000222", "", "Bea"),
        recipient("000222", "22222222-2", None),
        {**recipient("000222", "", "Bea"), "holder_document": None},
        {"account_number": "000333"},
        {},
        None,
    ],
    ids=["no document", "account", "document", "name", "null account", "empty account", "null document",
         "empty document", "null name", "no document at all", "unknown holder", "nothing", "erased"],
)  # fmt: skip
def test_a_payout_leaves_while_another_with_its_reference_is_asked_for(destination: Any) -> None:
    ana = {"merchant_reference": "salary-1", "destination": recipient("000111", "11111111-1")}
    became(rows.payout(created_at=ago(days=3), **ana), "failed")
    asked("salary-1", destination)
    assert kinds() == ["approve"]


def test_a_payout_stays_while_one_to_another_person_of_the_same_payroll_is_asked_for() -> None:
    ana = {"merchant_reference": "payroll-5", "destination": recipient("000111", "11111111-1")}
    became(rows.payout(created_at=ago(days=3), **ana), "failed")
    asked("payroll-5", recipient("000222", "22222222-2", "Bea"), created_at=ago(days=4))
    assert kinds() == ["approve", "payout"]


@pytest.mark.parametrize("operation", ["create_payment", "cancel_payout"])
def test_a_payout_stays_while_something_else_with_its_reference_is_asked_for(operation: str) -> None:
    became(rows.payout(created_at=ago(days=3), merchant_reference="salary-1"), "failed")
    rows.operation(operation=operation, merchant_reference="salary-1", state=OperationState.DUE)
    assert kinds() == ["payout"]


def test_payouts_without_a_reference_do_not_answer_for_each_other() -> None:
    became(rows.payout(created_at=ago(days=3), merchant_reference=""), "failed")
    rows.payout(created_at=ago(days=1), merchant_reference="", status="succeeded")
    rows.operation(operation="create_payout", merchant_reference="", state=OperationState.DUE)
    assert kinds() == ["payout"]


def test_a_payout_that_executes_a_refund_is_shown_as_the_refund() -> None:
    payment = rows.payment(amount_received=1000, refunded_amount=0)
    payout = became(rows.payout(created_at=ago(days=3)), "failed")
    named = became(rows.payout(created_at=ago(days=3), refund_id="ref_1"), "failed")
    became(rows.refund(payment=payment, payout=payout, amount=500), "failed")
    assert kinds() == ["refund"]
    assert named.refund_id == "ref_1"


@pytest.mark.parametrize("status", ["failed", "returned"])
def test_a_refund_that_did_not_arrive_leaves_when_as_much_is_refunded_again(status: str) -> None:
    payment = rows.payment(amount_received=1000, refunded_amount=0)
    became(rows.refund(payment=payment, amount=500, created_at=ago(days=3)), status, ago(days=2))
    rows.refund(payment=payment, amount=500, status="succeeded", created_at=ago(days=2, hours=9))  # of another item
    rows.refund(payment=payment, amount=400, status="succeeded", created_at=ago(days=1))
    rows.refund(payment=payment, amount=500, status="canceled", created_at=ago(days=1))
    assert kinds() == ["refund"]
    rows.refund(payment=payment, amount=500, status="created", created_at=ago(hours=1))
    assert kinds() == []


def failed_refunds(*refunds: tuple[int, float, float]) -> Payment:
    """A payment with failed refunds: the amount of each, and how many hours ago it was made and failed."""
    payment = rows.payment(amount_received=10_000, refunded_amount=0)
    for number, (amount, made, failed) in enumerate(refunds, 1):
        refund = rows.refund(pk=f"ref_{number}", payment=payment, amount=amount, created_at=ago(hours=made))
        became(refund, "failed", ago(hours=failed))
    return payment


def shown_refunds() -> list[str]:
    return [thing.found.thing for thing in things(kinds=[Kind.REFUND])]


@pytest.mark.parametrize(
    ("failed", "again", "shown"),
    [
        ([(500, 99, 9), (500, 99, 8)], [], ["ref_1", "ref_2"]),
        ([(500, 99, 9), (500, 99, 8)], [(500, 1)], ["ref_2"]),
        ([(500, 99, 9), (500, 99, 9)], [(500, 1)], ["ref_2"]),
        ([(500, 99, 8), (500, 99, 9)], [(500, 1)], ["ref_1"]),
        ([(500, 99, 9), (500, 99, 8)], [(500, 1), (500, 1)], []),
        ([(500, 99, 9), (500, 99, 7)], [(500, 8), (500, 1)], []),
        ([(500, 99, 7), (500, 98, 9)], [(500, 8)], ["ref_1"]),
        ([(500, 99, 9), (500, 8, 7)], [(500, 1)], []),
        ([(500, 99, 9), (500, 8, 7)], [], ["ref_2"]),
        ([(500, 99, 9), (500, 99, 8), (500, 7, 6)], [(500, 1)], ["ref_3"]),
        ([(500, 99, 9), (500, 99, 6), (500, 99, 5)], [(500, 8), (500, 7), (500, 1)], ["ref_3"]),
        ([(100, 99, 9), (500, 99, 8)], [(500, 1)], ["ref_1"]),
        ([(500, 99, 9), (100, 99, 8)], [(500, 1)], ["ref_2"]),
        ([(500, 99, 9), (100, 99, 8)], [(100, 1)], ["ref_1"]),
        ([(500, 99, 9), (400, 99, 8), (300, 99, 7)], [(300, 2), (400, 1)], ["ref_1"]),
        ([(500, 99, 9), (100, 99, 8)], [(600, 1)], []),
        ([(100, 99, 9), (500, 99, 8)], [(100, 1), (500, 1)], []),
        ([(100, 99, 9), (500, 99, 8)], [(100, 1), (100, 1)], ["ref_2"]),
        ([(500, 99, 9), (500, 99, 8)], [(499, 1), (500, 1)], ["ref_2"]),
        ([(500, 99, 9), (100, 99, 8), (500, 99, 7)], [(500, 1), (500, 1)], ["ref_2"]),
        ([(500, 99, 9), (100, 99, 8), (500, 99, 7)], [(500, 1), (600, 1)], []),
        ([(500, 99, 9), (100, 99, 8), (500, 99, 7)], [(500, 1)], ["ref_2", "ref_3"]),
    ],
    ids=[
        "two", "two and one again", "two at once and one again", "the second failed first", "two and two again",
        "one, again, one, again", "the second failed first and is replaced", "chain", "open chain",
        "two, one again that failed, and one", "another item", "a smaller one first", "a smaller one second",
        "the smaller one again", "two of three", "both at once",
        "both of two amounts", "not enough", "less does not count", "a smaller one between",
        "all three, two at once", "a smaller one between, one again",
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_made", [True, False], ids=["made", "asked for"])
def test_each_refund_that_did_not_arrive_leaves_with_a_refund_of_its_own(
    failed: list[tuple[int, float, float]], again: list[tuple[int, float]], shown: list[str], is_made: bool
) -> None:
    payment, other = failed_refunds(*failed), rows.payment()
    for amount, hours in again:
        values: dict[str, Any] = {"amount": amount, "created_at": ago(hours=hours)}
        if is_made:
            rows.refund(payment=payment, status="succeeded", **values)
        else:
            rows.operation(operation="create_refund", target_id=payment.pk, state="due", result_id="", **values)
        rows.refund(payment=payment, status="canceled", **values)
        rows.refund(payment=other, status="succeeded", **values)
        rows.refund(payment=payment, status="succeeded", account="second", **values)
    assert shown_refunds() == sorted(shown)


def test_refunds_that_failed_at_once_do_not_replace_each_other_and_a_gone_one_needs_no_other() -> None:
    payment = rows.payment(amount_received=10_000, refunded_amount=0)
    at_once: dict[str, Any] = {"amount": 500, "status": "failed", "created_at": ago(hours=3), "synced_at": NOW}
    for gone_at in (NOW, None, None):
        rows.refund(payment=payment, gone_at=gone_at, **at_once)
    assert kinds() == ["refund", "refund"]
    for _number in range(2):
        rows.refund(payment=payment, status="succeeded", amount=500, created_at=ago(hours=1))
    assert kinds() == []


def test_refunds_that_were_replaced_do_not_hide_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The statement leaves refunds whose first replacement failed too: only the comparison of amounts drops them."""
    monkeypatch.setattr(mirrored, "SHOWN", 2)
    for _number in range(3):
        payment = rows.payment(amount_received=10_000, refunded_amount=0)
        for days in (9, 7):
            refund = rows.refund(payment=payment, amount=500, created_at=ago(days=days))
            became(refund, "failed", ago(days=days - 1))
        rows.refund(payment=payment, amount=500, status="succeeded", created_at=ago(days=5))
    assert shown_refunds() == []
    lost = rows.refund(payment=rows.payment(amount_received=10_000, refunded_amount=0), amount=500)
    became(lost, "failed", ago(days=1))
    assert shown_refunds() == [lost.pk]


def test_a_refund_does_not_replace_itself() -> None:
    """The time of a status may have no fractions of a second, so it may be before the creation."""
    became(rows.refund(payment=rows.payment(), amount=500, created_at=ago(hours=3)), "failed", ago(hours=3, seconds=1))
    assert kinds() == ["refund"]


@pytest.mark.parametrize(
    "over",
    [{"refunded_amount": 1000}, {"status": "chargeback", "synced_at": ago(days=40)}],
    ids=["refunded elsewhere", "charged back long ago"],
)
def test_a_refund_leaves_when_the_payer_has_everything_back(over: dict[str, Any]) -> None:
    payment = rows.payment(amount_received=1000, refunded_amount=0, created_at=ago(days=50))
    became(rows.refund(payment=payment, amount=500), "failed")
    assert kinds() == ["refund"]
    Payment.objects.filter(pk=payment.pk).update(**over)
    assert kinds() == []


@pytest.mark.parametrize("state", [OperationState.DUE, OperationState.NEEDS_PERSON])
@pytest.mark.parametrize("amount", [500, None], ids=["as much", "all that is left"])
def test_a_refund_leaves_while_as_much_is_asked_for_again(state: str, amount: int | None) -> None:
    payment = rows.payment(amount_received=1000, refunded_amount=0)
    became(rows.refund(payment=payment, amount=500, created_at=ago(days=3)), "failed", ago(hours=2))
    asked = {"operation": "create_refund", "target_id": payment.pk, "state": state, "result_id": ""}
    # For other items: one before it failed, and a smaller one.
    rows.operation(**asked, created_at=ago(days=2))
    rows.operation(**asked, created_at=ago(hours=1), amount=499)
    assert "refund" in kinds()
    rows.operation(**asked, created_at=ago(hours=1), amount=amount)
    assert "refund" not in kinds()


def test_a_payment_on_hold_leaves_with_its_status_and_comes_back_with_it() -> None:
    payment = became(rows.payment(created_at=ago(days=400)), "on_hold", ago(days=300))
    [thing] = things()
    assert (thing.kind, thing.since) == (Kind.ON_HOLD, ago(days=300))
    handling.done(thing, "the bank knows", author="a job")
    assert kinds() == []
    became(payment, "succeeded", ago(days=2))
    assert kinds() == []
    became(payment, "on_hold", ago(days=1))
    assert [thing.since for thing in things()] == [ago(days=1)]


def test_a_chargeback_leaves_by_itself_after_a_month() -> None:
    became(rows.payment(created_at=ago(days=200)), "chargeback", ago(days=29))
    became(rows.payment(created_at=ago(days=200)), "chargeback", ago(days=31))
    # It was charged back before, and read again lately.
    again = became(rows.payment(created_at=ago(days=200)), "chargeback", ago(days=40))
    Payment.objects.filter(pk=again.pk).update(synced_at=NOW)
    assert [thing.since for thing in things()] == [ago(days=29)]


@pytest.mark.parametrize("state", ["needs_person", "awaiting_approval", "unknown"])
def test_an_operation_leaves_when_it_is_decided(state: str) -> None:
    operation = rows.operation(state=state, created_at=ago(hours=3))
    assert [thing.found.thing for thing in things()] == [operation.pk]
    type(operation).objects.filter(pk=operation.pk).update(state=OperationState.CLOSED)
    assert kinds() == []


def refused(**fields: Any) -> Operation:
    """A deferred call that the provider refused."""
    values = {"created_at": ago(days=2), "closed_at": ago(days=1), "deferred": True}
    return rows.operation(state=OperationState.REJECTED, **{**values, **fields})


@pytest.mark.parametrize(
    "same",
    [
        {"operation": "create_refund", "target_id": "pay_1"},
        {"operation": "create_payment", "merchant_reference": "ORD-1"},
    ],
)
def test_a_deferred_call_that_was_refused_leaves_when_the_same_is_asked_for_again(same: dict[str, str]) -> None:
    refused(**same)
    rows.operation(**same, created_at=ago(days=3))
    rows.operation(**{**same, "operation": "cancel_payment"}, created_at=ago(hours=1))
    for state in (OperationState.REJECTED, OperationState.CLOSED):
        rows.operation(**same, state=state, created_at=ago(hours=1))
    # A smaller amount, and one that a job asked for along with it.
    rows.operation(**same, amount=499, created_at=ago(hours=1))
    rows.operation(**same, created_at=ago(days=1, hours=1))
    assert [(thing.kind, thing.since) for thing in things()] == [(Kind.REFUSED, ago(days=1))]
    rows.operation(**same, state=OperationState.DUE, created_at=ago(hours=1))
    assert kinds() == []


def test_a_payout_with_the_reference_of_a_payroll_stands_for_no_other() -> None:
    refused(operation="create_payout", merchant_reference="salaries", arguments_hash="ana")
    rows.operation(
        operation="create_payout", merchant_reference="salaries", arguments_hash="bob", created_at=ago(hours=1)
    )
    assert kinds() == ["refused"]
    rows.operation(
        operation="create_payout", merchant_reference="salaries", arguments_hash="ana", created_at=ago(hours=1)
    )
    assert kinds() == []


def test_refused_calls_without_a_reference_do_not_answer_for_each_other() -> None:
    refused(operation="create_payout")
    rows.operation(operation="create_payout", created_at=ago(hours=1))
    assert kinds() == ["refused"]


def test_a_refused_call_leaves_by_itself_after_a_while_and_is_not_shown_if_a_caller_was_told() -> None:
    refused(created_at=ago(days=91))
    refused(deferred=False)
    assert kinds() == []


def test_an_operation_cannot_be_ended_by_a_note() -> None:
    rows.operation(state=OperationState.NEEDS_PERSON)
    [thing] = things()
    with pytest.raises(ValidationError, match="A note cannot end it"):
        handling.done(thing, "it is fine", author="a job")


@pytest.mark.case(137)
def test_an_order_that_was_paid_twice_leaves_when_one_payment_is_refunded() -> None:
    ordered("ORD-1", paid_at=NOW)
    both = [paid("ORD-1", amount_received=1050, payer={"name": "Ana Soto"}) for _tab in range(2)]
    reconciliation.report_doubles("default")
    [thing] = things()
    assert (thing.kind, thing.found.amount, thing.found.currency, thing.payments) == (Kind.PAID_TWICE, 2100, "USD", 2)
    assert thing.found.person == {"name": "Ana Soto"}
    rows.refund(payment=both[0], amount=1050, currency="USD", status="succeeded")
    reconciliation.report_doubles("default")
    assert kinds() == []


def test_a_third_payment_of_an_order_appears_anew() -> None:
    for _tab in range(2):
        paid("ORD-1", amount_received=1050)
    reconciliation.report_doubles("default")
    handling.done(things()[0], "credited to the customer", author="a job")
    assert kinds() == []
    paid("ORD-1", amount_received=1050, succeeded_at=NOW + timedelta(minutes=1))
    [thing] = things()
    assert thing.payments == 3


def test_a_paid_payment_of_an_unpaid_order_leaves_when_the_order_is_paid() -> None:
    order = ordered("ORD-1")
    payment = paid("ORD-1", amount=1050, amount_received=1050)
    [thing] = things()
    assert (thing.kind, thing.found.amount, thing.since) == (Kind.UNPAID, 1050, payment.succeeded_at)
    Order.objects.filter(pk=order.pk).update(paid_at=NOW)
    assert kinds() == []


def test_attention_is_sent_once_for_a_paid_payment_of_an_unpaid_order(
    monkeypatch: pytest.MonkeyPatch, attentions: list[dict[str, Any]]
) -> None:
    monkeypatch.setattr(handling, "report_unpaid", report_unpaid)
    ordered("ORD-1")
    ordered("ORD-2", paid_at=NOW)
    first, _ = paid("ORD-1", amount_received=1050), paid("ORD-2", amount_received=1050)
    paid("ORD-1", amount_received=5, succeeded_at=ago(minutes=14))
    for _pass in range(3):
        signals.pass_ended.send(sender=None)
        cache.clear()
    [seen] = attentions
    assert (seen["reason"], seen["account"], seen["instance"]) == (Reason.ORDER_UNPAID, "default", first)
    assert kinds() == ["unpaid"], "it is still to be done"
    ordered("ORD-3")
    second = paid("ORD-3", amount_received=1050)
    with CaptureQueriesContext(connection) as captured:
        signals.pass_ended.send(sender=None)
    assert [seen["instance"] for seen in attentions] == [first, second]
    signals.pass_ended.send(sender=None)
    # Within the quarter of an hour, nothing is compared.
    with CaptureQueriesContext(connection) as again:
        signals.pass_ended.send(sender=None)
    assert [query for query in again.captured_queries if "shop_order" in query["sql"]] == []
    assert [query for query in captured.captured_queries if "shop_order" in query["sql"]] != []


@pytest.mark.parametrize("other", ["down", "json", "another site's"])
def test_attention_is_sent_for_an_unpaid_order_with_any_cache(
    monkeypatch: pytest.MonkeyPatch, attentions: list[dict[str, Any]], settings: Any, other: str
) -> None:
    monkeypatch.setattr(handling, "report_unpaid", report_unpaid)
    settings.CACHES = {"down": DOWN, "json": JSON}.get(other, settings.CACHES)
    if other == "another site's":
        with monkeypatch.context() as patch:
            patch.setattr(conf, "fingerprint", lambda alias: "of another API key")
            signals.pass_ended.send(sender=None)
    ordered("ORD-1")
    paid("ORD-1", amount_received=1050)
    for _pass in range(2):
        signals.pass_ended.send(sender=None)
    assert [seen["reason"] for seen in attentions] == [Reason.ORDER_UNPAID]


def test_attention_is_sent_for_each_payment_but_for_none_from_before_the_installation(
    monkeypatch: pytest.MonkeyPatch, attentions: list[dict[str, Any]], settings: Any
) -> None:
    monkeypatch.setattr(handling, "SHOWN", 1)
    configured = settings.PAYMENTS_INTEGRATION
    accounts = {
        **configured["ACCOUNTS"],
        "default": {**configured["ACCOUNTS"]["default"], "DISPATCH_SINCE": ago(days=1)},
    }
    settings.PAYMENTS_INTEGRATION = {**configured, "ACCOUNTS": accounts}
    times = [ago(days=2), ago(days=3), ago(hours=2), ago(hours=1)]
    made = [paid(ordered(f"ORD-{at}").reference, amount_received=1050, succeeded_at=at) for at in times]
    rows.operation(operation="create_payment", state=OperationState.DONE, result_id=made[1].pk)
    for _pass in range(4):
        report_unpaid()
        cache.clear()
    assert {seen["instance"].pk for seen in attentions} == {payment.pk for payment in made[1:]}


def test_a_paid_payment_whose_order_is_deleted_leaves_when_it_is_refunded() -> None:
    payment = paid_and_deleted("ORD-1")
    [thing] = things()
    assert (thing.kind, thing.found.thing, thing.found.reference) == (Kind.WITHOUT_ORDER, payment.pk, "ORD-1")
    rows.refund(payment=payment, amount=1050, currency="USD", status="succeeded")
    assert kinds() == []


def test_a_paid_order_without_a_payment_has_its_price_and_leaves_when_one_comes() -> None:
    order = ordered("ORD-1", paid_at=NOW)
    [thing] = things()
    assert (thing.kind, thing.found.amount, thing.found.currency) == (Kind.WITHOUT_PAYMENT, 1050, "USD")
    assert thing.found.since == (order.created_at if Order._meta.get_latest_by else None)
    paid("ORD-1")
    assert kinds() == []


def test_a_price_that_cannot_be_told_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(order: Order) -> tuple[int, str]:
        raise ZeroDivisionError

    ordered("ORD-1", paid_at=NOW)
    monkeypatch.setattr(Order, "payments_price", broken)
    [thing] = things()
    assert (thing.found.amount, thing.found.currency) == (None, "")


@pytest.mark.case(145)
def test_rows_that_are_gone_at_the_provider_are_not_to_be_done() -> None:
    became(rows.payment(gone_at=NOW), "on_hold")
    became(rows.payout(created_at=ago(days=3), gone_at=NOW), "failed")
    assert kinds() == []


def test_the_oldest_come_first_and_other_accounts_have_their_own() -> None:
    became(rows.payment(), "on_hold", ago(days=2))
    became(rows.payout(created_at=ago(days=9)), "failed", ago(days=3))
    rows.operation(state=OperationState.NEEDS_PERSON, created_at=ago(days=1))
    became(rows.payment(account="second"), "on_hold", ago(days=5))
    became(rows.payment(gone_at=NOW), "on_hold", ago(days=5))
    assert kinds() == ["payout", "on_hold", "decide"]


def test_what_is_over_does_not_hide_what_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (todo, mirrored, orders):
        monkeypatch.setattr(module, "SHOWN", 2)
    monkeypatch.setattr(orders, "_CHUNK", 2)
    for number in range(5):
        became(rows.payment(pk=f"pay_held_{number}"), "on_hold", ago(days=9 - number))
        ordered(f"ORD-{number}")
        paid(f"ORD-{number}", succeeded_at=ago(days=20 - number), created_at=ago(days=20 - number))
    assert len(things()) == 3
    for thing in things(kinds=[Kind.ON_HOLD]) + things(kinds=[Kind.UNPAID]):
        handling.done(thing, "looked at", author="a job")
    assert [thing.found.thing for thing in things(kinds=[Kind.ON_HOLD])] == ["pay_held_3", "pay_held_4"]
    assert [thing.found.reference for thing in things(kinds=[Kind.UNPAID])] == ["ORD-3", "ORD-4"]


# The page.


def test_another_account_is_shown_in_the_same_view(boss: Client) -> None:
    accounts = page(boss, f"{TODO}?view=done&account=default").split('class="pi-accounts"')[1].split("</ul>")[0]
    assert 'href="?view=done&amp;account=second"' in accounts


def test_an_account_that_is_not_shown_says_how_much_is_to_be_done_there(
    boss: Client, staff: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    became(rows.payout(account="second", created_at=ago(days=3)), "failed")
    became(rows.payment(account="second"), "on_hold")
    assert "Nothing is to be done." in page(boss, TODO)

    def accounts(client: Client, address: str) -> str:
        return " ".join(strip_tags(page(client, address).split('class="pi-accounts"')[1].split("</ul>")[0]).split())

    assert accounts(boss, TODO).endswith("> defaultsecond 2")
    assert accounts(boss, f"{TODO}?account=second").endswith("> defaultsecond")
    assert accounts(staff("view_payment"), TODO).endswith("> defaultsecond 1")
    for module in (todo, mirrored, orders):
        monkeypatch.setattr(module, "SHOWN", 1)
    assert accounts(boss, TODO).endswith("> defaultsecond 1 or more")


def test_a_row_says_how_much_who_what_and_since_when(boss: Client) -> None:
    became(
        rows.payout(
            created_at=ago(days=3), amount=250_000, currency="CLP", merchant_reference="salary-1",
            destination={"holder_name": "Ana Soto"}, failure_reason="account_closed",
        ),
        "failed",
    )  # fmt: skip
    assert lines(boss) == [
        "urgent CLP 250,000 Ana Soto payout rejected by the bank : the account is closed salary-1 2 hours"
    ]
    html = page(boss, TODO)
    [payout] = things()
    assert f'href="{url("payout", "add")}?again={payout.found.thing}">Pay again</a>' in html
    assert f'href="{url("payout", "change", payout.found.thing)}"' in html


def test_every_kind_of_row_has_words_and_a_page(boss: Client) -> None:
    payment = rows.payment(amount_received=1000, refunded_amount=0, payer={"name": "Eva Paz"})
    became(rows.refund(payment=payment, amount=500), "returned")
    became(rows.payout(created_at=ago(days=3)), "returned")
    became(rows.payment(), "on_hold")
    became(rows.payment(), "chargeback")
    ordered("ORD-0", paid_at=NOW)
    ordered("ORD-1")
    paid("ORD-1", amount_received=1050)
    for _tab in range(2):
        paid("ORD-2", amount_received=1050)
    paid_and_deleted("ORD-3")
    reconciliation.report_doubles("default")
    for state in (OperationState.NEEDS_PERSON, OperationState.AWAITING_APPROVAL, OperationState.UNKNOWN):
        rows.operation(state=state, operation="create_refund", target_id=payment.pk, created_at=ago(hours=3))
    refused(operation="cancel_payment", target_id=payment.pk)
    assert {thing.kind for thing in things()} == set(Kind)
    shown = " | ".join(lines(boss))
    for words in (
        "payout returned by the bank",
        "Eva Paz refund returned by the bank",
        "payment on hold: do not deliver yet",
        "charged back: the bank took the money",
        "paid, but the order is not: if it covers the price, mark the order as paid",
        "paid, but the order is gone: find out why, or refund ORD-3",
        "order marked as paid, but no money is here",
        "order paid 2 times: refund what is too much ORD-2",
        "Eva Paz refund: decide whether it happened",
        "Eva Paz refund: waits for approval",
        "Eva Paz refund: outcome not known yet",
        "Eva Paz cancel of a payment: the provider refused it",
    ):
        assert words in shown, words
    with translation.override("pt-br"):
        # "Não entregue" may mean "not delivered": it asks for nothing.
        assert sum("não faça a entrega" in line for line in lines(boss)) == 2
    html = page(boss, TODO).split("pi-todos")[1]
    for address in set(re.findall(r'<a (?:class="pi-button[^"]*" )?href="([^"]+)"', html)):
        assert boss.get(address.replace("&amp;", "&")).status_code == 200, address


def test_urgent_and_informative_rows_look_different_and_the_overview_begins_with_urgent_ones(boss: Client) -> None:
    for number in range(6):
        became(rows.payment(), "chargeback", ago(days=9 + number))
    rows.operation(state=OperationState.UNKNOWN, created_at=ago(minutes=30))
    late = rows.operation(state=OperationState.UNKNOWN, created_at=ago(hours=2))
    became(rows.payout(created_at=ago(days=3)), "failed", ago(hours=1))
    shown = page(boss, TODO)
    assert shown.count("pi-todo-urgent") == 2
    assert lines(boss)[0].startswith("USD")  # the oldest, which is not urgent
    head = section(page(boss, DASHBOARD), "pi-todo")
    assert head.count('<li class="pi-todo') == 5
    assert head.index(late.pk.replace("_", "_5F")) < head.index("payout rejected") < head.index("charged back")
    assert '<span class="pi-todo-count">9</span>' in head
    assert "Show all" in head


def test_an_empty_list_says_so(boss: Client) -> None:
    for view, words in (
        ("", "Nothing is to be done."),
        ("?view=mine", "Nothing is assigned to you."),
        ("?view=snoozed", "Nothing is snoozed."),
        ("?view=done", "Nothing was done with a note yet."),
    ):
        assert words in page(boss, TODO + view)
    # Without any money, the overview shows the steps of an installation.
    rows.balance()
    assert "Nothing is to be done." in section(page(boss, DASHBOARD), "pi-todo")


def test_more_rows_take_no_more_statements(boss: Client) -> None:
    def fill() -> None:
        for _ in range(3):
            payment = rows.payment(amount_received=1000, refunded_amount=0, created_at=ago(days=3))
            became(rows.refund(payment=payment, amount=500), "failed")
            became(rows.payout(created_at=ago(days=3)), "failed")
            became(rows.payment(), "on_hold")
            rows.operation(state=OperationState.NEEDS_PERSON, target_id=rows.payment().pk)
            number = Order.objects.count()
            ordered(f"A-{number}")
            paid(f"A-{number}", amount_received=1050)
            ordered(f"B-{number}", paid_at=NOW)
            for _tab in range(2):
                paid(f"C-{number}", amount_received=1050)
            paid_and_deleted(f"D-{number}")
        reconciliation.report_doubles("default")
        cache.clear()

    def count(address: str) -> int:
        page(boss, address)
        cache.clear()
        with CaptureQueriesContext(connection) as queries:
            page(boss, address)
        return len(queries)

    fill()
    few = {address: count(address) for address in (TODO, DASHBOARD)}
    fill()
    fill()
    assert {address: count(address) for address in (TODO, DASHBOARD)} == few
    # Each model of orders takes up to two: the shop has two, and other tests of the process bring two more.
    assert few[TODO] <= 33
