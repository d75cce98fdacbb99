"""Paying again what failed or came back: prefilled, said in words, and made once from however many pages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from payments_integration import services
from payments_integration.admin.shared import display
from payments_integration.contrib.backoffice.todo import again_key
from payments_integration.exceptions import InvalidState
from payments_integration.models import Operation, OperationState, Payout
from payments_integration.sandbox import Fault
from payments_integration.testing import ProviderSandbox
from tests.factories import rows
from tests.unit.admin.conftest import browser, page, url
from tests.unit.admin.flows.test_payout import ADD, FORM, Services
from tests.unit.admin.flows.test_refund import hidden

pytestmark = pytest.mark.any_database

DESTINATION = {
    "type": "bank_account", "bank_code": "001", "account_number": "000123", "account_type": "checking",
    "holder_name": "Ana Pérez", "holder_document": {"type": "RUT", "number": "12345678-5"},
}  # fmt: skip
OTHER = {
    **DESTINATION, "account_number": "000999", "holder_document": {"type": "RUT", "number": "11111111-1"},
    "holder_name": "Bea Soto",
}  # fmt: skip
ALL = ("view_payout", "create_payout", "view_personal_data")


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, db: None) -> Services:
    stand_in = Services()
    stand_in.balance = rows.balance(currency="CLP", available=20_000, debt=0)
    monkeypatch.setattr(services, "create_payout", stand_in.create_payout)
    monkeypatch.setattr(services, "payout_cover", stand_in.payout_cover)
    monkeypatch.setattr(services, "refresh", lambda row: row)
    return stand_in


def failed(**fields: Any) -> Payout:
    values = {
        "status": "failed", "amount": 1500, "failure_reason": "account_closed", "merchant_reference": "invoice-7",
        "destination": DESTINATION,
    }  # fmt: skip
    return rows.payout(**{**values, **fields})


def address(first: Payout) -> str:
    return f"{reverse(ADD)}?again={first.pk}"


def form_of(client: Client, first: Payout) -> dict[str, Any]:
    form = client.get(address(first)).context["form"]
    return {name: form[name].value() for name in form.fields if form[name].value() is not None}


def reviewed(client: Client, form: dict[str, Any]) -> dict[str, str]:
    response = client.post(reverse(ADD), {**form, "step": "review"})
    assert "confirmation" in response.context, response.context["form"].errors
    return {**hidden(response.content.decode()), "step": "confirm"}


@pytest.mark.parametrize("status", ["failed", "returned"])
def test_the_page_offers_it_and_the_form_is_filled_in(boss: Client, service: Services, status: str) -> None:
    first = failed(status=status)
    html = page(boss, url("payout", "change", first.pk))
    assert f'href="{address(first)}"' in html
    assert "the account is closed" in html
    form = form_of(boss, first)
    assert {**form, "idempotency_key": ""} == {
        **FORM, "amount": "1,500", "again": first.pk, "idempotency_key": "",
    }  # fmt: skip
    words = "This sends money again, as a new payout."
    assert "<h1>Pay CLP\xa01,500 again to Ana Pérez</h1>" in page(boss, address(first))
    assert words in page(boss, address(first))
    html = boss.post(reverse(ADD), {**form, "step": "review"}).content.decode()
    for shown in (words, "Reason: the account is closed", first.pk, "Nothing has been sent yet."):
        assert shown in html, shown
    assert service.calls == []
    # "Change" keeps what it is about.
    assert words in boss.post(reverse(ADD), {**form, "step": "change"}).content.decode()


@pytest.mark.parametrize(
    "fields",
    [{"status": name} for name in ("created", "processing", "on_hold", "succeeded", "canceled", "quarked")]
    + [{"refund_id": "ref_1"}],
)
def test_nothing_else_can_be_paid_again(boss: Client, service: Services, fields: dict[str, Any]) -> None:
    first = failed(**fields)
    assert address(first) not in page(boss, url("payout", "change", first.pk))
    response = boss.get(address(first))
    assert first.pk in str(response.context["warning"])
    assert response.context["form"].initial.keys() == {"idempotency_key"}
    assert not response.context["form"].initial["idempotency_key"].startswith("again")
    form = {**FORM, "again": first.pk, "idempotency_key": "k-9"}
    for step in ("review", "confirm"):
        errors = boss.post(reverse(ADD), {**form, "step": step}).context["form"].errors
        assert first.pk in str(errors["__all__"]), step
    assert service.calls == []


def test_the_payout_of_a_refund_is_not_paid_again_if_only_the_refund_names_it(boss: Client, service: Services) -> None:
    """Paid again here, the money would go out a second time with the refund of the payment."""
    first = failed()
    form = form_of(boss, first)
    rows.refund(payout_id=first.pk, account="second")
    assert address(first) in page(boss, url("payout", "change", first.pk))
    rows.refund(payout_id=first.pk)
    assert address(first) not in page(boss, url("payout", "change", first.pk))
    assert "executes a refund" in str(boss.get(address(first)).context["warning"])
    for step in ("review", "confirm"):
        errors = boss.post(reverse(ADD), {**form, "step": step}).context["form"].errors
        assert "executes a refund" in str(errors["__all__"]), step
    assert service.calls == []


def test_it_is_paid_again_from_its_own_account_only(boss: Client, service: Services, settings: Any) -> None:
    # Keys are unique within an account: with two accounts, two tabs could send twice at the same moment.
    form = form_of(boss, failed())
    html = boss.post(reverse(ADD), {**form, "account": "second", "step": "review"}).content.decode()
    assert "Select a valid choice" in html
    accounts = settings.PAYMENTS_INTEGRATION["ACCOUNTS"]
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": {"second": accounts["second"]}}
    assert "is not configured any more: default." in page(boss, address(failed(merchant_reference="invoice-8")))
    assert service.calls == []


def test_it_needs_the_right_to_pay_and_to_see_the_payout(staff: Callable[..., Client], service: Services) -> None:
    first = failed()
    assert address(first) not in page(staff("view_payout"), url("payout", "change", first.pk))
    assert staff("view_payout").get(address(first)).status_code == 403
    html = page(staff("create_payout", "view_personal_data"), address(first))
    for text in ("1,500", "invoice-7", "000123", first.pk):
        assert text not in html, text


@pytest.mark.promise(7)
def test_the_recipient_is_filled_in_for_users_who_may_see_it(staff: Callable[..., Client], service: Services) -> None:
    first = failed()
    client = staff("view_payout", "create_payout")
    html = page(client, address(first))
    assert 'value="invoice-7"' in html
    for text in ("000123", "Ana Pérez", "12345678-5"):
        assert text not in html, text
        assert text not in page(client, url("payout", "change", first.pk)), text
    assert form_of(staff(*ALL), first)["account_number"] == "000123"
    Payout.objects.update(destination=None, erased_at=rows.AT)
    assert "account_number" not in form_of(staff(*ALL), first)


@pytest.mark.promise(5)
@pytest.mark.django_db(transaction=True)
def test_one_payout_is_made_from_all_tabs_of_all_people(payments_sandbox: ProviderSandbox, woken: list[str]) -> None:
    payments_sandbox.engine.fund("CLP", 100_000)
    made = services.create_payout(
        amount=1500, currency="CLP", country="CL", method_code="cl_bank_transfer", destination=DESTINATION,
        merchant_reference="invoice-7",
    )  # fmt: skip
    payments_sandbox.engine.fail_payout(made.pk)
    payments_sandbox.settle()
    first = Payout.objects.get()
    assert first.status == "failed"
    people = [browser(User.objects.create_superuser(name)) for name in ("ana", "ben")]
    # Two tabs each, all reviewed before any is confirmed; one of them with another amount.
    forms = [form_of(who, first) for who in people * 2]
    forms[3]["amount"] = "1,400"
    carried = [reviewed(who, form) for who, form in zip(people * 2, forms, strict=True)]
    answers = [who.post(reverse(ADD), form) for who, form in zip(people * 2, carried, strict=True)]
    assert [answer.status_code for answer in answers] == [302] * 4
    [again] = Payout.objects.exclude(pk=first.pk)
    assert (again.amount, again.merchant_reference) == (1500, "invoice-7")
    assert len(payments_sandbox.project.payouts) == 2
    # The back button, a double click and the old link.
    assert people[0].post(reverse(ADD), carried[0]).headers["Location"] == url("payout", "change", again.pk)
    response = people[1].get(address(first))
    assert url("payout", "change", again.pk) in str(response.context["warning"])
    shown = page(people[1], url("payout", "change", first.pk))
    assert address(first) not in shown
    assert url("payout", "change", again.pk) in shown
    assert len(payments_sandbox.project.payouts) == 2
    # The second one may fail too.
    payments_sandbox.engine.fail_payout(again.pk)
    payments_sandbox.settle()
    again.refresh_from_db()
    people[0].post(reverse(ADD), reviewed(people[0], form_of(people[0], again)))
    assert len(payments_sandbox.project.payouts) == 3


def test_a_refused_attempt_can_be_repeated_with_the_next_key(
    boss: Client, service: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = failed()
    form = form_of(boss, first)
    assert form["idempotency_key"] == f"again-{first.pk}-1"

    def refuse(**kwargs: Any) -> None:
        rows.operation(
            operation="create_payout", state=OperationState.REJECTED, idempotency_key=kwargs["idempotency_key"]
        )
        raise InvalidState("too little", status_code=422, code="insufficient_balance", request_id="req_42")

    monkeypatch.setattr(services, "create_payout", refuse)
    response = boss.post(reverse(ADD), {**form, "step": "confirm"})
    assert response.context["form"]["idempotency_key"].value() == f"again-{first.pk}-2"
    # Another person who opens it now has the same next key.
    assert form_of(boss, first)["idempotency_key"] == f"again-{first.pk}-2"


@pytest.mark.parametrize("state", sorted(set(OperationState.values) - {"rejected", "closed"}))
def test_an_attempt_that_may_send_or_sent_is_the_only_one(boss: Client, service: Services, state: str) -> None:
    first = failed(merchant_reference=None)
    operation = rows.operation(operation="create_payout", state=state, idempotency_key=f"again-{first.pk}-1")
    assert operation.pk in str(boss.get(address(first)).context["warning"])
    assert operation.pk in page(boss, url("payout", "change", first.pk))


def test_users_who_only_view_are_told_of_no_button_and_given_no_link(
    staff: Callable[..., Client], service: Services
) -> None:
    first, client = failed(merchant_reference=None), staff("view_payout")
    assert "Pay again" not in page(client, url("payout", "change", first.pk))
    operation = rows.operation(operation="create_payout", state="unknown", idempotency_key=f"again-{first.pk}-1")
    shown = page(client, url("payout", "change", first.pk))
    assert operation.pk in shown
    assert url("operation", "change", operation.pk) not in shown


@pytest.mark.parametrize("status", ["created", "processing", "on_hold", "succeeded", "quarked"])
def test_a_later_payout_with_the_same_reference_stands_in_the_way(
    boss: Client, service: Services, status: str
) -> None:
    first = failed()
    form = form_of(boss, first)
    for other in (
        {"merchant_reference": "invoice-8"}, {"account": "second"}, {"status": "failed"}, {"status": "canceled"},
        {"created_at": first.created_at - timedelta(days=1)}, {"refund_id": "ref_1"}, {"destination": OTHER},
    ):  # fmt: skip
        rows.payout(**{"merchant_reference": "invoice-7", "status": status, **other})
    assert reviewed(boss, form)
    # Made by other code, after the review.
    later = rows.payout(merchant_reference="invoice-7", status=status)
    for step in ("confirm", "review"):
        errors = boss.post(reverse(ADD), {**form, "step": step}).context["form"].errors
        assert later.pk in str(errors["__all__"]), step
    assert later.pk in str(boss.get(address(first)).context["warning"])
    assert service.calls == []


@pytest.mark.parametrize("state", ["due", "unknown", "needs_person", "awaiting_approval"])
def test_an_open_request_with_the_same_reference_stands_in_the_way(
    boss: Client, service: Services, state: str
) -> None:
    first = failed()
    form = form_of(boss, first)
    same = {"operation": "create_payout", "state": state, "merchant_reference": "invoice-7", "currency": "CLP"}
    rows.operation(**same, arguments={"destination": OTHER})
    assert reviewed(boss, form)
    asked = rows.operation(**same)
    assert asked.pk in str(boss.post(reverse(ADD), {**form, "step": "confirm"}).context["form"].errors)
    Operation.objects.update(state="closed")
    assert boss.post(reverse(ADD), {**form, "step": "confirm"}).status_code == 302


@pytest.mark.promise(5)
@pytest.mark.parametrize(
    "corrected",
    [
        {"holder_document": {"type": "NIT", "number": "12345678"}},
        {**OTHER, "holder_document": {"type": "RUT", "number": None}},
        {**OTHER, "holder_document": {"type": "RUT", "number": ""}},
        {**OTHER, "holder_name": None},
    ],
    ids=["document without its check digit", "null document", "empty document", "null name"],
)
def test_a_request_with_a_corrected_recipient_stands_in_the_way(
    boss: Client, service: Services, corrected: dict[str, Any]
) -> None:
    first = failed()
    destination = {**DESTINATION, "account_number": "000999", **corrected}
    asked = rows.operation(
        operation="create_payout", state="awaiting_approval", merchant_reference="invoice-7", currency="CLP",
        arguments={"destination": destination},
    )  # fmt: skip
    assert asked.pk in str(boss.get(address(first)).context["warning"])
    Operation.objects.update(state="closed")
    rows.payout(merchant_reference="invoice-7", status="succeeded", destination=destination)
    assert "A later payout" in str(boss.get(address(first)).context["warning"])


def test_the_review_reads_the_first_payout_again(
    boss: Client, service: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirror may be old."""
    first = failed()
    form = form_of(boss, first)

    def refresh(row: Payout) -> Payout:
        row.status = "succeeded"
        row.save()
        return row

    monkeypatch.setattr(services, "refresh", refresh)
    response = boss.post(reverse(ADD), {**form, "step": "review"})
    assert "“succeeded”" in str(response.context["form"].errors["__all__"])
    assert boss.post(reverse(ADD), {**form, "step": "confirm"}).status_code == 200
    assert service.calls == []


def test_recently_used_recipients_are_chosen_with_one_click(boss: Client, service: Services) -> None:
    used = rows.payout(destination=DESTINATION, status="succeeded")
    older = rows.payout(destination={**DESTINATION, "account_number": "000999"}, created_at=rows.AT)
    rows.payout(destination=DESTINATION, status="succeeded", created_at=rows.AT)  # the same once more
    for fields in (
        {"erased_at": rows.AT}, {"refund_id": "ref_1"}, {"status": "failed"}, {"status": "returned"},
        {"account": "gone"}, {"destination": None}, {"destination": {"type": "wallet", "account_number": "7"}},
    ):  # fmt: skip
        other = {**DESTINATION, "account_number": "000555", "holder_name": "<Never>"}
        rows.payout(**{"destination": other, **fields})
    response = boss.get(reverse(ADD))
    assert response.context["recipients"] == [
        ("Ana Pérez · 001 · 000123 · CLP", f"?recipient={used.pk}"),
        ("Ana Pérez · 001 · 000999 · CLP", f"?recipient={older.pk}"),
    ]
    form = boss.get(f"{reverse(ADD)}?recipient={used.pk}").context["form"]
    filled = {name: form[name].value() for name in form.fields if form[name].value()}
    assert filled.pop("idempotency_key").startswith("admin-")
    left_to_type = {"amount", "merchant_reference", "idempotency_key"}
    assert filled == {name: value for name, value in FORM.items() if name not in left_to_type}
    # A form with an error keeps what was typed; a click would lose it.
    assert boss.post(reverse(ADD), {**FORM, "amount": ""}).context["recipients"] == []


@pytest.mark.promise(7)
def test_recipients_are_suggested_to_users_who_may_see_them(staff: Callable[..., Client], service: Services) -> None:
    used = rows.payout(destination=DESTINATION)
    assert "000123" in page(staff(*ALL), reverse(ADD))
    for codenames in (("create_payout", "view_personal_data"), ("create_payout", "view_payout")):
        client = staff(*codenames)
        for where in (reverse(ADD), f"{reverse(ADD)}?recipient={used.pk}"):
            html = page(client, where)
            assert "000123" not in html, (codenames, where)
            assert "Ana Pérez" not in html, (codenames, where)


def test_only_recipients_of_payouts_that_a_projects_list_shows_are_suggested(
    boss: Client, service: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    def limited(self: Any, request: Any) -> Any:
        return admin.ModelAdmin.get_queryset(self, request).filter(method_code="theirs")

    used = rows.payout(destination=DESTINATION)
    payment = rows.payment(country=used.country, currency=used.currency, method_family="bank_transfer")
    refund = reverse("admin:payments_integration_payment_refund", args=[payment.pk])
    places = (reverse(ADD), f"{reverse(ADD)}?recipient={used.pk}", f"{reverse(ADD)}?again={used.pk}")
    assert all("000123" in page(boss, where) for where in places)
    assert boss.get(refund).context["banks"]
    monkeypatch.setattr(type(admin.site.get_model_admin(Payout)), "get_queryset", limited)
    for where in places:
        assert "000123" not in page(boss, where), where
    assert boss.get(reverse(ADD)).context["methods"] == boss.get(reverse(ADD)).context["banks"] == []
    assert boss.get(refund).context["banks"] == []


def test_few_recipients_are_suggested(boss: Client, service: Services) -> None:
    for number in range(12):
        status = "failed" if number % 3 else "succeeded"
        rows.payout(destination={**DESTINATION, "account_number": f"{number}"}, status=status)
    assert len(boss.get(reverse(ADD)).context["recipients"]) == 4
    for number in range(12):
        rows.payout(destination={**DESTINATION, "account_number": f"9{number}"})
    assert len(boss.get(reverse(ADD)).context["recipients"]) == 8


@pytest.mark.parametrize(
    "query", ["again=pout_absent", "recipient=pout_absent", "again=%00", "recipient=%00", "again="]
)
def test_an_unknown_payout_gives_an_empty_form(boss: Client, service: Services, query: str) -> None:
    form = boss.get(f"{reverse(ADD)}?{query}").context["form"]
    assert form.initial.keys() == {"idempotency_key"}


def test_a_payout_that_was_paid_again_says_so_first(boss: Client) -> None:
    first = rows.payout(status="returned", merchant_reference="invoice-7")
    made = rows.payout(status="succeeded", merchant_reference="invoice-7")
    operation = rows.operation(
        operation="create_payout", result_kind="payout", result_id=made.pk, idempotency_key=again_key(first.pk, 1)
    )
    html = page(boss, url("payout", "change", first.pk))
    words = f"Paid again at {display.moment(operation.created_at)}: succeeded →"
    assert f'<a href="{url("payout", "change", made.pk)}">{words}</a>' in html
    assert ">Pay again<" not in html
    assert "press “Pay again”" not in html


@pytest.mark.case(83)
@pytest.mark.promise(5)
@pytest.mark.django_db(transaction=True)
def test_after_a_temporary_refusal_all_tabs_still_pay_once(payments_sandbox: ProviderSandbox) -> None:
    payout = services.create_payout(
        amount=1500, currency="CLP", country="CL", method_code="cl_bank_transfer", destination=DESTINATION,
        merchant_reference="invoice-7",
    )  # fmt: skip
    payments_sandbox.engine.fail_payout(payout.pk)
    payments_sandbox.settle()
    first = Payout.objects.get()
    ana, ben, eve = (browser(User.objects.create_superuser(name)) for name in ("ana", "ben", "eve"))
    tabs = [reviewed(person, form_of(person, first)) for person in (ana, ben)]
    payments_sandbox.engine.faults.add(Fault("rate_limited", operation="create_payout", retry_after=60, times=1))
    form = ana.post(reverse(ADD), tabs[0]).context["form"]
    assert form.errors
    assert form["idempotency_key"].value() == tabs[0]["idempotency_key"] == again_key(first.pk, 1)
    late = reviewed(eve, form_of(eve, first))
    again = {name: form[name].value() for name in form.fields if form[name].value() is not None}
    assert ana.post(reverse(ADD), reviewed(ana, again)).status_code == 302
    for person, tab in ((ben, tabs[1]), (eve, late), (ana, tabs[0])):
        person.post(reverse(ADD), tab)
    assert len(payments_sandbox.project.payouts) == 2
