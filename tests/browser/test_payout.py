"""Payouts: the balance is checked first, and above the limit another person must approve."""

from __future__ import annotations

import pytest

from payments_integration.models import Operation, OperationState, Payout
from payments_integration.testing import ProviderSandbox
from tests.browser import provider_data
from tests.browser.conftest import LIMITS, Person, Visit, address
from tests.browser.test_refund import CONFIRM, REVIEW, digits, fill_destination, posted, tab_to
from tests.browser.visitor import Visitor

MAKER = ("view_payout", "create_payout", "view_operation", "view_balance")
CHECKER = ("view_payout", "view_operation", "approve_operation")
LIMIT = LIMITS["CLP"]


def fill(visitor: Visitor, amount: int) -> None:
    page = visitor.page
    page.select_option("[name=country]", "CL")
    page.select_option("[name=currency]", "CLP")
    page.fill("[name=amount]", str(amount))
    page.fill("[name=method_code]", provider_data.TRANSFER)
    page.fill("[name=merchant_reference]", "supplier-12")
    fill_destination(visitor)


def test_a_payout_is_sent(visit: Visit, person: Person, provider: ProviderSandbox, language: str) -> None:
    provider_data.funded(provider, 500_000)
    visitor = visit(person("ana", *MAKER), language=language)
    visitor.open(address("payout", "changelist"))
    visitor.press(f"#content a[href*='{address('payout', 'add')}']")
    # Opening the page sends no request to the provider.
    before = len(provider.engine.requests)
    visitor.open(address("payout", "add"))
    assert len(provider.engine.requests) == before
    fill(visitor, 30_000)
    offered = visitor.find("[name=document_type] option:not([hidden])").evaluate_all("all => all.map(o => o.value)")
    assert offered == ["", "RUT", "PASS"]
    visitor.press(REVIEW)
    assert "Ana Soto" in visitor.page.title()
    shown = visitor.find("#content").inner_text()
    assert "30000" in digits(visitor.find(".pi-sentence").inner_text())
    assert "500000" in digits(shown)
    assert posted(provider, "/payouts") == []
    visitor.press(CONFIRM)
    assert len(visitor.messages("success")) == 1
    [theirs] = provider.project.payouts.values()
    assert (theirs["amount"], theirs["merchant_reference"]) == (30_000, "supplier-12")
    assert visitor.page.url.endswith(address("payout", "change", Payout.objects.get()))


def test_a_payout_with_too_little_balance_is_refused(
    visit: Visit, person: Person, provider: ProviderSandbox, language: str
) -> None:
    provider_data.funded(provider, 20_000)
    visitor = visit(person("ana", *MAKER), language=language)
    visitor.open(address("payout", "add"))
    fill(visitor, 20_001)
    visitor.press(REVIEW)
    assert visitor.find(".form-row.errors [name=amount]").input_value() == "20001"
    assert "20000" in digits(visitor.find("#content").inner_text())
    assert visitor.find(CONFIRM).count() == 0
    assert posted(provider, "/payouts") == []
    assert not Operation.objects.filter(operation="create_payout").exists()


@pytest.mark.case(81)
def test_a_second_person_approves_what_the_first_cannot(
    visit: Visit, person: Person, provider: ProviderSandbox, language: str
) -> None:
    provider_data.funded(provider, LIMIT * 3)
    # A superuser has every permission, but cannot approve their own payout.
    maker, checker = visit(person("boss"), language=language), visit(person("eva", *CHECKER), language=language)
    maker.open(address("payout", "add"))
    fill(maker, LIMIT)
    maker.press(REVIEW)
    maker.press(CONFIRM)
    assert len(maker.messages("warning")) == 1
    operation = Operation.objects.get(operation="create_payout")
    assert operation.state == OperationState.AWAITING_APPROVAL
    assert posted(provider, "/payouts") == []

    approve = address("operation", "approve", operation)
    maker.open(address("operation", "change", operation))
    assert maker.find(f"form[action='{approve}']").count() == 0
    # Posting the take-back form to the approval URL is refused too.
    maker.page.evaluate("action => { document.querySelector('.pi-decisions form').action = action }", approve)
    maker.page.fill(".pi-decisions [name=comment]", "my own")
    maker.press(".pi-decisions button")
    assert len(maker.messages("error")) == 1
    assert posted(provider, "/payouts") == []

    checker.open(address("operation", "changelist"))
    checker.press(checker.find(f".pi-attention a[href='{address('operation', 'change', operation)}']").first)
    panel = checker.find(".pi-panel").inner_text()
    assert "Ana Soto" in panel
    assert provider_data.ACCOUNT_NUMBER in panel
    assert str(LIMIT) in digits(panel)
    form = checker.find(f"form[action='{approve}']")
    form.locator("[name=comment]").fill("invoice seen")
    checker.press(form.locator("button"))
    assert len(checker.messages("success")) == 1
    assert checker.page.url.endswith(address("payout", "change", Payout.objects.get()))
    [theirs] = provider.project.payouts.values()
    assert theirs["amount"] == LIMIT
    operation.refresh_from_db()
    assert operation.state == OperationState.DONE
    assert operation.approved_by.endswith("eva")


def test_a_rejected_payout_is_never_sent(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    provider_data.funded(provider, LIMIT * 3)
    maker, checker = visit(person("ana", *MAKER)), visit(person("eva", *CHECKER))
    maker.open(address("payout", "add"))
    fill(maker, LIMIT)
    maker.press(REVIEW)
    maker.press(CONFIRM)
    operation = Operation.objects.get(operation="create_payout")
    checker.open(address("operation", "change", operation))
    form = checker.find(f"form[action='{address('operation', 'reject', operation)}']")
    form.locator("[name=comment]").fill("not our supplier")
    checker.press(form.locator("button"))
    operation.refresh_from_db()
    assert operation.state == OperationState.CLOSED
    assert "not our supplier" in operation.note
    assert provider.project.payouts == {}


def test_a_payout_needs_only_the_keyboard(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    provider_data.funded(provider, 500_000)
    visitor = visit(person("ana", *MAKER))
    visitor.open(address("payout", "changelist"))
    keyboard = visitor.page.keyboard
    # In a list of choices the keys select the one that begins with them.
    for target, typed in (
        (f"#content a[href*='{address('payout', 'add')}']", ""),
        ("[name=country]", "Chi"),
        ("[name=currency]", "CLP"),
        ("[name=amount]", "30000"),
        ("[name=method_code]", provider_data.TRANSFER),
        ("[name=bank_code]", "012"),
        ("[name=account_number]", provider_data.ACCOUNT_NUMBER),
        ("[name=account_type]", "ch"),
        ("[name=holder_name]", "Ana Soto"),
        ("[name=document_type]", "RUT"),
        ("[name=document_number]", "12345678-5"),
        (REVIEW, ""),
        (CONFIRM, ""),
    ):
        tab_to(visitor, target)
        if typed:
            keyboard.type(typed)
        else:
            with visitor.page.expect_navigation():
                keyboard.press("Enter")
    assert len(visitor.messages("success")) == 1
    [theirs] = provider.project.payouts.values()
    assert (theirs["amount"], theirs["destination"]["holder_name"]) == (30_000, "Ana Soto")
