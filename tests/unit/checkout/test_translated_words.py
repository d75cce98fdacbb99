"""Every word that a payer reads can be translated: in a language of which each message is marked, none is without."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import translation

from payments_integration.enums import PaymentStatus
from payments_integration.next_action import ActionType
from payments_integration.payer import links
from payments_integration.payer.links import Subject
from tests import translations
from tests.factories import checkout as rows
from tests.marked import mark_every_message, unmarked
from tests.unit.checkout.conftest import Page, shown
from tests.unit.checkout.test_actions import TYPES, action, full


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> None:
    mark_every_message(monkeypatch)


@pytest.mark.usefixtures("marked")
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("value", ["", "77", "https://1.2/", "javascript:"])
def test_every_word_of_an_action_is_translatable(kind: str, value: str) -> None:
    for payment in (rows.unsaved(next_action=full(kind, value)), rows.unsaved(next_action={"type": kind}, amount=0)):
        html = shown(payment)
        assert "⟦" in html
        texts = Page(html).text.replace("javascript:", "").replace("https:", "")
        assert unmarked(texts.replace("CLP", "")) == []


@pytest.mark.usefixtures("marked")
def test_words_for_the_script_and_screen_readers_are_translatable() -> None:
    payment = rows.unsaved(next_action=action("qr", expires_at="2096-03-04T05:06:07Z"))
    page = Page(shown(payment))
    [time] = page.all("time")
    assert unmarked(time["data-payments-left"]) == unmarked(time["data-payments-over"]) == []
    assert {button["data-payments-copied"] for button in page.all("button")} == {"⟦Copied⟧"}


@pytest.mark.django_db
@pytest.mark.urls("tests.unit.checkout.urls")
@pytest.mark.usefixtures("marked")
@pytest.mark.parametrize("status", [*PaymentStatus.values, "99", None])
def test_every_word_of_the_status_page_is_translatable(client: Client, status: str | None) -> None:
    subject = Subject("default", merchant_reference="77")
    if status is not None:
        rows.payment(status=status, merchant_reference="77", amount_received=12_000, next_action={"type": "none"})
    kwargs = {"token": links.status_token(subject)}
    page = Page(client.get(reverse("payments_integration:checkout-status", kwargs=kwargs)).content.decode())
    assert "⟦Your payment⟧" in page.text
    assert unmarked(page.text.replace("CLP", "")) == []
    data = client.get(reverse("payments_integration:checkout-status-data", kwargs=kwargs)).json()
    assert unmarked((data["headline"] + data["message"]).replace("CLP", "")) == []


def test_a_placeholder_of_the_script_is_kept_in_every_language() -> None:
    """The script puts the time there."""
    for language in translations.LANGUAGES:
        with translation.override(language):
            html = shown({"type": ActionType.QR, "qr_payload": "1", "expires_at": "2096-03-04T05:06:07Z"})
        assert "{time}" in Page(html).all("time")[0]["data-payments-left"]
