"""A customer's own account to transfer to."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core import mail
from django.db import connection
from django.test import Client

from example_project.shop import deposits
from example_project.shop.models import DepositAccount, Order
from payments_integration import services
from payments_integration.models import DepositReference, Operation, Payment
from payments_integration.sandbox import Fault
from payments_integration.testing import ProviderSandbox

pytestmark = [pytest.mark.urls("example_project.urls"), pytest.mark.django_db(transaction=True)]

ANA = {"market": "CL-CLP", "name": "Ana Díaz", "email": "ana@example.com"}


def opened(browser: Client, **fields: str) -> DepositAccount:
    answer = browser.post("/deposits/", {**ANA, **fields})
    account = DepositAccount.objects.first()
    assert account is not None
    assert (answer.status_code, answer["Location"]) == (302, account.get_absolute_url())
    return account


def seen(browser: Client, account: DepositAccount) -> str:
    return browser.get(account.get_absolute_url()).content.decode()


def test_the_deposit_page_shows_the_details_and_the_deposits(shop: ProviderSandbox, browser: Client) -> None:
    account = opened(browser)
    reference = DepositReference.objects.get()
    assert (reference.merchant_reference, reference.currency) == (account.reference, "CLP")
    html = seen(browser, account)
    assert reference.details["reference"] in html
    assert reference.details["bank_transfer"]["account_number"] in html
    assert "Nothing yet" in html

    for amount in (25_000, 1_500):
        shop.engine.transfer(reference.pk, amount)
    shop.settle()
    html = seen(browser, account)
    assert "$25.000" in html
    assert "$1.500" in html
    assert "$26.500" in html
    assert account.get_absolute_url() in browser.get("/deposits/").content.decode()


@pytest.mark.promise(5)
def test_a_second_request_shows_the_same_account(shop: ProviderSandbox, browser: Client) -> None:
    first = opened(browser)
    assert opened(browser, email="ANA@Example.com", name="Ana D.") == first
    assert len(shop.engine.deposit_references) == 1
    other = opened(browser, market="BR-BRL")
    assert other != first
    assert len(shop.engine.deposit_references) == 2


@pytest.mark.promise(5)
def test_two_requests_at_once_create_one_account(shop: ProviderSandbox) -> None:
    def make(_: int) -> str:
        try:
            account, _is_new = deposits.open_account(name="Ana", email="a@b.cl", country="CL", currency="CLP")
            deposits.set_up(account)
            return account.reference
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as clicks:
        assert len(set(clicks.map(make, range(2)))) == 1
    assert len(shop.engine.deposit_references) == 1


@pytest.mark.promise(5)
def test_a_lost_answer_leaves_one_account(shop: ProviderSandbox, browser: Client) -> None:
    shop.engine.faults.add(Fault("reset", operation="create_deposit_reference", work=True))
    account = opened(browser)
    assert "is being set up" in seen(browser, account)
    Operation.objects.update(next_attempt_at=None)
    services.resume_operations()
    assert len(shop.engine.deposit_references) == 1
    assert DepositReference.objects.get().details["reference"] in seen(browser, account)


def test_a_refusal_can_be_tried_again(shop: ProviderSandbox, browser: Client) -> None:
    browser.post("/deposits/", {**ANA, "email": "first@example.com"})
    shop.engine.terms.unavailable_methods.add("cl_deposit")
    answer = browser.post("/deposits/", ANA)
    assert answer.status_code == 422
    assert "not available just now" in answer.content.decode()
    assert not DepositAccount.objects.filter(email=ANA["email"]).exists()
    shop.engine.terms.unavailable_methods.clear()
    opened(browser)


def test_a_market_without_deposits_is_explained(shop: ProviderSandbox, browser: Client) -> None:
    answer = browser.post("/deposits/", {**ANA, "market": "PE-USD"})
    assert "There are no such accounts there" in answer.content.decode()
    assert not DepositAccount.objects.exists()


def test_an_email_address_alone_does_not_show_an_account(
    shop: ProviderSandbox, browser: Client, stranger: Client
) -> None:
    account = opened(browser)
    for _ in range(2):
        html = stranger.post("/deposits/", {**ANA, "name": "Eve"}).content.decode()
        assert "You have an account already" in html
        assert account.reference not in html
    # One mail, however often somebody asks.
    assert [message.to for message in mail.outbox] == [["ana@example.com"]]
    assert account.get_absolute_url() in str(mail.outbox[0].body)
    assert account.reference not in stranger.get("/deposits/").content.decode()


def test_a_closed_account_is_not_paid_into(shop: ProviderSandbox, browser: Client) -> None:
    account = opened(browser)
    reference = DepositReference.objects.get()
    shop.engine.disable_deposit_reference(reference.pk)
    DepositReference.objects.update(synced_at=reference.created_at.replace(year=2020))
    html = seen(browser, account)
    assert "This account is closed" in html
    assert reference.details["reference"] not in html


def test_a_deposit_belongs_to_no_order(shop: ProviderSandbox, browser: Client) -> None:
    account = opened(browser)
    shop.engine.transfer(DepositReference.objects.get().pk, 5_990)
    shop.settle()
    assert Order.objects.of(Payment.objects.get()) is None
    assert DepositAccount.objects.of(Payment.objects.get()) == account
    assert browser.get("/deposits/ACC-0000/").status_code == 404
