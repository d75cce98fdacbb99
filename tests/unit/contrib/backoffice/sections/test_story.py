"""The story of an object: sentences with people in them, each step once, in the order in which it happened."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.options import get_content_type_for_model
from django.contrib.auth.models import User
from django.test import Client

from payments_integration.admin.shared import display
from payments_integration.contrib.backoffice.admin.sections import records
from payments_integration.models import Payment
from tests.factories import rows
from tests.unit.admin.conftest import page, url

pytestmark = pytest.mark.any_database

ANA = {"name": "Ana Soto", "email": "ana@example.org"}


def at(minutes: float) -> Any:
    return rows.AT + timedelta(minutes=minutes)


def told(client: Client, row: Any) -> list[str]:
    """The steps of a row's page as text, without their times."""
    html = page(client, url(row._meta.model_name, "change", row.pk))
    steps = html.partition('<ol class="pi-steps">')[2].partition("</ol>")[0].split("<li>")[1:]
    texts = (re.sub(r"<time.*?</time>|<[^>]+>", "", step) for step in steps)
    return [" ".join(unescape(text).replace("\xa0", " ").split()) for text in texts]


def status(row: Any, before: str, after: str, minutes: float) -> None:
    """A change of a status, and the event that brought it."""
    event = rows.event(row, type=f"{row.kind}.{after}", created_at=at(minutes))
    rows.change(row, event=event, previous_status=before, status=after, at=at(minutes))


def user(name: str) -> tuple[User, dict[str, str]]:
    """A user, and who it is in an operation that it asked for."""
    found = User.objects.create_user(name)
    return found, {"actor": f"{found.pk}:{name}", "actor_id": str(found.pk)}


def log(who: User, row: Any, words: str, minutes: float) -> None:
    LogEntry.objects.create(
        user=who, content_type=get_content_type_for_model(row), object_id=str(row.pk), action_flag=CHANGE,
        change_message=words, action_time=at(minutes),
    )  # fmt: skip


def paid() -> Payment:
    payment = rows.payment(
        amount=29_900, amount_received=29_900, currency="CLP", payer=ANA, status="succeeded", created_at=at(0),
        succeeded_at=at(2),
    )  # fmt: skip
    status(payment, "", "created", 0)
    status(payment, "created", "requires_action", 1)
    status(payment, "requires_action", "succeeded", 2)
    return payment


def test_a_refund_is_one_step_with_who_why_and_what_became_of_it(boss: Client) -> None:
    payment = paid()
    sofia, asked_by = user("Sofía")
    refund = rows.refund(
        payment=payment, amount=29_900, currency="CLP", status="succeeded", reason="falta un artículo",
        created_at=at(60),
    )  # fmt: skip
    rows.operation(
        target_id=payment.pk, result_kind="refund", result_id=refund.pk, amount=29_900, currency="CLP",
        created_at=at(60), **asked_by,
    )  # fmt: skip
    log(sofia, payment, f"Refunded CLP 29,900: {refund.pk}.", 60.1)
    assert told(boss, payment) == [
        "The payment of CLP 29,900 was created",
        "Ana Soto can pay now",
        "Ana Soto paid CLP 29,900",
        "Sofía refunded CLP 29,900 · falta un artículo · succeeded",
    ]
    assert told(boss, refund) == ["Sofía asked for a refund of CLP 29,900 · details"]


def test_a_refund_says_when_the_money_went_back(boss: Client) -> None:
    payment = paid()
    back, open_ = (
        rows.refund(payment=payment, status=status, created_at=at(60)) for status in ("succeeded", "created")
    )
    for before, after, minutes in (
        ("", "created", 60),
        ("created", "processing", 61),
        ("processing", "succeeded", 3000),
    ):
        status(back, before, after, minutes)
    status(open_, "", "created", 60)
    html = page(boss, url("payment", "change", payment.pk))
    assert re.findall(r"succeeded</span> <time>(.*?)</time>", html) == [display.moment(at(3000))]
    assert not re.search(r"created</span> <time", html)


def test_the_beginning_comes_first_whichever_clock_is_ahead(boss: Client) -> None:
    payment = paid()
    rows.operation(
        operation="create_payment", result_kind="payment", result_id=payment.pk, amount=29_900, currency="CLP",
        created_at=at(5),
    )  # fmt: skip
    assert [step.partition(" ")[0] for step in told(boss, payment)] == ["ana", "Ana", "Ana"]


def test_within_a_second_what_is_open_comes_before_the_outcome(boss: Client) -> None:
    payment = rows.payment(
        amount=29_900, currency="CLP", payer=ANA, status="succeeded", created_at=at(0), succeeded_at=at(1)
    )
    status(payment, "requires_action", "succeeded", 1)
    rows.event(payment, type="payment.requires_action", created_at=at(1 + 0.4 / 60))
    assert told(boss, payment)[1:] == ["Ana Soto can pay now", "Ana Soto paid CLP 29,900"]


def test_an_approved_refund_says_who_asked_and_who_approved(boss: Client) -> None:
    payment = paid()
    luz, _asked = user("Luz")
    refund = rows.refund(payment=payment, amount=5_000, currency="CLP", status="succeeded", created_at=at(90))
    operation = rows.operation(
        target_id=payment.pk, result_kind="refund", result_id=refund.pk, amount=5_000, currency="CLP",
        created_at=at(60), approved_by=f"{luz.pk}:Luz", approved_at=at(89), actor="2:Sofía",
    )  # fmt: skip
    log(luz, operation, "Approved.", 89.1)
    assert told(boss, payment)[3:] == ["Sofía asked for a refund of CLP 5,000 · succeeded", "Luz approved CLP 5,000"]


def test_what_was_asked_for_and_is_not_done_shows_its_state(boss: Client) -> None:
    payment = paid()
    rows.operation(target_id=payment.pk, state="needs_person", amount=500, currency="CLP", actor="", created_at=at(60))
    assert told(boss, payment)[3:] == ["The shop asked for a refund of CLP 500 · a person must decide · details"]


def test_a_refund_from_elsewhere_claims_nothing_about_who_asked(boss: Client) -> None:
    payment = paid()
    rows.refund(payment=payment, amount=500, currency="CLP", status="returned", created_at=at(60))
    assert told(boss, payment)[3:] == ["A refund of CLP 500 was asked for · returned"]


def test_the_history_says_who_refunded_to_those_who_see_no_operations(staff: Callable[..., Client]) -> None:
    payment = paid()
    sofia, _asked = user("Sofía")
    for number, status in enumerate(("succeeded", "failed")):
        refund = rows.refund(payment=payment, amount=500, currency="CLP", status=status, created_at=at(60 + number))
        log(sofia, payment, f"Refunded CLP 500: {refund.pk}.", 60 + number)
    log(sofia, payment, "Receipt sent again by mail.", 61)
    assert told(staff("view_payment", "view_refund"), payment)[2:] == [
        "Sofía refunded CLP 500 · succeeded",
        "Sofía asked for a refund of CLP 500 · failed",
        "Sofía: Receipt sent again by mail.",
    ]


@pytest.mark.parametrize(
    ("named", "right"),
    [
        ("Refunded CLP 5,000: ref_5.", "view_refund"),
        ("Refund asked for (op_5)", "view_operation"),
        ("Paid: pout_5", "view_payout"),
    ],
)
def test_the_history_names_no_objects_that_the_user_may_not_view(
    staff: Callable[..., Client], named: str, right: str
) -> None:
    payment = paid()
    log(user("Sofía")[0], payment, named, 60)
    log(User.objects.get(), payment, f"Receipt of {payment.pk} sent again.", 61)
    for rights, sees in ((("view_payment",), False), (("view_payment", right), True)):
        html = page(staff(*rights), url("payment", "change", payment.pk))
        assert (named in html) is sees, rights
        assert "sent again" in html


def test_a_cancel_that_came_too_late_is_no_cancel(boss: Client) -> None:
    payment = rows.payment(status="succeeded", created_at=at(0), succeeded_at=at(4))
    rows.operation(
        operation="cancel_payment", target_id=payment.pk, result_kind="payment", result_id=payment.pk, amount=None,
        actor="2:Sofía", created_at=at(5),
    )  # fmt: skip
    assert told(boss, payment)[2:] == ["Sofía asked to cancel the payment · details"]


def test_a_cancel_by_a_person_is_one_step(boss: Client) -> None:
    payment = rows.payment(status="canceled", created_at=at(0))
    status(payment, "created", "canceled", 5)
    sofia, asked_by = user("Sofía")
    rows.operation(
        operation="cancel_payment", target_id=payment.pk, result_kind="payment", result_id=payment.pk, amount=None,
        created_at=at(5), **asked_by,
    )  # fmt: skip
    log(sofia, payment, "Canceled at the provider.", 5.1)
    assert told(boss, payment)[1:] == ["Sofía canceled the payment · details"]


def test_a_payout_has_its_own_words(boss: Client) -> None:
    payout = rows.payout(
        status="returned", amount=1_000, currency="CLP", destination={"holder_name": "Ana Soto"}, created_at=at(1),
        failure_reason="closed", succeeded_at=at(3),
    )  # fmt: skip
    rows.operation(
        operation="create_payout", result_kind="payout", result_id=payout.pk, amount=1_000, currency="CLP",
        actor="2:Luz", created_at=at(0),
    )  # fmt: skip
    status(payout, "processing", "succeeded", 3)
    rows.event(payout, type="payout.delayed", created_at=at(2))
    status(payout, "succeeded", "returned", 9)
    assert told(boss, payout) == [
        "Luz asked for a payout of CLP 1,000 · details",
        "The provider says that it takes longer",
        "CLP 1,000 was sent to Ana Soto",
        "The bank sent the money back · closed",
    ]


def test_who_may_not_see_personal_data_reads_of_roles(staff: Callable[..., Client]) -> None:
    payment = paid()
    rows.refund(payment=payment, amount=500, currency="CLP", reason="Ana called", created_at=at(60))
    client = staff("view_payment", "view_event", "view_statuschange", "view_refund")
    steps = told(client, payment)
    assert "The payer paid CLP 29,900" in steps
    assert "•••" in steps[-1]
    assert "Ana" not in " ".join(steps)
    assert "The payer can pay now" in told(client, Payment.objects.get())
    Payment.objects.update(erased_at=rows.AT, payer=None)
    seer = staff("view_payment", "view_personal_data")
    assert told(seer, payment) == ["The payment of CLP 29,900 was created", "The payer paid CLP 29,900"]


def test_events_tell_what_no_status_change_tells(staff: Callable[..., Client]) -> None:
    payment = paid()
    rows.event(payment, type="payment.quarked", created_at=at(9))
    steps = told(staff("view_payment", "view_event"), payment)
    assert steps[1:] == ["The payer can pay now", "The payer paid CLP 29,900", "payment.quarked"]


def test_an_event_alone_tells_of_no_money(boss: Client) -> None:
    """Its type and its object may disagree, and the mirror follows the object."""
    payment = rows.payment(amount=29_900, currency="CLP", payer=ANA, status="created", created_at=at(0))
    for name in ("succeeded", "overpaid"):
        rows.event(payment, type=f"payment.{name}", created_at=at(1))
    assert told(boss, payment) == ["The payment of CLP 29,900 was created"]


def test_an_unknown_status_is_shown_as_the_provider_sent_it(boss: Client) -> None:
    payment = rows.payment(status="<quarked>", created_at=at(0), amount_received=0)
    status(payment, "created", "<quarked>", 5)
    assert told(boss, payment)[1:] == ["Now <quarked>"]


def test_a_long_history_says_that_there_may_be_more(boss: Client) -> None:
    payment = paid()
    words = "There may be more than is shown here"
    assert words not in page(boss, url("payment", "change", payment.pk))
    for number in range(records.ENTRIES):
        rows.event(payment, id=f"evt_long_{number}")
    assert words in page(boss, url("payment", "change", payment.pk))


@pytest.mark.parametrize(
    ("make", "title"),
    [
        (lambda: rows.payment(amount=29_900, currency="CLP", payer=ANA), "CLP 29,900 · Ana Soto · Payment |"),
        (
            lambda: rows.payout(amount=500, currency="CLP", destination={"holder_name": "Ana Soto"}),
            "CLP 500 · Ana Soto · Payout |",
        ),
        (
            lambda: rows.refund(payment=rows.payment(payer=ANA), amount=500, currency="CLP"),
            "CLP 500 · Ana Soto · Refund |",
        ),
        (lambda: rows.balance(currency="CLP", available=700), "CLP 700 · Balance |"),
    ],
)
def test_the_title_says_whose_it_is(
    boss: Client, staff: Callable[..., Client], make: Callable[[], Any], title: str
) -> None:
    row = make()
    address = url(row._meta.model_name, "change", row.pk)

    def title_of(client: Client) -> str:
        return unescape(page(client, address).partition("<title>")[2]).replace("\xa0", " ").strip()

    assert title_of(boss).startswith(title)
    masked = title_of(staff("view_payment", "view_refund", "view_payout", "view_balance"))
    assert masked.startswith(title.replace("Ana Soto", "•••"))


def test_buttons_stand_in_the_order_of_their_weight(boss: Client) -> None:
    payment = rows.payment(status="partially_paid", amount=1_000, amount_received=500)
    html = page(boss, url("payment", "change", payment.pk))
    tools = html.partition('<ul class="pi-tools">')[2].partition("</ul>")[0]
    words = [word.strip() for word in re.findall(r'class="pi-button[^"]*"[^>]*>([^<]+)<', tools)]
    assert words == ["Refund", "The payer&#x27;s page", "Check with the provider"]
    assert 'class="pi-button pi-main"' in tools
    assert 'class="pi-button pi-quiet"' in tools


def test_the_payers_page_is_for_those_who_may_see_the_payers_data(staff: Callable[..., Client]) -> None:
    payment = rows.payment(payer=ANA)
    assert "checkout/status/" in page(
        staff("view_payment", "view_personal_data"), url("payment", "change", payment.pk)
    )
    assert "checkout/status/" not in page(staff("view_payment"), url("payment", "change", payment.pk))
