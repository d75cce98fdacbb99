"""The payout page: its form, its review and the service call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.signals import got_request_exception
from django.test import Client
from django.urls import reverse
from django.views.debug import ExceptionReporter
from django.views.decorators.debug import sensitive_variables

from payments_integration import services
from payments_integration.enums import DocumentType
from payments_integration.exceptions import ApprovalRequired, InvalidState, NoAnswer, OutcomeUnknown
from payments_integration.models import Balance, Payout
from tests.factories import rows
from tests.unit.admin.conftest import page, url
from tests.unit.admin.flows.test_refund import hidden

pytestmark = pytest.mark.any_database

ADD = "admin:payments_integration_payout_add"
FORM = {
    "account": "default",
    "country": "CL",
    "currency": "CLP",
    "amount": "1500",
    "method_code": "cl_bank_transfer",
    "merchant_reference": "invoice-7",
    "holder_name": "Ana Pérez",
    "document_type": "RUT",
    "document_number": "12345678-5",
    "bank_code": "001",
    "account_number": "000123",
    "account_type": "checking",
    "idempotency_key": "k-1",
}


class Services:
    """Replaces the two services: records the calls, and answers or raises."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.asked: list[tuple[str, str]] = []
        self.error: Exception | None = None
        self.balance: Balance | Exception | None = None

    @sensitive_variables()
    def create_payout(self, **kwargs: Any) -> Payout:
        self.calls.append(kwargs)
        if self.error is not None:
            raise self.error
        return rows.payout(amount=kwargs["amount"], currency=kwargs["currency"])

    def payout_cover(self, currency: str, *, account: str = "default") -> Balance | None:
        self.asked.append((currency, account))
        if isinstance(self.balance, Exception):
            raise self.balance
        return self.balance


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, db: None) -> Services:
    stand_in = Services()
    stand_in.balance = rows.balance(currency="CLP", available=2_000, pending=30, reserve=40, hold=50, debt=0)
    monkeypatch.setattr(services, "create_payout", stand_in.create_payout)
    monkeypatch.setattr(services, "payout_cover", stand_in.payout_cover)
    return stand_in


def with_accounts(settings: Any, **accounts: str) -> None:
    """Replace the accounts. Each has an alias, and the configuration of an account of before."""
    before = settings.PAYMENTS_INTEGRATION["ACCOUNTS"]
    now = {alias: before[name] for alias, name in accounts.items()}
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": now}


def submit(client: Client, step: str = "confirm", **fields: Any) -> Any:
    return client.post(reverse(ADD), {**FORM, "step": step, **fields})


def test_opening_the_form_sends_no_request(boss: Client, service: Services) -> None:
    rows.payout(method_code="cl_<bank>", country="CL")
    html = page(boss, reverse(ADD))
    assert service.asked == []
    assert "24 hours" in html
    # Codes that were used before are offered, with their names.
    assert '<option value="cl_&lt;bank&gt;" label="&lt;bank&gt;" data-countries="CL">' in html
    assert 'list="pi-method-codes"' in html


def test_banks_are_suggested_to_those_who_may_see_bank_accounts(staff: Callable[..., Client]) -> None:
    account = {"type": "bank_account", "account_number": "000123", "holder_name": "Ana", "bank_code": "077"}
    rows.payout(country="CL", destination=account)
    for rights, sees in (
        (("create_payout", "view_payout", "view_personal_data"), True),
        (("create_payout", "view_payout"), False),
        (("create_payout",), False),
    ):
        html = page(staff(*rights), reverse(ADD))
        assert ('<option value="077" data-countries="CL">' in html) is sees, rights


def test_the_two_examples_of_an_amount_are_no_conversion(boss: Client, service: Services) -> None:
    html = page(boss, url("payout", "add"))
    assert "For example 1,234.50 (in CLP, which has no decimals: 1,234)." in html


def test_the_form_leads_back_to_the_list(boss: Client, staff: Callable[..., Client], service: Services) -> None:
    back = f'<a href="{url("payout", "changelist")}" class="pi-button">Back</a>'
    assert back in page(boss, url("payout", "add"))
    # The window of another page's form has no way to the list, nor have those who may not see it.
    assert back not in page(boss, f"{url('payout', 'add')}?_popup=1")
    assert back not in page(staff("create_payout"), url("payout", "add"))


def test_the_balance_is_beside_the_amount_from_the_start(boss: Client, service: Services) -> None:
    rows.balance(currency="USD", available=5_050)
    rows.balance(currency="PEN", available=7, gone_at=rows.AT)
    shown = boss.get(reverse(ADD)).context["form"]["amount"].help_text.replace("\xa0", " ")
    assert "CLP 2,000" in shown
    assert "USD 50.50" in shown
    assert "PEN" not in shown
    Balance.objects.update(gone_at=rows.AT)
    assert "Available: not known" in page(boss, reverse(ADD))
    assert service.asked == []


def test_balances_are_for_those_who_may_view_them(staff: Callable[..., Client], service: Services) -> None:
    for rights, sees in ((("create_payout",), False), (("create_payout", "view_balance"), True)):
        html = page(staff(*rights), reverse(ADD))
        assert ("CLP\xa02,000" in html) is sees, rights


def test_the_title_says_how_much_and_to_whom(boss: Client, service: Services) -> None:
    assert "<h1>New payout</h1>" in page(boss, reverse(ADD))
    html = submit(boss, "review").content.decode().replace("\xa0", " ")
    assert "<h1>Send CLP 1,500 to Ana Pérez</h1>" in html
    assert "<title>Send CLP 1,500 to Ana Pérez | " in html
    html = submit(boss, "review", amount="x", holder_name="<b>").content.decode()
    assert "<h1>New payout to &lt;b&gt;</h1>" in html


def test_the_review_shows_every_value_and_sends_nothing(boss: Client, service: Services) -> None:
    html = submit(boss, "review").content.decode()
    assert service.asked == [("CLP", "default")]
    assert service.calls == []
    for words in (
        "CLP\xa01,500 will be sent to Ana Pérez (RUT 12345678-5), account 000123 at bank 001.",
        "Available", "CLP\xa02,000", "CLP\xa030", "CLP\xa040", "CLP\xa050", "CLP\xa00",
        "Available afterwards, before the fee", "CLP\xa0500",
        "24 hours", "fee is added", "invoice-7", "cl_bank_transfer", "Chile", "checking",
        "Nothing has been sent yet.",
    ):  # fmt: skip
        assert words in html, words
    assert {name: value for name, value in hidden(html).items() if name in FORM} == FORM
    assert not LogEntry.objects.exists()


def test_the_reviewed_payout_is_sent_after_the_confirmation(boss: Client, service: Services) -> None:
    carried = hidden(submit(boss, "review").content.decode())
    response = boss.post(reverse(ADD), {**carried, "step": "confirm"})
    assert service.calls == [
        {
            "amount": 1500,
            "currency": "CLP",
            "country": "CL",
            "method_code": "cl_bank_transfer",
            "destination": {
                "type": "bank_account",
                "bank_code": "001",
                "account_type": "checking",
                "account_number": "000123",
                "holder_name": "Ana Pérez",
                "holder_document": {"type": "RUT", "number": "12345678-5"},
            },
            "merchant_reference": "invoice-7",
            "account": "default",
            "idempotency_key": "k-1",
            "actor": User.objects.get(),
        }
    ]
    made = Payout.objects.get()
    assert response.headers["Location"] == url("payout", "change", made.pk)
    assert "CLP\xa01,500" in page(boss, url("payout", "change", made.pk))
    entry = LogEntry.objects.get()
    assert (entry.object_id, made.pk in entry.get_change_message()) == (made.pk, True)


def test_going_back_to_change_keeps_the_typed_values(boss: Client, service: Services) -> None:
    response = submit(boss, "change", amount="12,x")
    form = response.context["form"]
    assert not form.errors
    assert {name: str(form[name].value()) for name in FORM} == {**FORM, "amount": "12,x"}
    assert (service.asked, service.calls) == ([], [])


def test_each_page_has_its_own_key(boss: Client, service: Services) -> None:
    keys = {boss.get(reverse(ADD)).context["form"]["idempotency_key"].value() for _ in range(2)}
    assert len(keys - {None, ""}) == 2


@pytest.mark.parametrize("step", ["review", "confirm"])
@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"amount": "1.500"}, "amount"),
        ({"amount": "15.00"}, "amount"),
        ({"amount": "0"}, "amount"),
        ({"amount": ""}, "amount"),
        ({"currency": "EUR"}, "currency"),
        ({"country": "DE"}, "country"),
        ({"account": "third"}, "account"),
        ({"method_code": " "}, "method_code"),
        ({"document_number": "12345678-0"}, "document_number"),
        ({"document_type": "XX"}, "document_type"),
        ({"account_number": ""}, "account_number"),
        ({"account_type": "x"}, "account_type"),
        ({"holder_name": ""}, "holder_name"),
        ({"idempotency_key": ""}, "idempotency_key"),
    ],
)
def test_errors_are_shown_at_their_fields(
    boss: Client, service: Services, step: str, wrong: dict[str, str], field: str
) -> None:
    response = submit(boss, step, **wrong)
    assert set(response.context["form"].errors) == {field}
    assert len(response.context["form"].errors[field]) == 1
    assert bool(service.asked) is (field not in {"account", "currency", "amount"})
    assert service.calls == []


@pytest.mark.parametrize(
    ("country", "kind", "number", "valid"),
    [
        ("EC", "RUC", "1792060346001", True),
        ("PE", "RUC", "1792060346001", False),
        ("PE", "RUC", "20512333797", True),
        ("EC", "RUC", "20512333797", False),
    ],
)
def test_a_document_is_validated_for_the_country(
    boss: Client, service: Services, country: str, kind: str, number: str, valid: bool
) -> None:
    response = submit(boss, "review", country=country, document_type=kind, document_number=number)
    assert ("document_number" not in response.context["form"].errors) is valid


def test_every_document_type_is_offered_with_its_countries(boss: Client, service: Services) -> None:
    field = boss.get(reverse(ADD)).context["form"].fields["document_type"]
    offered = dict(field.choices)
    assert set(offered) == {"", *DocumentType.values}
    assert offered["RUC"] == "RUC (Ecuador, Peru)"


def test_with_one_account_no_account_is_asked_for(boss: Client, service: Services, settings: Any) -> None:
    with_accounts(settings, only="second")
    form = boss.get(reverse(ADD)).context["form"]
    assert form["account"].is_hidden
    # The form carries it, and a form without it means it.
    for account in (form["account"].value(), ""):
        submit(boss, account=account)
    assert [call["account"] for call in service.calls] == ["only", "only"]


@pytest.mark.parametrize("step", ["review", "confirm"])
def test_an_account_of_another_process_is_not_replaced(
    boss: Client, service: Services, settings: Any, step: str
) -> None:
    """During a deployment: one process showed the form, and another with other accounts gets it."""
    form = hidden(submit(boss, "review", account="second").content.decode())
    with_accounts(settings, default="default")
    response = boss.post(reverse(ADD), {**form, "step": step})
    assert list(response.context["form"].errors) == ["account"]
    # The user sees which account is left.
    assert not response.context["form"]["account"].is_hidden
    assert "Select a valid choice." in response.content.decode()
    assert (service.asked[1:], service.calls) == ([], [])


def test_a_single_account_that_was_reviewed_is_not_replaced(boss: Client, service: Services, settings: Any) -> None:
    both = settings.PAYMENTS_INTEGRATION
    with_accounts(settings, default="default")
    account = hidden(page(boss, reverse(ADD)))["account"]
    form = hidden(submit(boss, "review", account=account).content.decode())
    settings.PAYMENTS_INTEGRATION = both
    with_accounts(settings, second="second")
    response = boss.post(reverse(ADD), {**form, "step": "confirm"})
    assert list(response.context["form"].errors) == ["account"]
    assert service.calls == []


def test_the_same_form_with_another_account_creates_no_second_payout(boss: Client, service: Services) -> None:
    """Keys are unique per account: the first form may have been sent with an unknown outcome."""
    rows.operation(account="second", idempotency_key=FORM["idempotency_key"])
    response = submit(boss, account="default")
    assert response.status_code == 302
    assert service.calls == []
    assert "already sent with other values" in boss.get(response["Location"]).content.decode()
    submit(boss, account="second")
    assert [call["account"] for call in service.calls] == ["second"], "the service has its answer"


def test_without_an_account_the_page_says_so(boss: Client, settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": {}}
    for step in ("review", "confirm"):
        assert "no account" in submit(boss, step).context["form"].errors["__all__"][0]


@pytest.mark.parametrize("available", [1_499, 0])
def test_an_insufficient_balance_is_refused_before_anything_is_sent(
    boss: Client, service: Services, available: int
) -> None:
    assert isinstance(service.balance, Balance)
    service.balance.available = available
    response = submit(boss, "review")
    assert list(response.context["form"].errors) == ["amount"]
    html = response.content.decode()
    assert f"Only CLP\xa0{available:,} is available." in html
    # With the figures it is about, and what was typed.
    assert "Balance, read just now" in html
    assert 'value="000123"' in html
    assert service.calls == []


def test_too_much_is_refused_at_once_beside_other_mistakes(boss: Client, service: Services) -> None:
    response = submit(boss, "review", amount="2001", holder_name="")
    assert response.context["form"].errors["amount"] == ["Only CLP\xa02,000 is available."]
    assert "holder_name" in response.context["form"].errors
    # Another account or currency has another balance.
    for wrong in ({"account": "unknown"}, {"currency": ""}):
        service.asked.clear()
        submit(boss, "review", amount="2001", **wrong)
        assert service.asked == []


def test_a_debt_is_shown(boss: Client, service: Services) -> None:
    assert isinstance(service.balance, Balance)
    service.balance.debt = 1
    response = submit(boss, "review")
    assert "while there is a debt" in response.context["form"].errors["__all__"][0]
    assert service.calls == []


def test_a_missing_balance_in_the_currency_is_shown(boss: Client, service: Services) -> None:
    service.balance = None
    assert "lists no balance in this currency" in submit(boss, "review").content.decode()


def test_a_balance_that_cannot_be_read_stops_the_payout(boss: Client, service: Services) -> None:
    service.balance = NoAnswer("timeout")
    response = submit(boss, "review")
    assert "no usable answer" in response.context["form"].errors["__all__"][0]
    # Nothing in the form is wrong, unless one of its fields is.
    assert b"correct the error" not in response.content
    assert b"correct the error" in submit(boss, "review", holder_name="").content


def test_the_review_says_that_another_person_must_approve(boss: Client, service: Services, settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "APPROVAL_LIMITS": {"CLP": 1500}}
    words = "another person must approve it"
    html = submit(boss, "review").content.decode()
    assert words in html
    assert 'value="confirm">Ask for approval</button>' in html
    assert words not in submit(boss, "review", amount="1499").content.decode()


def test_the_button_that_asks_for_approval_never_sends(boss: Client, service: Services, settings: Any) -> None:
    """During a deployment that removes the limit: another process gets the confirmation."""
    without = settings.PAYMENTS_INTEGRATION
    settings.PAYMENTS_INTEGRATION = {**without, "APPROVAL_LIMITS": {"CLP": 1500}}
    form = hidden(submit(boss, "review").content.decode())
    settings.PAYMENTS_INTEGRATION = without
    shown = boss.post(reverse(ADD), {**form, "step": "confirm"}).content.decode()
    assert 'value="confirm">Send CLP\xa01,500</button>' in shown
    assert service.calls == []
    assert boss.post(reverse(ADD), {**hidden(shown), "step": "confirm"}).status_code == 302
    assert len(service.calls) == 1


@pytest.mark.parametrize(
    ("argument", "message", "field"),
    [
        ("amount", "Not covered.", "amount"),
        ("currency", "Unknown.", "currency"),
        ("method_code", "Too long.", "method_code"),
        ("merchant_reference", "Too long.", "merchant_reference"),
        ("destination", "account_number: Too long.", "account_number"),
        ("destination", "It has an unknown key.", "__all__"),
        ("metadata", "No.", "__all__"),
    ],
)
def test_errors_of_the_service_are_shown_at_their_fields(
    boss: Client, service: Services, argument: str, message: str, field: str
) -> None:
    service.error = ValidationError({argument: [message]})
    response = submit(boss)
    assert response.context["form"].errors == {field: [message.split(": ")[-1]]}
    assert not LogEntry.objects.exists()


def test_after_a_refusal_the_form_has_a_new_key(boss: Client, service: Services) -> None:
    service.error = InvalidState("too little", status_code=422, code="insufficient_balance", request_id="req_42")
    response = submit(boss)
    html = response.content.decode()
    assert "insufficient_balance" in html
    assert "req_42" in html
    assert response.context["form"]["idempotency_key"].value() not in ("k-1", "", None)


@pytest.mark.parametrize(
    ("kind", "state", "words"),
    [(OutcomeUnknown, "unknown", "Do not repeat it"), (ApprovalRequired, "awaiting_approval", "must approve")],
)
def test_after_an_open_outcome_the_form_is_left(
    boss: Client, service: Services, kind: type[Any], state: str, words: str
) -> None:
    operation = rows.operation(operation="create_payout", state=state)
    service.error = kind(operation)
    response = submit(boss)
    assert response.headers["Location"] == url("payout", "changelist")
    [message] = boss.get(url("operation", "change", operation.pk)).context["messages"]
    assert words in str(message)
    assert f'href="{url("operation", "change", operation.pk)}"' in str(message)
    assert LogEntry.objects.get().object_id == operation.pk


def test_a_permission_error_of_the_service_is_a_403(boss: Client, service: Services) -> None:
    service.error = PermissionDenied()
    assert submit(boss).status_code == 403


def test_sending_a_payout_does_not_need_the_permission_to_view_payouts(
    staff: Callable[..., Client], service: Services
) -> None:
    client = staff("create_payout")
    assert page(client, reverse(ADD))
    assert submit(client).headers["Location"] == reverse("admin:index")
    # The list of the index leads here, and only here.
    index = page(client, reverse("admin:index"))
    assert reverse(ADD) in index
    assert f'href="{url("payout", "changelist")}"' not in index


def test_the_list_links_to_the_page_with_the_permission(boss: Client, staff: Callable[..., Client]) -> None:
    html = page(boss, url("payout", "changelist"))
    assert "New payout" in html
    assert f'href="{reverse(ADD)}"' in html
    assert reverse(ADD) not in page(staff("view_payout"), url("payout", "changelist"))
    assert staff("view_payout", "add_payout", "change_payout").get(reverse(ADD)).status_code == 403


def test_in_a_popup_the_new_payout_is_returned_to_the_opener(boss: Client, service: Services) -> None:
    assert 'name="_popup"' in page(boss, reverse(ADD) + "?_popup=1")
    html = submit(boss, "review", _popup="1", _to_field="id").content.decode()
    assert hidden(html)["_popup"] == "1"
    assert hidden(html)["_to_field"] == "id"
    html = submit(boss, _popup="1", _to_field="id").content.decode()
    assert Payout.objects.get().pk in html
    assert "popup_response.js" in html
    assert submit(boss, _popup="1", _to_field="destination").status_code == 400
    assert len(service.calls) == 1


@pytest.mark.case(85)
def test_error_reports_do_not_contain_the_bank_account(boss: Client, service: Services) -> None:
    reports: list[str] = []

    def report(request: Any, **kwargs: Any) -> None:
        reporter = ExceptionReporter(request, *sys.exc_info())
        reports.append(reporter.get_traceback_html() + reporter.get_traceback_text())

    service.error = RuntimeError("a bug")
    service.balance = RuntimeError("a bug")
    got_request_exception.connect(report)
    try:
        for step in ("review", "confirm"):
            with pytest.raises(RuntimeError):
                submit(boss, step)
    finally:
        got_request_exception.disconnect(report)
    for shown in reports:
        assert "a bug" in shown
        assert "000123" not in shown
        assert "12345678-5" not in shown
        assert "Ana" not in shown
