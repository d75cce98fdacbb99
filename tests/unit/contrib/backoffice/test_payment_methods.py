"""The page of payment methods: a form, and the provider's list after a POST."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import connection
from django.test import Client
from django.urls import reverse

from payments_integration import schemas, services
from payments_integration.contrib.backoffice.admin import payment_methods
from payments_integration.exceptions import NoAnswer
from tests.factories import rows
from tests.unit.admin.conftest import browser, page, url

pytestmark = pytest.mark.any_database


def address() -> str:
    return reverse("admin:payments_integration_payment_methods")


def sent(client: Client, **form: str) -> Any:
    return client.post(address(), {"account": "default", **form})


def listing(monkeypatch: pytest.MonkeyPatch, *methods: schemas.PaymentMethod) -> list[dict[str, Any]]:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(services, "list_payment_methods", lambda **kwargs: asked.append(kwargs) or list(methods))
    return asked


def test_the_list_of_payments_links_to_payment_methods(boss: Client) -> None:
    assert f'href="{address()}"' in page(boss, url("payment", "changelist"))


@pytest.mark.case(88)
def test_payment_methods_need_the_permission_to_view_payments_and_a_post(
    staff: Callable[..., Client], boss: Client, nothing_called: list[str]
) -> None:
    outsider = staff("view_payout", "view_operation", "refund_payment")
    for method in ("get", "post"):
        assert getattr(outsider, method)(address(), {"country": "CL"}).status_code == 403
        assert getattr(Client(), method)(address(), {"country": "CL"}).status_code == 302
    assert boss.get(address(), {"country": "CL"}).status_code == 200
    assert boss.put(address()).status_code == 405
    assert Client(enforce_csrf_checks=True).post(address()).status_code in (302, 403)
    assert nothing_called == []


@pytest.mark.case(80)
def test_listing_payment_methods_needs_a_csrf_token(db: None, nothing_called: list[str]) -> None:
    client = browser(User.objects.create_superuser("boss"), enforce_csrf_checks=True)
    assert client.post(address()).status_code == 403
    assert nothing_called == []


def test_payment_methods_are_shown_as_the_provider_sends_them(
    staff: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = listing(
        monkeypatch,
        schemas.PaymentMethod(code="cl_card", extra={"name": rows.ODD, "uses": ["payment"], "min_amount": 1}),
        schemas.PaymentMethod(code="cl_new", extra={"name": None, "logo": "javascript:alert(1)"}),
    )
    response = sent(staff("view_payment"), country="CL", currency="")
    html = response.content.decode()
    assert asked == [{"country": "CL", "account": "default"}]
    for words in ("cl_card", "cl_new", "uses", "[&quot;payment&quot;]", "javascript:alert(1)", "Ñandú 漢字"):
        assert words in html
    assert "<script>alert" not in html
    assert 'href="javascript' not in html


def test_further_fields_are_in_one_column(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {f"field{number}": number for number in range(payment_methods.MAX_COLUMNS + 2)}
    listing(monkeypatch, schemas.PaymentMethod(code="cl_card", extra=extra))
    html = sent(boss).content.decode()
    assert html.split("pi-section")[1].count('<th scope="col"') == 1 + payment_methods.MAX_COLUMNS
    assert f"field{payment_methods.MAX_COLUMNS + 1}" in html


def test_a_long_list_of_payment_methods_is_cut(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [schemas.PaymentMethod(code=f"m{number}") for number in range(payment_methods.MAX_ROWS + 3)]
    listing(monkeypatch, *many)
    html = sent(boss).content.decode()
    assert "3 more are not shown" in html
    assert f"<td>m{payment_methods.MAX_ROWS}</td>" not in html


def test_an_empty_list_of_payment_methods_is_shown_as_none(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    listing(monkeypatch)
    assert "None." in sent(boss).content.decode()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NoAnswer("timeout"), "no usable answer"),
        (schemas.WireError("code is missing"), "code is missing"),
        (ValidationError({"country": ["Not this one."]}), "Not this one."),
        (ValidationError({"amount": ["Not that one."]}), "Not that one."),
    ],
)
def test_a_failure_is_shown(boss: Client, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str) -> None:
    def refuse(**kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(services, "list_payment_methods", refuse)
    response = sent(boss, country="CL")
    assert response.status_code == 200
    assert words in response.content.decode()
    assert "None." not in response.content.decode()


def test_values_that_are_not_offered_are_not_sent(boss: Client, nothing_called: list[str]) -> None:
    response = sent(boss, country="ZZ")
    assert response.context["form"].errors
    assert nothing_called == []


def test_with_several_accounts_one_is_chosen(boss: Client, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PAYMENTS_INTEGRATION = {
        "ACCOUNTS": {
            name: {"BASE_URL": "https://api.example", "API_KEY": f"sk_test_{name}"} for name in ("default", "second")
        }
    }
    asked = listing(monkeypatch)
    sent(boss, account="second")
    assert asked == [{"account": "second"}]
    assert sent(boss, account="third").context["form"].errors


def test_a_single_account_is_not_shown_and_no_other_is_replaced_by_it(
    boss: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = {"BASE_URL": "https://api.example", "API_KEY": "sk_test_only"}
    settings.PAYMENTS_INTEGRATION = {"ACCOUNTS": {"only": account}}
    asked = listing(monkeypatch)
    html = page(boss, address())
    assert '<input type="hidden" name="account" value="only"' in html
    assert "Account:" not in html
    assert "account" in sent(boss, account="second").context["form"].errors
    for given in ("only", ""):
        sent(boss, account=given)
    assert asked == [{"account": "only"}] * 2


@pytest.mark.django_db(transaction=True)
def test_payment_methods_of_the_sandbox_are_listed(payments_sandbox: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    client = browser(User.objects.create_superuser("boss"))
    html = sent(client, country="CL", currency="CLP").content.decode()
    assert "cl_webpay_card" in html
    assert "br_" not in html
