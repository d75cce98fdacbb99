"""The pages that move money, with the sandbox as provider: what is confirmed is done exactly once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models.signals import post_save
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from payments_integration import services
from payments_integration.admin.flows import confirmation
from payments_integration.admin.flows.confirmation import SendingPage
from payments_integration.models import Operation, OperationState, Payment, Payout, Refund
from payments_integration.outbox import second_look
from payments_integration.sandbox.faults import Fault
from payments_integration.testing import ProviderSandbox
from tests.unit.admin.conftest import browser, page, url
from tests.unit.admin.flows.test_payout import FORM
from tests.unit.admin.flows.test_refund import hidden
from tests.unit.admin.flows.test_refunds_with_provider import form_of, paid
from tests.unit.contrib.backoffice.test_bulk_refund import VALUES, outcomes

pytestmark = pytest.mark.django_db(transaction=True)

ADD = "admin:payments_integration_payout_add"
BULK = "admin:payments_integration_payment_refund-selected"


@pytest.fixture
def boss() -> Client:
    return browser(User.objects.create_superuser("boss"))


@pytest.fixture
def atomic_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ATOMIC_REQUESTS, which these pages must ignore."""
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)


def review(client: Client, address: str, form: dict[str, Any]) -> dict[str, str]:
    response = client.post(address, {**form, "step": "review"})
    assert response.status_code == 200
    assert "confirmation" in response.context, response.context["form"].errors
    return {**hidden(response.content.decode()), "step": "confirm"}


@pytest.mark.promise(5)
@pytest.mark.case(83)
def test_a_confirmation_clicked_twice_makes_one_refund(
    boss: Client, payments_sandbox: Any, atomic_requests: None
) -> None:
    payment = paid(payments_sandbox, "cl_webpay_card")
    address = url("payment", "refund", payment.pk)
    carried = review(boss, address, {**form_of(boss, payment), "amount": "2500", "reason": "broken\nthrice"})
    assert payments_sandbox.project.refunds == {}
    for _ in range(3):
        assert boss.post(address, carried).status_code == 302
    [theirs] = payments_sandbox.project.refunds.values()
    assert (theirs["amount"], theirs["reason"]) == (2500, "broken\nthrice")
    assert Operation.objects.filter(operation="create_refund").count() == 1
    assert LogEntry.objects.count() == 1


@pytest.mark.promise(5)
@pytest.mark.case(83)
def test_two_confirmations_at_once_refund_no_more_than_was_received(boss: Client, payments_sandbox: Any) -> None:
    payment = paid(payments_sandbox, "cl_webpay_card")
    address = url("payment", "refund", payment.pk)
    other = browser(User.objects.create_superuser("other"))
    # Both have it before them, and both may.
    carried = [(who, review(who, address, {**form_of(who, payment), "amount": "6000"})) for who in (boss, other)]
    first, second = (who.post(address, form) for who, form in carried)
    assert first.status_code == 302
    assert second.context["form"].errors == {"amount": ["At most CLP\xa04,000 can be refunded."]}
    assert [theirs["amount"] for theirs in payments_sandbox.project.refunds.values()] == [6000]


def test_a_refund_without_an_answer_is_shown_and_resolved(boss: Client, payments_sandbox: Any) -> None:
    payment = paid(payments_sandbox, "cl_webpay_card")
    address = url("payment", "refund", payment.pk)
    carried = review(boss, address, {**form_of(boss, payment), "amount": "2500"})
    payments_sandbox.engine.faults.add(Fault("reset", operation="create_refund", work=True))
    for _ in range(2):
        response = boss.post(address, carried, follow=True)
        [message] = response.context["messages"]
        assert "is being resolved" in str(message)
    assert "no outcome yet" in page(boss, address)
    Operation.objects.filter(state=OperationState.UNKNOWN).update(next_attempt_at=None, claimed_until=None)
    services.resume_operations()
    payments_sandbox.settle()
    assert boss.post(address, carried).status_code == 302
    assert len(payments_sandbox.project.refunds) == Refund.objects.count() == 1
    assert "no outcome yet" not in page(boss, address)


@pytest.mark.promise(5)
@pytest.mark.case(83)
def test_a_payout_confirmed_twice_is_sent_once(boss: Client, payments_sandbox: Any, atomic_requests: None) -> None:
    payments_sandbox.engine.fund("CLP", 10_000)
    html = boss.post(reverse(ADD), {**FORM, "step": "review"}).content.decode()
    assert "CLP\xa010,000" in html
    assert payments_sandbox.project.payouts == {}
    for _ in range(2):
        response = boss.post(reverse(ADD), {**hidden(html), "step": "confirm"})
        assert response.status_code == 302, response.context["form"].errors
    [theirs] = payments_sandbox.project.payouts.values()
    made = Payout.objects.get()
    assert response.headers["Location"] == url("payout", "change", made.pk)
    assert (theirs["id"], theirs["amount"], theirs["merchant_reference"]) == (made.pk, 1500, "invoice-7")
    assert theirs["destination"]["holder_document"] == {"type": "RUT", "number": "12345678-5"}
    assert Operation.objects.get(operation="create_payout").actor.endswith(":boss")
    assert LogEntry.objects.get().object_id == made.pk
    # The same page with another amount is another intent under the same key: nothing is sent.
    boss.post(reverse(ADD), {**hidden(html), "amount": "1501", "step": "confirm"})
    assert len(payments_sandbox.project.payouts) == 1


@pytest.mark.promise(5)
@pytest.mark.case(83)
def test_two_tabs_that_confirm_the_same_payout_make_one(boss: Client, payments_sandbox: Any) -> None:
    payments_sandbox.engine.fund("CLP", 10_000)
    first, second = (review(boss, reverse(ADD), {**FORM, "idempotency_key": f"tab-{number}"}) for number in (1, 2))
    assert boss.post(reverse(ADD), first).status_code == 302
    shown = boss.post(reverse(ADD), second)
    assert shown.status_code == 200
    operation = Operation.objects.get(operation="create_payout")
    assert url("operation", "change", operation.pk) in shown.content.decode()
    assert len(payments_sandbox.project.payouts) == 1
    # The first tab again, and another amount in the second, are as ever.
    assert boss.post(reverse(ADD), first).status_code == 302
    assert "twin" not in review(boss, reverse(ADD), {**FORM, "amount": "1501", "idempotency_key": "tab-3"})
    assert len(payments_sandbox.project.payouts) == 1
    # A person who has read it and means it gets a second one.
    again = {**hidden(shown.content.decode()), "step": "confirm"}
    assert again["twin"] == operation.pk
    assert boss.post(reverse(ADD), again).status_code == 302
    assert boss.post(reverse(ADD), again).status_code == 302
    assert len(payments_sandbox.project.payouts) == 2


def between(monkeypatch: pytest.MonkeyPatch, press: Callable[[], Any]) -> list[Any]:
    """Have another person press after a page has looked for what was asked for, and before it records its own call."""
    answers: list[Any] = []
    look = SendingPage.may_send

    def look_and_be_overtaken(*args: Any) -> bool:
        found = look(*args)
        monkeypatch.setattr(SendingPage, "may_send", look)
        answers.append(press())
        return found

    monkeypatch.setattr(SendingPage, "may_send", look_and_be_overtaken)
    return answers


@pytest.mark.promise(5)
@pytest.mark.case(83)
def test_two_people_who_confirm_the_same_payout_at_once_make_one(
    boss: Client, payments_sandbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = browser(User.objects.create_superuser("other"))
    mine = review(boss, reverse(ADD), {**FORM, "idempotency_key": "mine"})
    theirs = review(other, reverse(ADD), {**FORM, "idempotency_key": "theirs"})
    answers = between(monkeypatch, lambda: other.post(reverse(ADD), theirs))
    shown = boss.post(reverse(ADD), mine)
    assert [answer.status_code for answer in answers] == [302]
    assert len(payments_sandbox.project.payouts) == 1
    operation = Operation.objects.get(idempotency_key="theirs")
    link = f'href="{url("operation", "change", operation.pk)}'
    assert link in shown.content.decode()
    assert Operation.objects.get(idempotency_key="mine").state == OperationState.CLOSED
    # The page now shows the first payout. A person who wants a second one confirms again.
    again = review(boss, reverse(ADD), hidden(shown.content.decode()) | FORM | {"idempotency_key": "once more"})
    assert again["twin"] == operation.pk
    assert boss.post(reverse(ADD), again).status_code == 302
    assert len(payments_sandbox.project.payouts) == 2


@pytest.mark.promise(5)
@pytest.mark.case(83)
def test_if_two_calls_find_each_other_the_first_one_is_sent(
    boss: Client, payments_sandbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise neither is sent, and each person takes the other's for paid."""
    other = browser(User.objects.create_superuser("other"))
    mine = review(boss, reverse(ADD), {**FORM, "idempotency_key": "mine"})
    theirs = review(other, reverse(ADD), {**FORM, "idempotency_key": "theirs"})
    take, seen = second_look.take, []

    def take_after_the_other(operation: Operation) -> bool:
        monkeypatch.setattr(second_look, "take", take)
        # Both passed the first look. This one is recorded already, so the other one finds it and is closed.
        monkeypatch.setattr(SendingPage, "may_send", lambda *args: True)
        seen.append(other.post(reverse(ADD), theirs).status_code)
        return take(operation)

    monkeypatch.setattr(second_look, "take", take_after_the_other)
    assert boss.post(reverse(ADD), mine).status_code == 302
    assert seen == [200]
    assert len(payments_sandbox.project.payouts) == 1
    assert Operation.objects.get(idempotency_key="theirs").state == OperationState.CLOSED


@pytest.mark.promise(5)
@pytest.mark.case(83)
def test_a_call_that_another_did_not_find_is_not_sent(
    boss: Client, payments_sandbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the clocks it was the first one, but the other looked before it was committed."""
    other = browser(User.objects.create_superuser("other"))
    mine = review(boss, reverse(ADD), {**FORM, "idempotency_key": "mine"})
    theirs = review(other, reverse(ADD), {**FORM, "idempotency_key": "theirs"})
    monkeypatch.setattr(confirmation, "WAIT_FOR_TWIN", 0.1)

    def press_with_a_clock_that_is_ahead() -> None:
        other.post(reverse(ADD), theirs)
        Operation.objects.update(created_at=timezone.now() + timedelta(minutes=1))

    between(monkeypatch, press_with_a_clock_that_is_ahead)
    assert boss.post(reverse(ADD), mine).status_code == 200
    assert len(payments_sandbox.project.payouts) == 1


@pytest.mark.promise(5)
@pytest.mark.case(83)
def test_two_people_who_refund_a_part_at_once_make_one_refund(
    boss: Client, payments_sandbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    payment = paid(payments_sandbox, "cl_webpay_card")
    address = url("payment", "refund", payment.pk)
    other = browser(User.objects.create_superuser("other"))
    mine, theirs = (review(who, address, {**form_of(who, payment), "amount": "3000"}) for who in (boss, other))
    between(monkeypatch, lambda: other.post(address, theirs))
    shown = boss.post(address, mine)
    assert shown.status_code == 200
    assert len(payments_sandbox.project.refunds) == 1
    # The page has another key: its own was used up.
    assert hidden(shown.content.decode())["idempotency_key"] != mine["idempotency_key"]


@pytest.mark.django_db(transaction=True)
def test_a_call_of_the_site_within_a_page_is_not_closed(boss: Client, payments_sandbox: Any) -> None:
    """A receiver refunds the shipping when a part is refunded. Nobody else asked for that."""
    payment = paid(payments_sandbox, "cl_webpay_card")
    address = url("payment", "refund", payment.pk)
    carried = review(boss, address, {**form_of(boss, payment), "amount": "3000"})

    def refund_the_shipping(instance: Refund, created: bool, **kwargs: Any) -> None:
        if created and instance.amount == 3_000:
            transaction.on_commit(partial(services.create_refund, payment, amount=100, idempotency_key="shipping"))

    post_save.connect(refund_the_shipping, sender=Refund)
    try:
        assert boss.post(address, carried).status_code == 302
    finally:
        post_save.disconnect(refund_the_shipping, sender=Refund)
    assert Operation.objects.get(idempotency_key="shipping").state == OperationState.DONE
    assert sorted(made["amount"] for made in payments_sandbox.project.refunds.values()) == [100, 3_000]


@pytest.mark.promise(5)
@pytest.mark.case(83)
def test_a_selected_payment_that_another_person_refunds_at_once_is_refused(
    boss: Client, payments_sandbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    payments_sandbox.engine.fund("CLP", 10_000)
    payment = paid(payments_sandbox, "cl_webpay_card")
    summary = boss.post(
        url("payment", "changelist"), {"action": "refund_selected", "_selected_action": [payment.pk]}
    ).headers["Location"]
    html = page(boss, summary)
    # Both refunds together are less than the payment.
    form = {**hidden(html), "refund": f"{payment.pk}:4000", "step": "confirm"}
    between(monkeypatch, lambda: services.create_refund(payment, amount=3_000))
    assert outcomes(boss.post(reverse(BULK), form)) == [(payment.pk, "refused")]
    assert [theirs["amount"] for theirs in payments_sandbox.project.refunds.values()] == [3_000]


@pytest.mark.parametrize(
    "changes",
    [{"state": OperationState.CLOSED}, {"state": OperationState.REJECTED}, {"account": "second"}, {"arguments": {}}],
)
def test_what_moved_no_money_from_this_account_to_that_one_is_no_twin(
    boss: Client, payments_sandbox: Any, changes: dict[str, Any]
) -> None:
    carried = review(boss, reverse(ADD), FORM)
    boss.post(reverse(ADD), carried)
    Operation.objects.update(**changes)
    assert "twin" not in review(boss, reverse(ADD), {**FORM, "idempotency_key": "other"})


def test_an_old_payout_is_no_twin(boss: Client, payments_sandbox: Any) -> None:
    boss.post(reverse(ADD), review(boss, reverse(ADD), FORM))
    assert "twin" in review(boss, reverse(ADD), {**FORM, "idempotency_key": "other"})
    Operation.objects.update(created_at=timezone.now() - timedelta(minutes=16))
    assert "twin" not in review(boss, reverse(ADD), {**FORM, "idempotency_key": "other"})


def test_a_payout_that_the_balance_does_not_cover_is_refused_at_each_step(boss: Client, payments_sandbox: Any) -> None:
    payments_sandbox.engine.fund("CLP", 5_000)
    carried = review(boss, reverse(ADD), FORM)
    for step in ("review", "confirm"):
        response = boss.post(reverse(ADD), {**carried, "amount": "5001", "step": step})
        assert list(response.context["form"].errors) == ["amount"]
        assert "CLP\xa05,000" in response.context["form"].errors["amount"][0]
    assert payments_sandbox.project.payouts == {}
    assert not Operation.objects.exists()
    # The fee is added: only the provider knows it.
    response = boss.post(reverse(ADD), {**carried, "amount": "5000"})
    assert "insufficient_balance" in response.content.decode()
    assert payments_sandbox.project.payouts == {}


def test_selected_payments_confirmed_twice_are_refunded_once(
    boss: Client, payments_sandbox: Any, atomic_requests: None
) -> None:
    payments_sandbox.engine.fund("CLP", 1_000)  # the provider took its fees of what came in
    made = [paid(payments_sandbox, "cl_webpay_card", amount) for amount in (1_000, 2_000, 3_000)]
    selected = {"action": "refund_selected", "_selected_action": [payment.pk for payment in made]}
    summary = boss.post(url("payment", "changelist"), selected).headers["Location"]
    html = page(boss, summary)
    assert "CLP\xa06,000" in html
    form = {**hidden(html), "refund": VALUES.findall(html), "step": "confirm"}
    # Meanwhile one of them is refunded elsewhere.
    services.create_refund(made[0])
    for _ in range(2):
        response = boss.post(reverse(BULK), form)
        assert dict(outcomes(response)) == {made[0].pk: "refused", made[1].pk: "created", made[2].pk: "created"}
    refunds = payments_sandbox.project.refunds.values()
    assert sorted(theirs["amount"] for theirs in refunds) == [1_000, 2_000, 3_000]
    assert LogEntry.objects.count() == 2
    assert re.search(r"Total of the refunds:.*CLP\xa05,000", response.content.decode())


@pytest.fixture
def limited() -> Iterator[Any]:
    with ProviderSandbox(options={"APPROVAL_LIMITS": {"CLP": 1_500}}) as sandbox:
        yield sandbox


def test_above_the_limit_a_payout_waits_for_another_person(boss: Client, limited: Any) -> None:
    limited.engine.fund("CLP", 10_000)
    carried = review(boss, reverse(ADD), FORM)
    for _ in range(2):
        response = boss.post(reverse(ADD), carried, follow=True)
    operation = Operation.objects.get()
    assert operation.state == OperationState.AWAITING_APPROVAL
    [message] = response.context["messages"]
    assert "Another person must approve" in str(message)
    assert url("operation", "change", operation.pk) in str(message)
    assert LogEntry.objects.get().object_id == operation.pk
    assert limited.project.payouts == {}


def test_above_the_limit_a_bank_refund_waits_and_a_card_refund_does_not(boss: Client, limited: Any) -> None:
    limited.engine.fund("CLP", 10_000)
    by_bank, by_card = paid(limited, "cl_bank_transfer"), paid(limited, "cl_webpay_card")
    bank = {name: FORM[name] for name in ("holder_name", "document_type", "document_number", "account_number")}
    for payment, extra in ((by_bank, bank), (by_card, {})):
        address = url("payment", "refund", payment.pk)
        carried = review(boss, address, {**form_of(boss, payment), **extra, "amount": "1500"})
        assert boss.post(address, carried).status_code == 302
    assert [theirs["payment_id"] for theirs in limited.project.refunds.values()] == [by_card.pk]
    assert Operation.objects.get(state=OperationState.AWAITING_APPROVAL).target_id == by_bank.pk
    # What waits is taken already.
    assert Payment.objects.get(pk=by_bank.pk).amount_received == 10_000
    assert form_of(boss, by_bank)["amount"] == "8,500"


@pytest.mark.promise(5)
@pytest.mark.case(83)
def test_two_people_who_ask_for_the_same_approval_at_once_ask_once(
    boss: Client, limited: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = browser(User.objects.create_superuser("other"))
    mine, theirs = (
        review(who, reverse(ADD), {**FORM, "idempotency_key": name})
        for who, name in ((boss, "mine"), (other, "theirs"))
    )
    between(monkeypatch, lambda: other.post(reverse(ADD), theirs))
    assert boss.post(reverse(ADD), mine).status_code == 200
    waiting = Operation.objects.filter(state=OperationState.AWAITING_APPROVAL)
    assert [operation.idempotency_key for operation in waiting] == ["theirs"]
