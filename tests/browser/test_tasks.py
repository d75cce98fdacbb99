"""The tasks of a finance person's day, from the overview, each with the most clicks that it may take.

A change of the pages that needs more clicks fails here.
"""

from __future__ import annotations

import csv
import io
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.urls import reverse

from payments_integration import services, signals
from payments_integration.contrib.finance.apps import record
from payments_integration.contrib.finance.movements import backfill
from payments_integration.dates import start_of, today
from payments_integration.models import (
    Balance,
    Event,
    EventState,
    Operation,
    OperationState,
    Payment,
    Refund,
    WebhookEndpoint,
)
from payments_integration.testing import ProviderSandbox
from tests.browser import provider_data
from tests.browser.conftest import LIMITS, Person, Visit, address
from tests.browser.desk import Desk
from tests.browser.test_dashboard import DASHBOARD
from tests.browser.test_lists import EXPORT
from tests.browser.test_payout import fill
from tests.browser.test_refund import CONFIRM, fill_destination
from tests.factories import rows

VIEW = (
    "view_payment", "view_payout", "view_refund", "view_depositreference", "view_balance", "view_event",
    "view_operation", "view_statuschange", "view_webhookendpoint",
)  # fmt: skip
FINANCE = (*VIEW, "view_personal_data", "refund_payment", "create_payout", "approve_operation")
OPERATIONS = (*VIEW, "change_operation", "close_operation", "replay_event", "rotate_webhookendpoint")
PAYER = {"name": "José Núñez", "email": "jose@example.com"}


def page_of(model: str, obj: Any) -> str:
    # From a filtered list the link also carries the filters.
    return f"#content a[href^='{address(model, 'change', obj)}']"


def tool(desk: Desk, action: str) -> Any:
    """The button that opens the form of an action, and the form's own button."""
    form = desk.visitor.find(f"form[action='{action}']")
    return desk.visitor.find("details.pi-tool").filter(has=form).locator("summary"), form


def last_month() -> tuple[datetime, datetime]:
    """When the last calendar month began, and when it was over."""
    this = today().replace(day=1)
    return start_of((this - timedelta(days=1)).replace(day=1)), start_of(this)


def exported(desk: Desk) -> list[dict[str, str]]:
    path = desk.download(EXPORT).path()
    return list(csv.DictReader(io.StringIO(Path(path).read_text("utf-8-sig"))))


# Reading


def test_yesterdays_money_and_what_needs_attention(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    yesterday = start_of(today()) - timedelta(hours=3)
    rows.payment(succeeded_at=yesterday, state_at=yesterday, currency="CLP", amount=93_000, amount_received=93_000)
    rows.payment(status="on_hold")
    backfill()
    desk = Desk(visit(person("fina", *FINANCE)), reverse("admin:index"))
    desk.follow(f"#content a[href='{DASHBOARD}']")
    received = desk.page.get_by_role("region", name="Yesterday").get_by_role("row", name="CLP")
    assert received.locator("td").first.inner_text().splitlines()[0] == "93,000"
    assert desk.page.locator(".pi-todo-urgent", has_text="payment on hold").is_visible()
    desk.done(most=1)


@pytest.mark.parametrize("in_hand", ["bank reference", "payer"])
def test_a_payer_says_that_they_paid(
    visit: Visit, person: Person, provider: ProviderSandbox, in_hand: str, language: str
) -> None:
    wanted = services.create_payment(
        amount=48_500, currency="CLP", country="CL", method_code=provider_data.TRANSFER, flow="s2s", payer=PAYER,
        merchant_reference="ORD-7",
    )  # fmt: skip
    provider_data.paid(provider, payer={"name": "Ana Rojas"})
    reference = wanted.next_action["reference"]
    if in_hand == "payer":
        provider.engine.pay(wanted.pk)
        provider.settle()
    # The search stands above every page.
    desk = Desk(visit(person("fina", *FINANCE), language=language), address("payout", "changelist"))
    desk.search(reference if in_hand == "bank reference" else "nunez")
    desk.follow(page_of("payment", wanted))
    answer = {
        "payer": {"en": "succeeded", "es": "pagado"},
        "bank reference": {"en": "requires action", "es": "requiere acción"},
    }[in_hand][language]
    status = desk.visitor.find(".pi-status").first
    assert status.inner_text().lower() == answer
    box = status.bounding_box()
    assert box is not None
    assert box["y"] < desk.page.viewport_size["height"]  # type: ignore[index]
    desk.done(most=2)


def test_last_months_payments_go_into_a_spreadsheet(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    began, ended = last_month()
    inside = [rows.payment(succeeded_at=at).pk for at in (began, ended - timedelta(seconds=1))]
    for at in (began - timedelta(seconds=1), ended):
        rows.payment(succeeded_at=at)
    desk = Desk(visit(person("fina", *FINANCE)))
    desk.follow(".pi-last-month a")
    assert sorted(row["id"] for row in exported(desk)) == sorted(inside)
    desk.done(most=2)


def test_a_balance_and_what_moved_it(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    signals.on_mirror_written(record)  # of the bookkeeping, as where it is installed
    provider_data.funded(provider, 500_000)
    provider_data.paid_out(provider, 50_000)
    services.sync_balances()
    balance = Balance.objects.get(currency="CLP")
    desk = Desk(visit(person("fina", *FINANCE)))
    desk.follow(f"[aria-labelledby=pi-balances] a[href='{address('balance', 'change', balance)}']")
    desk.click(".pi-numbers summary")
    moved = desk.visitor.find(".pi-numbers tbody tr")
    assert moved.count() >= 2
    assert moved.first.is_visible()
    desk.done(most=2)


# Sending money


@pytest.mark.parametrize(("currency", "typed", "amount"), [("CLP", "2500", 2_500), ("USD", "12.50", 1_250)])
def test_a_part_of_a_payment_is_refunded(
    visit: Visit, person: Person, provider: ProviderSandbox, currency: str, typed: str, amount: int
) -> None:
    where = {} if currency == "CLP" else {"method_code": "ec_card", "currency": "USD", "country": "EC"}
    payment = provider_data.paid(provider, **where)
    desk = Desk(visit(person("fina", *FINANCE)), address("payment", "change", payment))
    desk.follow(f"a[href='{address('payment', 'refund', payment)}']")
    desk.click("[name=amount]")
    desk.page.fill("[name=amount]", typed)
    desk.enter()
    desk.follow(CONFIRM)
    assert len(desk.visitor.messages("success")) == 1
    assert [refund["amount"] for refund in provider.project.refunds.values()] == [amount]
    desk.done(most=3)


def test_a_payment_is_refunded_to_a_bank_account(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    payment = provider_data.paid(provider, provider_data.TRANSFER, merchant_reference="ORD-7")
    provider_data.funded(provider, 100_000)
    desk = Desk(visit(person("fina", *FINANCE)))
    desk.search("ORD-7")
    desk.follow(page_of("payment", payment))
    desk.follow(f"a[href='{address('payment', 'refund', payment)}']")
    desk.click("[name=amount]")
    fill_destination(desk.visitor)
    desk.page.focus("[name=amount]")
    desk.enter()
    desk.follow(CONFIRM)
    assert len(desk.visitor.messages("success")) == 1
    [payout] = provider.project.payouts.values()
    assert payout["destination"]["account_number"] == provider_data.ACCOUNT_NUMBER
    desk.done(most=5)


def test_several_payments_are_refunded(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    payments = [provider_data.paid(provider, amount=amount) for amount in (3_000, 4_000)]
    desk = Desk(visit(person("fina", *FINANCE)))
    desk.follow(f"#content-main a[href='{address('payment', 'changelist')}']")
    for payment in payments:
        desk.click(f"input[name=_selected_action][value='{payment.pk}']")
    desk.page.select_option("select[name=action]", "refund_selected")
    desk.follow("button[name=index]")
    desk.follow(CONFIRM)
    assert len(provider.project.refunds) == 2
    desk.done(most=5)


def test_a_payout_is_asked_for_and_approved(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    provider_data.funded(provider, LIMITS["CLP"] * 3)
    maker = Desk(visit(person("fina", *FINANCE)))
    maker.follow(f"#content-main a[href='{address('payout', 'add')}']")
    maker.click("[name=country]")
    fill(maker.visitor, LIMITS["CLP"])
    maker.page.focus("[name=amount]")
    maker.enter()
    maker.follow(CONFIRM)
    operation = Operation.objects.get(operation="create_payout")
    assert operation.state == OperationState.AWAITING_APPROVAL
    assert not provider.project.payouts
    maker.done(most=3)
    cache.clear()  # the overview counts once a minute
    checker = Desk(visit(person("eva", *FINANCE)))
    checker.follow(checker.page.locator(".pi-todo").get_by_role("link", name="Approve or reject"))
    checker.follow(f"form[action='{address('operation', 'approve', operation)}'] button")
    assert [payout["amount"] for payout in provider.project.payouts.values()] == [LIMITS["CLP"]]
    checker.done(most=2)


# Problems


def test_an_unknown_outcome_is_decided(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    payment = provider_data.paid(provider)
    operation = rows.operation(
        operation="create_refund", state=OperationState.NEEDS_PERSON, target_id=payment.pk, amount=2_500,
        currency="CLP", may_have_run=True,
    )  # fmt: skip
    desk = Desk(visit(person("olga", *OPERATIONS)))
    desk.follow(desk.page.locator(".pi-todo").get_by_role("link", name="Decide"))
    # The suggested one is to ask the provider. The others are folded.
    first = desk.visitor.find(".pi-panel").inner_text().splitlines()
    assert first[0] == "Decide whether this happened"
    assert "CLP\xa02,500" in " ".join(first[:3])
    assert desk.visitor.find(".pi-panel .pi-main").inner_text() == "Look up"
    form = desk.visitor.find(f"form[action='{address('operation', 'never-happened', operation)}']")
    desk.click(desk.page.locator(".pi-others > summary"))
    form.locator("[name=comment]").fill("the provider's dashboard has no such refund")
    desk.follow(form.locator("button"))
    operation.refresh_from_db()
    assert operation.state == OperationState.CLOSED
    desk.done(most=3)


def test_a_parked_event_is_replayed(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    provider_data.paid(provider)
    event = Event.objects.filter(object_kind="payment").order_by("-created_at", "-pk")[0]
    Event.objects.filter(pk=event.pk).update(state=EventState.PARKED, attempts=6)
    desk = Desk(visit(person("olga", *OPERATIONS)))
    desk.follow(desk.page.locator(".pi-problems a", has_text="parked"))
    desk.follow(page_of("event", event))
    button, form = tool(desk, address("event", "replay", event))
    desk.click(button)
    desk.follow(form.locator("button"))
    event.refresh_from_db()
    assert event.state == EventState.DONE
    desk.done(most=4)


def test_a_secret_is_rotated(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    services.sync_webhook_endpoints()
    endpoint = WebhookEndpoint.objects.get()
    before = provider.engine.endpoint(endpoint.pk).secret
    desk = Desk(visit(person("olga", *OPERATIONS)))
    desk.follow("#pi-dashboard a[href$='/technical/']")
    desk.follow(page_of("webhookendpoint", endpoint))
    button, form = tool(desk, address("webhookendpoint", "rotate", endpoint))
    desk.click(button)
    desk.follow(form.locator("button"))
    assert provider.engine.endpoint(endpoint.pk).secret != before
    desk.done(most=4)


# A person who may only look


def test_a_viewer_reads_and_sees_no_personal_data(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    payment = provider_data.paid(provider, provider_data.TRANSFER, payer=PAYER, merchant_reference="ORD-7")
    payout = provider_data.paid_out(provider)
    began, _ended = last_month()
    old = rows.payment(created_at=began, succeeded_at=began, payer=PAYER)
    card = provider_data.paid(provider)
    refund = services.create_refund(card, amount=1_000, reason="a broken cup", actor="fina")
    waiting = services.defer(
        services.create_payout, amount=LIMITS["CLP"], currency="CLP", country="CL", method_code=provider_data.TRANSFER,
        destination=provider_data.DESTINATION, actor="fina",
    )  # fmt: skip
    viewer: User = person("vera", *VIEW)
    desk = Desk(visit(viewer))
    desk.follow(".pi-last-month a")
    [row] = exported(desk)
    assert row["id"] == old.pk
    assert not {PAYER["name"], PAYER["email"]} & set(row.values())
    desk.done(most=2)
    desk.visitor.open(DASHBOARD)
    desk.search("ORD-7")
    desk.follow(page_of("payment", payment))
    assert desk.visitor.find(".pi-status").first.inner_text() == "succeeded"
    # What they may not search by finds nothing.
    desk.visitor.open(DASHBOARD)
    desk.search("nunez")
    assert payment.pk not in desk.shows()

    private = (PAYER["name"], PAYER["email"], provider_data.ACCOUNT_NUMBER, "Ana Soto", "a broken cup")
    pages = [DASHBOARD, *(address(name, "changelist") for name in ("payment", "payout", "refund", "operation"))]
    for model, obj in (
        ("payment", payment), ("payment", card), ("payout", payout), ("refund", refund), ("operation", waiting),
        ("balance", Balance.objects.get(currency="CLP")), ("event", Event.objects.all()[0]),
    ):  # fmt: skip
        pages.append(address(model, "change", obj))
    for url in pages:
        html = desk.visitor.open(url).content()
        assert [text for text in private if text in html] == [], url
        # The only buttons read objects again from the provider.
        for button in desk.visitor.find("#content form[method=post] [type=submit]").all():
            assert button.evaluate("button => button.form.action").endswith(("/refresh/", "/refresh-all/")), url
        offers = "a[href*='/payment/'][href$='/refund/'], .addlink, .pi-tools [href$='/add/']"
        assert desk.visitor.find(f"#content :is({offers})").count() == 0
        assert desk.visitor.find("select[name=action] option[value=refund_selected]").count() == 0
    for refused in (address("payment", "refund", payment), address("payout", "add")):
        desk.visitor.open(refused, status=403)
    assert Refund.objects.count() == 1
    assert Payment.objects.filter(status="succeeded").count() >= 2
