"""Who may see a page: anyone with a token that we signed, until it expires."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import time_machine
from django.conf.urls.i18n import i18n_patterns
from django.core import signing
from django.http import Http404
from django.test import Client, RequestFactory, override_settings
from django.urls import include, path
from django.utils import timezone, translation

from payments_integration.payer import links
from payments_integration.payer.links import Subject

SUBJECTS = [
    Subject("default", payment_id="pay_1"),
    Subject("second", merchant_reference="order 1 \\ Ñ <b> / ?#"),
    Subject("default", merchant_reference="漢" * 255),
]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_token_returns_its_subject(subject: Subject) -> None:
    assert links.read_status_token(links.status_token(subject), max_age=60) == subject
    assert links.read_return_token(links.return_token(subject)) == subject


def read(token: str) -> list[Subject]:
    found = []
    for reader in (lambda: links.read_status_token(token, max_age=60), lambda: links.read_return_token(token)):
        try:
            found.append(reader())
        except Http404:
            continue
    return found


@pytest.mark.parametrize("make", [links.status_token, links.return_token])
def test_a_changed_token_is_invalid(make: Any) -> None:
    token = make(SUBJECTS[0])
    assert len(read(token)) == 1  # neither kind is taken for the other
    for place, char in enumerate(token):
        assert read(f"{token[:place]}{'A' if char != 'A' else 'B'}{token[place + 1 :]}") == [], place
    for changed in (
        "",
        ":",
        "::",
        "x",
        token[:-1],
        f"{token}x",
        f"{token}:",
        token.rpartition(":")[0],
        "\ud800",
        "\x00",
    ):
        assert read(changed) == [], changed


def test_a_text_signed_for_another_purpose_is_not_a_token() -> None:
    content = ["default", "pay_1", ""]
    for token in (
        signing.dumps(content),
        signing.dumps(content, salt="payments_integration.checkout"),
        signing.dumps(content, key="another key of another site", salt="payments_integration.checkout.status"),
        signing.dumps("pay_1", salt="payments_integration.checkout.status"),
        signing.dumps(None, salt="payments_integration.checkout.status"),
    ):
        assert read(token) == []


def test_a_status_token_expires() -> None:
    # A token holds the whole second of its making, and ages from there.
    with time_machine.travel(timezone.now().replace(microsecond=0), tick=False) as clock:
        token = links.status_token(SUBJECTS[0])
        clock.shift(60)
        assert links.read_status_token(token, max_age=60) == SUBJECTS[0]
        clock.shift(1)
        with pytest.raises(Http404):
            links.read_status_token(token, max_age=60)


def test_a_return_token_is_the_same_each_time() -> None:
    token = links.return_token(SUBJECTS[1])
    with time_machine.travel(timezone.now() + timedelta(days=3)):
        assert links.return_token(SUBJECTS[1]) == token


def test_a_token_signed_with_a_fallback_key_is_valid() -> None:
    made = links.status_token(SUBJECTS[0]), links.return_token(SUBJECTS[0])
    old = "test-secret-key-that-is-long-enough-for-the-checks-0123456789"
    with override_settings(SECRET_KEY="new" * 20, SECRET_KEY_FALLBACKS=[old]):
        assert [read(token) for token in made] == [[SUBJECTS[0]], [SUBJECTS[0]]]
    with override_settings(SECRET_KEY="new" * 20):
        assert [read(token) for token in made] == [[], []]


class InLanguages:
    urlpatterns = i18n_patterns(path("payments/", include("payments_integration.urls")))


@pytest.mark.django_db
@pytest.mark.case(141)
@pytest.mark.parametrize(("active", "begins"), [("es", "es-cl"), ("pt-br", "en"), ("en", "en"), (None, "en")])
def test_an_address_is_in_a_language_of_the_site(
    active: str | None, begins: str, settings: Any, rf: RequestFactory, client: Client
) -> None:
    """Such as one that a project puts into a mail, which it writes in the payer's language."""
    settings.ROOT_URLCONF = InLanguages
    settings.LANGUAGES = [("es-cl", "Español"), ("en", "English")]
    settings.LANGUAGE_CODE = "en"
    settings.MIDDLEWARE = ["django.middleware.locale.LocaleMiddleware"]
    with translation.override(active):
        addresses = [make(rf.get("/"), "order-1") for make in (links.status_url, links.return_url)]
    for address, status in zip(addresses, (200, 302), strict=True):
        assert address.startswith(f"http://testserver/{begins}/payments/checkout/")
        assert client.get(address).status_code == status


@pytest.mark.case(131)
@pytest.mark.parametrize("reference", [UUID("9f0f7d0c-55c1-4c0e-8a3e-2f1d1d3b6a10"), 7, None], ids=str)
@pytest.mark.parametrize("make", [links.return_url, links.status_url])
def test_a_reference_that_is_not_text_is_refused_with_what_to_pass(
    rf: RequestFactory, make: Any, reference: Any
) -> None:
    with pytest.raises(
        TypeError, match=r"merchant_reference is a text, not \w+: pass str\(…\), as for create_payment"
    ):
        make(rf.get("/"), reference)
