"""What pages say of accounts: their names, and a badge for those with a test key."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import translation

from payments_integration import checkout, services
from tests.factories import rows
from tests.unit.admin.conftest import page, url

pytestmark = [pytest.mark.django_db, pytest.mark.case(145), pytest.mark.any_database]

BASE = {"BASE_URL": "http://127.0.0.1:9"}
BADGE = re.compile(r'<p class="pi-test"><strong>TEST</strong>\s*(.*?)</p>', re.DOTALL)


@pytest.fixture
def accounts(settings: Any) -> Any:
    def configure(**accounts: dict[str, Any]) -> None:
        settings.PAYMENTS_INTEGRATION = {
            "ACCOUNTS": {alias: {**BASE, "API_KEY": f"sk_live_{alias}", **more} for alias, more in accounts.items()}
        }

    return configure


def badges(text: str) -> list[str]:
    return [" ".join(words.split()) for words in BADGE.findall(text)]


def places() -> list[str]:
    return [
        reverse("admin:app_list", args=["payments_integration"]),
        url("reconciliationrun", "technical"),
        url("payment", "changelist"),
        url("payment", "change", rows.payment(account="default").pk),
    ]


@pytest.mark.parametrize(("key", "shown"), [("sk_test_1", ["no real money moves"]), ("sk_live_1", [])])
def test_a_test_key_shows_on_every_page_once(boss: Client, accounts: Any, key: str, shown: list[str]) -> None:
    accounts(default={"API_KEY": key})
    for address in places():
        assert badges(page(boss, address)) == shown, address


def test_a_list_of_several_accounts_names_those_with_a_test_key(boss: Client, accounts: Any) -> None:
    accounts(default={}, br={"API_KEY": "sk_test_br", "NAME": "Brazil"})
    assert badges(page(boss, url("payment", "changelist"))) == ["Brazil: no real money moves"]
    assert badges(page(boss, url("payment", "change", rows.payment(account="default").pk))) == []
    assert badges(page(boss, url("payment", "change", rows.payment(account="br").pk))) == ["no real money moves"]
    overview = reverse("admin:app_list", args=["payments_integration"])
    assert badges(page(boss, f"{overview}?account=br")) == ["no real money moves"]
    assert badges(page(boss, f"{overview}?account=default")) == []


@pytest.mark.parametrize(("key", "is_shown"), [("sk_test_1", True), ("sk_live_1", False)])
@pytest.mark.parametrize(("language", "word"), [("en", "TEST"), ("es", "PRUEBA"), ("pt-br", "TESTE")])
def test_a_payer_sees_it_too(accounts: Any, key: str, is_shown: bool, language: str, word: str) -> None:
    accounts(default={"API_KEY": key})
    payment = rows.payment(account="default", merchant_reference="order-1")
    with translation.override(language):
        address = urlsplit(checkout.status_url(RequestFactory().get("/"), payment)).path
        shown = Client().get(address).content.decode()
    assert (f"<strong>{word}</strong>" in shown) is is_shown


def test_pages_call_an_account_by_its_name(boss: Client, accounts: Any) -> None:
    accounts(default={"NAME": "Shop Chile"}, br={"NAME": "Shop Brazil"})
    payment = rows.payment(account="br")
    listed = page(boss, url("payment", "changelist"))
    assert re.search(r'<td class="field-account[^"]*">Shop Brazil</td>', listed)
    assert re.search(r"<a[^>]+account=br[^>]*>\s*Shop Brazil\s*</a>", listed), "the filter"
    assert "Shop Brazil" in page(boss, url("payment", "change", payment.pk))
    for address in (url("reconciliationrun", "technical"), reverse("admin:app_list", args=["payments_integration"])):
        shown = page(boss, address)
        assert re.search(r'<a href="\?account=br">Shop Brazil</a>', shown), address
    for address in (url("payout", "add"), url("webhookendpoint", "add"), url("payment", "methods")):
        assert '<option value="br">Shop Brazil</option>' in page(boss, address), address


def test_the_page_of_an_object_and_of_its_refund_say_whose_money_it_is(
    boss: Client, accounts: Any, nothing_called: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts(default={"NAME": "Shop Chile"}, br={"NAME": "Shop Brazil"})
    payment = rows.payment(
        account="br", status="succeeded", amount_received=1050, method_family="card", method_code="br_card"
    )
    for row in (payment, rows.refund(payment=payment, account="br"), rows.payout(account="br")):
        (line,) = re.findall(r'class="pi-headline">(.*?)</p>', page(boss, url(row._meta.model_name, "change", row.pk)))
        assert line.endswith("<span>Shop Brazil</span>")
    fact = re.compile(r'<th scope="row">Account at the provider</th><td>Shop Brazil</td>')
    form = url("payment", "refund", payment.pk)
    assert fact.search(page(boss, form))
    monkeypatch.setattr(services, "refundable", lambda *args, **kwargs: 1050)
    confirmation = boss.post(form, {"idempotency_key": "k", "amount": "5.50", "step": "review"}).content.decode()
    assert "will be sent back" in confirmation
    assert fact.search(confirmation)
    accounts(br={"NAME": "Shop Brazil"})
    assert "Shop Brazil" not in page(boss, url("payment", "change", payment.pk)).partition("pi-page")[0]
    assert not fact.search(page(boss, form))


def test_found_payments_and_selected_ones_say_whose_they_are(boss: Client, accounts: Any) -> None:
    accounts(default={"NAME": "Shop Chile"}, br={"NAME": "Shop Brazil"})
    paid = rows.payment(account="br", status="succeeded", amount_received=1050, method_family="card", id="pay_b")
    found, chosen = (f"{url('payment', 'search')}?q=pay_b", f"{url('payment', 'refund-selected')}?id={paid.pk}")
    for address in (found, chosen):
        assert "Shop Brazil" in page(boss, address).partition('id="content"')[2], address
    type(paid).objects.update(merchant_reference=None)
    assert "<td>Shop Brazil</td>" in page(boss, chosen)
    accounts(br={"NAME": "Shop Brazil"})
    for address in (found, chosen):
        assert "Shop Brazil" not in page(boss, address).partition('id="content"')[2], address


def test_the_rows_of_a_removed_account_are_listed_where_one_is_left(boss: Client, accounts: Any) -> None:
    """The to-do list links there. With one account a list offers no choice."""
    accounts(default={})
    kept, removed = rows.operation(account="default"), rows.operation(account="gone")
    address = url("operation", "changelist")
    html = page(boss, f"{address}?account=gone")
    assert url("operation", "change", removed.pk) in html
    assert url("operation", "change", kept.pk) not in html
    assert "By account" not in page(boss, address)


def test_the_list_is_sorted_by_the_account(boss: Client, accounts: Any) -> None:
    accounts(default={}, br={})
    listed = boss.get(url("reconciliationrun", "changelist"))
    assert "account" in [getattr(name, "__name__", name) for name in listed.context["cl"].list_display]
