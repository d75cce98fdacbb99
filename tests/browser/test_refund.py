"""Refunds in a browser: form, confirmation, and the result at the provider."""

from __future__ import annotations

import re
from typing import Any

import pytest

from payments_integration import services
from payments_integration.models import Operation, OperationState, Payment, Refund
from payments_integration.sandbox.faults import Fault
from payments_integration.testing import ProviderSandbox
from tests.browser import provider_data
from tests.browser.conftest import Person, Visit, address
from tests.browser.visitor import Visitor
from tests.factories import rows

MAY = ("view_payment", "refund_payment", "view_refund", "view_operation")
REVIEW = "button[name=step][value=review]"
CONFIRM = "button[name=step][value=confirm]"


def digits(text: str) -> str:
    """An amount without separators and spaces."""
    return "".join(filter(str.isdigit, text))


def fill_destination(visitor: Visitor, document: str = provider_data.HOLDER["document"]["number"]) -> None:  # type: ignore[index]
    page = visitor.page
    page.fill("[name=bank_code]", "012")
    page.fill("[name=account_number]", provider_data.ACCOUNT_NUMBER)
    page.select_option("[name=account_type]", "checking")
    page.fill("[name=holder_name]", "Ana Soto")
    page.select_option("[name=document_type]", "RUT")
    page.fill("[name=document_number]", document)


def posted(provider: ProviderSandbox, path: str) -> list[dict[str, Any]]:
    return [entry for entry in provider.engine.requests if (entry["method"], entry["path"]) == ("POST", f"/v1{path}")]


def test_a_card_payment_is_refunded(visit: Visit, person: Person, provider: ProviderSandbox, language: str) -> None:
    payment = provider_data.paid(provider, merchant_reference="order-7")
    visitor = visit(person("ana", *MAY), language=language)
    visitor.open(address("payment", "change", payment))
    assert visitor.find("html").get_attribute("lang") == language
    visitor.press(f"a[href='{address('payment', 'refund', payment)}']")
    assert visitor.find("[name=amount]").input_value() == {"en": "10,000", "es": "10.000"}[language]
    assert visitor.find("[name=account_number]").count() == 0
    shown = {"en": "2,500", "es": "2.500"}[language]
    visitor.page.fill("[name=amount]", shown)
    visitor.page.fill("[name=reason]", "arrived broken")
    visitor.press(REVIEW)
    assert f"CLP\xa0{shown} " in visitor.find(".pi-sentence").inner_text()
    assert "order-7" in visitor.find("#content").inner_text()
    assert posted(provider, "/refunds") == []
    visitor.press(CONFIRM)
    assert len(visitor.messages("success")) == 1
    [theirs] = provider.project.refunds.values()
    assert (theirs["amount"], theirs["reason"]) == (2500, "arrived broken")
    provider.settle()
    visitor.open(address("payment", "change", payment))
    assert visitor.find(f"a[href='{address('refund', 'change', Refund.objects.get())}']").first.is_visible()


def test_a_bank_payment_is_refunded_to_the_account_typed(
    visit: Visit, person: Person, provider: ProviderSandbox, language: str
) -> None:
    payment = provider_data.paid(provider, provider_data.TRANSFER)
    provider_data.funded(provider, 100_000)
    visitor = visit(person("ana", *MAY), language=language)
    visitor.open(address("payment", "refund", payment))
    fill_destination(visitor, "12345678-0")
    visitor.press(REVIEW)
    assert visitor.find(".form-row.errors [name=document_number]").count() == 1
    visitor.page.fill("[name=document_number]", "12345678-5")
    visitor.press(REVIEW)
    shown = visitor.find("#content").inner_text()
    assert provider_data.ACCOUNT_NUMBER in shown
    assert "Ana Soto" in shown
    # Going back keeps the typed values.
    visitor.press("button[name=step][value=change]")
    assert visitor.find("[name=account_number]").input_value() == provider_data.ACCOUNT_NUMBER
    visitor.page.fill("[name=amount]", "4000")
    visitor.press(REVIEW)
    visitor.press(CONFIRM)
    assert len(visitor.messages("success")) == 1
    [theirs] = provider.project.refunds.values()
    assert theirs["amount"] == 4000
    [payout] = provider.project.payouts.values()
    assert payout["destination"]["account_number"] == provider_data.ACCOUNT_NUMBER


def test_the_excess_of_an_overpaid_payment_is_refunded(
    visit: Visit, person: Person, provider: ProviderSandbox
) -> None:
    payment = rows.payment(
        status="overpaid", currency="CLP", amount=29_900, amount_received=31_000, payer={"name": "Ana Soto"}
    )
    visitor = visit(person("ana", *MAY, "view_personal_data"), width=390)
    visitor.open(address("payment", "refund", payment))
    assert visitor.find("h1").last.inner_text() == "Refund up to CLP\xa031,000 to Ana Soto"
    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= 390
    visitor.press("a[href='?excess']")
    assert visitor.find("[name=amount]").input_value() == "1,100"
    assert posted(provider, "/refunds") == []


@pytest.mark.parametrize("typed", ["10001", "1.000,5", "-1", "0", "ten"])
def test_too_much_and_no_amount_are_refused(
    visit: Visit, person: Person, provider: ProviderSandbox, typed: str
) -> None:
    payment = provider_data.paid(provider)
    visitor = visit(person("ana", *MAY))
    visitor.open(address("payment", "refund", payment))
    visitor.page.fill("[name=amount]", typed)
    visitor.press(REVIEW)
    assert visitor.find(".form-row.errors [name=amount]").input_value() == typed
    assert visitor.find(CONFIRM).count() == 0
    assert posted(provider, "/refunds") == []


@pytest.mark.case(83)
def test_a_reload_and_a_double_click_make_one_refund(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    payment = provider_data.paid(provider)
    visitor = visit(person("ana", *MAY))
    visitor.open(address("payment", "refund", payment))
    visitor.page.fill("[name=amount]", "2500")
    visitor.press(REVIEW)
    visitor.page.reload()  # the browser posts it again
    visitor.press_twice(CONFIRM, leads_to=re.compile(re.escape(address("payment", "change", payment)) + "$"))
    assert [refund["amount"] for refund in provider.project.refunds.values()] == [2500]
    assert Operation.objects.filter(operation="create_refund").count() == 1


def test_two_windows_cannot_refund_more_than_was_received(
    visit: Visit, person: Person, provider: ProviderSandbox
) -> None:
    payment = provider_data.paid(provider)
    windows = [visit(person(name, *MAY)) for name in ("ana", "eva")]
    for window in windows:
        window.open(address("payment", "refund", payment))
        window.page.fill("[name=amount]", "6000")
        window.press(REVIEW)
    for window in windows:
        window.press(CONFIRM)
    assert len(windows[0].messages("success")) == 1
    assert windows[1].find(".form-row.errors [name=amount]").count() == 1
    assert [refund["amount"] for refund in provider.project.refunds.values()] == [6000]


def test_an_unknown_outcome_is_shown_and_resolved(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    payment = provider_data.paid(provider)
    provider_data.funded(provider, 100_000)
    provider.engine.faults.add(Fault("reset", operation="create_refund", work=True))
    visitor = visit(person("ana", *MAY))
    visitor.open(address("payment", "refund", payment))
    visitor.press(REVIEW)
    visitor.press(CONFIRM)
    operation = Operation.objects.get(operation="create_refund")
    assert operation.state == OperationState.UNKNOWN
    assert len(visitor.messages("warning")) == 1
    assert visitor.find(f".messagelist a[href='{address('operation', 'change', operation)}']").count() == 1
    # The page warns the next person, who cannot refund it again.
    visitor.open(address("payment", "refund", payment))
    assert visitor.messages("warning") != []
    assert visitor.find(REVIEW).count() == 0
    Operation.objects.update(next_attempt_at=None, claimed_until=None)
    services.resume_operations()
    operation.refresh_from_db()
    assert operation.state == OperationState.DONE
    assert len(provider.project.refunds) == 1


def test_a_refund_needs_only_the_keyboard(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    payment = provider_data.paid(provider)
    visitor = visit(person("ana", *MAY))
    visitor.open(address("payment", "change", payment))
    keyboard = visitor.page.keyboard
    for target, typed in (
        (f"a[href='{address('payment', 'refund', payment)}']", ""),
        ("[name=amount]", "1200"),
        ("[name=reason]", "too small"),
        (REVIEW, ""),
        (CONFIRM, ""),
    ):
        tab_to(visitor, target)
        if typed:
            keyboard.press("Control+a")
            keyboard.type(typed)
        else:
            with visitor.page.expect_navigation():
                keyboard.press("Enter")
    assert len(visitor.messages("success")) == 1
    [theirs] = provider.project.refunds.values()
    assert (theirs["amount"], theirs["reason"]) == (1200, "too small")


def tab_to(visitor: Visitor, selector: str) -> None:
    """Press Tab until the element has the focus, and check that the focus is visible."""
    for _ in range(120):
        visitor.page.keyboard.press("Tab")
        if visitor.find(f"{selector}:focus-visible").count():
            return
    raise AssertionError(f"the keyboard does not reach {selector}")


def test_without_the_permission_no_refund_is_offered(visit: Visit, person: Person, provider: ProviderSandbox) -> None:
    payment: Payment = provider_data.paid(provider)
    visitor = visit(person("leo", "view_payment"))
    visitor.open(address("payment", "change", payment))
    assert visitor.find(f"a[href='{address('payment', 'refund', payment)}']").count() == 0
    visitor.open(address("payment", "refund", payment), status=403)
