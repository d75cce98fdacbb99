"""Who may see a page: anyone with a token that we signed, until it expires."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.core import signing
from django.test import override_settings
from django.utils import timezone

from payments_integration.checkout import links
from payments_integration.checkout.links import InvalidToken, Subject

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
        except InvalidToken:
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
        with pytest.raises(InvalidToken):
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
