"""The to-do list as a person works with it: its first words, its width, and the clicks until a thing is done."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.urls import reverse
from django.utils import timezone

from payments_integration.contrib.backoffice.models import Todo
from payments_integration.models import OperationState, Payment
from payments_integration.testing import ProviderSandbox
from tests.browser import provider_data
from tests.browser.accessibility import grave
from tests.browser.conftest import Person, Visit, address
from tests.browser.desk import Desk
from tests.browser.test_tasks import FINANCE
from tests.browser.visitor import HEIGHT, Visitor, resize
from tests.factories import rows

TODO = "/admin/payments_backoffice/todo/"
LANGUAGES = ("en", "es", "pt-BR")
#: A phone, 1366 and 1920.
WIDTHS = (390, 1366, 1920)
#: The beginning of the page, its heading and its views, then the oldest row.
FIRST_WORDS = {
    "en": "To do Open Mine Snoozed Done USD 39.50 María Fernanda González charged back",
    "es": "Pendientes Abiertos Míos Pospuestos Hechos USD 39,50 María Fernanda González contracargo",
    "pt-BR": "Pendências Abertas Minhas Adiadas Feitas USD 39,50 María Fernanda González chargeback",
}


@pytest.fixture
def fina(person: Person) -> User:
    user = person("fina", *FINANCE, "change_operation")
    user.user_permissions.add(Permission.objects.get(codename="handle_todo"))
    return User.objects.get(pk=user.pk)


def became(obj: Any, status: str, hours: float) -> Any:
    at = timezone.now() - timedelta(hours=hours)
    type(obj).objects.filter(pk=obj.pk).update(status=status, synced_at=at)
    rows.change(obj, status=status, at=at)
    return obj


def fill() -> Any:
    """One row of each look; returns the payout that was rejected."""
    created = timezone.now() - timedelta(days=20)
    long_ago = {"created_at": created, "payer": {"name": "María Fernanda González"}}
    became(rows.payment(amount=3950, currency="USD", **long_ago), "chargeback", 24 * 9)
    became(rows.payment(amount=48_500, currency="CLP", merchant_reference="ORD-1009", **long_ago), "on_hold", 30)
    payout = rows.payout(
        amount=250_000, currency="CLP", created_at=created, destination={"holder_name": "Ana Soto"},
        merchant_reference="salary-2026-11", failure_reason="The recipient's account is closed",
    )  # fmt: skip
    became(payout, "failed", 2)
    paid = rows.payment(amount=15_990, amount_received=15_990, refunded_amount=0, currency="CLP", **long_ago)
    became(rows.refund(payment=paid, amount=9_990, currency="CLP", created_at=created), "returned", 5)
    rows.operation(
        operation="create_payout", state=OperationState.AWAITING_APPROVAL, amount=1_200_000, currency="CLP",
        arguments={"destination": {"holder_name": "Luis Rojas"}}, created_at=timezone.now() - timedelta(minutes=20),
        merchant_reference="invoice-77", target_id="",
    )  # fmt: skip
    return payout


def shown(visitor: Visitor) -> str:
    return " ".join(visitor.find("#content").inner_text().split())


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_begins_with_what_there_is_to_do_at_every_width(
    visit: Visit, fina: User, provider: ProviderSandbox, language: str
) -> None:
    visitor = visit(fina, language=language)
    for is_full in (False, True):
        if is_full:
            fill()
        for width in WIDTHS:
            resize(visitor.page, width, HEIGHT)
            visitor.open(TODO)
            if is_full:
                words = shown(visitor)
                assert FIRST_WORDS[language] in words, words[:300]
            assert visitor.page.evaluate("document.documentElement.scrollWidth") <= width
            visitor.shoot(f"todo-{language}-{width}-{'full' if is_full else 'empty'}")
    resize(visitor.page, 390, HEIGHT)
    for button in ("done", "more"):
        visitor.find(f"[popovertarget$=-{button}]").first.click()
        assert visitor.page.evaluate("document.documentElement.scrollWidth") <= 390
        visitor.shoot(f"todo-{language}-390-{button}")
        visitor.page.keyboard.press("Escape")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_an_open_form_has_no_accessibility_violation(
    visit: Visit, fina: User, provider: ProviderSandbox, dark: bool
) -> None:
    fill()
    visitor = visit(fina, dark=dark)
    for button in ("done", "more"):
        visitor.open(TODO)
        visitor.find(f"[popovertarget$=-{button}]").first.click()
        with visitor.unheard():
            assert grave(visitor.page) == []


@pytest.mark.parametrize("start", ["overview", "list"])
def test_a_thing_is_done_with_a_note(visit: Visit, fina: User, provider: ProviderSandbox, start: str) -> None:
    payout = fill()
    where = {"overview": reverse("admin:app_list", args=["payments_integration"]), "list": TODO}[start]
    desk = Desk(visit(fina), where)
    row = desk.page.locator(".pi-todo", has_text="Ana Soto")
    desk.click(row.get_by_role("button", name="Done"))
    # The field has the focus.
    desk.page.keyboard.type("called Ana, she sends another account")
    desk.follow(row.locator("button[value=done]"))
    assert row.count() == 0
    assert len(desk.visitor.messages("success")) == 1
    [mark] = Todo.objects.all()
    assert (mark.thing, mark.note) == (payout.pk, "called Ana, she sends another account")
    desk.done(most=2)


def test_a_thing_is_assigned_to_oneself_and_found_under_mine(
    visit: Visit, fina: User, provider: ProviderSandbox
) -> None:
    fill()
    desk = Desk(visit(fina), TODO)
    row = desk.page.locator(".pi-todo", has_text="Ana Soto")
    desk.click(row.get_by_role("button", name="More"))
    desk.follow(row.get_by_role("button", name="Assign to me"))
    desk.follow(desk.page.get_by_role("link", name="Mine"))
    assert desk.visitor.find(".pi-todo").count() == 1
    desk.done(most=3)


def test_enter_assigns_a_thing_to_the_person_whose_name_was_typed(
    visit: Visit, fina: User, provider: ProviderSandbox
) -> None:
    fill()
    desk = Desk(visit(fina), TODO)
    row = desk.page.locator(".pi-todo", has_text="Ana Soto")
    desk.click(row.get_by_role("button", name="More"))
    desk.click(row.get_by_label("Assign to", exact=True))
    User.objects.create_superuser("olga")
    desk.page.keyboard.type("olga")
    desk.enter()
    assert [mark.assignee_name.partition(":")[2] for mark in Todo.objects.all()] == ["olga"]
    desk.done(most=2)


def test_the_keyboard_is_enough(visit: Visit, fina: User, provider: ProviderSandbox) -> None:
    became(rows.payment(), "on_hold", 3)
    visitor = visit(fina)
    visitor.open(TODO)
    visitor.find("[popovertarget$=-done]").first.focus()
    visitor.page.keyboard.press("Enter")
    visitor.page.keyboard.type("asked the bank")
    visitor.page.keyboard.press("Tab")
    with visitor.page.expect_navigation():
        visitor.page.keyboard.press("Enter")
    assert Todo.objects.get().note == "asked the bank"


def test_a_payout_is_paid_again_from_the_overview(visit: Visit, fina: User, provider: ProviderSandbox) -> None:
    provider_data.funded(provider, 500_000)
    payout = fill()
    desk = Desk(visit(fina))
    desk.follow(desk.page.locator(".pi-todo", has_text="Ana Soto").get_by_role("link", name="Pay again"))
    assert desk.page.url.endswith(f"{address('payout', 'add')}?again={payout.pk}")
    assert Payment.objects.filter(status="chargeback").exists()
    desk.done(most=1)
